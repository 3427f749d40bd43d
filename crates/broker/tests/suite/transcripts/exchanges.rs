//! What each API is asked. A body may have fields that only some versions know; each version takes its own. An API that
//! is not listed here is asked with the defaults of its request.

use milena_testkit::batch::{Batch, Codec};
use serde_json::{Value, json};

use crate::common::requests::{fetch_request, produce_request};

/// The timestamp of the first record.
pub const TIME: i64 = 1_700_000_000_000;

/// What a request is made for.
pub struct Stage<'a> {
    /// The version.
    pub version: i16,
    /// The id of the topic `t`.
    pub topic_id: &'a str,
}

/// A request, and what it shows.
pub type Exchange = (&'static str, Value);

const UNKNOWN_ID: &str = "dW5rbm93biB0b3BpYyBpZA";

/// What is in partition 0 of `t` before the first exchange.
pub fn three_records() -> Vec<u8> {
    Batch::of(3, TIME).build()
}

/// The requests of an API in one version, in order, each with what it shows.
pub fn of(api: &str, stage: &Stage<'_>) -> Vec<Exchange> {
    match api {
        "Produce" => produce(stage),
        "Fetch" => fetch(stage),
        "ListOffsets" => list_offsets(),
        "Metadata" => metadata(stage),
        "FindCoordinator" => find_coordinator(stage),
        "ApiVersions" => vec![("the ranges", json!({"clientSoftwareName": "test", "clientSoftwareVersion": "1"}))],
        "CreateTopics" => create_topics(stage),
        "DeleteTopics" => delete_topics(stage),
        "DeleteRecords" => delete_records(),
        "InitProducerId" => init_producer_id(),
        "OffsetForLeaderEpoch" => offset_for_leader_epoch(),
        "DescribeConfigs" => describe_configs(),
        "AlterConfigs" => alter_configs(),
        "IncrementalAlterConfigs" => incremental_alter_configs(),
        "DescribeLogDirs" => describe_log_dirs(),
        "CreatePartitions" => create_partitions(stage),
        "ListConfigResources" => vec![("all types", json!({})), ("topics", json!({"resourceTypes": [2]}))],
        "DescribeTopicPartitions" => describe_topic_partitions(),
        "JoinGroup" => join_group(),
        "SyncGroup" => by_strangers(json!({"protocolType": "consumer", "protocolName": "range"})),
        "Heartbeat" => by_strangers(json!({})),
        "ConsumerGroupHeartbeat" => consumer_group_heartbeat(),
        "ConsumerGroupDescribe" => {
            vec![("a group without a name and one that does not exist", json!({"groupIds": ["", "missing"]}))]
        }
        "DescribeAcls" => vec![("rules about a topic", acl("Filter"))],
        "CreateAcls" => vec![("two rules", json!({"creations": [acl(""), acl("")]}))],
        "DeleteAcls" => vec![("one filter", json!({"filters": [acl("Filter")]}))],
        "LeaveGroup" => vec![(
            "a member that does not exist",
            json!({"groupId": GROUP, "memberId": "m", "members": [{"memberId": "m"}, {"memberId": "", "groupInstanceId": "i"}]}),
        )],
        "OffsetCommit" => offset_commit(stage),
        "OffsetFetch" => offset_fetch(stage),
        "OffsetDelete" => offset_delete(),
        "DescribeGroups" => vec![("a group and one that does not exist", json!({"groups": [GROUP, "missing"]}))],
        "DeleteGroups" => vec![
            ("a group", json!({"groupsNames": [format!("{GROUP}{}", stage.version)]})),
            ("a group that does not exist", json!({"groupsNames": ["missing"]})),
        ],
        "AddPartitionsToTxn" => add_partitions_to_txn(),
        "ElectLeaders" => elect_leaders(stage),
        "AlterPartitionReassignments" => alter_partition_reassignments(),
        "ListPartitionReassignments" => vec![
            ("all topics", json!({"topics": null})),
            (
                "a topic and one that does not exist",
                json!({"topics": [{"name": "t", "partitionIndexes": [0, 9]}, {"name": "missing", "partitionIndexes": [0]}]}),
            ),
        ],
        "DescribeQuorum" => describe_quorum(),
        "UnregisterBroker" => vec![("a broker that does not exist", json!({"brokerId": 9}))],
        _ => vec![("the defaults", json!({}))],
    }
}

fn elect_leaders(stage: &Stage<'_>) -> Vec<Exchange> {
    let ask = |kind: i8, topics: Value| json!({"electionType": kind, "topicPartitions": topics, "timeoutMs": 30000});
    let mut all = vec![
        ("the preferred leader leads", ask(0, json!([{"topic": "t", "partitions": [0]}]))),
        ("a partition that does not exist", ask(0, json!([{"topic": "t", "partitions": [9]}]))),
        ("a topic that does not exist", ask(0, json!([{"topic": "missing", "partitions": [0]}]))),
        ("all partitions", ask(0, Value::Null)),
        ("no partition", ask(0, json!([]))),
    ];
    if stage.version >= 1 {
        all.push(("there is a leader", ask(1, json!([{"topic": "t", "partitions": [0]}]))));
        all.push(("of a type that does not exist", ask(9, json!([{"topic": "t", "partitions": [0]}]))));
    }
    all
}

fn alter_partition_reassignments() -> Vec<Exchange> {
    let ask = |topic: &str, partition: i32, replicas: Value| {
        let partition = json!({"partitionIndex": partition, "replicas": replicas});
        json!({"topics": [{"name": topic, "partitions": [partition]}], "timeoutMs": 30000})
    };
    vec![
        ("to where it is", ask("t", 0, json!([1]))),
        ("to a broker that does not exist", ask("t", 0, json!([1, 9]))),
        ("to nowhere", ask("t", 0, json!([]))),
        ("twice to one broker", ask("t", 0, json!([1, 1]))),
        ("nothing is under way", ask("t", 0, Value::Null)),
        ("a partition that does not exist", ask("t", 9, json!([1]))),
        ("a topic that does not exist", ask("missing", 0, json!([1]))),
        ("no partition", json!({"topics": []})),
    ]
}

fn describe_quorum() -> Vec<Exchange> {
    let ask = |topic: &str, partition: i32| json!({"topics": [{"topicName": topic, "partitions": [{"partitionIndex": partition}]}]});
    vec![
        ("no partition", json!({"topics": []})),
        ("a topic that is not the metadata's", ask("t", 0)),
        ("a partition that does not exist", ask("__cluster_metadata", 1)),
    ]
}

/// Produce is advertised from version 0 on and served from version 3 on.
fn produce(stage: &Stage<'_>) -> Vec<Exchange> {
    if stage.version < 3 {
        return Vec::new();
    }
    let request = |topic: &str, id: &str, partition, batch: &[u8]| {
        let mut body = produce_request(topic, partition, batch);
        body["topicData"][0]["topicId"] = id.into();
        body
    };
    let two = Batch::of(2, TIME).with(Codec::Lz4).build();
    let mut broken = two.clone();
    broken[30] ^= 1;
    vec![
        ("two records are appended", request("t", stage.topic_id, 1, &two)),
        ("a batch with a wrong checksum", request("t", stage.topic_id, 1, &broken)),
        ("a partition that does not exist", request("t", stage.topic_id, 9, &two)),
        ("a topic that does not exist", request("missing", UNKNOWN_ID, 0, &two)),
    ]
}

/// Apache Kafka never answers a request without transactions.
fn add_partitions_to_txn() -> Vec<Exchange> {
    let topics = json!([{"name": "t", "partitions": [0]}]);
    let transaction = json!({
        "transactionalId": "x", "producerId": 1, "producerEpoch": 0, "verifyOnly": false, "topics": topics,
    });
    let body = json!({
        "transactions": [transaction],
        "v3AndBelowTransactionalId": "x", "v3AndBelowProducerId": 1, "v3AndBelowProducerEpoch": 0,
        "v3AndBelowTopics": topics,
    });
    vec![("where there is no coordinator", body)]
}

fn fetch(stage: &Stage<'_>) -> Vec<Exchange> {
    let at = |offset| fetch_request("t", stage.topic_id, 0, offset);
    let mut session = at(3);
    session["sessionEpoch"] = 0.into();
    let mut no_session = at(0);
    no_session["sessionEpoch"] = (-1).into();
    vec![
        ("from the start", no_session),
        ("at the end, with a new session", session),
        ("beyond the end", at(4)),
        ("a partition that does not exist", fetch_request("t", stage.topic_id, 9, 0)),
        ("a topic that does not exist", fetch_request("missing", UNKNOWN_ID, 0, 0)),
    ]
}

fn list_offsets() -> Vec<Exchange> {
    let ask = |topic: &str, partition: i32, timestamp: i64| {
        let partition = json!({"partitionIndex": partition, "currentLeaderEpoch": -1, "timestamp": timestamp});
        json!({"replicaId": -1, "topics": [{"name": topic, "partitions": [partition]}]})
    };
    vec![
        ("the latest", ask("t", 0, -1)),
        ("the earliest", ask("t", 0, -2)),
        ("by timestamp", ask("t", 0, TIME + 1)),
        ("after the last timestamp", ask("t", 0, TIME + 9)),
        ("the largest timestamp", ask("t", 0, -3)),
        ("the earliest that is local", ask("t", 0, -4)),
        ("a partition that does not exist", ask("t", 9, -1)),
    ]
}

fn delete_records() -> Vec<Exchange> {
    let ask = |topic: &str, partition: i32, offset: i64| {
        let partition = json!({"partitionIndex": partition, "offset": offset});
        json!({"topics": [{"name": topic, "partitions": [partition]}], "timeoutMs": 30000})
    };
    vec![
        ("to the last record", ask("t", 0, 2)),
        ("the log start does not go back", ask("t", 0, 1)),
        ("beyond the end", ask("t", 0, 4)),
        ("to the high watermark", ask("t", 0, -1)),
        ("a partition that does not exist", ask("t", 9, 0)),
        ("a topic that does not exist", ask("missing", 0, 0)),
    ]
}

fn metadata(stage: &Stage<'_>) -> Vec<Exchange> {
    let named = |name: &str| json!({"topics": [{"name": name}], "allowAutoTopicCreation": false});
    let mut all = vec![
        ("all topics", if stage.version == 0 { json!({}) } else { json!({"topics": null}) }),
        ("a topic", named("t")),
    ];
    // Before version 4, asking creates.
    if stage.version >= 4 {
        all.push(("a topic that does not exist", named("missing")));
    }
    if stage.version >= 10 {
        all.push(("by id", json!({"topics": [{"topicId": stage.topic_id, "name": null}]})));
        all.push(("an id that does not exist", json!({"topics": [{"topicId": UNKNOWN_ID, "name": null}]})));
    }
    all
}

fn find_coordinator(stage: &Stage<'_>) -> Vec<Exchange> {
    let ask = |kind: i8| json!({"key": "g", "keyType": kind, "coordinatorKeys": ["g"]});
    let mut all = vec![("of a group", ask(0))];
    if stage.version >= 1 {
        all.push(("of a transactional id", ask(1)));
        all.push(("of a type that does not exist", ask(9)));
    }
    all
}

fn create_topics(stage: &Stage<'_>) -> Vec<Exchange> {
    let named = |name: &str, partitions: i32| {
        let configs = json!([{"name": "retention.ms", "value": "01000"}]);
        json!({"name": name, "numPartitions": partitions, "replicationFactor": 1, "configs": configs})
    };
    let ask = |topic: Value, validate: bool| json!({"topics": [topic], "timeoutMs": 30000, "validateOnly": validate});
    let mut odd = named("odd", 1);
    odd["configs"][0]["value"] = "soon".into();
    vec![
        ("validated only", ask(named("new", 2), true)),
        ("created", ask(named(&format!("v{}", stage.version), 2), false)),
        ("a name that is taken", ask(named("t", 1), false)),
        ("a name that is not allowed", ask(named("a/b", 1), false)),
        ("no partitions", ask(named("none", 0), false)),
        ("a wrong configuration", ask(odd, false)),
    ]
}

fn delete_topics(stage: &Stage<'_>) -> Vec<Exchange> {
    let named = |name: &str| json!({"topicNames": [name], "topics": [{"name": name}], "timeoutMs": 30000});
    let mut all = vec![("a topic that does not exist", named("missing"))];
    // Each version would delete the same topic; the last one does.
    if stage.version == 6 {
        let by_id = |id: &str| json!({"topics": [{"name": null, "topicId": id}], "timeoutMs": 30000});
        all.push(("an id that does not exist", by_id(UNKNOWN_ID)));
        all.push(("by id", by_id(stage.topic_id)));
        all.push(("once more", by_id(stage.topic_id)));
    }
    all
}

fn init_producer_id() -> Vec<Exchange> {
    let ask = |id: Value, timeout: i32| json!({"transactionalId": id, "transactionTimeoutMs": timeout});
    vec![
        ("an idempotent producer", ask(Value::Null, 60000)),
        ("an empty transactional id", ask("".into(), 60000)),
        ("a timeout of nothing", ask("tx".into(), 0)),
    ]
}

fn offset_for_leader_epoch() -> Vec<Exchange> {
    let ask = |topic: &str, current: i32, epoch: i32| {
        let partition = json!({"partition": 0, "currentLeaderEpoch": current, "leaderEpoch": epoch});
        json!({"replicaId": -1, "topics": [{"topic": topic, "partitions": [partition]}]})
    };
    vec![
        ("the current epoch", ask("t", -1, 0)),
        ("an epoch to come", ask("t", -1, 5)),
        ("a client that knows a later leader", ask("t", 5, 0)),
        ("a topic that does not exist", ask("missing", -1, 0)),
    ]
}

fn describe_configs() -> Vec<Exchange> {
    let ask = |kind: i8, name: &str, keys: &[&str]| {
        let resource = json!({"resourceType": kind, "resourceName": name, "configurationKeys": keys});
        json!({"resources": [resource], "includeSynonyms": true})
    };
    vec![
        ("two keys of a topic", ask(2, "t", &["retention.ms", "cleanup.policy"])),
        ("a topic that does not exist", ask(2, "missing", &["retention.ms"])),
        ("keys of the broker", ask(4, "1", &["num.partitions", "log.retention.ms", "node.id"])),
        ("a broker that does not exist", ask(4, "9", &["node.id"])),
    ]
}

fn alter_configs() -> Vec<Exchange> {
    let ask = |name: &str, value: &str| {
        let configs = json!([{"name": "retention.ms", "value": value}]);
        json!({"resources": [{"resourceType": 2, "resourceName": name, "configs": configs}]})
    };
    vec![
        ("set", ask("t", "5000")),
        ("a wrong value", ask("t", "soon")),
        ("a topic that does not exist", ask("missing", "5000")),
    ]
}

fn incremental_alter_configs() -> Vec<Exchange> {
    let ask = |topic: &str, operation: i8, name: &str, value: Value| {
        let configs = json!([{"name": name, "configOperation": operation, "value": value}]);
        json!({"resources": [{"resourceType": 2, "resourceName": topic, "configs": configs}]})
    };
    vec![
        ("set", ask("t", 0, "retention.ms", "5000".into())),
        ("deleted", ask("t", 1, "retention.ms", Value::Null)),
        ("appended to what is no list", ask("t", 2, "retention.ms", "1".into())),
        ("a wrong value", ask("t", 0, "retention.ms", "soon".into())),
        ("a topic that does not exist", ask("missing", 0, "retention.ms", "5000".into())),
    ]
}

fn describe_log_dirs() -> Vec<Exchange> {
    vec![
        ("everything", json!({"topics": null})),
        ("one partition", json!({"topics": [{"topic": "t", "partitions": [0]}]})),
        ("a topic that does not exist", json!({"topics": [{"topic": "missing", "partitions": [0]}]})),
    ]
}

fn create_partitions(stage: &Stage<'_>) -> Vec<Exchange> {
    let ask = |topic: &str, count: i32| json!({"topics": [{"name": topic, "count": count, "assignments": null}], "timeoutMs": 30000});
    vec![
        ("one more", ask("t", 3 + i32::from(stage.version))),
        ("fewer", ask("t", 1)),
        ("a topic that does not exist", ask("missing", 3)),
    ]
}

fn describe_topic_partitions() -> Vec<Exchange> {
    let ask = |name: &str, limit: i32| json!({"topics": [{"name": name}], "responsePartitionLimit": limit});
    vec![
        ("a topic", ask("t", 2000)),
        ("one partition at a time", ask("t", 1)),
        ("from the cursor on", json!({"topics": [{"name": "t"}], "cursor": {"topicName": "t", "partitionIndex": 1}})),
        ("a topic that does not exist", ask("missing", 2000)),
    ]
}

/// A group with an offset of partition 0 of `t`; those with the number of a version behind it have one too.
pub const GROUP: &str = "group";

/// An OffsetCommit of one partition.
pub fn commit(group: &str, topic: &str, topic_id: &str, partition: i32, generation: i32) -> Value {
    let offset =
        json!({"partitionIndex": partition, "committedOffset": 2, "committedLeaderEpoch": 0, "committedMetadata": "m"});
    let topic = json!({"name": topic, "topicId": topic_id, "partitions": [offset]});
    json!({"groupId": group, "generationIdOrMemberEpoch": generation, "memberId": "", "topics": [topic]})
}

fn offset_commit(stage: &Stage<'_>) -> Vec<Exchange> {
    vec![
        ("an offset", commit(GROUP, "t", stage.topic_id, 0, -1)),
        ("a partition that does not exist", commit(GROUP, "t", stage.topic_id, 9, -1)),
        ("a topic that does not exist", commit(GROUP, "missing", UNKNOWN_ID, 0, -1)),
        ("in a generation of a group that does not exist", commit("missing", "t", stage.topic_id, 0, 1)),
    ]
}

fn offset_fetch(stage: &Stage<'_>) -> Vec<Exchange> {
    let ask = |group: &str, all: bool| {
        let mut topic = json!({"name": "t", "partitionIndexes": [0, 1]});
        let before = if all { Value::Null } else { json!([topic]) };
        topic["topicId"] = stage.topic_id.into();
        let topics = if all { Value::Null } else { json!([topic]) };
        json!({"groupId": group, "topics": before, "groups": [{"groupId": group, "topics": topics}]})
    };
    let mut all = vec![("of a group", ask(GROUP, false)), ("of a group that does not exist", ask("missing", false))];
    if stage.version >= 2 {
        all.push(("all of a group", ask(GROUP, true)));
    }
    all
}

fn offset_delete() -> Vec<Exchange> {
    let ask = |group: &str, topic: &str| json!({"groupId": group, "topics": [{"name": topic, "partitions": [{"partitionIndex": 0}]}]});
    vec![
        ("an offset", ask(GROUP, "t")),
        ("of a topic that does not exist", ask(GROUP, "missing")),
        ("of a group that does not exist", ask("missing", "t")),
    ]
}

fn join_group() -> Vec<Exchange> {
    let ask = |group: &str, session: i32, member: &str| {
        let protocol = json!({"name": "range", "metadata": ""});
        json!({
            "groupId": group, "sessionTimeoutMs": session, "rebalanceTimeoutMs": 10000, "memberId": member,
            "protocolType": "consumer", "protocols": [protocol],
        })
    };
    vec![
        ("a session that is too short", ask("g", 1, "")),
        ("without a group", ask("", 10000, "")),
        ("a member of a group that does not exist", ask("g", 10000, "m")),
    ]
}

/// A request of a member of a group that does not exist, and one without a group.
fn by_strangers(mut body: Value) -> Vec<Exchange> {
    let mut ask = |group: &str| {
        for (name, value) in [("groupId", json!(group)), ("generationId", json!(1)), ("memberId", json!("m"))] {
            body[name] = value;
        }
        body.clone()
    };
    vec![("of a group that does not exist", ask("g")), ("without a group", ask(""))]
}

fn consumer_group_heartbeat() -> Vec<Exchange> {
    let ask = |group: &str, epoch: i32, names: Value| {
        json!({
            "groupId": group, "memberId": "m", "memberEpoch": epoch, "rebalanceTimeoutMs": 10000,
            "subscribedTopicNames": names, "topicPartitions": [],
        })
    };
    vec![
        ("a member of a group that does not exist", ask("missing", 1, Value::Null)),
        ("without a group", ask("", 0, json!(["t"]))),
        ("without a subscription", ask("c", 0, Value::Null)),
        ("an epoch that means nothing", ask("c", -3, json!(["t"]))),
        ("a member that joins", ask("c", 0, json!(["t"]))),
        ("a member that leaves", ask("c", -1, json!(["t"]))),
    ]
}

/// A rule for access, or a filter of rules: the names of most of its fields end with `suffix`.
fn acl(suffix: &str) -> Value {
    let pattern = if suffix.is_empty() { "resourcePatternType" } else { "patternTypeFilter" };
    let mut rule = json!({"operation": 3, "permissionType": 3});
    rule[pattern] = json!(3);
    rule[format!("resourceType{suffix}")] = json!(2);
    for (name, value) in [("resourceName", "t"), ("principal", "User:a"), ("host", "*")] {
        rule[format!("{name}{suffix}")] = json!(value);
    }
    rule
}
