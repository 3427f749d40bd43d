//! Single requests that both servers are asked in the same state and in every version: the tables are
//! `data/requests.jsonl` and `data/transactions.jsonl`, an entry a line. Beside them, every API that both serve gets an empty, a cut, a default and a too
//! long body in every version.
//!
//! In a body, `$id:TOPIC` is the topic's id, `$version` the version that is asked, and `$batch:N`, `$badcrc` and `$large`
//! are batches. `$pid:ID` and `$epoch:ID` are what the producer of a transactional id was last told to be; `$epoch:ID^-1` is
//! one less.

mod producers;

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::context::{Facts, SILENCE};
use super::differences;
use super::normalise::Names;
use crate::batch::{Batch, Record};
use crate::client::{Event, RawClient};
use crate::server::Server;
use crate::wire;
use producers::Producers;

const TABLE: &str = concat!(include_str!("../../data/requests.jsonl"), include_str!("../../data/transactions.jsonl"));
const T0: i64 = 1_700_000_000_000;
/// How long a test waits for what the server does by itself.
const PATIENCE: Duration = Duration::from_secs(10);
/// Fields that say when something happened.
const TIMES: [&str; 2] = ["transactionStartTimeMs", "lastTimestamp"];

/// APIs whose malformed requests are compared too; the others change too much, or are answered in too different ways.
const MALFORMED: [&str; 30] = [
    "Metadata",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "CreatePartitions",
    "DescribeConfigs",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "DescribeCluster",
    "DescribeTopicPartitions",
    "DescribeLogDirs",
    "Produce",
    "Fetch",
    "ListOffsets",
    "OffsetForLeaderEpoch",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "WriteTxnMarkers",
    "TxnOffsetCommit",
    "DescribeProducers",
    "DescribeTransactions",
    "ListTransactions",
    "ElectLeaders",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
    "DescribeQuorum",
    "UnregisterBroker",
    "UpdateFeatures",
];

/// One request in one version, and the answers of both servers.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    id: String,
    theirs: Value,
    ours: Value,
    known: Option<&'static str>,
}

impl Compared {
    /// Whether the answers differ without a known reason, or agree although they are listed as different.
    #[must_use]
    pub fn is_bad(&self) -> bool {
        (self.theirs == self.ours) == self.known.is_some()
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known {
            Some(reason) if self.is_bad() => {
                write!(f, "{} agrees, though it is listed as different: {reason}", self.id)
            }
            _ => write!(f, "{}\n  expected {}\n  got      {}", self.id, self.theirs, self.ours),
        }
    }
}

/// Asks both servers everything, or what begins with one of `only`, in the same order.
///
/// # Errors
/// When a server cannot be prepared, or the table is damaged.
pub fn compare(theirs: &Server, ours: &Server, only: &[String]) -> Result<Vec<Compared>> {
    let mut sides = [Side::prepare(theirs)?, Side::prepare(ours)?];
    let mut all = Vec::new();
    let mut ask = |id: String, request: &mut dyn FnMut(&mut Side) -> Result<Value>| -> Result<()> {
        if only.is_empty() || only.iter().any(|o| id.starts_with(o.as_str())) {
            let [theirs, ours] = [request(&mut sides[0])?, request(&mut sides[1])?];
            all.push(Compared { known: differences::reason(&id), id, theirs, ours });
        }
        Ok(())
    };
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        let entry: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let text = |key: &str| entry[key].as_str().with_context(|| format!("{key} in {line}"));
        let (id, api) = (text("id")?, text("api")?);
        for version in versions(api, entry["versions"].as_str())? {
            ask(format!("{id}.v{version}"), &mut |side| side.ask(api, version, &entry["body"]))?;
        }
    }
    // A version that is not final: nobody offers it.
    let unfinished = wire::request("InitProducerId", 6, 5, Some("x"), &json!({"transactionalId": "x"}))?;
    ask("txn.init.unfinished.v6".to_owned(), &mut |side| side.after(&wire::framed(&unfinished)))?;
    for api in MALFORMED {
        for version in versions(api, None)? {
            for (what, bytes) in malformed(api, version)? {
                ask(format!("malformed.{api}.{what}.v{version}"), &mut |side| side.after(&bytes))?;
            }
        }
    }
    Ok(all)
}

