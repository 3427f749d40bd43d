//! What the broker answers, byte by byte: for each API a file with requests and responses of every version. With
//! `UPDATE_TRANSCRIPTS=1` the files are written instead of compared; then read what has changed.
//!
//! What differs from run to run (port, ids that are drawn, the data directory, sizes of the disk) is replaced by fixed
//! values. The bytes are those of the response with these values: the response as it came is encoded again and must be
//! what was received, so that nothing else hides behind the replacement.

mod exchanges;
mod normal;
mod text;
mod transactions;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use milena_testkit::client::RawClient;
use milena_testkit::server::{Kind, Options};
use milena_testkit::{oracle, wire};
use serde_json::{Value, json};

use self::exchanges::Stage;
use self::normal::Normal;
use super::common::Node;
use super::common::requests::{create_topic, produce};
use super::versions::{advertised, name_of};

/// The correlation id of every request.
const CORRELATION: i32 = 7;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

#[test]
fn transcripts_are_current() {
    let update = std::env::var_os("UPDATE_TRANSCRIPTS").is_some();
    let mut names = BTreeSet::new();
    for (key, min, max) in advertised(&mut Node::start().client()) {
        let api = name_of(key);
        let file = folder().join(format!("{}.txt", text::snake_case(&api)));
        let node = Node::start();
        let normal = Normal::new(node.address().port(), &node.data_dir());
        let fresh = Stand::new(node.client(), normal).transcript(&api, min..=max);
        if update {
            std::fs::write(&file, &fresh).unwrap();
        }
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(kept == fresh, "{}", text::first_difference(&api, &kept, &fresh));
        names.insert(file);
    }
    let files: BTreeSet<_> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files, names, "each API that is served has a transcript, and nothing else has");
}

/// APIs that are answered by a coordinator.
const COORDINATED: [&str; 13] = [
    "ConsumerGroupDescribe",
    "ConsumerGroupHeartbeat",
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetDelete",
    "DescribeGroups",
    "ListGroups",
    "DeleteGroups",
];

/// APIs whose answers are not those of Apache Kafka byte for byte: which APIs there are, whether coordinators are, and
/// the order of a hash table.
const OTHERWISE: [&str; 5] = ["ApiVersions", "FindCoordinator", "InitProducerId", "DescribeConfigs", "ListGroups"];

/// Asks Apache Kafka the same. `cargo xtask test` runs it.
#[test]
#[ignore = "needs Apache Kafka, which `cargo xtask oracle` fetches"]
fn apache_kafka_has_the_same_transcripts() {
    let apis = advertised(&mut Node::start().client()).into_iter();
    let apis = Mutex::new(apis.filter(|(key, ..)| !OTHERWISE.contains(&&*name_of(*key))));
    let compare = || {
        let mut wrong = Vec::new();
        loop {
            let Some((key, min, max)) = apis.lock().unwrap().next() else { return wrong };
            wrong.extend(difference_from_kafka(&name_of(key), min..=max));
        }
    };
    // Much of a start of Apache Kafka's is waiting.
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(compare));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Where a transcript of Apache Kafka differs from ours first.
fn difference_from_kafka(api: &str, versions: RangeInclusive<i16>) -> Option<String> {
    let kafka = Options::new(Kind::Kafka(oracle::libs())).set("log.retention.ms", "-1").start().unwrap();
    let normal = Normal::new(kafka.addr().port(), &kafka.data_dir());
    let theirs = Stand::new(kafka.client().unwrap(), normal).transcript(api, versions);
    let ours = std::fs::read_to_string(folder().join(format!("{}.txt", text::snake_case(api)))).unwrap();
    (ours != theirs).then(|| text::first_difference(api, &ours, &theirs))
}

/// A fresh server that holds three records in partition 0 of the topic `t`.
struct Stand {
    client: RawClient,
    normal: Normal,
    topic_id: String,
}

impl Stand {
    fn new(mut client: RawClient, normal: Normal) -> Self {
        let topic_id = create_topic(&mut client, "t", 2, &[]);
        (0..2).for_each(|partition| wait_until_led(&mut client, partition));
        assert_eq!(produce(&mut client, "t", 0, &exchanges::three_records())["errorCode"], 0);
        Self { client, normal, topic_id }
    }

