//! The controller's decisions: metadata image and request in, records and response out. Pure: no clock, no file, no
//! random number that was not handed in. Nothing here changes state; replaying the records does.
//!
//! | module | what lives there |
//! |---|---|
//! | `create_topics`, `name`, `assignment`, `placement` | new topics: names, configurations, replicas |
//! | `auto_create` | topics that nobody asked for by CreateTopics |
//! | `create_partitions`, `delete_topics` | the rest of a topic's life |
//! | `alter_configs`, `config_records` | AlterConfigs and IncrementalAlterConfigs |
//! | `elect_leaders`, `reassignments` | who leads a partition, and which brokers have it |
//! | `unregister_broker` | brokers that will not come back |
//! | `unregister_controller` | controllers that will not come back |
//! | `update_features` | which levels the features of the cluster have |
//! | `producer_ids` | blocks of producer ids |
//! | `view`, `limits`, `error` | what decisions read, how much they may change, why something is refused |

mod alter_configs;
mod assignment;
mod auto_create;
mod config_records;
mod create_partitions;
mod create_topics;
mod delete_topics;
mod elect_leaders;
mod error;
mod limits;
mod name;
mod placement;
mod producer_ids;
mod reassignments;
mod repeated;
#[cfg(test)]
mod testing;
mod unregister_broker;
mod unregister_controller;
mod update_features;
mod view;

pub use alter_configs::{AlterOutcome, alter_configs, incremental_alter_configs};
pub use auto_create::{create_topics_automatically, is_internal};
pub use create_partitions::create_partitions;
pub use create_topics::create_topics;
pub use delete_topics::delete_topics;
pub use elect_leaders::{elect_leaders, refuse_elections};
pub use error::ApiError;
pub use limits::MAX_RECORDS;
pub use name::{MAX_NAME_LENGTH, validate_topic_name};
pub use producer_ids::{PRODUCER_ID_BLOCK, ProducerIdBlock, allocate_producer_ids};
pub use reassignments::{alter_partition_reassignments, list_partition_reassignments, refuse_reassignments};
pub use unregister_broker::{refuse_unregistration, unregister_broker};
pub use unregister_controller::{refuse_controller_unregistration, unregister_controller};
pub use update_features::{refuse_features, update_features};
pub use view::{Records, View};
