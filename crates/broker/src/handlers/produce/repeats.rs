//! What a request names more than once: of the entries for a partition the last one counts, and a topic is answered once.

use std::collections::HashMap;

use milena_protocol::Uuid;
use milena_protocol::messages::produce_request::TopicProduceData;
use smallvec::SmallVec;

use super::plan::{Part, Topic};

/// Whether a topic, or a partition within a topic's entry, may come twice. It surely does not in what usual clients send.
pub(super) fn may_be_in(topics: &[TopicProduceData<'_>]) -> bool {
    let in_order = |topic: &TopicProduceData<'_>| topic.partition_data.is_sorted_by(|a, b| a.index < b.index);
    !topics.iter().all(in_order) || has_twins(topics)
}

fn has_twins(topics: &[TopicProduceData<'_>]) -> bool {
    if topics.len() < 2 {
        return false;
    }
    let mut keys: SmallVec<[(&str, Uuid); 8]> = topics.iter().map(|topic| (&*topic.name, topic.topic_id)).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

/// Gives the topics of one request the places of their answers, and takes out of its parts those that a later one replaces.
/// `parts` are all parts of the plan.
pub(super) fn mark(topics: &mut [Topic], parts: &mut [Part]) {
    let mut answers = HashMap::new();
    for topic in topics.iter_mut() {
        let next = answers.len();
        topic.answer = *answers.entry((topic.name.as_str().to_owned(), topic.id)).or_insert(next);
    }
    let mut last = HashMap::new();
    for topic in topics.iter() {
        for at in topic.parts.clone() {
            if let Some(before) = last.insert((topic.answer, parts[at].index), at) {
                parts[before].replaced = true;
            }
        }
    }
}
