//! The partitions of a consumer: which are assigned, where it is in each of them, and what keeps it from reading on. Knows
//! nothing of requests and waits for nothing.

use std::collections::{HashMap, VecDeque};

use metrics::Gauge;
use milena_protocol::Uuid;
use tokio::time::Instant;

use super::range::{End, Range};
use crate::error::Error;
use crate::topic_partition::TopicPartition;

/// A partition that is or was assigned; it keeps its place as long as the consumer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Slot(u32);

/// A place in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// Of the next record.
    pub(super) offset: i64,
    /// Leader epoch of the record before it, if that is known.
    pub(super) leader_epoch: Option<i32>,
}

/// The position of who has none.
pub(super) const NOWHERE: Position = Position { offset: -1, leader_epoch: None };

/// Which offset to begin at, where it is not known as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reset {
    Earliest,
    Latest,
    /// The first record that is not older, ms since 1970; the end without one.
    Time(i64),
}

/// What is known of the place to read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing: what the group has committed is asked for, if there is a group.
    New,
    /// The leader is to be asked.
    Reset(Reset),
    /// It has to be compared with what a new leader has.
    Validate,
    /// It is good to read on.
    Ready,
    /// Something has gone wrong that its reader will hear of when all before it was given.
    Halted,
}

/// What a partition's reader gets in its turn.
#[derive(Debug)]
pub(super) enum Item {
    Range(Range),
    /// The offset that follows is not in the log.
    OutOfRange,
    /// Something went wrong; what its state is afterwards.
    Failed(Error, State),
}

impl Item {
    /// Bytes that wait in it.
    pub(super) fn len(&self) -> usize {
        if let Self::Range(range) = self { range.len() } else { 0 }
    }
}

/// What the last response said of a partition's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogEnds {
    pub(super) high_watermark: i64,
    pub(super) last_stable: i64,
}

#[derive(Debug)]
pub(super) struct Partition {
    pub(super) name: TopicPartition,
    pub(super) assigned: bool,
    pub(super) paused: bool,
    /// Changes when what is under way is of no more use.
    pub(super) reading: u32,
    pub(super) state: State,
    /// Of the next record to give.
    pub(super) position: Position,
    /// Of the next record to fetch.
    pub(super) fetch: Position,
    /// The topic's id when it was last looked at: one with this name that is created anew has another.
    pub(super) topic_id: Uuid,
    /// Newest epoch of a leader that the position is known to be good with; -1 with none.
    pub(super) leader_epoch: i32,
    /// A replica that is closer than the leader, and until when it is used.
    pub(super) replica: Option<(i32, Instant)>,
    /// The broker in whose session it is.
    pub(super) at: Option<i32>,
    /// A question about its position is under way.
    pub(super) asking: bool,
    pub(super) failures: u32,
    pub(super) not_before: Option<Instant>,
    pub(super) ends: Option<LogEnds>,
    /// Where the lag is shown.
    pub(super) lag: Option<Gauge>,
    /// What came before it was paused, or while it is.
    pub(super) held: VecDeque<Item>,
    dirty: bool,
}

impl Partition {
    fn new(name: TopicPartition) -> Self {
        Self {
            name,
            assigned: false,
            paused: false,
            reading: 0,
            state: State::New,
            position: NOWHERE,
            fetch: NOWHERE,
            topic_id: Uuid::ZERO,
            leader_epoch: -1,
            replica: None,
            at: None,
            asking: false,
            failures: 0,
            not_before: None,
            ends: None,
            lag: None,
            held: VecDeque::new(),
            dirty: false,
        }
    }

    /// What is under way, and what is there and was not given, is forgotten.
    fn restart(&mut self) {
        self.reading = self.reading.wrapping_add(1);
        self.asking = false;
        self.failures = 0;
        self.not_before = None;
        self.held.clear();
        self.fetch = self.position;
    }

    /// The topic as it is now. The epochs of one that was there before say nothing of this one.
    pub(super) fn note_topic(&mut self, id: Uuid) {
        if self.topic_id != id && self.topic_id != Uuid::ZERO {
            (self.position.leader_epoch, self.fetch.leader_epoch, self.leader_epoch) = (None, None, -1);
        }
        self.topic_id = id;
    }

