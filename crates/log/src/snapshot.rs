//! Producer snapshots, `<offset>.snapshot`: the state of the producers below an offset. Kafka believes a clean stop only with one at the log
//! end.

use milena_records::crc32c;

/// The file of a log whose producers have no state: version, checksum, a count of zero.
pub(crate) fn empty() -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[..2].copy_from_slice(&1i16.to_be_bytes());
    let crc = crc32c(&bytes[6..]);
    bytes[2..6].copy_from_slice(&crc.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_covers_the_count() {
        assert_eq!(super::empty(), [0, 1, 0x48, 0x67, 0x4b, 0xc7, 0, 0, 0, 0]);
    }
}
