//! Producer snapshots, `<offset>.snapshot`: the state of the producers below an offset. Kafka believes a clean stop only with one at the log
//! end. A version, a checksum of all that follows it, a count, and 46 bytes for each producer.

use milena_records::crc32c;

use crate::producers::ProducerState;
use crate::scan::field;

const VERSION: i16 = 1;
/// Version, checksum, count.
const HEADER: usize = 10;
/// Where the checksum's range begins.
const CRC_FROM: usize = 6;
const ENTRY: usize = 46;

/// The file's content.
pub(crate) fn format(states: impl Iterator<Item = ProducerState>) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    for state in states {
        bytes.extend_from_slice(&state.producer_id.to_be_bytes());
        bytes.extend_from_slice(&state.epoch.to_be_bytes());
        bytes.extend_from_slice(&state.last_sequence.to_be_bytes());
        bytes.extend_from_slice(&state.last_offset.to_be_bytes());
        bytes.extend_from_slice(&state.offset_delta.to_be_bytes());
        bytes.extend_from_slice(&state.timestamp.to_be_bytes());
        bytes.extend_from_slice(&state.coordinator_epoch.to_be_bytes());
        bytes.extend_from_slice(&state.current_txn_first_offset.to_be_bytes());
    }
    let count = (bytes.len() - HEADER) / ENTRY;
    bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
    // A partition's producers fit into memory; 2^31 of them would not.
    bytes[CRC_FROM..HEADER].copy_from_slice(&i32::try_from(count).unwrap_or(i32::MAX).to_be_bytes());
    let crc = crc32c(&bytes[CRC_FROM..]);
    bytes[2..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// The entries of a file; `None` when it is damaged or of an unknown version.
pub(crate) fn parse(bytes: &[u8]) -> Option<impl Iterator<Item = ProducerState>> {
    let version = i16::from_be_bytes(*bytes.first_chunk()?);
    let crc = u32::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let count = i32::from_be_bytes(*bytes.get(CRC_FROM..)?.first_chunk()?);
    let entries = bytes.get(HEADER..)?;
    let complete = usize::try_from(count).ok()?.checked_mul(ENTRY)? == entries.len();
    let sound = version == VERSION && complete && crc == crc32c(&bytes[CRC_FROM..]);
    sound.then(|| entries.chunks_exact(ENTRY).map(parse_entry))
}

fn parse_entry(bytes: &[u8]) -> ProducerState {
    ProducerState {
        producer_id: i64::from_be_bytes(field(bytes, 0)),
        epoch: i16::from_be_bytes(field(bytes, 8)),
        last_sequence: i32::from_be_bytes(field(bytes, 10)),
        last_offset: i64::from_be_bytes(field(bytes, 14)),
        offset_delta: i32::from_be_bytes(field(bytes, 22)),
        timestamp: i64::from_be_bytes(field(bytes, 26)),
        coordinator_epoch: i32::from_be_bytes(field(bytes, 34)),
        current_txn_first_offset: i64::from_be_bytes(field(bytes, 38)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(producer_id: i64) -> ProducerState {
        ProducerState {
            producer_id,
            epoch: 3,
            last_sequence: 17,
            last_offset: 99,
            offset_delta: 4,
            timestamp: 1_700_000_000_000,
            coordinator_epoch: -1,
            current_txn_first_offset: -1,
        }
    }

    #[test]
    fn the_checksum_covers_the_count() {
        assert_eq!(format([].into_iter()), [0, 1, 0x48, 0x67, 0x4b, 0xc7, 0, 0, 0, 0]);
    }

    #[test]
    fn kafkas_snapshot_of_one_producer_is_read_and_written_alike() {
        let mut kafkas = vec![0, 1, 0x4e, 0xaf, 0x8f, 0xda, 0, 0, 0, 1];
        kafkas.resize(10 + 26, 0);
        kafkas.extend([0, 0, 1, 0xa2, 0x2e, 0xa8, 0x2a, 0x52]);
        kafkas.resize(10 + 46, 0xff);
        let states: Vec<ProducerState> = parse(&kafkas).unwrap().collect();
        let expected = ProducerState { epoch: 0, last_sequence: 0, last_offset: 0, offset_delta: 0, ..state(0) };
        assert_eq!(states, [ProducerState { timestamp: 0x01a2_2ea8_2a52, ..expected }]);
        assert_eq!(format(states.into_iter()), kafkas);
    }

    #[test]
    fn an_entry_has_46_bytes_and_comes_back_as_it_was() {
        let states = [state(1), state(i64::MAX)];
        let bytes = format(states.into_iter());
        assert_eq!(bytes.len(), 10 + 2 * 46);
        assert_eq!(parse(&bytes).unwrap().collect::<Vec<_>>(), states);
    }

    #[test]
    fn damaged_cut_and_unknown_files_are_not_believed() {
        let bytes = format([state(7)].into_iter());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(parse(&damaged).is_none(), "byte {at}");
            assert!(parse(&bytes[..at]).is_none(), "{at} bytes");
        }
        assert!(parse(&[&bytes[..], &[0]].concat()).is_none());
    }
}
