//! A fetch session (KIP-227), as a consumer sees it: the broker remembers which partitions are fetched and from where, and a
//! request tells it what has changed. Knows nothing of connections.

use std::sync::Arc;

use milena_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use milena_protocol::messages::{FetchRequest, FetchResponse};
use milena_protocol::{ErrorCode, Uuid};
use rustc_hash::FxHashMap;

use super::partitions::Slot;
use crate::metadata::Topic;

/// The epoch of a request that begins a session.
const FIRST_EPOCH: i32 = 0;
/// The epoch of a request that ends one.
const LAST_EPOCH: i32 = -1;
/// First version of Fetch with topic ids instead of names.
const TOPIC_IDS: i16 = 13;

/// What is fetched of a partition.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) topic: Arc<Topic>,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
    /// Which reading of the partition it is for.
    pub(super) reading: u32,
}

/// A partition that is no longer fetched.
#[derive(Debug)]
struct Forgotten {
    topic: Arc<Topic>,
    partition: i32,
}

#[derive(Debug, Default)]
pub(super) struct Session {
    /// 0 without one.
    id: i32,
    epoch: i32,
    /// As the broker was told.
    told: FxHashMap<Slot, Wanted>,
    /// What the next request will tell.
    changes: FxHashMap<Slot, Option<Wanted>>,
    forgotten: Vec<Forgotten>,
    /// Partitions that were told of, by topic.
    places: FxHashMap<Arc<str>, FxHashMap<i32, Slot>>,
    names: FxHashMap<Uuid, Arc<str>>,
}

impl Session {
    /// From the next request on, a partition is fetched like this.
    pub(super) fn set(&mut self, slot: Slot, wanted: Wanted) {
        self.changes.insert(slot, Some(wanted));
    }

    /// From the next request on, a partition is not fetched.
    pub(super) fn remove(&mut self, slot: Slot) {
        self.changes.insert(slot, None);
    }

    /// What the request that is under way, or the last one, asked for.
    pub(super) fn told(&self, slot: Slot) -> Option<&Wanted> {
        self.told.get(&slot)
    }

    /// All partitions that were told of.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.told.keys().copied()
    }

    /// Whether topics may be named by their ids.
    pub(super) fn has_ids(&self) -> bool {
        let all = self.told.values().chain(self.changes.values().flatten());
        all.into_iter().all(|wanted| wanted.topic.id != Uuid::ZERO)
    }

    /// Whether there will be anything to fetch with the next request.
    pub(super) fn is_wanted(&self) -> bool {
        let added = self.changes.values().any(Option::is_some);
        added || self.told.keys().any(|slot| !self.changes.contains_key(slot))
    }

    /// Takes the changes over, and gives `build` a request that tells of them.
    pub(super) fn request<T>(&mut self, version: i16, max_bytes: i32, build: impl FnOnce(FetchRequest<'_>) -> T) -> T {
        let mut updated: Vec<Slot> = Vec::with_capacity(self.changes.len());
        for (slot, change) in std::mem::take(&mut self.changes) {
            match change {
                Some(wanted) => {
                    self.tell(slot, wanted, version);
                    updated.push(slot);
                }
                None => self.forget(slot),
            }
        }
        if self.epoch == FIRST_EPOCH {
            self.forgotten.clear();
            updated = self.told.keys().copied().collect();
        }
        let forgotten = std::mem::take(&mut self.forgotten);
        let topics = by_topic(updated.iter().map(|slot| &self.told[slot]), version, max_bytes);
        let request = FetchRequest {
            session_id: self.id,
            session_epoch: self.epoch,
            topics,
            forgotten_topics_data: forgotten.iter().map(|forgotten| forgotten_topic(forgotten, version)).collect(),
            ..Default::default()
        };
        build(request)
    }

    fn tell(&mut self, slot: Slot, wanted: Wanted, version: i16) {
        let replaced = self.told.get(&slot).filter(|told| told.topic.id != wanted.topic.id);
        if let Some(old) = replaced {
            self.names.remove(&old.topic.id);
            // By its name, the broker would forget the one that takes its place.
            if version >= TOPIC_IDS {
                self.forgotten.push(Forgotten { topic: Arc::clone(&old.topic), partition: old.partition });
            }
        }
        let name = &wanted.topic.name;
        if !self.places.contains_key(name) {
            self.places.insert(Arc::clone(name), FxHashMap::default());
        }
        if let Some(partitions) = self.places.get_mut(name) {
            partitions.insert(wanted.partition, slot);
        }
        self.names.insert(wanted.topic.id, Arc::clone(name));
        self.told.insert(slot, wanted);
    }

    fn forget(&mut self, slot: Slot) {
        let Some(Wanted { topic, partition, .. }) = self.told.remove(&slot) else { return };
        if let Some(partitions) = self.places.get_mut(&topic.name) {
            partitions.remove(&partition);
            if partitions.is_empty() {
                self.places.remove(&topic.name);
                self.names.remove(&topic.id);
            }
        }
        self.forgotten.push(Forgotten { topic, partition });
    }

    /// The partition of this number of a topic that a response names.
    pub(super) fn slot(&self, topic: &str, id: Uuid, partition: i32) -> Option<Slot> {
        let name = if topic.is_empty() { self.names.get(&id)? } else { topic };
        self.places.get(name)?.get(&partition).copied()
    }

    /// The broker has answered. An error is the session's: no partition was looked at, and the next request begins anew.
    pub(super) fn answered(&mut self, response: &FetchResponse<'_>) -> Result<(), ErrorCode> {
        match ErrorCode(response.error_code) {
            ErrorCode::NONE => {
                self.epoch =
                    if response.session_id == 0 { FIRST_EPOCH } else { self.epoch.checked_add(1).unwrap_or(1) };
                self.id = response.session_id;
                Ok(())
            }
            code => {
                self.epoch = FIRST_EPOCH;
                if code == ErrorCode::FETCH_SESSION_ID_NOT_FOUND {
                    self.id = 0;
                }
                Err(code)
            }
        }
    }

    /// Whether the broker got the last request is not known: the next one ends this session and begins another.
    pub(super) fn failed(&mut self) {
        self.epoch = FIRST_EPOCH;
    }

    /// The request that ends the session, if there is one.
    pub(super) fn end(&mut self) -> Option<FetchRequest<'static>> {
        let id = std::mem::take(&mut self.id);
        self.epoch = FIRST_EPOCH;
        (id != 0).then(|| FetchRequest { session_id: id, session_epoch: LAST_EPOCH, ..Default::default() })
    }
}

