//! Fetch sessions (KIP-227): what a client fetches stays here between its requests, so that it sends and gets only what
//! changed. Sessions keep resolved partitions. How a session is read is `handlers::fetch`'s business.

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
}

/// Names a slot: by id or by name, as the session's requests do.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum SlotKey {
    /// Topic id and partition.
    Id(Uuid, i32),
    /// Topic name and partition.
    Name(String, i32),
}

/// The partitions of a fetch, in the order in which they are served.
#[derive(Default)]
pub struct FetchPartitions {
    slots: Vec<Slot>,
    by_key: FxHashMap<SlotKey, usize>,
    /// Counts the requests that went on with the session.
    request: u64,
}

impl FetchPartitions {
    /// Adds a partition, or returns the one that is there.
    pub fn entry(&mut self, key: SlotKey, new: impl FnOnce() -> Slot) -> &mut Slot {
        let at = *self.by_key.entry(key).or_insert_with(|| {
            self.slots.push(new());
            self.slots.len() - 1
        });
        &mut self.slots[at]
    }

    /// Takes partitions out.
    pub fn forget(&mut self, keys: impl IntoIterator<Item = SlotKey>) {
        for key in keys {
            if let Some(at) = self.by_key.remove(&key) {
                self.slots[at].forgotten = true;
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
        for at in self.by_key.values_mut() {
            *at = new_place[*at];
        }
        for at in 0..new_place.len() {
            while new_place[at] != at {
                let to = new_place[at];
                self.slots.swap(at, to);
                new_place.swap(at, to);
            }
        }
    }

    fn drop_forgotten(&mut self) {
        if self.slots.len() == self.by_key.len() {
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
        for at in self.by_key.values_mut() {
            *at = new_place[*at];
        }
        self.slots.retain(|slot| !slot.forgotten);
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
