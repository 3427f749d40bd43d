//! What the connections of a run share: offset checks, counters, latency histograms.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;

/// Shared state of a run.
pub(crate) struct World {
    started: Instant,
    /// Set during the steady window.
    pub recording: bool,
    /// Set when no new request may start.
    pub stopping: bool,
    /// By partition of the topic produced to.
    pub ledgers: Vec<Ledger>,
    /// Counters of the steady window.
    pub stats: Stats,
    /// Cold readers that have not reached the end of their topic.
    pub cold_left: usize,
}

impl World {
    /// Starts the clock of a run.
    pub(crate) fn new(ledgers: Vec<Ledger>) -> Self {
        Self {
            started: Instant::now(),
            recording: false,
            stopping: false,
            ledgers,
            stats: Stats::default(),
            cold_left: 0,
        }
    }

    /// Makes now the beginning of the run.
    pub(crate) fn restart_clock(&mut self) {
        self.started = Instant::now();
    }

    /// Time since the run began, in ns.
    pub(crate) fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

/// Counters of the steady window.
#[derive(Default)]
pub(crate) struct Stats {
    /// Produce requests answered.
    pub produce_requests: u64,
    /// Records acknowledged, or sent where acks is 0.
    pub produced_records: u64,
    /// Batch bytes acknowledged, or sent where acks is 0.
    pub produced_bytes: u64,
    /// From the intended send time of a Produce request to its reply.
    pub produce_latency: Latency,
    /// Times in which requests waited long.
    pub stalls: Stalls,
    /// By kind of reader.
    pub readers: [ReaderStats; ReaderKind::COUNT],
    /// From the intended send time of a batch to its arrival at a tail consumer.
    pub end_to_end: Latency,
    /// Other requests answered (Metadata, ApiVersions, those of groups).
    pub calls: u64,
    /// From sending such a request to its reply.
    pub call_latency: Latency,
    /// Rebalances that are over.
    pub rebalances: u64,
    /// From the leader's JoinGroup to its assignment.
    pub rebalance_latency: Latency,
}

/// A time in which requests waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    /// When the first of them was due, in ns since the run began.
    pub begin: u64,
    /// When the last of them was answered.
    pub end: u64,
}

/// Requests that waited longer than [`STALL`], those that waited at the same time taken together.
#[derive(Default)]
pub(crate) struct Stalls(Vec<Stall>);

/// A wait that long is worth a name, in ns.
const STALL: u64 = 10_000_000;
/// Stalls that a report lists.
const LISTED_STALLS: usize = 20;

impl Stalls {
    /// Takes in a request; their answers come in the order of time.
    pub(crate) fn note(&mut self, due: u64, answered: u64) {
        if answered - due < STALL {
            return;
        }
        match self.0.last_mut().filter(|last| due <= last.end) {
            Some(last) => *last = Stall { begin: last.begin.min(due), end: answered },
            None => self.0.push(Stall { begin: due, end: answered }),
        }
    }

    /// The longest ones, in the order of time.
    pub(crate) fn longest(&self) -> impl Iterator<Item = Stall> {
        let mut all = self.0.clone();
        all.sort_by_key(|stall| std::cmp::Reverse(stall.end - stall.begin));
        all.truncate(LISTED_STALLS);
        all.sort_by_key(|stall| stall.begin);
        all.into_iter()
    }
}

/// Counters of one kind of reader.
#[derive(Default)]
pub(crate) struct ReaderStats {
    /// Fetch requests answered.
    pub requests: u64,
    /// Of them, those that brought no record.
    pub empty: u64,
    /// Records received.
    pub records: u64,
    /// Batch bytes received.
    pub bytes: u64,
}

/// What a reader is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderKind {
    /// Follows the end of the log.
    Tail,
    /// Reads a log from its start, again and again.
    Replay,
    /// Reads a log once, from its start to its end.
    Cold,
    /// Waits on partitions to which nobody writes.
    Idle,
}

impl ReaderKind {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = 4;
}

