//! The partitions hosted here, by topic. Which ones there should be is the metadata's word; this follows it.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
pub use milena_controller::is_internal;
use milena_protocol::Uuid;
use rustc_hash::FxHashMap;

use crate::partition::{Partition, TopicIdentity};

/// A topic with partitions here.
pub struct HostedTopic {
    /// Its name and id.
    pub identity: Arc<TopicIdentity>,
    partitions: Vec<Option<Arc<Partition>>>,
}

impl HostedTopic {
    /// A partition of it; `None` when it does not exist or can't be served here.
    pub fn partition(&self, index: i32) -> Option<&Arc<Partition>> {
        self.partitions.get(usize::try_from(index).ok()?)?.as_ref()
    }

    /// All partitions that are here.
    pub fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.partitions.iter().flatten()
    }
}

/// All topics with partitions here, at one moment.
#[derive(Default, Clone)]
pub struct Topics {
    by_name: FxHashMap<String, Arc<HostedTopic>>,
    by_id: FxHashMap<Uuid, Arc<HostedTopic>>,
}

impl Topics {
    /// The topic of a name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<HostedTopic>> {
        self.by_name.get(name)
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

    /// Adds partitions of one topic.
    fn put(&mut self, added: Vec<Arc<Partition>>) {
        let Some(identity) = added.first().map(|partition| Arc::clone(&partition.topic)) else { return };
        let mut partitions = self.by_id.get(&identity.id).map_or_else(Vec::new, |topic| topic.partitions.clone());
        for partition in added {
            let index = partition.index as usize;
            if partitions.len() <= index {
                partitions.resize(index + 1, None);
            }
            partitions[index] = Some(partition);
        }
        let topic = Arc::new(HostedTopic { identity: Arc::clone(&identity), partitions });
        self.by_name.insert(identity.name.clone(), Arc::clone(&topic));
        self.by_id.insert(identity.id, topic);
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
        let mut by_topic: FxHashMap<Uuid, Vec<Arc<Partition>>> = FxHashMap::default();
        for partition in added {
            by_topic.entry(partition.topic.id).or_default().push(partition);
        }
        let mut topics = Topics::clone(&self.topics.load());
        for partitions in by_topic.into_values() {
            topics.put(partitions);
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
