//! A disk that fails, or is full, at each step of what the broker does to files while it runs: the directory of that step goes offline, or
//! stays; the others serve on; nothing acknowledged is lost.

use super::*;
use crate::retention::delete_old_segments_or_tell;

/// What is done, most of it to the partition in `/b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Roll,
    Flush,
    Retention,
    DelayedDeletion,
    Checkpoints,
    DeleteRecords,
    Creation,
    PartitionDeletion,
}

const DEEDS: [Deed; 8] = [
    Deed::Roll,
    Deed::Flush,
    Deed::Retention,
    Deed::DelayedDeletion,
    Deed::Checkpoints,
    Deed::DeleteRecords,
    Deed::Creation,
    Deed::PartitionDeletion,
];

/// Timestamps as far apart as this are not in one segment.
const SEGMENT_MS: i64 = 100;

/// Appends a record to the partition in `/b`; whether it is acknowledged.
fn append(node: &Node, timestamp: i64) -> bool {
    let mut builder = BatchBuilder::new();
    builder.push(timestamp, None, Some(b"value"), &[]);
    let mut batch = builder.build().unwrap();
    node.partition(1).append_as_leader(&mut [&mut batch], &[], timestamp).is_ok()
}

/// Three directories, and a partition with five segments in the second.
fn prepared(deed: Deed, seed: u64) -> Node {
    let node = Node::with_seed(seed);
    // Nothing happens on a thread of its own.
    node.storage.flusher().stop();
    node.partition(1).set_settings(settings(&[("segment.ms", "100"), ("file.delete.delay.ms", "0")]));
    assert!((1..5).all(|at| append(&node, 2 * at * SEGMENT_MS)));
    assert_eq!(node.partition(1).log().segment_base_offsets().count(), 5);
    node.storage.sync_created();
    if deed == Deed::DelayedDeletion {
        perform(Deed::Retention, &node);
    }
    node
}

fn perform(deed: Deed, node: &Node) {
    let (storage, partition) = (&node.storage, node.partition(1));
    match deed {
        Deed::Roll => drop(append(node, 100 * SEGMENT_MS)),
        Deed::Flush => partition.flush_now(),
        Deed::Retention => {
            let _ = partition.change_log_start(|log| log.set_log_start_offset(3));
            delete_old_segments_or_tell(&partition, storage);
        }
        Deed::DelayedDeletion => storage.delete_due(),
        Deed::Checkpoints => {
            Checkpoint::ALL.into_iter().for_each(|which| drop(storage.checkpoint(&node.replicas, which)))
        }
        Deed::DeleteRecords => {
            let _ = partition.change_log_start(|log| log.set_log_start_offset(2));
            let _ = storage.checkpoint(&node.replicas, Checkpoint::LogStart);
        }
        Deed::Creation => {
            drop(node.create("u", 0));
            storage.sync_created();
        }
        Deed::PartitionDeletion => {
            partition.retire();
            storage.delete_later(&partition);
            storage.delete_due();
        }
    }
}

/// Lets step number `at` of a deed fail; false when it has not so many.
fn fail(deed: Deed, at: u64, kind: FaultKind) -> bool {
    let node = prepared(deed, at);
    let failing = node.disk.steps() + at;
    node.disk.fail_at(Some((failing, kind)));
    perform(deed, &node);
    node.disk.fail_at(None);
    let trace = node.disk.trace();
    let Some(step) = trace.get(failing as usize - 1) else { return false };
    let what = format!("{deed:?}, {kind:?} at {step}");
    let failed = DIRS.iter().position(|dir| step.contains(&format!(" {dir}"))).unwrap();
    let offline = node.offline();
    match kind {
        FaultKind::Io => assert_eq!(offline, [failed], "{what}"),
        FaultKind::NoSpace => assert_eq!(offline, [0; 0], "{what}"),
    }
    let end = node.partition(1).high_watermark();
    for index in (0..3).filter(|index| *index != 1 && !offline.contains(&(*index as usize))) {
        node.append(index).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    if deed == Deed::PartitionDeletion {
        return true;
    }
    if !offline.contains(&1) {
        let partition = node.partition(1);
        let found = partition.read(partition.log_start_offset().min(end - 1), 1 << 20, true, Isolation::Uncommitted);
        assert!(found.unwrap().is_some(), "{what}");
        // A failed sync is final.
        let goes_on = append(&node, 1);
        assert!(goes_on || partition.log().is_poisoned(), "{what}");
    }
    let end = node.partition(1).high_watermark();
    let Node { disk, storage, .. } = node;
    drop(storage);
    disk.kill_process();
    let storage = lock(&disk, &[]).unwrap();
    let (found, _) = open(&storage, &[(0, id(101)), (1, id(102)), (2, id(103))]);
    assert_eq!(found[1], (1, 1, end), "{what}");
    true
}

#[test]
fn whatever_step_fails_its_directory_goes_offline_and_a_full_disk_takes_none() {
    for deed in DEEDS {
        for kind in [FaultKind::Io, FaultKind::NoSpace] {
            let steps = (1..).take_while(|at| fail(deed, *at, kind)).count();
            assert!(steps > 0, "{deed:?} has no steps");
        }
    }
}
