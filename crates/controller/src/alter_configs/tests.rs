use std::borrow::Cow;

use milena_io::SimRng;
use milena_metadata::ConfigResource;
use milena_protocol::MetadataRecord;
use milena_protocol::messages::{alter_configs_request, incremental_alter_configs_request};

use super::*;
use crate::auto_create::create_topics_automatically;
use crate::testing::Node;

/// A node that has the topic `t`.
fn node() -> Node {
    let mut node = Node::new();
    let records = create_topics_automatically(node.view(), ["t"], &mut SimRng::new(1)).0;
    node.commit(&records);
    node
}

/// An edit as `(key, operation, value)`.
type Edits = &'static [(&'static str, i8, Option<&'static str>)];

fn incremental_of(resources: &[(i8, &'static str, Edits)]) -> IncrementalAlterConfigsRequest<'static> {
    let config = |(name, config_operation, value): &(&'static str, i8, Option<&'static str>)| {
        incremental_alter_configs_request::AlterableConfig {
            name: Cow::Borrowed(*name),
            config_operation: *config_operation,
            value: value.map(Cow::Borrowed),
        }
    };
    let resource = |(resource_type, name, edits): &(i8, &'static str, Edits)| {
        incremental_alter_configs_request::AlterConfigsResource {
            resource_type: *resource_type,
            resource_name: Cow::Borrowed(*name),
            configs: edits.iter().map(config).collect(),
        }
    };
    let resources = resources.iter().map(resource).collect();
    IncrementalAlterConfigsRequest { resources, validate_only: false }
}

fn legacy_of(resources: &[(i8, &'static str, Edits)]) -> AlterConfigsRequest<'static> {
    let config = |(name, _, value): &(&'static str, i8, Option<&'static str>)| alter_configs_request::AlterableConfig {
        name: Cow::Borrowed(*name),
        value: value.map(Cow::Borrowed),
    };
    let resource =
        |(resource_type, name, edits): &(i8, &'static str, Edits)| alter_configs_request::AlterConfigsResource {
            resource_type: *resource_type,
            resource_name: Cow::Borrowed(*name),
            configs: edits.iter().map(config).collect(),
        };
    AlterConfigsRequest { resources: resources.iter().map(resource).collect(), validate_only: false }
}

/// Code and message of each answer.
fn incremental(node: &mut Node, resources: &[(i8, &'static str, Edits)]) -> Vec<(i16, String)> {
    let (records, response) = incremental_alter_configs(node.view(), &incremental_of(resources));
    node.commit(&records);
    let responses = response.responses.into_iter();
    responses.map(|r| (r.error_code, r.error_message.map(Cow::into_owned).unwrap_or_default())).collect()
}

fn legacy(node: &mut Node, resources: &[(i8, &'static str, Edits)]) -> Vec<(i16, String)> {
    let (records, response) = alter_configs(node.view(), &legacy_of(resources));
    node.commit(&records);
    let responses = response.responses.into_iter();
    responses.map(|r| (r.error_code, r.error_message.map(Cow::into_owned).unwrap_or_default())).collect()
}

fn value(node: &Node, resource: ConfigResource, key: &str) -> Option<String> {
    node.image.configs().value(&resource, key).map(str::to_owned)
}

/// What both APIs answer, for edits that set values.
const SET_CASES: &[(i8, &str, Edits, i16, &str)] = &[
    (0, "x", &[("retention.ms", 0, Some("1"))], 42, "Unknown resource type 0"),
    (1, "x", &[], 42, "Unknown resource type 1"),
    (64, "x", &[], 42, "Unknown resource type 64"),
    (2, "", &[("retention.ms", 0, Some("1"))], 42, "Default topic resources are not allowed."),
    (2, "no", &[("retention.ms", 0, Some("1"))], 3, "The topic 'no' does not exist."),
    (2, "no", &[("no.such", 0, Some("1"))], 40, "Unknown topic config name: no.such"),
    (2, "no", &[], 3, "The topic 'no' does not exist."),
    (2, "__cluster_metadata", &[], 3, "The topic '__cluster_metadata' does not exist."),
    (2, "t", &[], 0, ""),
    (2, "t", &[("no.such.key", 0, Some("1"))], 40, "Unknown topic config name: no.such.key"),
    (2, "t", &[("a", 0, None), ("b", 0, None)], 42, "Null value not supported for : a, b"),
    (2, "t", &[("a", 0, Some("1")), ("a", 0, Some("2"))], 42, "Error due to duplicate config keys"),
    (
        2,
        "t",
        &[("retention.ms", 0, Some("abc"))],
        40,
        "Invalid value abc for configuration retention.ms: Not a number of type LONG",
    ),
    (4, "abc", &[], 42, "Node id must be an integer, but it is: abc"),
    (4, "77", &[], 42, "Unexpected broker id, expected 1, but received 77"),
    (4, "-1", &[], 42, "Unexpected broker id, expected 1, but received -1"),
    (4, "1", &[("num.partitions", 0, Some("2"))], 42, "Cannot update these configs dynamically: [num.partitions]"),
    (4, "1", &[("no.such", 0, Some("2"))], 0, ""),
    (4, "1", &[("log.cleaner.threads", 0, Some("2"))], 0, ""),
    (
        4,
        "1",
        &[("log.cleaner.threads", 0, Some("x"))],
        42,
        "Invalid value x for configuration log.cleaner.threads: Not a number of type INT",
    ),
    (
        4,
        "1",
        &[("min.insync.replicas", 0, Some("2"))],
        40,
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    ),
    (4, "", &[("min.insync.replicas", 0, Some("2"))], 0, ""),
    (
        4,
        "",
        &[("listeners", 0, Some("PLAINTEXT://:1"))],
        42,
        "Cannot update these configs at default cluster level, broker id must be specified: [listeners]",
    ),
    (32, "", &[("consumer.session.timeout.ms", 0, Some("45000"))], 42, "Default group resources are not allowed."),
    (32, "g", &[("consumer.session.timeout.ms", 0, Some("45000"))], 0, ""),
    (
        32,
        "g",
        &[("consumer.session.timeout.ms", 0, Some("4"))],
        40,
        "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
    ),
    (32, "g", &[("no.such", 0, Some("4"))], 40, "Unknown group config name: no.such"),
    (16, "", &[("interval.ms", 0, Some("1000"))], 42, "Subscription name can't be empty"),
    (16, "m", &[("interval.ms", 0, Some("1000"))], 0, ""),
    (16, "m", &[("no.such", 0, Some("1"))], 42, "Unknown client metrics configuration: no.such"),
];

#[test]
fn values_are_set_or_refused_with_kafkas_messages() {
    for (kind, name, edits, code, message) in SET_CASES {
        let expected = vec![(*code, (*message).to_owned())];
        assert_eq!(incremental(&mut node(), &[(*kind, name, edits)]), expected, "{kind} {name} {edits:?}");
        assert_eq!(legacy(&mut node(), &[(*kind, name, edits)]), expected, "{kind} {name} {edits:?}");
    }
    let name = incremental(&mut node(), &[(2, "a b", &[])]).remove(0);
    assert!(name.0 == 17 && name.1.starts_with("Topic name is invalid: 'a b' contains"), "{name:?}");
}

#[test]
fn operations_are_checked_with_kafkas_messages() {
    for (kind, name, edits, code, message) in [
        (
            2,
            "t",
            &[("retention.ms", 2, Some("1"))],
            40,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            2,
            "t",
            &[("retention.ms", 3, Some("1"))],
            40,
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
        ),
        (2, "t", &[("cleanup.policy", 2, None)], 42, "Null value not supported for : cleanup.policy"),
        (2, "t", &[("nosuch", 1, None)], 0, ""),
        (2, "t", &[("retention.ms", 4, Some("1"))], -1, ""),
        (2, "t", &[("retention.ms", -1, Some("1"))], -1, ""),
        (4, "1", &[("log.cleaner.threads", 4, Some("1"))], 42, "Unknown operations type 4"),
        (4, "1", &[("no.such", 2, Some("1"))], 40, "Unknown config name: no.such"),
        (
            4,
            "",
            &[("min.insync.replicas", 1, None)],
            40,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
        (8, "2", &[("root", 0, Some("INFO"))], 42, "Unexpected node id. Expected 1, but received 2"),
        (8, "1", &[("nolog", 0, Some("INFO"))], 40, "Logger nolog does not exist!"),
    ] as [(i8, &'static str, Edits, i16, &str); 11]
    {
        let answer = incremental(&mut node(), &[(kind, name, edits)]);
        assert_eq!(answer, [(code, message.to_owned())], "{kind} {name} {edits:?}");
    }
    assert_eq!(legacy(&mut node(), &[(8, "1", &[])]), [(42, "Unknown resource type 8".to_owned())]);
}

#[test]
fn lists_grow_shrink_and_go_back_to_the_default() {
    let mut node = node();
    let mut policy = |edits: Edits| {
        assert_eq!(incremental(&mut node, &[(2, "t", edits)]), [(0, String::new())]);
        value(&node, ConfigResource::topic("t"), "cleanup.policy")
    };
    assert_eq!(policy(&[("cleanup.policy", 2, Some("compact"))]).as_deref(), Some("delete,compact"));
    assert_eq!(policy(&[("cleanup.policy", 3, Some("delete"))]).as_deref(), Some("compact"));
    assert_eq!(policy(&[("cleanup.policy", 1, Some("ignored"))]), None);
}

#[test]
fn alter_configs_resets_what_it_does_not_name() {
    let mut node = node();
    legacy(&mut node, &[(2, "t", &[("retention.ms", 0, Some("777")), ("flush.ms", 0, Some("5"))])]);
    assert_eq!(legacy(&mut node, &[(2, "t", &[("flush.ms", 0, Some("999"))])]), [(0, String::new())]);
    assert_eq!(value(&node, ConfigResource::topic("t"), "retention.ms"), None);
    assert_eq!(value(&node, ConfigResource::topic("t"), "flush.ms").as_deref(), Some("999"));
    legacy(&mut node, &[(2, "t", &[])]);
    assert!(node.image.configs().topic("t").is_none());
    incremental(&mut node, &[(4, "", &[("min.insync.replicas", 0, Some("1"))])]);
    let removes = legacy(&mut node, &[(4, "", &[("log.retention.ms", 0, Some("5000"))])]);
    assert_eq!(removes[0].1, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.");
}

#[test]
fn a_resource_with_a_bad_key_stays_and_others_change() {
    let mut node = node();
    let answers = incremental(
        &mut node,
        &[
            (2, "t", &[("flush.ms", 0, Some("5")), ("no.such", 0, Some("1"))]),
            (32, "g", &[("consumer.session.timeout.ms", 0, Some("46000"))]),
        ],
    );
    assert_eq!(answers.iter().map(|a| a.0).collect::<Vec<_>>(), [40, 0]);
    assert!(node.image.configs().topic("t").is_none());
    assert!(value(&node, ConfigResource::group("g"), "consumer.session.timeout.ms").is_some());
}

#[test]
fn a_resource_that_occurs_twice_is_refused_both_times() {
    let twice: &[(i8, &'static str, Edits)] =
        &[(2, "t", &[("flush.ms", 0, Some("5"))]), (2, "no", &[]), (2, "t", &[("flush.ms", 0, Some("6"))])];
    for answers in [incremental(&mut node(), twice), legacy(&mut node(), twice)] {
        assert_eq!(answers.iter().map(|a| a.0).collect::<Vec<_>>(), [42, 3, 42]);
        assert_eq!(answers[0].1, "Each resource must appear at most once.");
    }
}

#[test]
fn validate_only_makes_no_records() {
    let request = incremental_of(&[(2, "t", &[("flush.ms", 0, Some("5"))])]);
    let request = IncrementalAlterConfigsRequest { validate_only: true, ..request };
    let (records, response) = incremental_alter_configs(node().view(), &request);
    assert_eq!((records.len(), response.responses[0].error_code), (0, 0));
}

#[test]
fn a_value_grows_to_32767_bytes() {
    let mut node = node();
    let long: &'static str = Box::leak(format!("0:1{}", ",1:1".repeat(8_190)).into_boxed_str());
    let key = "leader.replication.throttled.replicas";
    let set: Edits = Box::leak(Box::new([(key, 0, Some(long))]));
    assert_eq!(incremental(&mut node, &[(2, "t", set)])[0].0, 0);
    let append: Edits = &[("leader.replication.throttled.replicas", 2, Some("22:1"))];
    let message = "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.";
    assert_eq!(incremental(&mut node, &[(2, "t", append)]), [(40, message.to_owned())]);
}

#[test]
fn another_minimum_of_in_sync_replicas_forgets_eligible_leaders() {
    let request = incremental_of(&[
        (2, "t", &[("min.insync.replicas", 0, Some("2"))]),
        (4, "", &[("min.insync.replicas", 0, Some("2"))]),
    ]);
    let (records, _) = incremental_alter_configs(node().view(), &request);
    let cleared = |r: &MetadataRecord<'_>| match r {
        MetadataRecord::ClearElr(clear) => Some(clear.topic_name.to_string()),
        _ => None,
    };
    assert_eq!(records.iter().map(cleared).collect::<Vec<_>>(), [None, None, Some("t".into()), Some(String::new())]);
}

#[test]
fn a_brokers_value_is_recorded_again_and_a_topics_is_not() {
    let mut node = node();
    let edits: &[(i8, &'static str, Edits)] =
        &[(2, "t", &[("flush.ms", 0, Some("5"))]), (4, "1", &[("log.cleaner.threads", 0, Some("2"))])];
    incremental(&mut node, edits);
    let (records, _) = incremental_alter_configs(node.view(), &incremental_of(edits));
    let MetadataRecord::Config(config) = &records[0] else { panic!("{records:?}") };
    assert_eq!((records.len(), config.resource_type, &*config.resource_name), (1, 4, "1"));
}

#[test]
fn too_many_records_refuse_every_resource() {
    let resources = (0..10_001).map(|i| incremental_alter_configs_request::AlterConfigsResource {
        resource_type: 32,
        resource_name: format!("g{i}").into(),
        configs: vec![incremental_alter_configs_request::AlterableConfig {
            name: "consumer.session.timeout.ms".into(),
            config_operation: 0,
            value: Some("45000".into()),
        }],
    });
    let request = IncrementalAlterConfigsRequest { resources: resources.collect(), validate_only: false };
    let (records, response) = incremental_alter_configs(node().view(), &request);
    assert!(records.is_empty() && response.responses.iter().all(|r| r.error_code == 44));
}
