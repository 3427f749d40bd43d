//! Topics by name and by id.

use std::ops::Bound;
use std::sync::Arc;

use milena_protocol::Uuid;
use rpds::{HashTrieMapSync, RedBlackTreeMapSync};

use crate::partition::Partition;

/// A topic and its partitions, indexed by partition id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// The name.
    pub name: Arc<str>,
    /// The id, which a topic of the same name made later does not share.
    pub id: Uuid,
    /// The partitions 0, 1, 2, …
    pub partitions: Vec<Arc<Partition>>,
}

impl Topic {
    /// One partition; `None` for a negative index or one past the end.
    pub fn partition(&self, index: i32) -> Option<&Arc<Partition>> {
        self.partitions.get(usize::try_from(index).ok()?)
    }
}

/// All topics. A clone shares everything with its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topics {
    by_name: RedBlackTreeMapSync<Arc<str>, Arc<Topic>>,
    by_id: HashTrieMapSync<Uuid, Arc<Topic>>,
}

impl Topics {
    /// How many topics there are.
    pub fn len(&self) -> usize {
        self.by_name.size()
    }

    /// Whether there is no topic.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The topic of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<Topic>> {
        self.by_name.get(name)
    }

    /// The topic of an id.
    pub fn get_by_id(&self, id: Uuid) -> Option<&Arc<Topic>> {
        self.by_id.get(&id)
    }

    /// All topics, ascending by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_name.values()
    }

    /// The topics whose names are at or after `name`, ascending.
    pub fn iter_from<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Arc<Topic>> {
        let from: (Bound<&str>, Bound<&str>) = (Bound::Included(name), Bound::Unbounded);
        self.by_name.range::<str, _>(from).map(|(_, topic)| topic)
    }

    pub(crate) fn insert(&mut self, topic: Arc<Topic>) {
        if let Some(old) = self.by_name.get(&*topic.name).filter(|old| old.id != topic.id).cloned() {
            self.by_id.remove_mut(&old.id);
        }
        self.by_name.insert_mut(topic.name.clone(), topic.clone());
        self.by_id.insert_mut(topic.id, topic);
    }

    pub(crate) fn remove(&mut self, topic: &Topic) {
        self.by_name.remove_mut(&*topic.name);
        self.by_id.remove_mut(&topic.id);
    }
}
