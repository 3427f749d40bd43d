//! Which partition of a coordinator's topic a key belongs to.

/// The partition of a group, a transactional id or a share key: Java's hash of the text over its UTF-16 units, without the
/// sign, modulo the number of partitions; 0 when there are none.
pub fn partition_for(key: &str, partitions: i32) -> i32 {
    let hash = key.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    // As in Kafka, the one number without a positive counterpart is 0.
    let hash = hash.checked_abs().unwrap_or(0);
    if partitions > 0 { hash % partitions } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::partition_for;

    #[test]
    fn keys_go_where_kafka_has_them() {
        // "polygenelubricants" has the hash i32::MIN.
        let found = ["", "g", "my-group", "grüße", "😀", "polygenelubricants"].map(|key| partition_for(key, 50));
        assert_eq!(found, [0, 3, 12, 23, 49, 0]);
        assert_eq!(partition_for("g", 0), 0);
    }
}
