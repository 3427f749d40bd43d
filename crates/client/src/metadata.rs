//! What is known of the cluster: brokers, topics, leaders. A snapshot that everybody may keep; it is replaced as a whole.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use milena_protocol::messages::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use milena_protocol::messages::{DescribeClusterResponse, MetadataResponse};
use milena_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

/// A broker of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// `node.id`.
    pub id: i32,
    /// Where clients connect.
    pub host: String,
    /// Where clients connect.
    pub port: u16,
    /// `broker.rack`.
    pub rack: Option<String>,
}

/// A partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Its number.
    pub index: i32,
    /// The broker that leads it; `None` while there is none.
    pub leader: Option<i32>,
    /// Epoch of that leader, -1 where the server does not tell.
    pub leader_epoch: i32,
    /// Brokers that have a replica, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Those of them that are in sync.
    pub isr: Vec<i32>,
    /// Those of them that are offline.
    pub offline: Vec<i32>,
}

/// A topic that exists.
#[derive(Debug)]
pub struct Topic {
    /// Its name.
    pub name: Arc<str>,
    /// Its id; zero where the server does not tell.
    pub id: Uuid,
    /// Whether it belongs to the servers.
    pub is_internal: bool,
    /// By number, without a gap.
    pub partitions: Vec<Partition>,
    fetched: Instant,
    used: AtomicBool,
    expired: AtomicBool,
}

impl Topic {
    /// One without partitions.
    #[cfg(test)]
    pub(crate) fn of(name: &str, id: Uuid) -> Self {
        let told = MetadataResponseTopic { topic_id: id, ..Default::default() };
        topic(name, &told, None, Instant::now())
    }

    /// The broker that leads a partition.
    pub fn leader(&self, partition: i32) -> Option<i32> {
        self.partition(partition)?.leader
    }

    /// A partition by its number.
    pub fn partition(&self, partition: i32) -> Option<&Partition> {
        self.partitions.get(usize::try_from(partition).ok()?)
    }

    /// Somebody has found this topic's leaders to be wrong, or not there.
    pub(crate) fn expire(&self) {
        self.expired.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.expired.load(Ordering::Relaxed)
    }

    /// Whether it was learnt after `oldest` and nobody found it wrong since.
    pub(crate) fn is_fresh(&self, oldest: Option<Instant>) -> bool {
        !self.expired.load(Ordering::Relaxed) && oldest.is_none_or(|oldest| self.fetched >= oldest)
    }
}

/// What was known of the cluster at some moment.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    /// The cluster's id, if the server told.
    pub cluster_id: Option<String>,
    /// Where to send what the controller decides.
    pub controller: Option<i32>,
    brokers: HashMap<i32, Arc<Broker>>,
    topics: HashMap<Arc<str>, Arc<Topic>>,
    pub(crate) fetched: Option<Instant>,
}

impl Metadata {
    /// The brokers that are alive, in no order.
    pub fn brokers(&self) -> impl Iterator<Item = &Arc<Broker>> {
        self.brokers.values()
    }

    /// A broker by its id.
    pub fn broker(&self, id: i32) -> Option<&Arc<Broker>> {
        self.brokers.get(&id)
    }

    /// The topics that were asked for so far, in no order.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.topics.values()
    }

    /// A topic, if it was asked for before.
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        let topic = self.topics.get(name)?;
        topic.used.store(true, Ordering::Relaxed);
        Some(topic)
    }

    /// Names of the topics that somebody has looked up since they were learnt.
    pub(crate) fn used_topics(&self) -> Vec<Arc<str>> {
        let used = self.topics.values().filter(|topic| topic.used.load(Ordering::Relaxed));
        used.map(|topic| Arc::clone(&topic.name)).collect()
    }

    /// The same, known to be out of date about brokers.
    pub(crate) fn expired(&self) -> Self {
        Self { fetched: None, ..self.clone() }
    }

    /// What is known after an answer about controllers.
    pub(crate) fn of_controllers(response: &DescribeClusterResponse<'_>, now: Instant) -> Self {
        let controllers = response.brokers.iter().map(|controller| {
            let (id, host) = (controller.broker_id, controller.host.to_string());
            let port = u16::try_from(controller.port).unwrap_or(0);
            (id, Arc::new(Broker { id, host, port, rack: None }))
        });
        Self {
            cluster_id: Some(response.cluster_id.to_string()),
            controller: (response.controller_id >= 0).then_some(response.controller_id),
            brokers: controllers.collect(),
            topics: HashMap::new(),
            fetched: Some(now),
        }
    }

    /// What is known after a response. Topics that it does not tell of stay when they were learnt since `keep_since` or are
    /// in use, unless it tells of `all`; those that do not exist go.
    pub(crate) fn with(
        &self,
        response: &MetadataResponse<'_>,
        all: bool,
        keep_since: Option<Instant>,
        now: Instant,
    ) -> Self {
        let brokers = response.brokers.iter().map(|broker| {
            let port = u16::try_from(broker.port).unwrap_or(0);
            let rack = broker.rack.as_deref().map(str::to_owned);
            (broker.node_id, Arc::new(Broker { id: broker.node_id, host: broker.host.to_string(), port, rack }))
        });
        let mut topics = self.topics.clone();
        topics.retain(|_, topic| {
            let in_use = topic.used.load(Ordering::Relaxed);
            !all && (in_use || keep_since.is_none_or(|since| topic.fetched >= since))
        });
        for told in &response.topics {
            let Some(name) = told.name.as_deref() else { continue };
            if told.error_code == 0 {
                let topic = topic(name, told, self.topics.get(name).map(|topic| &**topic), now);
                topics.insert(Arc::clone(&topic.name), Arc::new(topic));
            } else if told.error_code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0 {
                topics.remove(name);
            }
        }
        Self {
            cluster_id: response.cluster_id.as_deref().map(str::to_owned),
            controller: (response.controller_id >= 0).then_some(response.controller_id),
            brokers: brokers.collect(),
            topics,
            fetched: Some(now),
        }
    }
}

