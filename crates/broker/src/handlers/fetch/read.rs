//! Reads what a Fetch request asks for: for each partition where its records stand in a file, not the records.

use std::sync::Arc;

use milena_log::{AbortedTxn, EpochEnd, LogError, Slice};
use milena_protocol::ErrorCode;

use super::context::{Fetch, SessionUse};
use crate::fetch_sessions::Slot;
use crate::partition::{FetchedSlice, Partition};

/// What one partition answers.
pub(super) struct PartitionRead {
    /// What went wrong.
    pub error: ErrorCode,
    /// Offset after the last record that is on all in-sync replicas, or -1.
    pub high_watermark: i64,
    /// Offset of the first record of an open transaction, else the high watermark, or -1.
    pub last_stable_offset: i64,
    /// First offset of the log, or -1.
    pub log_start: i64,
    /// Epoch and its end where the client's log and ours part.
    pub diverging: Option<(i32, i64)>,
    /// Where the records are.
    pub slice: Option<Slice>,
    /// Whose records they are.
    pub partition: Option<Arc<Partition>>,
    /// The aborted transactions among them that a reader of committed records must know of.
    pub aborted: Vec<AbortedTxn>,
    /// The partition does not exist: this is known without reading, and ends no wait.
    pub unknown: bool,
}

impl PartitionRead {
    fn failed(error: ErrorCode, unknown: bool) -> Self {
        Self {
            error,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start: -1,
            diverging: None,
            slice: None,
            partition: None,
            aborted: Vec::new(),
            unknown,
        }
    }

    /// Turns it into a failure.
    pub(super) fn fail(&mut self, error: ErrorCode) {
        *self = Self::failed(error, false);
    }

    /// Bytes of records.
    pub(super) fn len(&self) -> usize {
        self.slice.as_ref().map_or(0, |slice| slice.len)
    }
}

/// How far a read goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Memory: this comes back at once.
    Memory,
    /// The disk, for as long as it takes.
    Disk,
}

/// What all partitions answer, in the order of the fetch's slots.
pub(super) struct Read {
    /// One for each slot.
    pub partitions: Vec<PartitionRead>,
    bytes: i64,
    ends_wait: bool,
    nothing_to_wait_for: bool,
    /// Some records are further away than this read went: it is of no use, another one must go to the disk.
    pub wants_disk: bool,
}

impl Read {
    /// Whether any partition has records.
    pub(super) fn has_records(&self) -> bool {
        self.bytes > 0
    }

    /// Whether this is answered as it is, without waiting for more.
    pub(super) fn answers(&self, fetch: &Fetch) -> bool {
        if self.wants_disk {
            return false;
        }
        fetch.max_wait.is_zero()
            || self.ends_wait
            || self.nothing_to_wait_for
            || self.bytes >= fetch.min_bytes
            || matches!(fetch.session, SessionUse::Refused(_))
    }
}

/// Reads all partitions within the limits of the request.
pub(super) fn read(fetch: &Fetch, reach: Reach) -> Read {
    let mut partitions = fetch.partitions.lock();
    match reach {
        Reach::Memory => read_slots(partitions.slots(), fetch, reach),
        Reach::Disk => {
            // Whoever goes on with the session meanwhile does not wait for the disk; the answer notices it.
            let slots = partitions.slots().to_vec();
            drop(partitions);
            read_slots(&slots, fetch, reach)
        }
    }
}

