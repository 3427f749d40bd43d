//! Which partition of a coordinator's topic a key belongs to.

/// The partition of a group, a transactional id or a share key: Java's hash of the text over its UTF-16 units, without the
/// sign, modulo the number of partitions; 0 when there are none.
pub fn partition_for(key: &str, partitions: i32) -> i32 {
    // As in Kafka, the one number without a positive counterpart is 0.
    let hash = java_hash(key).checked_abs().unwrap_or(0);
    if partitions > 0 { hash % partitions } else { 0 }
}

/// Java's hash of a text.
fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// Where a text stands among `len` of them in a hash table of Java's, before those with higher places. What Kafka takes
/// from such a table first is what comes first in this order.
pub(crate) fn java_place(text: &str, len: usize) -> u32 {
    /// Java grows a table when three quarters of its places are taken.
    const LEAST_PLACES: u32 = 16;
    let needed = u32::try_from((len * 4).div_ceil(3)).unwrap_or(u32::MAX >> 1);
    let hash = java_hash(text).cast_unsigned();
    (hash ^ (hash >> 16)) & (needed.next_power_of_two().max(LEAST_PLACES) - 1)
}

#[cfg(test)]
mod tests {
    use super::{java_place, partition_for};

    #[test]
    fn texts_stand_where_java_puts_them() {
        // The order of Java's HashMap for these names.
        let order = ["zz", "p1", "sticky", "range", "roundrobin", "connect", "cooperative-sticky"];
        let mut names = order;
        names.sort_unstable();
        names.sort_by_key(|name| java_place(name, 7));
        assert_eq!(names, order);
    }

    #[test]
    fn keys_go_where_kafka_has_them() {
        // "polygenelubricants" has the hash i32::MIN.
        let found = ["", "g", "my-group", "grüße", "😀", "polygenelubricants"].map(|key| partition_for(key, 50));
        assert_eq!(found, [0, 3, 12, 23, 49, 0]);
        assert_eq!(partition_for("g", 0), 0);
    }
}
