//! The nearest known name for one that nobody knows, by edit distance.

/// The known name closest to `name`, if it is close enough to be a slip of the keyboard.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 4).clamp(1, 4);
    known
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, candidate)| (*distance, candidate.len()))
        .map(|(_, candidate)| candidate)
}

/// Edit distance in characters, where swapping two neighbours is one edit.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for i in 1..=left.len() {
        let mut row = vec![i; right.len() + 1];
        for j in 1..=right.len() {
            let substituted = last[j - 1] + usize::from(left[i - 1] != right[j - 1]);
            row[j] = substituted.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name_and_nonsense_finds_none() {
        let known = ["num.partitions", "log.dirs", "log.dir", "listeners"];
        assert_eq!(nearest("num.partition", known.into_iter()), Some("num.partitions"));
        assert_eq!(nearest("log.dris", known.into_iter()), Some("log.dirs"));
        assert_eq!(nearest("listner", known.into_iter()), None);
        assert_eq!(nearest("completely.else", known.into_iter()), None);
    }
}
