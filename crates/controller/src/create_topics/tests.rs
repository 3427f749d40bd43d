use milena_io::SimRng;
use milena_protocol::MetadataRecord;
use milena_protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopicConfig};

use super::*;
use crate::testing::{Node, broker, config, image};

/// A topic of a request: `(name, partitions, replication factor)`.
fn topic(name: &str, partitions: i32, replication_factor: i16) -> CreatableTopic<'static> {
    CreatableTopic {
        name: Cow::Owned(name.to_owned()),
        num_partitions: partitions,
        replication_factor,
        ..CreatableTopic::default()
    }
}

fn configured(key: &str, value: Option<&str>) -> CreatableTopic<'static> {
    let (name, value) = (Cow::Owned(key.to_owned()), value.map(|v| Cow::Owned(v.to_owned())));
    CreatableTopic { configs: vec![CreatableTopicConfig { name, value }], ..topic("t", 1, 1) }
}

fn manual(assignments: &[(i32, &[i32])]) -> CreatableTopic<'static> {
    let assignment = |(partition_index, brokers): &(i32, &[i32])| CreatableReplicaAssignment {
        partition_index: *partition_index,
        broker_ids: Cow::Owned(brokers.to_vec()),
    };
    CreatableTopic { assignments: assignments.iter().map(assignment).collect(), ..topic("t", -1, -1) }
}

fn request(topics: Vec<CreatableTopic<'static>>) -> CreateTopicsRequest<'static> {
    CreateTopicsRequest { topics, ..CreateTopicsRequest::default() }
}

fn decide_on(node: &Node, request: &CreateTopicsRequest<'static>) -> (Records, Vec<CreatableTopicResult<'static>>) {
    let (records, response) = create_topics(node.view(), request, &mut SimRng::new(1));
    (records, response.topics)
}

/// Name, code and message of each answer.
fn answers(node: &Node, topics: Vec<CreatableTopic<'static>>) -> Vec<(String, i16, String)> {
    let answer = |r: CreatableTopicResult<'_>| {
        (r.name.into_owned(), r.error_code, r.error_message.map(Cow::into_owned).unwrap_or_default())
    };
    decide_on(node, &request(topics)).1.into_iter().map(answer).collect()
}

/// Code and message of the only topic of a request.
fn answer(topic: CreatableTopic<'static>) -> (i16, String) {
    let (_, code, message) = answers(&Node::new(), vec![topic]).remove(0);
    (code, message)
}

/// A node that has a topic.
fn node_with(name: &str) -> Node {
    let mut node = Node::new();
    let (records, _) = decide_on(&node, &request(vec![topic(name, 1, 1)]));
    node.commit(&records);
    node
}

#[test]
fn names_partitions_and_replicas_are_checked() {
    for (name, partitions, factor, code) in [
        ("t", 3, 1, 0),
        ("t", -1, -1, 0),
        ("t", -1, 1, 0),
        ("t", 0, 1, 37),
        ("t", -2, 1, 37),
        ("t", 1, 0, 38),
        ("t", 1, -2, 38),
        ("t", 1, 2, 38),
        ("t", 1, 3, 38),
        (&"x".repeat(249), 1, 1, 0),
        (&"x".repeat(250), 1, 1, 17),
        ("", 1, 1, 17),
        (".", 1, 1, 17),
        ("..", 1, 1, 17),
        ("a/b", 1, 1, 17),
        ("토픽", 1, 1, 17),
        ("a,b", 1, 1, 17),
        ("_R", 1, 1, 0),
        ("-R", 1, 1, 0),
        ("__consumer_offsets", 1, 1, 0),
    ] {
        assert_eq!(answer(topic(name, partitions, factor)).0, code, "{name} {partitions} {factor}");
    }
    let message = "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached \
                   because only 1 broker(s) are registered or some brokers have all their log directories cordoned.";
    assert_eq!(answer(topic("t", 1, 3)).1, message);
}

