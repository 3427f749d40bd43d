//! DeleteTopics. Up to version 5 topics are named, from version 6 on by name or by id.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use milena_protocol::messages::delete_topics_response::DeletableTopicResult;
use milena_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, RemoveTopicRecord};
use milena_protocol::{ErrorCode, Str, Uuid};

use crate::error::ApiError;
use crate::limits::check_records;
use crate::view::{Records, View};

/// Decides a DeleteTopics request of `version`. A topic that is named twice is not deleted.
///
/// Results are in no particular order in Kafka; here refusals come first.
pub fn delete_topics<'a>(
    view: View<'_>,
    request: &DeleteTopicsRequest<'a>,
    version: i16,
) -> (Records, DeleteTopicsResponse<'a>) {
    let (records, responses) = decide(view, request, version).unwrap_or_else(|code| {
        let named = request.topic_names.iter().map(|name| (Some(name.clone()), Uuid::ZERO));
        let topics = named.chain(request.topics.iter().map(|t| (t.name.clone(), t.topic_id)));
        (Vec::new(), topics.map(|(name, id)| result(name, id, &ApiError::code(code))).collect())
    });
    (records, DeleteTopicsResponse { responses, ..DeleteTopicsResponse::default() })
}

type Results<'a> = Vec<DeletableTopicResult<'a>>;

fn decide<'a>(
    view: View<'_>,
    request: &DeleteTopicsRequest<'a>,
    version: i16,
) -> Result<(Records, Results<'a>), ErrorCode> {
    if !view.config.delete_topic_enable() {
        let disabled = if version < 3 { ErrorCode::INVALID_REQUEST } else { ErrorCode::TOPIC_DELETION_DISABLED };
        return Err(disabled);
    }
    let mut results = Vec::new();
    let named = Named::of(request, &mut results);
    if named.is_empty() {
        return Ok((Vec::new(), results));
    }
    if request.timeout_ms <= 0 {
        return Err(ErrorCode::REQUEST_TIMED_OUT);
    }
    let doomed = named.resolve(view, &mut results);
    let mut records = Vec::with_capacity(doomed.len());
    for (topic_id, name) in doomed {
        records.push(RemoveTopicRecord { topic_id }.into());
        results.push(result(Some(name), topic_id, &ApiError::code(ErrorCode::NONE)));
    }
    check_records(&records).map_err(|error| error.code)?;
    Ok((records, results))
}

fn result<'a>(name: Option<Str<'a>>, topic_id: Uuid, error: &ApiError) -> DeletableTopicResult<'a> {
    DeletableTopicResult { name, topic_id, error_code: error.code.0, error_message: error.message.clone() }
}

fn invalid<'a>(name: Option<Str<'a>>, topic_id: Uuid, message: &'static str) -> DeletableTopicResult<'a> {
    result(name, topic_id, &ApiError::new(ErrorCode::INVALID_REQUEST, message))
}

/// Things that a request names, each once; those named again are kept apart.
struct Once<T> {
    items: Vec<T>,
    seen: HashSet<T>,
    repeated: HashSet<T>,
}

impl<T: Clone + Eq + std::hash::Hash> Once<T> {
    fn new() -> Self {
        Self { items: Vec::new(), seen: HashSet::new(), repeated: HashSet::new() }
    }

    fn add(&mut self, item: T) {
        if self.seen.insert(item.clone()) {
            self.items.push(item);
        } else {
            self.repeated.insert(item);
        }
    }

    /// First occurrences, with whether there was another one.
    fn iter(&self) -> impl Iterator<Item = (&T, bool)> {
        self.items.iter().map(|item| (item, self.repeated.contains(item)))
    }

    fn unique(&self) -> impl Iterator<Item = &T> {
        self.iter().filter(|(_, repeated)| !repeated).map(|(item, _)| item)
    }
}

struct Named<'a> {
    names: Once<Str<'a>>,
    ids: Once<Uuid>,
}

