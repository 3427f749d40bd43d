//! What a request names more than once.

use std::collections::HashSet;
use std::hash::Hash;

/// Those of `all` that occur more than once.
pub(crate) struct Repeated<T> {
    /// Each once, in the order of their second occurrence.
    pub(crate) in_order: Vec<T>,
    all: HashSet<T>,
}

impl<T: Copy + Eq + Hash> Repeated<T> {
    /// Finds them.
    pub(crate) fn of(all: impl Iterator<Item = T>) -> Self {
        let (mut seen, mut repeated) = (HashSet::new(), Self { in_order: Vec::new(), all: HashSet::new() });
        for one in all {
            if !seen.insert(one) && repeated.all.insert(one) {
                repeated.in_order.push(one);
            }
        }
        repeated
    }

    /// Whether `one` is among them.
    pub(crate) fn contains(&self, one: T) -> bool {
        self.all.contains(&one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_that_occurs_again_is_told_once_in_the_order_of_its_second_occurrence() {
        let repeated = Repeated::of("abcbbaa".chars());
        assert_eq!(repeated.in_order, ['b', 'a']);
        assert!(repeated.contains('a') && !repeated.contains('c'));
    }
}