fn topic(name: &str, told: &MetadataResponseTopic<'_>, before: Option<&Topic>, now: Instant) -> Topic {
    let before = before.filter(|before| before.id == told.topic_id);
    let mut partitions: Vec<_> = told.partitions.iter().map(partition).collect();
    partitions.sort_by_key(|partition| partition.index);
    for partition in &mut partitions {
        // A broker that is behind must not undo what another has told.
        if let Some(newer) = before.and_then(|topic| topic.partition(partition.index))
            && newer.leader_epoch > partition.leader_epoch
            && partition.leader_epoch >= 0
        {
            partition.clone_from(newer);
        }
    }
    // Numbers begin at 0 and have no gap; what follows one can't be addressed.
    let known = (0..).zip(&partitions).take_while(|(index, partition)| *index == partition.index).count();
    partitions.truncate(known);
    Topic {
        name: before.map_or_else(|| name.into(), |before| Arc::clone(&before.name)),
        id: told.topic_id,
        is_internal: told.is_internal,
        partitions,
        fetched: now,
        used: AtomicBool::new(false),
        expired: AtomicBool::new(false),
    }
}

fn partition(told: &MetadataResponsePartition<'_>) -> Partition {
    Partition {
        index: told.partition_index,
        leader: (told.leader_id >= 0).then_some(told.leader_id),
        leader_epoch: told.leader_epoch,
        replicas: told.replica_nodes.to_vec(),
        isr: told.isr_nodes.to_vec(),
        offline: told.offline_replicas.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(leader: i32, epoch: i32) -> MetadataResponse<'static> {
        let partition = |index| MetadataResponsePartition {
            partition_index: index,
            leader_id: leader,
            leader_epoch: epoch,
            ..Default::default()
        };
        let topic = MetadataResponseTopic {
            name: Some("t".into()),
            partitions: milena_protocol::Structs::Items(vec![partition(1), partition(0), partition(3)]),
            ..Default::default()
        };
        MetadataResponse { topics: vec![topic], ..Default::default() }
    }

    #[test]
    fn an_older_leader_epoch_does_not_replace_a_newer_one() {
        let now = Instant::now();
        let metadata = Metadata::default().with(&told(1, 5), false, None, now);
        let metadata = metadata.with(&told(2, 4), false, None, now);
        assert_eq!(metadata.topic("t").unwrap().leader(0), Some(1));
        let metadata = metadata.with(&told(-1, 6), false, None, now);
        assert_eq!(metadata.topic("t").unwrap().leader(0), None);
    }

    #[test]
    fn partitions_are_in_order_and_end_before_a_gap() {
        let metadata = Metadata::default().with(&told(1, 5), false, None, Instant::now());
        let topic = metadata.topic("t").unwrap();
        assert_eq!(topic.partitions.iter().map(|p| p.index).collect::<Vec<_>>(), [0, 1]);
        assert_eq!((topic.leader(-1), topic.leader(2)), (None, None));
    }

    #[test]
    fn a_topic_that_is_gone_is_forgotten() {
        let metadata = Metadata::default().with(&told(1, 5), false, None, Instant::now());
        let mut gone = told(1, 5);
        gone.topics[0].error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
        assert!(metadata.with(&gone, false, None, Instant::now()).topic("t").is_none());
    }

    #[test]
    fn an_old_topic_is_forgotten_unless_it_is_in_use() {
        let (learnt, later) = (Instant::now(), Instant::now() + std::time::Duration::from_secs(1));
        let metadata = Metadata::default().with(&told(1, 5), false, None, learnt);
        let none = MetadataResponse::default();
        assert_eq!(metadata.with(&none, false, Some(learnt), later).topics().count(), 1);
        assert_eq!(metadata.with(&none, false, Some(later), later).topics().count(), 0);
        assert!(metadata.topic("t").is_some());
        assert_eq!(metadata.with(&none, false, Some(later), later).topics().count(), 1);
    }
}