    /// Waits for the coordinator of groups, and commits an offset for each of them.
    fn coordinate(&mut self) {
        let of = |group: &str| json!({"keyType": 0, "coordinatorKeys": [group]});
        let groups =
            std::iter::once(exchanges::GROUP.to_owned()).chain((0..10).map(|n| format!("{}{n}", exchanges::GROUP)));
        for group in groups {
            while self.client.call("FindCoordinator", 4, &of(&group)).unwrap()["coordinators"][0]["errorCode"] != 0 {
                std::thread::sleep(Duration::from_millis(10));
            }
            let commit = exchanges::commit(&group, "t", &self.topic_id, 0, -1);
            let commit = wire::fit("OffsetCommitRequest", 8, &commit).unwrap();
            let committed = |answer: &Value| answer["topics"][0]["partitions"][0]["errorCode"] == 0;
            while !committed(&self.client.call("OffsetCommit", 8, &commit).unwrap()) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// All exchanges of an API.
    fn transcript(&mut self, api: &str, versions: RangeInclusive<i16>) -> String {
        if COORDINATED.contains(&api) {
            self.coordinate();
        }
        let mut out = format!("{api}\n");
        for version in versions.clone() {
            for (title, body) in exchanges::of(api, &Stage { version, topic_id: &self.topic_id }) {
                let body = wire::fit(&format!("{api}Request"), version, &body).unwrap();
                out += &exchange(&mut self.client, &mut self.normal, (api, version), title, &body);
            }
        }
        if transactions::APIS.contains(&api) {
            out += &self.in_transactions(api, versions);
        }
        out
    }

    /// All exchanges of an API of transactions that need a coordinator.
    fn in_transactions(&mut self, api: &str, versions: RangeInclusive<i16>) -> String {
        if api == "TxnOffsetCommit" {
            self.coordinate();
        }
        let mut out = String::new();
        for version in versions {
            let (id, producer) = transactions::producer(&mut self.client, api, version);
            let stage = transactions::Stage { version, topic_id: &self.topic_id, id, producer };
            for (title, body) in transactions::of(api, &stage) {
                let body = wire::fit(&format!("{api}Request"), version, &body).unwrap();
                out += &exchange(&mut self.client, &mut self.normal, (api, version), title, &body);
            }
        }
        out
    }
}

/// Apache Kafka creates a topic before its broker knows that it leads.
fn wait_until_led(client: &mut RawClient, partition: i32) {
    let asked = json!([{"partitionIndex": partition, "timestamp": -1}]);
    let body = json!({"replicaId": -1, "topics": [{"name": "t", "partitions": asked}]});
    while client.call("ListOffsets", 7, &body).unwrap()["topics"][0]["partitions"][0]["errorCode"] != 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One request and its response, as text.
fn exchange(
    client: &mut RawClient,
    normal: &mut Normal,
    (api, version): (&str, i16),
    title: &str,
    body: &Value,
) -> String {
    let request = wire::request(api, version, CORRELATION, Some("client"), body).unwrap();
    client.send_frame(&request).unwrap();
    let frame = client.next_frame().unwrap_or_else(|error| panic!("{api} v{version}, {title}: {error}"));
    let reply = wire::response(api, version, &frame).unwrap();
    assert_eq!((reply.correlation, reply.trailing), (CORRELATION, 0), "{api} v{version}, {title}");
    let name = format!("{api}Response");
    let encode = |body: &Value| wire::encode_body(&name, version, body).unwrap();
    let body_at = frame.len() - encode(&reply.body).len();
    assert_eq!(frame[body_at..], encode(&reply.body), "{api} v{version}, {title}: {}", reply.body);
    let (asked, answered) = (normal.of(body), normal.of(&reply.body));
    let bytes = [&frame[..body_at], &encode(&answered)].concat();
    format!(
        "\n== v{version}: {title}\nrequest  {}\nresponse {}\n{}",
        text::json(&asked),
        text::json(&answered),
        text::hex(&bytes)
    )
}
