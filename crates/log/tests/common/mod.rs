//! Batches by hand, and logs on a simulated disk.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_io::{Disk, FileExt, OpenMode, SimDisk};
use milena_log::{Log, LogConfig, OpenParams, ProducerState, Recovery};
use milena_records::{BATCH_OVERHEAD, Batch, BatchMut, batches};

/// A batch of `count` records that are `payload` bytes of noise together: the log never looks into them.
pub(crate) fn batch(count: i32, payload: usize, max_timestamp: i64) -> Vec<u8> {
    let mut bytes = vec![0; BATCH_OVERHEAD + payload];
    let length = (bytes.len() - 12) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[12..16].copy_from_slice(&(-1i32).to_be_bytes());
    bytes[16] = 2;
    bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    bytes[27..35].copy_from_slice(&max_timestamp.to_be_bytes());
    bytes[35..43].copy_from_slice(&max_timestamp.to_be_bytes());
    bytes[43..57].fill(0xff);
    bytes[57..61].copy_from_slice(&count.to_be_bytes());
    for (at, byte) in bytes[BATCH_OVERHEAD..].iter_mut().enumerate() {
        *byte = (at as i64 * 31 + max_timestamp) as u8;
    }
    BatchMut::parse(&mut bytes).unwrap().update_crc();
    bytes
}

/// A batch of an idempotent producer.
pub(crate) fn sent_by(producer_id: i64, epoch: i16, base_sequence: i32, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[43..51].copy_from_slice(&producer_id.to_be_bytes());
    bytes[51..53].copy_from_slice(&epoch.to_be_bytes());
    bytes[53..57].copy_from_slice(&base_sequence.to_be_bytes());
    BatchMut::parse(&mut bytes).unwrap().update_crc();
    bytes
}

/// A batch of a transaction.
pub(crate) fn transactional(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[22] |= 0x10;
    BatchMut::parse(&mut bytes).unwrap().update_crc();
    bytes
}

/// What a walk over all batches says of their producers, in the order of their ids.
pub(crate) fn producers_of(bytes: &[u8]) -> Vec<ProducerState> {
    let mut states: Vec<ProducerState> = Vec::new();
    for batch in batches(bytes).map(Result::unwrap).filter(Batch::has_producer_id) {
        states.retain(|state| state.producer_id != batch.producer_id());
        states.push(ProducerState {
            producer_id: batch.producer_id(),
            epoch: batch.producer_epoch(),
            last_sequence: batch.last_sequence(),
            last_offset: batch.last_offset(),
            offset_delta: batch.last_offset_delta(),
            timestamp: batch.max_timestamp(),
            coordinator_epoch: -1,
            current_txn_first_offset: -1,
        });
    }
    states.sort_by_key(|state| state.producer_id);
    states
}

/// A batch with its offsets and epoch.
pub(crate) fn placed(base_offset: i64, epoch: i32, mut bytes: Vec<u8>) -> Vec<u8> {
    let mut batch = BatchMut::parse(&mut bytes).unwrap();
    batch.set_base_offset(base_offset);
    batch.set_partition_leader_epoch(epoch);
    bytes
}

pub(crate) fn dir() -> PathBuf {
    PathBuf::from("/data/t-0")
}

/// A disk with an empty log directory on it.
pub(crate) fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir(Path::new("/data")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

pub(crate) fn small() -> LogConfig {
    LogConfig { segment_bytes: 4096, index_interval_bytes: 256, ..LogConfig::default() }
}

pub(crate) fn open(disk: &SimDisk, config: &LogConfig, clean: bool, recovery_point: i64) -> (Log, Recovery) {
    let params = OpenParams { clean, recovery_point, log_start_offset: 0, cleaned_to: 0, now_ms: 0 };
    Log::open(Arc::new(disk.clone()), &dir(), Arc::new(config.clone()), params).unwrap()
}

pub(crate) fn append(log: &mut Log, bytes: Vec<u8>) -> i64 {
    let mut bytes = bytes;
    log.append(&mut [&mut bytes], &[], 0, 0).unwrap().first_offset
}

/// All bytes of the log from `offset` on, read fetch by fetch.
pub(crate) fn read_from(log: &Log, offset: i64, max_bytes: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut offset = offset;
    while let Some(slice) = log.read(offset, max_bytes, i64::MAX, true).unwrap() {
        let mut bytes = vec![0; slice.len];
        slice.file.read_exact_at(&mut bytes, slice.position).unwrap();
        let whole: Vec<Batch<'_>> = batches(&bytes).map_while(Result::ok).collect();
        assert!(!whole.is_empty(), "a slice begins with a whole batch");
        for batch in whole {
            all.extend_from_slice(batch.bytes());
            offset = batch.next_offset();
        }
    }
    all
}

pub(crate) fn file(disk: &SimDisk, name: &str) -> Vec<u8> {
    disk.open(&dir().join(name), OpenMode::Read).unwrap().read_all(1 << 30).unwrap()
}

pub(crate) fn write_file(disk: &SimDisk, name: &str, bytes: &[u8]) {
    let file = disk.open(&dir().join(name), OpenMode::Create).unwrap();
    file.truncate(0).unwrap();
    file.write_at(bytes, 0).unwrap();
}

pub(crate) fn names(disk: &SimDisk) -> Vec<String> {
    disk.list(&dir()).unwrap().into_iter().map(|entry| entry.name).collect()
}

/// The offset index as a list of (last offset, position).
pub(crate) fn index_entries(disk: &SimDisk, base: i64) -> Vec<(i64, u64)> {
    let bytes = file(disk, &format!("{base:020}.index"));
    assert_eq!(bytes.len() % 8, 0);
    let field = |bytes: &[u8]| i64::from(u32::from_be_bytes(bytes.try_into().unwrap()));
    bytes.chunks(8).map(|entry| (base + field(&entry[..4]), field(&entry[4..]) as u64)).collect()
}

/// The time index as a list of (timestamp, offset).
pub(crate) fn time_entries(disk: &SimDisk, base: i64) -> Vec<(i64, i64)> {
    let bytes = file(disk, &format!("{base:020}.timeindex"));
    assert_eq!(bytes.len() % 12, 0);
    let time = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().unwrap());
    let offset = |bytes: &[u8]| i64::from(u32::from_be_bytes(bytes.try_into().unwrap()));
    bytes.chunks(12).map(|entry| (time(&entry[..8]), base + offset(&entry[8..]))).collect()
}
