//! The partitions hosted here, by topic. Which ones there should be is the metadata's word; this follows it.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use milena_controller::MAX_NAME_LENGTH;
pub use milena_controller::is_internal;
use milena_protocol::{ErrorCode, Uuid};
use rustc_hash::FxHashMap;

use crate::partition::{Partition, TopicIdentity};

/// A topic with partitions here.
pub struct HostedTopic {
    /// Its name and id.
    pub identity: Arc<TopicIdentity>,
    partitions: Vec<HostedPartition>,
}

/// What there is of a partition here.
#[derive(Clone)]
enum HostedPartition {
    Nothing,
    Online(Arc<Partition>),
    /// Its log directory has failed.
    Offline,
}

impl HostedTopic {
    /// A partition of it; `None` when it does not exist or its directory has failed.
    pub fn partition(&self, index: i32) -> Option<&Arc<Partition>> {
        self.served(index).ok()
    }

    /// A partition of it.
    ///
    /// # Errors
    /// KAFKA_STORAGE_ERROR when its directory has failed, else UNKNOWN_TOPIC_OR_PARTITION.
    pub fn served(&self, index: i32) -> Result<&Arc<Partition>, ErrorCode> {
        match usize::try_from(index).ok().and_then(|index| self.partitions.get(index)) {
            Some(HostedPartition::Online(partition)) => Ok(partition),
            Some(HostedPartition::Offline) => Err(ErrorCode::KAFKA_STORAGE_ERROR),
            Some(HostedPartition::Nothing) | None => Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        }
    }

    /// All partitions that are here and online.
    pub fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.partitions.iter().filter_map(|hosted| match hosted {
            HostedPartition::Online(partition) => Some(partition),
            _ => None,
        })
    }
}

/// All topics with partitions here, at one moment.
#[derive(Default, Clone)]
pub struct Topics {
    /// Clients choose the names, so this map has a seed of its own.
    by_name: HashMap<String, Arc<HostedTopic>>,
    by_id: FxHashMap<Uuid, Arc<HostedTopic>>,
}

impl Topics {
    /// The topic of a name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<HostedTopic>> {
        // A longer one is nobody's, and hashing it would take time, for each partition that a request asks for.
        if name.len() > MAX_NAME_LENGTH { None } else { self.by_name.get(name) }
    }

    /// The topic of an id.
    pub fn by_id(&self, id: Uuid) -> Option<&Arc<HostedTopic>> {
        self.by_id.get(&id)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<HostedTopic>> {
        self.by_name.values()
    }

    /// All partitions of all topics.
    pub fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.iter().flat_map(|topic| topic.partitions())
    }

    fn remove(&mut self, id: Uuid) -> Option<Arc<HostedTopic>> {
        let topic = self.by_id.remove(&id)?;
        self.by_name.remove(&topic.identity.name);
        Some(topic)
    }

    /// Adds partitions of one topic, or puts them in the place of others.
    fn put(&mut self, added: &[(Arc<TopicIdentity>, i32, HostedPartition)]) {
        let Some((identity, ..)) = added.first() else { return };
        let known = self.by_id.get(&identity.id);
        let identity = Arc::clone(known.map_or(identity, |topic| &topic.identity));
        let mut partitions = known.map_or_else(Vec::new, |topic| topic.partitions.clone());
        for (_, index, hosted) in added {
            let index = *index as usize;
            if partitions.len() <= index {
                partitions.resize(index + 1, HostedPartition::Nothing);
            }
            partitions[index] = hosted.clone();
        }
        let topic = Arc::new(HostedTopic { identity, partitions });
        self.by_name.insert(topic.identity.name.clone(), Arc::clone(&topic));
        self.by_id.insert(topic.identity.id, topic);
    }
}

/// The partitions hosted here.
#[derive(Default)]
pub struct Replicas {
    topics: ArcSwap<Topics>,
}

impl Replicas {
    /// The topics as of now.
    pub fn topics(&self) -> Guard<Arc<Topics>> {
        self.topics.load()
    }

    /// Adds partitions. Only the thread that follows the metadata calls this.
    pub fn add(&self, added: Vec<Arc<Partition>>) {
        self.put(
            added
                .into_iter()
                .map(|partition| (Arc::clone(&partition.topic), partition.index, HostedPartition::Online(partition))),
        );
    }

    /// Adds partitions whose log directory does not work. Only the thread that follows the metadata calls this.
    pub fn add_offline(&self, added: impl IntoIterator<Item = (Arc<TopicIdentity>, i32)>) {
        self.put(added.into_iter().map(|(topic, index)| (topic, index, HostedPartition::Offline)));
    }

    /// Takes the partitions that are in failed directories offline and retires them; they come back. Only the thread that
    /// follows the metadata calls this.
    pub fn take_offline(&self) -> Vec<Arc<Partition>> {
        let failed = |partition: &&Arc<Partition>| partition.directory().is_offline();
        let partitions: Vec<Arc<Partition>> = self.topics().partitions().filter(failed).cloned().collect();
        self.add_offline(partitions.iter().map(|partition| (Arc::clone(&partition.topic), partition.index)));
        partitions.iter().for_each(|partition| partition.retire());
        partitions
    }

    fn put(&self, added: impl Iterator<Item = (Arc<TopicIdentity>, i32, HostedPartition)>) {
        let mut added: Vec<_> = added.collect();
        if added.is_empty() {
            return;
        }
        added.sort_by_key(|(topic, ..)| topic.id);
        let mut topics = Topics::clone(&self.topics.load());
        for of_topic in added.chunk_by(|(one, ..), (other, ..)| one.id == other.id) {
            topics.put(of_topic);
        }
        self.topics.store(Arc::new(topics));
    }

    /// Takes topics out and retires their partitions, which come back. Only the thread that follows the metadata calls
    /// this.
    pub fn remove(&self, ids: impl IntoIterator<Item = Uuid>) -> Vec<Arc<Partition>> {
        let mut topics = Topics::clone(&self.topics.load());
        let removed: Vec<_> = ids.into_iter().filter_map(|id| topics.remove(id)).collect();
        self.topics.store(Arc::new(topics));
        let partitions: Vec<_> = removed.iter().flat_map(|topic| topic.partitions().cloned()).collect();
        partitions.iter().for_each(|partition| partition.retire());
        partitions
    }
}
