//! CRC-32C (Castagnoli), the checksum of record batches.

/// CRC-32C of `bytes`, with the processor's carry-less multiplication where it has one.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn the_check_value_of_the_castagnoli_polynomial_is_computed() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn every_length_agrees_with_the_bitwise_definition() {
        let bytes: Vec<u8> = (0..1100u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for len in (0..300).chain([511, 512, 513, 1023, 1024, 1025, 1100]) {
            let mut crc = !0u32;
            for byte in &bytes[..len] {
                crc ^= u32::from(*byte);
                for _ in 0..8 {
                    crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
                }
            }
            assert_eq!(crc32c(&bytes[..len]), !crc, "length {len}");
        }
    }
}