/// How a version names a topic.
fn named(topic: &Topic, version: i16) -> (&str, Uuid) {
    if version < TOPIC_IDS { (&topic.name, Uuid::ZERO) } else { ("", topic.id) }
}

fn by_topic<'w>(all: impl Iterator<Item = &'w Wanted>, version: i16, max_bytes: i32) -> Vec<FetchTopic<'w>> {
    let mut topics: Vec<FetchTopic<'w>> = Vec::new();
    let mut places: FxHashMap<(Uuid, &str), usize> = FxHashMap::default();
    for wanted in all {
        let place = *places.entry((wanted.topic.id, &*wanted.topic.name)).or_insert_with(|| {
            let (name, topic_id) = named(&wanted.topic, version);
            topics.push(FetchTopic { topic: name.into(), topic_id, partitions: Vec::new() });
            topics.len() - 1
        });
        topics[place].partitions.push(FetchPartition {
            partition: wanted.partition,
            current_leader_epoch: wanted.leader_epoch,
            fetch_offset: wanted.offset,
            partition_max_bytes: max_bytes,
            ..Default::default()
        });
    }
    topics
}

fn forgotten_topic(forgotten: &Forgotten, version: i16) -> ForgottenTopic<'_> {
    let (name, topic_id) = named(&forgotten.topic, version);
    ForgottenTopic { topic: name.into(), topic_id, partitions: vec![forgotten.partition].into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consumer::partitions::Partitions;
    use crate::topic_partition::TopicPartition;

    /// What a request of this version tells after a topic has got another id: topics to fetch, and those to forget.
    fn told_of_a_new_id(version: i16) -> (Vec<Uuid>, Vec<Uuid>) {
        let (before, after) = (Uuid::from_bytes([1; 16]), Uuid::from_bytes([2; 16]));
        let slot = Partitions::default().add(TopicPartition::new("t", 0));
        let wanted = |id| {
            let topic = Arc::new(Topic::of("t", id));
            Wanted { topic, partition: 0, offset: 0, leader_epoch: 0, reading: 0 }
        };
        let mut session = Session::default();
        session.set(slot, wanted(before));
        session.request(version, 1, |_| ());
        session.answered(&FetchResponse { session_id: 5, ..Default::default() }).unwrap();
        session.set(slot, wanted(after));
        session.request(version, 1, |request| {
            let fetched = request.topics.iter().map(|topic| topic.topic_id).collect();
            (fetched, request.forgotten_topics_data.iter().map(|topic| topic.topic_id).collect())
        })
    }

    #[test]
    fn a_topic_with_a_new_id_takes_the_place_of_the_old_one_and_is_not_forgotten_by_its_name() {
        let (before, after) = (Uuid::from_bytes([1; 16]), Uuid::from_bytes([2; 16]));
        assert_eq!(told_of_a_new_id(TOPIC_IDS), (vec![after], vec![before]));
        assert_eq!(told_of_a_new_id(TOPIC_IDS - 1), (vec![Uuid::ZERO], Vec::new()));
    }
}