#[test]
fn manual_assignments_are_checked() {
    let one: &[i32] = &[1];
    for (assignments, code, message) in [
        (vec![(1, one), (0, one)], 0, ""),
        (vec![(0, one), (2, one)], 39, "partitions should be a consecutive 0-based integer sequence"),
        (vec![(1, one)], 39, "partitions should be a consecutive 0-based integer sequence"),
        (vec![(-1, one)], 39, "partitions should be a consecutive 0-based integer sequence"),
        (vec![(0, &[1, 1])], 39, "The manual partition assignment includes the broker 1 more than once."),
        (vec![(0, &[])], 39, "The manual partition assignment includes an empty replica list."),
        (vec![(0, one), (0, one)], 39, "Found multiple manual partition assignments for partition 0"),
    ] {
        assert_eq!(answer(manual(&assignments)), (code, message.to_owned()), "{assignments:?}");
    }
    let with_factor = CreatableTopic { replication_factor: 1, ..manual(&[(0, &[1])]) };
    let message = "A manual partition assignment was specified, but replication factor was not set to -1.";
    assert_eq!(answer(with_factor), (42, message.to_owned()));
    let with_count = CreatableTopic { num_partitions: 1, ..manual(&[(0, &[1])]) };
    let message = "A manual partition assignment was specified, but numPartitions was not set to -1.";
    assert_eq!(answer(with_count), (42, message.to_owned()));
    let uneven = manual(&[(0, &[1]), (1, &[1, 2])]);
    let node = Node { image: image([broker(1), broker(2)]), ..Node::new() };
    assert_eq!(answers(&node, vec![uneven])[0].1, 39);
}

#[test]
fn an_assignment_to_fenced_brokers_only_is_refused() {
    let fenced = milena_metadata::Broker { fenced: true, ..broker(2) };
    let node = Node { image: image([broker(1), fenced]), ..Node::new() };
    let refused = answers(&node, vec![manual(&[(0, &[2])])]).remove(0);
    let message = "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled \
                   shutdown.";
    assert_eq!((refused.1, &*refused.2), (39, message));
    let (records, _) = decide_on(&node, &request(vec![manual(&[(0, &[2, 1])])]));
    let MetadataRecord::Partition(partition) = &records[1] else { panic!("{records:?}") };
    assert_eq!((&*partition.replicas, &*partition.isr, partition.leader), (&[2, 1][..], &[1][..], 1));
}

#[test]
fn configurations_are_checked() {
    for (key, value, code) in [
        ("retention.ms", "1000", 0),
        ("retention.ms", "abc", 40),
        ("cleanup.policy", "shred", 40),
        ("retention.ms", "", 40),
        ("retention.ms", "-2", 40),
        ("min.insync.replicas", "0", 40),
        ("min.insync.replicas", "5", 0),
        ("compression.type", "brotli", 40),
        ("compression.type", "none", 40),
        ("segment.bytes", "1048576", 0),
        ("message.timestamp.type", "Never", 40),
        ("cleanup.policy", "", 0),
        ("cleanup.policy", "compact, delete", 0),
        ("preallocate", "TRUE", 0),
        ("min.cleanable.dirty.ratio", "1.5", 40),
        ("message.format.version", "3.0", 40),
        ("message.timestamp.difference.max.ms", "1000", 40),
        ("remote.storage.enable", "true", 40),
        ("remote.log.delete.on.disable", "true", 0),
        ("compression.zstd.level", "22", 0),
        ("compression.lz4.level", "0", 40),
        ("local.retention.ms", "999999999999", 0),
    ] {
        assert_eq!(answer(configured(key, Some(value))).0, code, "{key}={value}");
    }
    let null = answer(configured("retention.ms", None));
    assert_eq!(null, (40, "Null value not supported for topic configs: retention.ms".to_owned()));
    let unknown = answer(configured("no.such", Some("1")));
    assert_eq!(unknown, (40, "Unknown topic config name: no.such".to_owned()));
    assert_eq!(answer(configured("cleanup.policy", Some(&"x".repeat(32_768)))).0, 40);
}

#[test]
fn an_existing_or_colliding_name_is_refused() {
    let node = node_with("a.b");
    assert_eq!(
        answers(&node, vec![topic("a.b", 1, 1), topic("a_b", 1, 1), topic("c_d", 1, 1), topic("c.d", 1, 1)]),
        [
            ("a.b", 36, "Topic 'a.b' already exists."),
            ("a_b", 17, "Topic 'a_b' collides with existing topic: a.b"),
            ("c_d", 0, ""),
            ("c.d", 0, ""),
        ]
        .map(|(name, code, message)| (name.to_owned(), code, message.to_owned()))
    );
}