    /// Whether its position is known.
    pub(super) fn is_positioned(&self) -> bool {
        matches!(self.state, State::Ready | State::Validate)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    slots: Vec<Partition>,
    by_name: HashMap<TopicPartition, Slot>,
    /// Those that something has changed for.
    dirty: Vec<Slot>,
    assigned: usize,
}

impl Partitions {
    pub(super) fn get(&self, slot: Slot) -> &Partition {
        &self.slots[slot.0 as usize]
    }

    /// It is looked at again before the next requests.
    pub(super) fn change(&mut self, slot: Slot) -> &mut Partition {
        let partition = &mut self.slots[slot.0 as usize];
        if !partition.dirty {
            partition.dirty = true;
            self.dirty.push(slot);
        }
        partition
    }

    /// As [`change`](Self::change), for what does not concern requests.
    pub(super) fn note(&mut self, slot: Slot) -> &mut Partition {
        &mut self.slots[slot.0 as usize]
    }

    /// The records before this were given.
    pub(super) fn advance(&mut self, slot: Slot, end: End) {
        let leader_epoch = (end.leader_epoch >= 0).then_some(end.leader_epoch);
        self.note(slot).position = Position { offset: end.offset, leader_epoch };
    }

    /// The slot of a partition that is assigned.
    pub(super) fn slot(&self, name: &TopicPartition) -> Option<Slot> {
        self.by_name.get(name).copied().filter(|slot| self.get(*slot).assigned)
    }

    /// A partition that is assigned, and is still read as it was when something was begun.
    pub(super) fn current(&self, slot: Slot, reading: u32) -> bool {
        let partition = self.get(slot);
        partition.assigned && partition.reading == reading
    }

    pub(super) fn assigned(&self) -> impl Iterator<Item = (Slot, &Partition)> {
        let all = (0..).map(Slot).zip(&self.slots);
        all.filter(|(_, partition)| partition.assigned)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.assigned == 0
    }

    /// One more partition is read; nothing changes for one that is read already.
    pub(super) fn add(&mut self, name: TopicPartition) -> Slot {
        let slot = match self.by_name.get(&name) {
            Some(slot) => *slot,
            None => {
                let slot = Slot(self.slots.len() as u32);
                self.by_name.insert(name.clone(), slot);
                self.slots.push(Partition::new(name));
                slot
            }
        };
        if !self.get(slot).assigned {
            self.assigned += 1;
            let partition = self.change(slot);
            let name = partition.name.clone();
            let (reading, at) = (partition.reading, partition.at);
            *partition = Partition { assigned: true, reading, at, dirty: true, ..Partition::new(name) };
            partition.restart();
        }
        slot
    }

    /// A partition is not read any more.
    pub(super) fn remove(&mut self, slot: Slot) {
        if self.get(slot).assigned {
            self.assigned -= 1;
            let partition = self.change(slot);
            partition.assigned = false;
            partition.restart();
        }
    }

    /// The next record to read is elsewhere.
    pub(super) fn seek(&mut self, slot: Slot, state: State, position: Position) {
        let partition = self.change(slot);
        (partition.state, partition.position) = (state, position);
        partition.replica = None;
        partition.restart();
    }

    /// The next record to read is to be found out; until then there is none.
    pub(super) fn reset(&mut self, slot: Slot, to: Reset) {
        self.seek(slot, State::Reset(to), NOWHERE);
    }

    /// Those that something has changed for since this was last asked.
    pub(super) fn take_dirty(&mut self) -> Vec<Slot> {
        let dirty = std::mem::take(&mut self.dirty);
        for slot in &dirty {
            self.slots[slot.0 as usize].dirty = false;
        }
        dirty
    }

    /// Whether anything has changed since then.
    pub(super) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Everything is looked at again, such as after new metadata.
    pub(super) fn change_all(&mut self) {
        let all: Vec<Slot> = self.assigned().map(|(slot, _)| slot).collect();
        for slot in all {
            self.change(slot);
        }
    }
}
