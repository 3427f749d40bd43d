//! Which segments are written into one: as many neighbours as one segment can hold, so that cleaning does not leave ever smaller ones.

/// What of a segment decides with which others it is cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentSizes {
    pub(crate) base_offset: i64,
    /// Of the `.log` file, bytes.
    pub(crate) size: u64,
    /// Of the entries of `.index`, bytes.
    pub(crate) index: u64,
    /// Of the entries of `.timeindex`, bytes.
    pub(crate) time_index: u64,
}

/// The segments in groups of neighbours. A group's `.log` files are at most `segment_bytes` together, each kind of its indexes at most
/// `index_bytes`, and its offsets fit into one segment; a segment that is larger is a group alone. No offset is at or above `end`.
pub(super) fn group(segments: &[SegmentSizes], segment_bytes: u64, index_bytes: u64, end: i64) -> Vec<&[SegmentSizes]> {
    let mut groups = Vec::new();
    let mut rest = segments;
    while let Some(first) = rest.first() {
        let (mut size, mut index, mut time_index) = (first.size, first.index, first.time_index);
        let mut count = 1;
        while let Some(next) = rest.get(count) {
            size += next.size;
            index += next.index;
            time_index += next.time_index;
            let next_end = rest.get(count + 1).map_or(end, |after| after.base_offset);
            // An empty segment has no offset that could be too far away.
            let near = next.size == 0 || next_end - 1 - first.base_offset <= i64::from(i32::MAX);
            if size > segment_bytes || index > index_bytes || time_index > index_bytes || !near {
                break;
            }
            count += 1;
        }
        let (group, others) = rest.split_at(count);
        groups.push(group);
        rest = others;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bases(segments: &[(i64, u64, u64)], end: i64) -> Vec<Vec<i64>> {
        let sizes: Vec<SegmentSizes> = segments
            .iter()
            .map(|&(base_offset, size, index)| SegmentSizes { base_offset, size, index, time_index: index / 2 * 3 })
            .collect();
        let groups = group(&sizes, 100, 60, end);
        groups.iter().map(|group| group.iter().map(|sizes| sizes.base_offset).collect()).collect()
    }

    #[test]
    fn neighbours_are_taken_together_as_long_as_logs_and_indexes_fit() {
        assert_eq!(bases(&[], 0), Vec::<Vec<i64>>::new());
        let logs = [(0, 40, 0), (10, 60, 0), (20, 1, 0), (30, 200, 0), (40, 99, 0), (50, 1, 0)];
        assert_eq!(bases(&logs, 60), [vec![0, 10], vec![20], vec![30], vec![40, 50]]);
        assert_eq!(bases(&[(0, 1, 16), (1, 1, 24), (2, 1, 8)], 3), [vec![0, 1], vec![2]]);
    }

    #[test]
    fn a_groups_offsets_fit_into_a_segment() {
        let far = i64::from(i32::MAX);
        assert_eq!(bases(&[(0, 1, 0), (10, 1, 0)], far + 1), [vec![0, 10]]);
        assert_eq!(bases(&[(0, 1, 0), (10, 1, 0)], far + 2), [vec![0], vec![10]]);
        assert_eq!(bases(&[(0, 1, 0), (10, 0, 0)], 9 * far), [vec![0, 10]]);
        assert_eq!(bases(&[(5, 1, 0), (10, 1, 0), (far + 6, 1, 0)], far + 7), [vec![5, 10], vec![far + 6]]);
    }
}