#[test]
fn repeated_names_and_the_metadata_topic_are_answered_behind_the_others() {
    let names = ["__cluster_metadata", "d", "ok", "d", "d", ".."];
    let topics = names.iter().map(|name| topic(name, 1, 1)).collect();
    let answers = answers(&Node::new(), topics);
    let codes: Vec<(&str, i16)> = answers.iter().map(|(name, code, _)| (name.as_str(), *code)).collect();
    assert_eq!(codes, [("ok", 0), ("..", 17), ("d", 42), ("__cluster_metadata", 42)]);
    assert_eq!(answers[2].2, "Duplicate topic name.");
    assert_eq!(answers[3].2, "Creation of internal topic __cluster_metadata is prohibited.");
}

#[test]
fn a_topic_is_answered_with_its_size_and_configurations() {
    let node = Node { config: config("num.partitions=4"), ..Node::new() };
    let wanted = CreatableTopic { num_partitions: -1, ..configured("retention.ms", Some("12345")) };
    let (_, results) = decide_on(&node, &request(vec![wanted, topic("x", 0, 1)]));
    assert_eq!((results[0].num_partitions, results[0].replication_factor), (4, 1));
    assert!(!results[0].topic_id.is_zero() && results[0].error_message.is_none());
    let configs = results[0].configs.as_deref().unwrap();
    let retention = configs.iter().find(|c| c.name == "retention.ms").unwrap();
    assert_eq!((retention.value.as_deref(), retention.config_source), (Some("12345"), 1));
    assert_eq!(configs.len(), 37);
    assert_eq!((results[1].num_partitions, results[1].replication_factor), (-1, -1));
    assert_eq!(results[1].configs.as_deref(), Some(&[][..]));
}

#[test]
fn records_are_the_topic_its_configurations_and_its_partitions() {
    let wanted = CreatableTopic { num_partitions: 2, ..configured("min.insync.replicas", Some("1")) };
    let (records, results) = decide_on(&Node::new(), &request(vec![wanted]));
    let names: Vec<&str> = records.iter().map(MetadataRecord::name).collect();
    assert_eq!(names, ["TopicRecord", "ConfigRecord", "ClearElrRecord", "PartitionRecord", "PartitionRecord"]);
    let MetadataRecord::Partition(partition) = &records[4] else { panic!("{records:?}") };
    assert_eq!((partition.topic_id, partition.partition_id), (results[0].topic_id, 1));
    assert_eq!((&*partition.replicas, &*partition.isr, partition.leader), (&[1][..], &[1][..], 1));
    assert_eq!(&*partition.directories, [broker(1).directories[0]]);
}

#[test]
fn validate_only_makes_no_records() {
    let request = CreateTopicsRequest { validate_only: true, ..request(vec![topic("t", 2, 1)]) };
    let (records, results) = decide_on(&Node::new(), &request);
    assert_eq!((records.len(), results[0].error_code, results[0].num_partitions), (0, 0, 2));
}

#[test]
fn a_request_that_is_too_late_or_too_large_is_refused_as_a_whole() {
    let late = CreateTopicsRequest { timeout_ms: 0, ..request(vec![topic("t", 1, 1), topic("u", 1, 1)]) };
    let (records, results) = decide_on(&Node::new(), &late);
    assert!(records.is_empty() && results.iter().all(|r| r.error_code == 7 && r.error_message.is_none()));
    let large = answers(&Node::new(), vec![topic("t", 5001, 1), topic("u", 5000, 1)]);
    let message = "Excessively large number of partitions per request.";
    assert!(large.iter().all(|(_, code, text)| *code == 44 && text == message), "{large:?}");
    let message = "Unable to perform excessively large batch operation.";
    assert_eq!(answer(topic("t", 10_000, 1)), (44, message.to_owned()));
    assert_eq!(answer(topic("t", 9_999, 1)).0, 0);
}
