//! Kafka's configuration: definitions, files, environment, validation, description.
//!
//! | module | what lives there |
//! |---|---|
//! | [`definition`] | what a key is: type, default, validator, update mode; the catalogs read from `data/*.tsv` |
//! | [`value`], [`validator`] | text to typed value, Kafka's rules and messages |
//! | [`properties`], [`environment`], [`settings`] | `server.properties`, `KAFKA_*`, flags; who wins; nearest names |
//! | [`broker`] | the node's effective configuration with typed getters and its cross-checks |
//! | [`dynamic`] | which broker keys may change while the node runs, and to what |
//! | [`topic`], [`group`], [`client_metrics`], [`quota`], [`logger`] | the other resources' configurations |
//! | [`alter`] | SET, DELETE, APPEND, SUBTRACT as pure functions, for the controller |
//! | [`describe`] | the entries of DescribeConfigs, without the wire |
//! | [`documentation`] | one line per key, and the page `docs/configuration.md` |

pub mod alter;
pub mod broker;
pub mod client_metrics;
pub mod definition;
pub mod describe;
pub mod documentation;
pub mod dynamic;
pub mod environment;
mod error;
pub mod group;
pub mod logger;
pub mod properties;
pub mod quota;
pub mod settings;
mod suggest;
pub mod topic;
pub mod validator;
pub mod value;

pub use broker::BrokerConfig;
pub use error::{AlterError, ConfigError};
pub use settings::Settings;
pub use topic::TopicConfig;

/// Configuration names and raw values as they stand in a ConfigRecord: the overrides of one resource.
pub type Overrides = std::collections::BTreeMap<String, String>;
