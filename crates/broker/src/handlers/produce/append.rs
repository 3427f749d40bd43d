//! Appends the batches of taken-together Produce requests: their records are checked before the partition's lock is taken,
//! then there is one write for each partition. The lists need no memory of their own for the requests of a client that waits
//! for each answer.

use milena_log::Unwritten;
use milena_protocol::ErrorCode;
use smallvec::SmallVec;

use super::plan::{Part, Plan};
use super::records::{self, Accepted, Tools};

/// Appends every batch that passed its checks and notes its offset. Returns whether that took long.
pub(super) fn append(frames: &mut [&mut [u8]], plan: &mut Plan, now_ms: i64) -> bool {
    let received = frames.iter().map(|frame| frame.len()).sum();
    let mut batches = batch_slices(frames, &plan.parts);
    let parts = &mut plan.parts;
    let mut order: SmallVec<[usize; 8]> = (0..parts.len()).filter(|&at| parts[at].partition.is_some()).collect();
    order.sort_by_key(|&at| parts[at].partition_key());
    Tools::with(|tools| {
        tools.begin(received);
        let mut rest = &order[..];
        while let Some(&first) = rest.first() {
            let key = parts[first].partition_key();
            let len = rest.iter().take_while(|&&at| parts[at].partition_key() == key).count();
            let (group, after) = rest.split_at(len);
            append_group(group, parts, &mut batches, now_ms, tools);
            rest = after;
        }
        tools.have_worked_long()
    })
}

/// The bytes of each part's batch: disjoint pieces of the frames, in the order of the parts.
fn batch_slices<'f>(frames: &'f mut [&mut [u8]], parts: &[Part]) -> SmallVec<[Option<&'f mut [u8]>; 8]> {
    let mut slices = SmallVec::with_capacity(parts.len());
    let mut parts = parts.iter().peekable();
    for (number, frame) in frames.iter_mut().enumerate() {
        let (mut rest, mut at) = (&mut **frame, 0);
        while let Some(part) = parts.next_if(|part| part.frame == number) {
            if part.batch.is_empty() {
                slices.push(None);
                continue;
            }
            let (before, after) = rest.split_at_mut(part.batch.end - at);
            slices.push(Some(&mut before[part.batch.start - at..]));
            (rest, at) = (after, part.batch.end);
        }
    }
    slices
}

/// Appends the batches of one partition.
fn append_group(
    group: &[usize],
    parts: &mut [Part],
    batches: &mut [Option<&mut [u8]>],
    now_ms: i64,
    tools: &mut Tools,
) {
    let Some(partition) = parts[group[0]].partition.clone() else { return };
    let mut good = check_records(group, parts, batches, now_ms, tools);
    if good.is_empty() {
        return;
    }
    let guards = good.iter().map(|(at, _)| parts[*at].guard);
    let guards: SmallVec<[_; 8]> =
        if guards.clone().any(|guard| guard.is_some()) { guards.collect() } else { SmallVec::new() };
    let mut taken: SmallVec<[&mut [u8]; 8]> = SmallVec::with_capacity(good.len());
    for (at, accepted) in &mut good {
        taken.extend(accepted.rebuilt.as_deref_mut().or_else(|| batches[*at].take()));
    }
    let appended = partition.append_as_leader(&mut taken, &guards, now_ms);
    let offsets: SmallVec<[i64; 8]> = taken.iter().map(|batch| base_offset(batch)).collect();
    drop(taken);
    match appended {
        Ok(appended) => {
            let end = appended.last_offset + 1;
            let awaits = if partition.high_watermark() >= end { 0 } else { end };
            for ((at, accepted), base_offset) in good.iter().zip(offsets) {
                parts[*at].base_offset = base_offset;
                parts[*at].append_time = accepted.append_time.unwrap_or(-1);
                parts[*at].log_start_offset = partition.log_start_offset();
                parts[*at].awaits = awaits;
            }
            for (place, why) in appended.unwritten {
                leave_out(&mut parts[good[place].0], why);
            }
        }
        Err(_) => {
            good.iter().for_each(|(at, _)| parts[*at].refuse(partition.failure_error(), None));
        }
    }
}

/// Notes why a batch was not written: its producer's sequences say so. One that was written before is answered as then.
fn leave_out(part: &mut Part, why: Unwritten) {
    (part.base_offset, part.append_time) = match why {
        Unwritten::Duplicate { first_offset, timestamp } => (first_offset, timestamp),
        _ => (-1, -1),
    };
    match why {
        Unwritten::Duplicate { .. } => {}
        Unwritten::OutOfOrderSequence => part.refuse_at_log(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER),
        Unwritten::InvalidProducerEpoch => part.refuse_at_log(ErrorCode::INVALID_PRODUCER_EPOCH),
        Unwritten::InvalidTransactionState => part.refuse_at_log(ErrorCode::INVALID_TXN_STATE),
        Unwritten::CoordinatorFenced => part.refuse_at_log(ErrorCode::TRANSACTION_COORDINATOR_FENCED),
    }
}

/// Checks the records of one partition's batches. Those that may be stored come back.
fn check_records(
    group: &[usize],
    parts: &mut [Part],
    batches: &mut [Option<&mut [u8]>],
    now_ms: i64,
    tools: &mut Tools,
) -> SmallVec<[(usize, Accepted); 8]> {
    let mut good = SmallVec::with_capacity(group.len());
    for &at in group {
        let part = &mut parts[at];
        let (Some(bytes), Some(partition)) = (&mut batches[at], &part.partition) else { continue };
        if !part.is_good() {
            continue;
        }
        let settings = partition.settings();
        let accepted = records::accept(bytes, &settings.records, now_ms, tools);
        match accepted {
            // Refused here and not by the log, which would refuse those of other requests with it.
            Ok(accepted) if accepted.rebuilt.as_deref().unwrap_or(bytes).len() as u64 > settings.log.segment_bytes => {
                part.refuse(ErrorCode::RECORD_LIST_TOO_LARGE, None);
            }
            Ok(accepted) => good.push((at, accepted)),
            Err(rejection) => part.reject(rejection),
        }
    }
    good
}

/// The offset that an append has stamped into a batch.
fn base_offset(batch: &[u8]) -> i64 {
    batch.first_chunk().map_or(-1, |bytes| i64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use milena_records::BatchBuilder;

    use super::super::plan::Part;
    use super::*;
    use crate::test_partitions;

    #[test]
    fn a_partition_that_was_deleted_between_check_and_append_is_unknown() {
        let replicas = test_partitions::topic(&[&[]]);
        let partition = replicas.topics().by_name("t").unwrap().served(0).unwrap().clone();
        let mut builder = BatchBuilder::new();
        builder.push(0, None, Some(b"value"), &[]);
        let mut frame = builder.build().unwrap();
        let mut plan = Plan::default();
        plan.parts.push(Part::new(0, 0..frame.len(), 0, Ok(partition.clone())));
        partition.retire();
        append(&mut [&mut frame], &mut plan, 0);
        assert_eq!(plan.parts[0].error, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
}
