//! Fetch sessions (KIP-227): what a client fetches stays here between its requests, so that it sends and gets only what
//! changed. Sessions keep resolved partitions. How a session is read is `handlers::fetch`'s business.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use milena_protocol::{ErrorCode, Uuid};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::partition::{Partition, TopicIdentity};

/// Epoch of a request that begins a session.
pub const INITIAL_EPOCH: i32 = 0;
/// Epoch of a request that wants no session, or ends one.
pub const FINAL_EPOCH: i32 = -1;

/// One partition that is fetched.
#[derive(Clone)]
pub struct Slot {
    /// Its topic: both name and id when it is known, else the one that the request gave.
    pub topic: Arc<TopicIdentity>,
    /// Its number.
    pub index: i32,
    /// Where it is, or why it can't be served.
    pub place: Result<Arc<Partition>, ErrorCode>,
    /// Next offset to fetch.
    pub offset: i64,
    /// Most bytes to answer for it.
    pub max_bytes: i32,
    /// Leader epoch that the client knows, or negative.
    pub current_leader_epoch: i32,
    /// Epoch of the last record that the client has, or negative.
    pub last_fetched_epoch: i32,
    /// High watermark that the client was last told.
    pub told_high_watermark: i64,
    /// Log start that the client was last told.
    pub told_log_start: i64,
    forgotten: bool,
}

impl Slot {
    /// A slot that has told nothing yet.
    pub fn new(topic: Arc<TopicIdentity>, index: i32, place: Result<Arc<Partition>, ErrorCode>) -> Self {
        Self {
            topic,
            index,
            place,
            offset: 0,
            max_bytes: 0,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
            told_high_watermark: -1,
            told_log_start: -1,
            forgotten: false,
        }
    }

    /// Whether there is no such partition.
    pub fn is_unknown(&self) -> bool {
        matches!(self.place, Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID))
    }
}

/// Names a topic as the session's requests do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicKey {
    /// By its id.
    Id(Uuid),
    /// By its name.
    Name(String),
}

/// The partitions of a fetch, in the order in which they are served.
#[derive(Default)]
pub struct FetchPartitions {
    slots: Vec<Slot>,
    /// Places of the slots, by topic and partition: a topic's name is kept, and looked for, once for all its partitions.
    /// Clients choose the keys, so the maps have seeds of their own.
    places: HashMap<TopicKey, Places>,
    /// Slots that are in no place any more.
    forgotten: usize,
    /// Counts the requests that went on with the session.
    request: u64,
}

impl FetchPartitions {
    /// The partitions of a topic, to add some or to change those that are there.
    pub fn topic(&mut self, key: TopicKey) -> TopicSlots<'_> {
        TopicSlots { slots: &mut self.slots, places: self.places.entry(key).or_default() }
    }

    /// Takes partitions out.
    pub fn forget(&mut self, topics: impl IntoIterator<Item = (TopicKey, impl IntoIterator<Item = i32>)>) {
        for (key, partitions) in topics {
            let Some(places) = self.places.get_mut(&key) else { continue };
            for at in partitions.into_iter().filter_map(|index| places.remove(index)) {
                self.slots[at].forgotten = true;
                self.forgotten += 1;
            }
            if places.is_empty() {
                self.places.remove(&key);
            }
        }
        self.drop_forgotten();
    }

    /// All of them.
    pub fn slots(&mut self) -> &mut [Slot] {
        &mut self.slots
    }

    /// Notes that another request goes on with the session, and gives it its number.
    pub fn begin_request(&mut self) -> u64 {
        self.request += 1;
        self.request
    }

    /// Number of the newest request. What an older one has read is not for these slots any more.
    pub fn newest_request(&self) -> u64 {
        self.request
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Moves those for which `served` holds behind the others, so that every partition gets its turn.
    pub fn rotate(&mut self, served: impl Fn(usize) -> bool) {
        let mut new_place = vec![0; self.slots.len()];
        let waiting = (0..self.slots.len()).filter(|&at| !served(at)).count();
        let (mut front, mut back) = (0, waiting);
        for (at, place) in new_place.iter_mut().enumerate() {
            let next = if served(at) { &mut back } else { &mut front };
            *place = *next;
            *next += 1;
        }
        self.place_anew(&new_place);
        for at in 0..new_place.len() {
            while new_place[at] != at {
                let to = new_place[at];
                self.slots.swap(at, to);
                new_place.swap(at, to);
            }
        }
    }

    fn place_anew(&mut self, new_place: &[usize]) {
        for at in self.places.values_mut().flat_map(|places| places.values_mut()) {
            *at = new_place[*at];
        }
    }

    fn drop_forgotten(&mut self) {
        if std::mem::take(&mut self.forgotten) == 0 {
            return;
        }
        let mut kept = 0;
        let new_place: Vec<usize> = self
            .slots
            .iter()
            .map(|slot| {
                kept += usize::from(!slot.forgotten);
                kept.saturating_sub(1)
            })
            .collect();
        self.place_anew(&new_place);
        self.slots.retain(|slot| !slot.forgotten);
    }
}