/// The versions of an API that are stable, within a range if one is given.
fn versions(api: &str, range: Option<&str>) -> Result<Vec<i16>> {
    let all = wire::schema(&format!("{api}Request"))?.versions();
    // The newest InitProducerId is not advertised: its schema may still change.
    let last = if api == "InitProducerId" { *all.end() - 1 } else { *all.end() };
    let (low, high) =
        match range.map(|r| r.trim_end_matches('+').split_once('-').unwrap_or((r.trim_end_matches('+'), ""))) {
            Some((low, high)) => (low.parse()?, high.parse().unwrap_or(i16::MAX)),
            None => (0, i16::MAX),
        };
    Ok((*all.start()..=last).filter(|v| (low..=high).contains(v)).collect())
}

/// Whole frames around bodies that are wrong or empty.
fn malformed(api: &str, version: i16) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let header = wire::header(api, version, 5, Some("x"))?;
    let body = wire::encode_body(&format!("{api}Request"), version, &json!({}))?;
    let frame = |body: &[u8]| wire::framed(&[&header[..], body].concat());
    Ok(vec![
        ("default", frame(&body)),
        ("empty", frame(&[])),
        ("cut", frame(&body[..body.len() / 2])),
        ("too-long", frame(&[&body[..], &[0, 1, 2]].concat())),
        ("ones", frame(&[0xff; 40])),
    ])
}

/// One of the servers.
struct Side<'a> {
    server: &'a Server,
    names: Names,
    producers: Producers,
    client: RawClient,
}

impl<'a> Side<'a> {
    /// Makes the topics that the table speaks of: `alpha` has six records in partition 0, `beta` is compacted.
    fn prepare(server: &'a Server) -> Result<Self> {
        let facts = Facts::ask(server)?;
        let names =
            Names { cluster: facts.cluster, host: facts.host, port: facts.port, node: facts.node, ..Names::default() };
        let mut side = Self { server, names, producers: Producers::default(), client: server.client()? };
        let keep = json!([{"name": "retention.ms", "value": "-1"}]);
        for (name, partitions, configs) in [
            ("alpha", 2, keep.clone()),
            ("beta", 1, json!([{"name": "cleanup.policy", "value": "compact"}])),
            ("empty", 1, keep),
        ] {
            let topic = json!({"name": name, "numPartitions": partitions, "replicationFactor": 1, "configs": configs});
            let reply = side.client.call("CreateTopics", 7, &json!({"topics": [topic], "timeoutMs": 30000}))?;
            let id = reply["topics"][0]["topicId"].as_str().with_context(|| format!("{reply}"))?;
            side.names.topics.insert(id.to_owned(), name.to_owned());
        }
        side.wait_led()?;
        side.wait_for_producer_ids()?;
        side.wait_for_groups()?;
        producers::wait_for_coordinator(&mut side.client)?;
        for count in [3, 2, 1] {
            let batch = wire::base64(&Batch::of(count, T0).build());
            let topic = json!({"name": "alpha", "partitionData": [{"index": 0, "records": batch}]});
            side.client.call("Produce", 9, &json!({"acks": -1, "timeoutMs": 10000, "topicData": [topic]}))?;
        }
        Ok(side)
    }

