use super::*;
use crate::test_image::{LISTENER, broker, image, topic};

fn request(
    names: &[&'static str],
    limit: i32,
    cursor: Option<(&'static str, i32)>,
) -> DescribeTopicPartitionsRequest<'static> {
    DescribeTopicPartitionsRequest {
        topics: names.iter().map(|&name| TopicRequest { name: name.into() }).collect(),
        response_partition_limit: limit,
        cursor: cursor.map(|(name, partition_index)| AskedCursor { topic_name: name.into(), partition_index }),
    }
}

/// Topics with error and partitions, and the next cursor.
fn ask(request: &DescribeTopicPartitionsRequest<'_>) -> String {
    let topics = [topic("a", 1, &[&[1], &[1], &[1]]), topic("b", 2, &[&[1]])];
    let image = image([broker(1, false)].into_iter().chain(topics.into_iter().flatten()));
    let response = response(request, &image, LISTENER, 2000);
    let mut told: Vec<String> = Vec::new();
    for topic in &response.topics {
        let partitions: Vec<_> = topic.partitions.iter().map(|partition| partition.partition_index).collect();
        told.push(format!("{} {} {partitions:?}", topic.error_code, topic.name.as_deref().unwrap_or("null")));
    }
    told.extend(response.next_cursor.map(|next| format!("next {}-{}", next.topic_name, next.partition_index)));
    told.join("; ")
}

#[test]
fn topics_come_by_name_and_once() {
    assert_eq!(ask(&request(&["b", "a", "z", "b"], 9, None)), "0 a [0, 1, 2]; 0 b [0]; 3 z []");
    assert_eq!(ask(&request(&[], 9, None)), "0 a [0, 1, 2]; 0 b [0]");
    assert_eq!(ask(&request(&["x y"], 9, None)), "17 x y []");
}

#[test]
fn a_full_answer_says_where_the_next_one_begins() {
    assert_eq!(ask(&request(&["b", "a"], 2, None)), "0 a [0, 1]; next a-2");
    assert_eq!(ask(&request(&["b", "a"], 2, Some(("a", 2)))), "0 a [2]; 0 b [0]");
    assert_eq!(ask(&request(&["b", "a", "z"], 3, None)), "0 a [0, 1, 2]; next b-0");
    assert_eq!(ask(&request(&["b", "a", "z"], 4, None)), "0 a [0, 1, 2]; 0 b [0]; next z-0");
    assert_eq!(ask(&request(&["b", "a"], 0, None)), "0 a [0]; next a-1");
}

#[test]
fn a_cursor_behind_the_last_partition_leaves_its_topic_empty() {
    assert_eq!(ask(&request(&["b", "a", "z"], -1, Some(("a", 7)))), "0 a []; 0 b [0]; next z-0");
}

#[test]
fn a_cursor_must_name_a_topic_that_is_asked_for_and_a_partition() {
    assert_eq!(ask(&request(&["b", "a"], 9, Some(("ab", 0)))), "42 b []; 42 a []");
    assert_eq!(ask(&request(&["b", "a"], 9, Some(("a", -1)))), "42 b []; 42 a []");
    assert_eq!(ask(&request(&[], 9, Some(("ab", -1)))), "");
    assert_eq!(ask(&request(&[], 9, Some(("ab", 0)))), "0 b [0]");
}