fn read_slots(slots: &[Slot], fetch: &Fetch, reach: Reach) -> Read {
    let mut read =
        Read { partitions: Vec::new(), bytes: 0, ends_wait: false, nothing_to_wait_for: true, wants_disk: false };
    read.partitions.reserve(slots.len());
    let mut left = fetch.max_bytes;
    for slot in slots {
        let is_on_disk = |partition: &Arc<Partition>| {
            !partition.is_recent(slot.offset) && slot.offset < partition.readable_to(fetch.isolation())
        };
        if reach == Reach::Memory && slot.place.as_ref().is_ok_and(is_on_disk) {
            read.wants_disk = true;
            break;
        }
        let part = read_slot(slot, fetch, left, read.bytes == 0);
        read.nothing_to_wait_for &= part.unknown;
        read.ends_wait |= (part.error != ErrorCode::NONE && !part.unknown) || part.diverging.is_some();
        let len = part.len() as i64;
        read.bytes += len;
        if !part.unknown {
            left = (left - len).max(0);
        }
        read.partitions.push(part);
    }
    read
}

fn read_slot(slot: &Slot, fetch: &Fetch, left: i64, at_least_one: bool) -> PartitionRead {
    let partition = match &slot.place {
        // It was deleted, or its directory has failed, while the fetch waited.
        Ok(partition) if partition.is_retired() => return PartitionRead::failed(partition.retired_error(), false),
        Ok(partition) => partition,
        Err(ErrorCode::INCONSISTENT_TOPIC_ID) => {
            return PartitionRead::failed(ErrorCode::INCONSISTENT_TOPIC_ID, false);
        }
        Err(error) => return PartitionRead::failed(*error, true),
    };
    read_partition(partition, slot, fetch, left, at_least_one)
        .unwrap_or_else(|error| PartitionRead::failed(error, false))
}

fn read_partition(
    partition: &Arc<Partition>,
    slot: &Slot,
    fetch: &Fetch,
    left: i64,
    at_least_one: bool,
) -> Result<PartitionRead, ErrorCode> {
    if slot.current_leader_epoch >= 0 {
        partition.check_leader_epoch(slot.current_leader_epoch)?;
    }
    if fetch.replica >= 0 {
        // There is no other replica. One that knows the epoch may be told of by metadata that is still on its way.
        let knows_epoch = slot.current_leader_epoch >= 0;
        return Err(if knows_epoch { ErrorCode::UNKNOWN_LEADER_EPOCH } else { ErrorCode::NOT_LEADER_OR_FOLLOWER });
    }
    let last_stable_offset = partition.last_stable_offset();
    let mut read = PartitionRead {
        error: ErrorCode::NONE,
        high_watermark: partition.high_watermark(),
        last_stable_offset,
        log_start: partition.log_start_offset(),
        diverging: None,
        slice: None,
        partition: None,
        aborted: Vec::new(),
        unknown: false,
    };
    if slot.last_fetched_epoch >= 0 {
        read.diverging = diverging(partition, slot)?;
        if read.diverging.is_some() {
            return Ok(read);
        }
    }
    if !partition.reaches(slot.offset) {
        return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
    }
    let isolation = fetch.isolation();
    if slot.offset >= partition.readable_to(isolation) {
        return Ok(read);
    }
    // Kafka finds a negative limit where it begins to read, and not before.
    let limit = i64::from(slot.max_bytes).min(left);
    let limit = usize::try_from(limit).map_err(|_| ErrorCode::UNKNOWN_SERVER_ERROR)?;
    if limit == 0 && !at_least_one {
        return Ok(read);
    }
    let found = partition.read(slot.offset, limit, at_least_one, isolation);
    if let Some(FetchedSlice { slice, aborted }) = found.map_err(|error| code_of(partition, &error))? {
        (read.slice, read.partition, read.aborted) = (Some(slice), Some(Arc::clone(partition)), aborted);
    }
    Ok(read)
}

/// Where the client's log and ours part, if they do.
fn diverging(partition: &Partition, slot: &Slot) -> Result<Option<(i32, i64)>, ErrorCode> {
    let EpochEnd { epoch, end_offset: end } = partition.end_offset_for_epoch(slot.last_fetched_epoch);
    if epoch < 0 || end < 0 {
        return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
    }
    Ok((epoch < slot.last_fetched_epoch || end < slot.offset).then_some((epoch, end)))
}