impl<'a> Named<'a> {
    /// What the request names; what is not properly named goes to `results`.
    fn of(request: &DeleteTopicsRequest<'a>, results: &mut Results<'a>) -> Self {
        let (mut names, mut ids) = (Once::new(), Once::new());
        request.topic_names.iter().for_each(|name| names.add(name.clone()));
        for topic in &request.topics {
            match (&topic.name, topic.topic_id) {
                (None, Uuid::ZERO) => {
                    results.push(invalid(None, Uuid::ZERO, "Neither topic name nor id were specified."));
                }
                (None, id) => ids.add(id),
                (Some(name), Uuid::ZERO) => names.add(name.clone()),
                (Some(name), id) => {
                    results.push(invalid(Some(name.clone()), id, "You may not specify both topic name and topic id."));
                }
            }
        }
        for (name, _) in names.iter().filter(|(_, repeated)| *repeated) {
            results.push(invalid(Some(name.clone()), Uuid::ZERO, "Duplicate topic name."));
        }
        for (id, _) in ids.iter().filter(|(_, repeated)| *repeated) {
            results.push(invalid(None, *id, "Duplicate topic id."));
        }
        Self { names, ids }
    }

    /// Whether nothing is named properly.
    fn is_empty(&self) -> bool {
        self.names.unique().next().is_none() && self.ids.unique().next().is_none()
    }

    /// The topics to delete. A topic that is named by id and by name too is not among them.
    fn resolve(&self, view: View<'_>, results: &mut Results<'a>) -> Vec<(Uuid, Str<'a>)> {
        let mut doomed: Vec<(Uuid, Str<'a>)> = Vec::new();
        let mut taken: HashMap<Uuid, usize> = HashMap::new();
        for id in self.ids.unique() {
            match view.image.topics().get_by_id(*id) {
                Some(topic) => {
                    taken.insert(*id, doomed.len());
                    doomed.push((*id, Cow::Owned(topic.name.to_string())));
                }
                None => {
                    let message = "This server does not host this topic ID.";
                    results.push(result(None, *id, &ApiError::new(ErrorCode::UNKNOWN_TOPIC_ID, message)));
                }
            }
        }
        let mut twice: HashSet<Uuid> = self.ids.repeated.clone();
        for name in self.names.unique() {
            let Some(topic) = view.image.topics().get(name) else {
                let message = "This server does not host this topic-partition.";
                let error = ApiError::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message);
                results.push(result(Some(name.clone()), Uuid::ZERO, &error));
                continue;
            };
            if self.ids.seen.contains(&topic.id) {
                twice.insert(topic.id);
                let message = "The provided topic name maps to an ID that was already supplied.";
                results.push(invalid(Some(name.clone()), topic.id, message));
            } else {
                doomed.push((topic.id, name.clone()));
            }
        }
        doomed.retain(|(id, _)| !twice.contains(id));
        doomed
    }
}

#[cfg(test)]
mod tests {
    use milena_io::SimRng;
    use milena_protocol::messages::delete_topics_request::DeleteTopicState;

    use super::*;
    use crate::auto_create::create_topics_automatically;
    use crate::testing::{Node, config};

    /// A node that has the topics `t` and `u`, and their ids.
    fn node() -> (Node, Uuid, Uuid) {
        let mut node = Node::new();
        for (seed, name) in [(1, "t"), (2, "u")] {
            let records = create_topics_automatically(node.view(), [name], &mut SimRng::new(seed)).0;
            node.commit(&records);
        }
        let id = |name| node.image.topics().get(name).unwrap().id;
        let (t, u) = (id("t"), id("u"));
        (node, t, u)
    }

