//! The order in which Java walks over a hash map or hash set.

/// Places of a table that was not grown yet.
const FIRST_CAPACITY: usize = 16;

/// `String.hashCode`.
fn hash_text(text: &str) -> i32 {
    text.encode_utf16().fold(0, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// `TopicPartition.hashCode`.
pub(super) fn hash_partition(topic: &str, partition: i32) -> i32 {
    31i32.wrapping_mul(31i32.wrapping_add(partition)).wrapping_add(hash_text(topic))
}

/// Where an element with this hash is put in a table of so many places, a power of two.
pub(super) fn place(hash: i32, capacity: usize) -> usize {
    let hash = hash.cast_unsigned();
    (hash ^ (hash >> 16)) as usize & (capacity - 1)
}

/// Places of a table into which so many elements were put one by one.
pub(super) fn capacity(elements: usize) -> usize {
    let mut capacity = FIRST_CAPACITY;
    while elements * 4 > capacity * 3 {
        capacity *= 2;
    }
    capacity
}

/// Texts that were put into a table in the order given, in the order in which they come out: their places in the input.
pub(super) fn of_texts<'a>(texts: impl ExactSizeIterator<Item = &'a str>) -> Vec<usize> {
    let capacity = capacity(texts.len());
    let mut order: Vec<_> = texts.map(|text| place(hash_text(text), capacity)).enumerate().collect();
    order.sort_by_key(|(_, place)| *place);
    order.into_iter().map(|(index, _)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_java() {
        assert_eq!(hash_text("hello"), 99_162_322);
        assert_eq!(hash_text("polygenelubricants"), i32::MIN);
        assert_eq!(capacity(12), 16);
        assert_eq!(capacity(13), 32);
        // As `new HashSet<>(List.of("banana", "apple", "cherry")).toString()` prints them.
        assert_eq!(of_texts(["banana", "apple", "cherry"].into_iter()), [0, 1, 2]);
    }
}