fn code_of(partition: &Partition, error: &LogError) -> ErrorCode {
    if matches!(error, LogError::OffsetOutOfRange { .. }) {
        return ErrorCode::OFFSET_OUT_OF_RANGE;
    }
    tracing::error!(%partition, %error, "a read failed");
    match error {
        LogError::Corrupt { .. } => ErrorCode::CORRUPT_MESSAGE,
        _ => partition.failure_error(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use milena_io::{SimDisk, StepKind};
    use milena_log::{Marker, VerificationStart};
    use milena_net::Outgoing;
    use milena_records::{BatchBuilder, EndTransaction};
    use parking_lot::Mutex;

    use super::super::reply;
    use super::*;
    use crate::fetch_sessions::{FetchPartitions, FetchSessions, TopicKey};
    use crate::partition::Isolation;
    use crate::replicas::Replicas;
    use crate::test_partitions::{append, topic_on};

    /// The partition `t-0` with the records 0 to 3, of which a former run has left the first three.
    fn partition(disk: &Arc<SimDisk>) -> Arc<Partition> {
        topic_on(disk, &[&[&[1, 2], &[3]]]);
        only(&topic_on(disk, &[&[&[4]]]))
    }

    fn only(replicas: &Replicas) -> Arc<Partition> {
        Arc::clone(replicas.topics().by_name("t").unwrap().partition(0).unwrap())
    }

    fn fetch(partition: &Arc<Partition>, offset: i64) -> Fetch {
        let mut partitions = FetchPartitions::default();
        let slot = || Slot::new(Arc::clone(&partition.topic), 0, Ok(Arc::clone(partition)));
        let mut slots = partitions.topic(TopicKey::Name("t".into()));
        let slot = slots.entry(0, slot);
        (slot.offset, slot.max_bytes, slot.current_leader_epoch, slot.last_fetched_epoch) = (offset, 1 << 20, -1, -1);
        Fetch {
            version: 12,
            node_id: 1,
            correlation_id: 1,
            max_wait: Duration::from_secs(9),
            min_bytes: 1,
            max_bytes: 1 << 20,
            isolation: 0,
            replica: -1,
            partitions: Arc::new(Mutex::new(partitions)),
            session: SessionUse::None,
        }
    }

    #[test]
    fn only_what_was_appended_lately_is_read_without_the_disk() {
        let partition = partition(&Arc::new(SimDisk::new(0)));
        assert_eq!(
            [-1, 0, 2, 3, 4, 5].map(|offset| partition.is_recent(offset)),
            [true, false, false, true, true, true]
        );
        for (offset, is_far) in [(0, true), (2, true), (3, false)] {
            let fetch = fetch(&partition, offset);
            let at_once = read(&fetch, Reach::Memory);
            assert_eq!((at_once.wants_disk, at_once.answers(&fetch)), (is_far, !is_far));
            let read = read(&fetch, Reach::Disk);
            assert!(read.answers(&fetch));
            let slice = read.partitions[0].slice.as_ref().unwrap();
            assert_eq!((slice.cold, slice.position > 0), (is_far, offset > 1));
        }
    }

    #[test]
    fn a_read_that_waits_for_the_disk_holds_no_append_up() {
        let disk = Arc::new(SimDisk::new(0));
        let partition = partition(&disk);
        let fetch = fetch(&partition, 0);
        disk.hold(StepKind::Read);
        let read = std::thread::scope(|scope| {
            let reading = scope.spawn(|| read(&fetch, Reach::Disk));
            while disk.held(StepKind::Read) == 0 {
                std::thread::yield_now();
            }
            append(&partition, &[5]);
            disk.release(StepKind::Read);
            reading.join().unwrap()
        });
        assert_eq!((read.partitions[0].high_watermark, partition.high_watermark()), (4, 5));
        assert!(read.partitions[0].len() > 0);
    }

    #[test]
    fn what_compaction_took_is_not_missing_whatever_the_policy_is_now() {
        let disk = Arc::new(SimDisk::new(0));
        {
            let partition = only(&topic_on(&disk, &[&[&[1]]]));
            let mut builder = BatchBuilder::new().base_offset(10);
            builder.push(2, None, Some(b"value"), &[]);
            let mut log = partition.log();
            log.append_as_follower(&builder.build().unwrap(), 0).unwrap();
            log.close().unwrap();
        }
        let partition = only(&topic_on(&disk, &[&[]]));
        let missing = || {
            let found = partition.read(5, 1 << 20, true, Isolation::Uncommitted).unwrap().unwrap();
            found.slice.missing.map(|missing| (missing.from, missing.to))
        };
        assert_eq!(missing(), Some((5, 10)));
        for (cleaned_to, expected) in [(10, None), (6, None), (5, Some((5, 10)))] {
            partition.set_cleaned_to(Some(cleaned_to));
            assert_eq!(missing(), expected, "{cleaned_to}");
        }
    }

    #[test]
    fn aborted_transactions_are_looked_for_without_holding_an_append_up() {
        let disk = Arc::new(SimDisk::new(0));
        {
            let partition = only(&topic_on(&disk, &[&[&[1]]]));
            let start = VerificationStart { producer_id: 7, epoch: 0, base_sequence: 0, epoch_bumps: false, now_ms: 0 };
            let guard = partition.begin_verification(&start).unwrap();
            let mut builder = BatchBuilder::new().producer(7, 0, 0).transactional(true);
            builder.push(2, None, Some(b"value"), &[]);
            partition.append_as_leader(&mut [&mut builder.build().unwrap()], &[guard], 0).unwrap();
            let marker = Marker {
                producer_id: 7,
                producer_epoch: 0,
                end: EndTransaction { committed: false, coordinator_epoch: 0 },
                transaction_version: 1,
                log_append_time: false,
            };
            partition.append_marker(&marker, 0).unwrap().unwrap();
            partition.log().close().unwrap();
        }
        let partition = only(&topic_on(&disk, &[&[&[4]]]));
        let fetch = Fetch { isolation: 1, ..fetch(&partition, 0) };
        disk.hold_where(StepKind::Read, ".txnindex");
        let read = std::thread::scope(|scope| {
            let reading = scope.spawn(|| read(&fetch, Reach::Disk));
            while disk.held(StepKind::Read) == 0 {
                std::thread::yield_now();
            }
            append(&partition, &[5]);
            disk.release(StepKind::Read);
            reading.join().unwrap()
        });
        assert_eq!(partition.high_watermark(), 5);
        let aborted: Vec<_> = read.partitions[0].aborted.iter().map(|it| (it.producer_id, it.first_offset)).collect();
        assert_eq!(aborted, [(7, 1)]);
    }

    #[test]
    fn a_session_can_be_gone_on_with_while_its_records_are_read() {
        let disk = Arc::new(SimDisk::new(0));
        let partition = partition(&disk);
        let fetch = fetch(&partition, 0);
        let while_held = |read: &(dyn Fn() + Sync)| {
            disk.hold(StepKind::Read);
            std::thread::scope(|scope| {
                let reading = scope.spawn(read);
                while disk.held(StepKind::Read) == 0 {
                    std::thread::yield_now();
                }
                let is_free = fetch.partitions.try_lock().is_some();
                disk.release(StepKind::Read);
                reading.join().unwrap();
                is_free
            })
        };
        let found = Mutex::new(None);
        assert!(while_held(&|| *found.lock() = Some(read(&fetch, Reach::Disk))));
        // The records are copied into the answer.
        assert!(while_held(&|| {
            let (sessions, mut out) = (FetchSessions::new(0, Duration::ZERO), Outgoing::new());
            reply::answer(&fetch, found.lock().as_mut().unwrap(), &sessions, &mut out).unwrap();
            assert!(out.bytes.len() > 61);
        }));
    }
}