    /// A broker may have to fetch its first block of ids.
    fn wait_for_producer_ids(&mut self) -> Result<()> {
        let body = json!({"transactionalId": null, "transactionTimeoutMs": 1000});
        for _ in 0..500 {
            if self.client.call("InitProducerId", 4, &body)?["errorCode"] == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        anyhow::bail!("no producer id is given out")
    }

    /// The topic of the groups is made when somebody asks for one; `grp` is a group with an offset.
    fn wait_for_groups(&mut self) -> Result<()> {
        let find =
            json!({"keyType": 0, "coordinatorKeys": ["grp", "none", "new", "other", "cg", "cg0", "cg1", "cgs0", ""]});
        let partition = json!({"partitionIndex": 1, "committedOffset": 2, "committedMetadata": "md"});
        let topics = json!([{"name": "alpha", "partitions": [partition]}]);
        let commit = json!({"groupId": "grp", "generationIdOrMemberEpoch": -1, "memberId": "", "topics": topics});
        let groups: Vec<_> =
            ["none", "new", "other", ""].iter().map(|id| json!({"groupId": id, "topics": []})).collect();
        for _ in 0..500 {
            let found = self.client.call("FindCoordinator", 4, &find)?;
            let committed = self.client.call("OffsetCommit", 8, &commit)?;
            let fetched = self.client.call("OffsetFetch", 8, &json!({"groups": groups}))?;
            let all = [&found["coordinators"], &committed["topics"][0]["partitions"], &fetched["groups"]];
            if all.iter().filter_map(|all| all.as_array()).flatten().all(|one| one["errorCode"] == 0) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        anyhow::bail!("groups have no coordinator")
    }

    fn wait_led(&mut self) -> Result<()> {
        let question = |name: &str, partition: i32| {
            let partitions = json!([{"partitionIndex": partition, "timestamp": -1}]);
            json!({"name": name, "partitions": partitions})
        };
        let topics = json!([question("alpha", 0), question("alpha", 1), question("beta", 0), question("empty", 0)]);
        let body = json!({"replicaId": -1, "topics": topics});
        for _ in 0..500 {
            let reply = self.client.call("ListOffsets", 7, &body)?;
            let mut topics = reply["topics"].as_array().into_iter().flatten();
            if topics.all(|t| t["partitions"][0]["errorCode"] == 0) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        anyhow::bail!("the topics have no leaders")
    }

    /// The answer to a request in comparable form, or what came instead.
    fn ask(&mut self, api: &str, version: i16, body: &Value) -> Result<Value> {
        let body = self.filled(version, body)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask_once(api, version, &body)?;
            if !producers::is_busy(api, &answer) || Instant::now() > until {
                return Ok(answer);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn ask_once(&mut self, api: &str, version: i16, body: &Value) -> Result<Value> {
        let correlation = match self.client.send(api, version, body) {
            Ok(correlation) => correlation,
            Err(_) => {
                self.client = self.server.client()?;
                self.client.send(api, version, body)?
            }
        };
        Ok(match self.client.next_event(SILENCE * 4)? {
            Event::Silent => {
                self.client = self.server.client()?;
                "silent".into()
            }
            Event::Closed => {
                self.client = self.server.client()?;
                "closed".into()
            }
            Event::Frame(frame) => {
                let reply = wire::response(api, version, &frame)?;
                anyhow::ensure!(reply.correlation == correlation, "another reply was expected");
                self.remember(&reply.body);
                self.producers.remember(api, body, &reply.body);
                if api == "EndTxn" && reply.body["errorCode"] == 0 {
                    producers::wait_complete(&mut self.client, &body["transactionalId"])?;
                }
                let mut normal = self.names.normal(&reply.body);
                settle("", &mut normal);
                normal
            }
        })
    }

    /// Topics that a reply names together with their ids.
    fn remember(&mut self, body: &Value) {
        for topic in body["topics"].as_array().into_iter().flatten() {
            if let (Some(id), Some(name)) = (topic["topicId"].as_str(), topic["name"].as_str())
                && topic["errorCode"] == 0
            {
                self.names.topics.insert(id.to_owned(), name.to_owned());
            }
        }
    }

    /// Whether bytes are answered or the connection is closed.
    fn after(&mut self, bytes: &[u8]) -> Result<Value> {
        let mut client = self.server.client()?;
        client.send_bytes(bytes)?;
        Ok(match client.next_event(SILENCE / 3)? {
            Event::Frame(_) => "reply",
            Event::Closed => "closed",
            Event::Silent => "silent",
        }
        .into())
    }

    /// The body with its placeholders filled in.
    fn filled(&self, version: i16, body: &Value) -> Result<Value> {
        Ok(match body {
            Value::Object(object) => {
                let filled = object.iter().map(|(k, v)| Ok((k.clone(), self.filled(version, v)?)));
                Value::Object(filled.collect::<Result<_>>()?)
            }
            Value::Array(all) => all.iter().map(|v| self.filled(version, v)).collect::<Result<Vec<_>>>()?.into(),
            Value::String(text) => {
                let text = text.replace("$version", &version.to_string());
                match self.producers.placeholder(&text)? {
                    Some(number) => number.into(),
                    None => self.text(&text)?.into(),
                }
            }
            other => other.clone(),
        })
    }

    fn text(&self, text: &str) -> Result<String> {
        if let Some(name) = text.strip_prefix("$id:") {
            let known = self.names.topics.iter().find(|(_, n)| *n == name);
            return known.map(|(id, _)| id.clone()).with_context(|| format!("{name} has no known id"));
        }
        if let Some(count) = text.strip_prefix("$batch:") {
            return Ok(wire::base64(&Batch::of(count.parse()?, T0).build()));
        }
        Ok(match text {
            "$badcrc" => wire::base64(&Batch { crc: Some(1), ..Batch::of(1, T0) }.build()),
            "$large" => {
                let record = Record::text(0, 0, "k", &"x".repeat(1_100_000));
                wire::base64(&Batch::new(T0, vec![record]).build())
            }
            _ => text.to_owned(),
        })
    }
}

/// Takes out what no two servers share, and gives lists of objects one order.
fn settle(key: &str, value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (key, inner) in object.iter_mut() {
                settle(key, inner);
            }
        }
        Value::Array(all) => {
            all.iter_mut().for_each(|inner| settle(key, inner));
            if all.first().is_some_and(Value::is_object) {
                all.sort_by_key(ToString::to_string);
            }
        }
        Value::String(text) if key == "logDir" || (key == "documentation" && !text.is_empty()) => {
            *value = "<some>".into()
        }
        Value::Number(_) if ["totalBytes", "usableBytes"].contains(&key) => *value = "<bytes>".into(),
        Value::Number(time) if TIMES.contains(&key) && time.as_i64() > Some(0) => *value = "<time>".into(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With something of the right type in place of what only a server tells.
    fn filled(value: &Value) -> Value {
        match value {
            Value::Object(object) => object.iter().map(|(key, value)| (key.clone(), filled(value))).collect(),
            Value::Array(all) => all.iter().map(filled).collect(),
            Value::String(text) if ["$pid:", "$epoch:"].iter().any(|place| text.starts_with(place)) => 1.into(),
            Value::String(text) if text.starts_with("$id:") => "dGhpc2lzbm90YXRvcGljIQ".into(),
            Value::String(text) => text.replace("$batch:", "").replace('$', "").into(),
            other => other.clone(),
        }
    }

    #[test]
    fn every_entry_of_the_tables_encodes_in_every_version() {
        let mut count = 0;
        for line in TABLE.lines().filter(|line| !line.is_empty()) {
            let entry: Value = serde_json::from_str(line).unwrap();
            let api = entry["api"].as_str().unwrap();
            for version in versions(api, entry["versions"].as_str()).unwrap() {
                if api != "Produce" {
                    let encoded = wire::encode_body(&format!("{api}Request"), version, &filled(&entry["body"]));
                    assert!(encoded.is_ok(), "{line}: {encoded:?}");
                }
                count += 1;
            }
        }
        assert!(count > 1000, "{count} requests");
    }
}