    fn by_state(topics: &[(Option<&'static str>, Uuid)]) -> DeleteTopicsRequest<'static> {
        let state = |(name, topic_id): &(Option<&'static str>, Uuid)| DeleteTopicState {
            name: name.map(Cow::Borrowed),
            topic_id: *topic_id,
        };
        DeleteTopicsRequest { topics: topics.iter().map(state).collect(), topic_names: Vec::new(), timeout_ms: 1 }
    }

    fn by_name(names: &[&'static str]) -> DeleteTopicsRequest<'static> {
        let topic_names = names.iter().map(|name| Cow::Borrowed(*name)).collect();
        DeleteTopicsRequest { topic_names, timeout_ms: 1, ..DeleteTopicsRequest::default() }
    }

    /// Name, id and code of each answer, and how many topics go.
    fn decide_on(node: &Node, request: &DeleteTopicsRequest<'_>) -> (Vec<(String, Uuid, i16)>, usize) {
        let (records, response) = delete_topics(node.view(), request, 6);
        let answer =
            |r: &DeletableTopicResult<'_>| (r.name.clone().unwrap_or_default().into(), r.topic_id, r.error_code);
        (response.responses.iter().map(answer).collect(), records.len())
    }

    #[test]
    fn topics_go_by_name_and_by_id() {
        let (mut node, t, u) = node();
        let request = by_state(&[(None, t), (Some("u"), Uuid::ZERO)]);
        let (records, response) = delete_topics(node.view(), &request, 6);
        let answers: Vec<_> =
            response.responses.iter().map(|r| (r.name.as_deref(), r.topic_id, r.error_code)).collect();
        assert_eq!(answers, [(Some("t"), t, 0), (Some("u"), u, 0)]);
        assert!(response.responses.iter().all(|r| r.error_message.is_none()));
        node.commit(&records);
        assert!(node.image.topics().is_empty());
    }

    #[test]
    fn unknown_topics_are_refused() {
        let (node, ..) = node();
        let id = Uuid::from_bytes([9; 16]);
        let request = by_state(&[(None, id), (Some("no"), Uuid::ZERO), (Some("a b"), Uuid::ZERO)]);
        let (_, response) = delete_topics(node.view(), &request, 6);
        let answers: Vec<_> =
            response.responses.iter().map(|r| (r.error_code, r.error_message.as_deref().unwrap())).collect();
        let by_id = (100, "This server does not host this topic ID.");
        let by_name = (3, "This server does not host this topic-partition.");
        assert_eq!(answers, [by_id, by_name, by_name]);
    }

    #[test]
    fn a_topic_named_twice_or_both_ways_or_not_at_all_stays() {
        let (node, t, u) = node();
        let zero = Uuid::ZERO;
        let answers = |topics: &[_]| decide_on(&node, &by_state(topics));
        let refused = |name: &str, id| (name.to_owned(), id, 42);
        assert_eq!(answers(&[(None, zero)]), (vec![refused("", zero)], 0));
        assert_eq!(answers(&[(Some("t"), t)]), (vec![refused("t", t)], 0));
        assert_eq!(answers(&[(Some("t"), zero), (Some("t"), zero)]), (vec![refused("t", zero)], 0));
        assert_eq!(answers(&[(None, t), (None, t), (None, t)]), (vec![refused("", t)], 0));
        assert_eq!(answers(&[(None, u), (Some("u"), zero)]), (vec![refused("u", u)], 0));
        let both = (vec![refused("", u), refused("u", u)], 0);
        assert_eq!(answers(&[(None, u), (None, u), (Some("u"), zero)]), both);
        assert_eq!(decide_on(&node, &by_name(&["t", "t", "t"])), (vec![refused("t", zero)], 0));
    }

    #[test]
    fn a_late_request_is_refused_as_a_whole_without_message() {
        let (node, ..) = node();
        let late = |request: DeleteTopicsRequest<'static>| DeleteTopicsRequest { timeout_ms: 0, ..request };
        let (answers, gone) = decide_on(&node, &late(by_name(&["t", "no", "no"])));
        assert_eq!((answers.iter().map(|a| a.2).collect::<Vec<_>>(), gone), (vec![7, 7, 7], 0));
        assert_eq!(decide_on(&node, &late(by_state(&[(None, Uuid::ZERO)]))).0[0].2, 42);
    }

    #[test]
    fn deletion_can_be_disabled() {
        let (node, ..) = node();
        let node = Node { config: config("delete.topic.enable=false"), ..node };
        for (version, code) in [(1, 42), (2, 42), (3, 73), (6, 73)] {
            let (records, response) = delete_topics(node.view(), &by_name(&["t"]), version);
            assert_eq!((records.len(), response.responses[0].error_code), (0, code), "version {version}");
        }
    }
}
