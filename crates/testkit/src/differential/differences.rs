//! Where Milena is known to differ from Apache Kafka, and why. The table is data; `docs/differences.md` tells the same
//! to readers, and a test keeps the two together.

/// A known difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Difference {
    /// The id of a case or request; a trailing `*` stands for anything.
    pub(super) id: &'static str,
    /// Why it is kept.
    pub(super) reason: &'static str,
}

const TABLE: &str = include_str!("../../data/differences.tsv");

/// The table's rows.
pub(super) fn all() -> impl Iterator<Item = Difference> {
    let rows = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.filter_map(|line| line.split_once('\t')).map(|(id, reason)| Difference { id, reason })
}

/// The reason why a case is known to differ.
pub(super) fn reason(id: &str) -> Option<&'static str> {
    all().find(|d| matches(d.id, id)).map(|d| d.reason)
}

fn matches(pattern: &str, id: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == id, |start| id.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_difference_is_told_to_readers() {
        let told = std::fs::read_to_string(crate::cache::repository().join("docs/differences.md")).unwrap();
        for difference in all() {
            assert!(told.contains(difference.reason), "docs/differences.md does not say: {}", difference.reason);
        }
    }

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches("prod.*", "prod.ok") && matches("prod.ok", "prod.ok") && !matches("prod.ok", "prod.okay"));
    }
}
