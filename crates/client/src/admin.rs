//! Administration of a cluster: topics, configurations, groups and their offsets, transactions, log directories.
//!
//! [`Admin`] asks whom the question concerns, the controller, a partition's leader, a group's coordinator, and asks again
//! while the answer says that this can help, within `default.api.timeout.ms`. What is asked of many things is answered for
//! each: one that is refused does not hide the others.
//!
//! ```no_run
//! use milena_client::Client;
//! use milena_client::admin::NewTopic;
//!
//! # async fn example() -> Result<(), milena_client::Error> {
//! let client = Client::builder().bootstrap_servers("localhost:9092").build()?;
//! let admin = client.admin();
//! let topic = NewTopic { partitions: Some(3), ..NewTopic::named("orders") };
//! for (name, created) in admin.create_topics(vec![topic], false).await? {
//!     println!("{name}: {} partitions", created?.partitions);
//! }
//! # Ok(())
//! # }
//! ```

mod cluster;
mod configs;
mod features;
mod groups;
mod leaders;
mod log_dirs;
mod offsets;
mod quorum;
mod reassignments;
mod records;
mod topics;
mod transactions;

pub use cluster::{ApiRange, BrokerDescription, ClusterDescription, Endpoints};
pub use configs::{ConfigChange, ConfigEntry, ConfigResource, ConfigSource, ConfigSynonym, ConfigType, ResourceType};
pub use features::{Feature, FeatureUpdate, Features, UpgradeType};
pub use groups::{GroupDescription, GroupListing, GroupMember};
pub use log_dirs::{LogDir, ReplicaInfo, ReplicaMove};
pub use offsets::CommittedOffset;
pub use quorum::{QuorumDescription, QuorumReplica, VoterEndpoint};
pub use reassignments::{ElectionType, Reassignment};
pub use records::{ListedOffset, OffsetSpec};
pub use topics::{CreatedTopic, NewPartitions, NewTopic, PartitionDescription, TopicDescription, TopicListing};
pub use transactions::{ProducerState, TransactionDescription, TransactionFilter, TransactionListing};

use std::collections::BTreeMap;

use crate::client::Client;
use crate::error::Error;
pub use crate::topic_partition::TopicPartition;

/// What became of each of the things that were asked about.
pub type Outcomes<K, T> = Vec<(K, Result<T, Error>)>;

/// Administers a cluster over the connections of a [`Client`]; as cheap to clone.
#[derive(Debug, Clone)]
pub struct Admin {
    client: Client,
}

impl Client {
    /// The cluster's administration.
    pub fn admin(&self) -> Admin {
        Admin { client: self.clone() }
    }
}

impl Admin {
    /// The client whose connections these are.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The ids of the brokers that are alive, in order.
    async fn brokers(&self) -> Result<Vec<i32>, Error> {
        let cluster = self.patiently("Metadata", || self.client.cluster()).await?;
        let mut brokers: Vec<i32> = cluster.brokers().map(|broker| broker.id).collect();
        brokers.sort_unstable();
        Ok(brokers)
    }

    /// Asks until an answer comes that another try would not change, or time is up.
    async fn patiently<T, F: Future<Output = Result<T, Error>>>(
        &self,
        what: &str,
        ask: impl FnMut() -> F,
    ) -> Result<T, Error> {
        self.client.patiently(what, self.client.config().api_timeout, ask).await
    }
}

/// Partitions by topic, as most requests name them.
pub(crate) fn by_topic<'p, V>(
    partitions: impl IntoIterator<Item = (&'p TopicPartition, V)>,
) -> BTreeMap<&'p str, Vec<(i32, V)>> {
    let mut topics = BTreeMap::<&str, Vec<(i32, V)>>::new();
    for (partition, value) in partitions {
        topics.entry(&partition.topic).or_default().push((partition.partition, value));
    }
    topics
}