/// Places of one topic's slots, by partition. The first one takes no memory of its own: many topics have no other.
#[derive(Default)]
struct Places {
    first: Option<(i32, usize)>,
    others: HashMap<i32, usize>,
}

impl Places {
    fn get_or_insert_with(&mut self, index: i32, new: impl FnOnce() -> usize) -> usize {
        match self.first {
            Some((first, at)) if first == index => at,
            None if self.others.is_empty() => self.first.insert((index, new())).1,
            _ => *self.others.entry(index).or_insert_with(new),
        }
    }

    fn remove(&mut self, index: i32) -> Option<usize> {
        match self.first.take_if(|(first, _)| *first == index) {
            Some((_, at)) => Some(at),
            None => self.others.remove(&index),
        }
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    fn values_mut(&mut self) -> impl Iterator<Item = &mut usize> {
        self.first.iter_mut().map(|(_, at)| at).chain(self.others.values_mut())
    }
}

/// The partitions of one topic that are fetched.
pub struct TopicSlots<'p> {
    slots: &'p mut Vec<Slot>,
    places: &'p mut Places,
}

impl TopicSlots<'_> {
    /// Adds a partition, or returns the one that is there.
    pub fn entry(&mut self, index: i32, new: impl FnOnce() -> Slot) -> &mut Slot {
        let slots = &mut *self.slots;
        let at = self.places.get_or_insert_with(index, || {
            slots.push(new());
            slots.len() - 1
        });
        &mut self.slots[at]
    }
}

/// A session.
pub struct Session {
    /// Its number, never 0.
    pub id: i32,
    /// Whether its requests name topics by id.
    pub uses_topic_ids: bool,
    /// What it fetches.
    pub partitions: Arc<Mutex<FetchPartitions>>,
    epoch: i32,
    used: Instant,
}

/// All sessions of the broker.
pub struct FetchSessions {
    most: usize,
    eviction: Duration,
    sessions: Mutex<FxHashMap<i32, Session>>,
}

impl FetchSessions {
    /// Room for `most` sessions (`max.incremental.fetch.session.cache.slots`); one that was not used for `eviction` may
    /// have to go for a new one.
    pub fn new(most: usize, eviction: Duration) -> Self {
        Self { most, eviction, sessions: Mutex::default() }
    }

    /// Begins a session over `partitions`; 0 when there is no room.
    pub fn begin(&self, partitions: &Arc<Mutex<FetchPartitions>>, uses_topic_ids: bool, now: Instant) -> i32 {
        let mut sessions = self.sessions.lock();
        if sessions.len() >= self.most && !self.evict_one(&mut sessions, now) {
            return 0;
        }
        let id = loop {
            let id = fastrand::i32(1..);
            if !sessions.contains_key(&id) {
                break id;
            }
        };
        let partitions = Arc::clone(partitions);
        sessions.insert(id, Session { id, uses_topic_ids, partitions, epoch: 1, used: now });
        id
    }

    /// Ends a session.
    pub fn end(&self, id: i32) {
        self.sessions.lock().remove(&id);
    }

    /// Goes on with a session: its partitions.
    ///
    /// # Errors
    /// FETCH_SESSION_ID_NOT_FOUND, FETCH_SESSION_TOPIC_ID_ERROR or INVALID_FETCH_SESSION_EPOCH, in Kafka's order.
    pub fn resume(
        &self,
        id: i32,
        epoch: i32,
        uses_topic_ids: bool,
        now: Instant,
    ) -> Result<Arc<Mutex<FetchPartitions>>, ErrorCode> {
        let mut sessions = self.sessions.lock();
        let session = sessions.get_mut(&id).ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.epoch != epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.uses_topic_ids != uses_topic_ids {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        session.epoch = epoch.checked_add(1).unwrap_or(1);
        session.used = now;
        Ok(Arc::clone(&session.partitions))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sessions.lock().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn evict_one(&self, sessions: &mut FxHashMap<i32, Session>, now: Instant) -> bool {
        let oldest = sessions.values().min_by_key(|session| session.used);
        match oldest {
            Some(session) if now.duration_since(session.used) > self.eviction => {
                let id = session.id;
                sessions.remove(&id).is_some()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
