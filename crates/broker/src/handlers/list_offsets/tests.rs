use super::*;

#[test]
fn each_negative_timestamp_has_its_first_version() {
    let first = |timestamp| (1..=11).find(|&version| is_served(timestamp, version));
    let firsts: Vec<_> = [0, -1, -2, -3, -4, -5, -6, -7, -100].into_iter().map(first).collect();
    assert_eq!(firsts, [Some(1), Some(1), Some(1), Some(7), Some(8), Some(9), Some(11), None, None]);
}