/// A latency histogram: ns in, three significant digits.
pub(crate) struct Latency(pub Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("valid histogram bounds"))
    }
}

impl Latency {
    /// Adds one latency, in ns.
    pub(crate) fn add(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }
}

/// Checks one partition's base offsets: each acknowledged batch must take exactly the next ones.
pub(crate) struct Ledger {
    /// The offset that the next batch in order must get.
    next: i64,
    /// Offsets acknowledged ahead of `next`: only where several connections write.
    early: BTreeSet<i64>,
    /// Records of each batch.
    step: i64,
    /// Whether one connection alone writes here, so that replies must come in order.
    one_writer: bool,
    /// By batch sent, its intended send time in ns; kept where tail consumers need it.
    sent_at: Option<Vec<u64>>,
    /// Batches sent.
    sent: u64,
}

impl Ledger {
    /// A ledger of a partition whose log is empty.
    pub(crate) fn new(step: u32, one_writer: bool, keep_times: bool) -> Self {
        Self {
            next: 0,
            early: BTreeSet::new(),
            step: i64::from(step),
            one_writer,
            sent_at: keep_times.then(Vec::new),
            sent: 0,
        }
    }

    /// Notes that a batch goes out.
    pub(crate) fn send(&mut self, intended: u64) {
        self.sent += 1;
        if let Some(times) = &mut self.sent_at {
            times.push(intended);
        }
    }

    /// When the batch at `base` was meant to go out, in ns: known for single-writer partitions.
    pub(crate) fn sent_at(&self, base: i64) -> Option<u64> {
        self.sent_at.as_ref()?.get((base / self.step) as usize).copied()
    }

    /// Checks the base offset that the server gave to a batch.
    pub(crate) fn acknowledge(&mut self, base: i64) -> Result<()> {
        if base == self.next {
            self.next += self.step;
            while self.early.remove(&self.next) {
                self.next += self.step;
            }
            return Ok(());
        }
        ensure!(!self.one_writer, "base offset {base} where {} is next", self.next);
        let new = base > self.next && base % self.step == 0 && self.early.insert(base);
        ensure!(new, "base offset {base} is given twice, or splits a batch");
        Ok(())
    }

    /// The offset after all that was sent.
    pub(crate) fn expected_end(&self) -> i64 {
        self.sent as i64 * self.step
    }

    /// Checks that every batch sent has been acknowledged at its own offset.
    pub(crate) fn close(&self) -> Result<()> {
        ensure!(
            self.early.is_empty() && self.next == self.expected_end(),
            "acknowledged up to offset {}, but {} records were sent",
            self.next,
            self.expected_end(),
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_must_advance_exactly() {
        let mut ledger = Ledger::new(10, true, false);
        ledger.send(0);
        ledger.send(0);
        ledger.acknowledge(0).unwrap();
        assert!(ledger.close().is_err());
        assert!(ledger.acknowledge(20).is_err());
        ledger.acknowledge(10).unwrap();
        ledger.close().unwrap();
    }

    #[test]
    fn requests_that_wait_at_the_same_time_are_one_stall() {
        let mut stalls = Stalls::default();
        for (due, answered) in [(0, 9), (100, 130), (110, 131), (131, 145), (150, 155), (200, 210)] {
            stalls.note(due * 1_000_000, answered * 1_000_000);
        }
        let found: Vec<_> = stalls.longest().map(|s| (s.begin / 1_000_000, s.end / 1_000_000)).collect();
        assert_eq!(found, [(100, 145), (200, 210)]);
    }

    #[test]
    fn several_writers_may_be_answered_out_of_order_but_not_twice() {
        let mut ledger = Ledger::new(1, false, false);
        (0..3).for_each(|_| ledger.send(0));
        ledger.acknowledge(2).unwrap();
        assert!(ledger.acknowledge(2).is_err());
        ledger.acknowledge(0).unwrap();
        ledger.acknowledge(1).unwrap();
        ledger.close().unwrap();
    }
}
