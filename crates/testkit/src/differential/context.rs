//! What a case works with: a server, a connection, names of its own, and the steps that many cases share.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::normalise::{Names, error};
use crate::batch::{Batch, Record, Stored};
use crate::client::{Event, RawClient};
use crate::server::Server;
use crate::wire;

/// A case asks for an API that the server does not advertise.
#[derive(Debug)]
pub(super) struct NotServed(pub(super) String);

impl std::fmt::Display for NotServed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is not served", self.0)
    }
}

impl std::error::Error for NotServed {}

/// How long a test waits before it says that nothing comes.
pub(super) const SILENCE: Duration = Duration::from_millis(1500);

/// What stays the same from case to case on one server.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// Keys that the server advertises.
    pub(super) served: Vec<i64>,
    pub(super) cluster: String,
    pub(super) host: String,
    pub(super) port: i64,
    pub(super) node: i64,
}

impl Facts {
    /// Asks the server.
    pub(super) fn ask(server: &Server) -> Result<Self> {
        let mut client = server.client()?;
        let apis = client.call("ApiVersions", 0, &json!({}))?;
        let keys = apis["apiKeys"].as_array().context("no keys")?;
        let metadata = client.call("Metadata", 9, &json!({"topics": []}))?;
        let broker = &metadata["brokers"][0];
        Ok(Self {
            served: keys.iter().filter_map(|k| k["apiKey"].as_i64()).collect(),
            cluster: metadata["clusterId"].as_str().unwrap_or_default().to_owned(),
            host: broker["host"].as_str().unwrap_or_default().to_owned(),
            port: broker["port"].as_i64().unwrap_or_default(),
            node: broker["nodeId"].as_i64().unwrap_or_default(),
        })
    }
}

/// One case's view of the server.
pub(super) struct Context<'a> {
    pub(super) server: &'a Server,
    pub(super) facts: &'a Facts,
    pub(super) names: Names,
    client: Option<RawClient>,
}

impl<'a> Context<'a> {
    /// `number` is the case's own; topics of two cases never share a name. The prefix has ten characters, as the one
    /// that the outcomes were recorded with.
    pub(super) fn new(server: &'a Server, facts: &'a Facts, number: usize) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        let names = Names {
            prefix: format!("case{number:06}"),
            t0: now - 60_000,
            cluster: facts.cluster.clone(),
            host: facts.host.clone(),
            port: facts.port,
            node: facts.node,
            ..Names::default()
        };
        Self { server, facts, names, client: None }
    }

    /// The case's own topic (or group, ...) of this short name.
    pub(super) fn name(&self, short: &str) -> String {
        format!("{}-{short}", self.names.prefix)
    }

    pub(super) fn t0(&self) -> i64 {
        self.names.t0
    }

    /// A new connection.
    pub(super) fn connect(&self) -> Result<RawClient> {
        self.server.client()
    }

    /// The case's connection; it is made when first used.
    pub(super) fn client(&mut self) -> Result<&mut RawClient> {
        if self.client.is_none() {
            self.client = Some(self.server.client()?);
        }
        self.client.as_mut().context("connected above")
    }

    /// Forgets the case's connection; the next call makes a new one.
    pub(super) fn reconnect(&mut self) {
        self.client = None;
    }

    /// A request and its answer as it came.
    pub(super) fn call(&mut self, api: &str, version: i16, body: Value) -> Result<Value> {
        let key = wire::schema(&format!("{api}Request"))?.api_key.context("not an API")?;
        if !self.facts.served.contains(&i64::from(key)) {
            return Err(NotServed(api.to_owned()).into());
        }
        let answer = self.client()?.call(api, version, &body);
        if answer.is_err() {
            self.client = None;
        }
        answer
    }

    /// A request and its answer in normal form.
    pub(super) fn ask(&mut self, api: &str, version: i16, body: Value) -> Result<Value> {
        let answer = self.call(api, version, body)?;
        Ok(self.names.normal(&answer))
    }

    /// A request, and `"NO_REPLY"` if no answer comes.
    pub(super) fn ask_or_silence(&mut self, api: &str, version: i16, body: Value) -> Result<Value> {
        let mut client = self.connect()?;
        let correlation = client.send(api, version, &body)?;
        match client.next_event(SILENCE * 2)? {
            Event::Silent => Ok("NO_REPLY".into()),
            Event::Closed => Ok("CONNECTION_CLOSED".into()),
            Event::Frame(frame) => {
                let reply = wire::response(api, version, &frame)?;
                if reply.correlation != correlation {
                    bail!("correlation id {} instead of {correlation}", reply.correlation);
                }
                Ok(self.names.normal(&reply.body))
            }
        }
    }

    /// Sends bytes on a new connection and says what happens then.
    pub(super) fn after(&self, bytes: &[u8]) -> Result<Value> {
        let mut client = self.connect()?;
        client.send_bytes(bytes)?;
        let after = match client.next_event(SILENCE)? {
            Event::Frame(_) => "reply",
            Event::Closed => "closed",
            Event::Silent => "open",
        };
        Ok(json!({"after": after, "brokerAlive": self.alive()}))
    }

    /// Whether a new client is served.
    pub(super) fn alive(&self) -> bool {
        let answer = self.connect().and_then(|mut c| c.call("ApiVersions", 0, &json!({})));
        answer.is_ok()
    }

    /// Creates the case's topic of this short name and gives its full one.
    pub(super) fn create(&mut self, short: &str, partitions: i32, configs: &[(&str, &str)]) -> Result<String> {
        let name = self.name(short);
        let configs: Vec<_> = configs.iter().map(|(k, v)| json!({"name": k, "value": v})).collect();
        let topic = json!({"name": name, "numPartitions": partitions, "replicationFactor": 1, "configs": configs});
        let reply = self.call("CreateTopics", 7, json!({"topics": [topic], "timeoutMs": 30000}))?;
        let topic = &reply["topics"][0];
        if topic["errorCode"] != 0 {
            bail!("topic {name} was not created: {topic}");
        }
        self.learn_id(&name)?;
        self.wait_led(&name, partitions)?;
        Ok(name)
    }

    /// Waits until the broker leads each partition: the metadata may tell so a moment earlier.
    pub(super) fn wait_led(&mut self, name: &str, partitions: i32) -> Result<()> {
        let questions: Vec<_> = (0..partitions).map(|p| json!({"partitionIndex": p, "timestamp": -1})).collect();
        let body = json!({"replicaId": -1, "topics": [{"name": name, "partitions": questions}]});
        for _ in 0..500 {
            let reply = self.call("ListOffsets", 7, body.clone())?;
            let answers = reply["topics"][0]["partitions"].as_array().map_or(&[][..], Vec::as_slice);
            if answers.iter().all(|p| p["errorCode"] == 0) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("topic {name} has no leader")
    }

    /// Waits until the topic shows in the metadata with a leader for each partition, and remembers its id.
    pub(super) fn learn_id(&mut self, name: &str) -> Result<String> {
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            let topic = self.metadata(name)?;
            let partitions = topic["partitions"].as_array().map_or(&[][..], Vec::as_slice);
            if topic["errorCode"] == 0 && !partitions.is_empty() && partitions.iter().all(|p| p["errorCode"] == 0) {
                let id = topic["topicId"].as_str().context("no topic id")?.to_owned();
                self.names.topics.insert(id.clone(), name.to_owned());
                return Ok(id);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("topic {name} does not show in the metadata")
    }

    /// The topic's id, known from its creation.
    pub(super) fn id(&self, name: &str) -> Result<String> {
        let found = self.names.topics.iter().find(|(_, n)| *n == name).map(|(id, _)| id.clone());
        found.with_context(|| format!("topic {name} has no known id"))
    }

    /// The topic's entry in the metadata; it is not created by asking.
    pub(super) fn metadata(&mut self, name: &str) -> Result<Value> {
        let body = json!({"topics": [{"name": name}], "allowAutoTopicCreation": false});
        Ok(self.call("Metadata", 12, body)?["topics"][0].take())
    }

    /// Deletes a topic and waits until it is gone.
    pub(super) fn delete(&mut self, name: &str) -> Result<()> {
        let reply = self.call("DeleteTopics", 5, json!({"topicNames": [name], "timeoutMs": 30000}))?;
        if reply["responses"][0]["errorCode"] != 0 {
            bail!("topic {name} was not deleted: {reply}");
        }
        self.wait_gone(name)
    }

    /// Waits until the metadata does not know the topic.
    pub(super) fn wait_gone(&mut self, name: &str) -> Result<()> {
        for _ in 0..500 {
            if self.metadata(name)?["errorCode"] == 3 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("topic {name} stays")
    }

    /// Produces one batch with acks=all by name and gives the partition's answer, without its index.
    pub(super) fn produce(&mut self, topic: &str, partition: i32, batch: &[u8]) -> Result<Value> {
        let body = produce_body(topic, partition, -1, batch);
        let mut reply = self.call("Produce", 9, body)?;
        Ok(one_partition(&mut reply["responses"][0]["partitionResponses"][0]))
    }

    /// Produces and expects success.
    pub(super) fn produce_ok(&mut self, topic: &str, partition: i32, batch: &Batch) -> Result<()> {
        let answer = self.produce(topic, partition, &batch.build())?;
        if answer["errorCode"] != 0 {
            bail!("produce to {topic}-{partition}: {answer}");
        }
        Ok(())
    }

    /// Batches of three, two and one records: offsets 0 to 5.
    pub(super) fn six(&mut self, topic: &str, partition: i32) -> Result<()> {
        let t0 = self.t0();
        for count in [3, 2, 1] {
            let records = (0..count).map(|i| Record::text(i, i, &format!("k{i}"), "v"));
            self.produce_ok(topic, partition, &Batch::new(t0, records.collect()))?;
        }
        Ok(())
    }

    /// The stored bytes of a partition from its start.
    pub(super) fn stored(&mut self, topic: &str, partition: i32) -> Result<Vec<u8>> {
        let body =
            fetch_body(&json!({"topic": topic}), &json!([{"partition": partition, "partitionMaxBytes": 1 << 20}]));
        let reply = self.call("Fetch", 12, body)?;
        let records = reply["responses"][0]["partitions"][0]["records"].as_str().unwrap_or_default();
        Ok(STANDARD.decode(records)?)
    }

    /// The stored batches field by field.
    pub(super) fn stored_fields(&mut self, topic: &str, partition: i32, sent: &[u8]) -> Result<Value> {
        let bytes = self.stored(topic, partition)?;
        let fields: Value = Stored::split(&bytes)?.iter().map(|b| b.fields(sent)).collect();
        Ok(self.names.normal(&fields))
    }

    /// One question of ListOffsets v7; the partition's answer as it came.
    pub(super) fn list_offset(&mut self, topic: &str, partition: i32, timestamp: i64) -> Result<Value> {
        let partitions = json!([{"partitionIndex": partition, "timestamp": timestamp}]);
        let body = json!({"replicaId": -1, "topics": [{"name": topic, "partitions": partitions}]});
        let mut reply = self.call("ListOffsets", 7, body)?;
        Ok(reply["topics"][0]["partitions"][0].take())
    }

    /// The log end offset.
    pub(super) fn end(&mut self, topic: &str, partition: i32) -> Result<i64> {
        let answer = self.list_offset(topic, partition, -1)?;
        answer["offset"].as_i64().with_context(|| format!("{answer}"))
    }

    /// DeleteRecords up to an offset.
    pub(super) fn delete_records(&mut self, topic: &str, partition: i32, before: i64) -> Result<()> {
        let partitions = json!([{"partitionIndex": partition, "offset": before}]);
        let body = json!({"topics": [{"name": topic, "partitions": partitions}], "timeoutMs": 10000});
        let reply = self.call("DeleteRecords", 2, body)?;
        let code = reply["topics"][0]["partitions"][0]["errorCode"].as_i64().unwrap_or(-1);
        if code == 0 { Ok(()) } else { bail!("DeleteRecords: {}", error(code)) }
    }

    /// Asks again until the answer is `good`, at most for ten seconds; gives the last one.
    pub(super) fn until(
        &mut self,
        mut ask: impl FnMut(&mut Self) -> Result<Value>,
        good: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let answer = ask(self)?;
            if good(&answer) || Instant::now() > until {
                return Ok(answer);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the coordinators of the case's groups answer.
    pub(super) fn coordinated(&mut self) -> Result<()> {
        let mut keys: Vec<_> = ["g", "no", "a", "b"].iter().map(|short| self.name(short)).collect();
        // Kafka's default.
        keys.push(String::new());
        let find = json!({"keyType": 0, "coordinatorKeys": keys});
        let fetch: Vec<_> = keys.iter().map(|group| json!({"groupId": group, "topics": []})).collect();
        let fetch = json!({"groups": fetch, "requireStable": false});
        let fine = |all: &Value| all.as_array().into_iter().flatten().all(|one| one["errorCode"] == 0);
        self.until(|cx| cx.call("FindCoordinator", 4, find.clone()), |found| fine(&found["coordinators"]))?;
        self.until(|cx| cx.call("OffsetFetch", 8, fetch.clone()), |fetched| fine(&fetched["groups"])).map(drop)
    }

    /// Waits until the coordinator of a transactional id answers.
    pub(super) fn transactional(&mut self, id: &str) -> Result<()> {
        /// Loading, not available, not coordinator.
        const PASSING: [i64; 3] = [14, 15, 16];
        let (find, describe) = (json!({"keyType": 1, "coordinatorKeys": [id]}), json!({"transactionalIds": [id]}));
        self.until(
            |cx| cx.call("FindCoordinator", 4, find.clone()),
            |found| found["coordinators"][0]["errorCode"] == 0,
        )?;
        let answers = |told: &Value| {
            told["transactionStates"][0]["errorCode"].as_i64().is_some_and(|code| !PASSING.contains(&code))
        };
        self.until(|cx| cx.call("DescribeTransactions", 0, describe.clone()), answers).map(drop)
    }

    /// Sees to it that an internal topic exists, as it would after the first use of a coordinator.
    pub(super) fn internal(&mut self, name: &str) -> Result<()> {
        if self.metadata(name)?["errorCode"] != 0 {
            let topic = json!({"name": name, "numPartitions": 50, "replicationFactor": 1});
            self.call("CreateTopics", 7, json!({"topics": [topic], "timeoutMs": 30000}))?;
        }
        self.learn_id(name).map(drop)
    }
}

/// A Produce body of one batch, for versions with topic names.
pub(super) fn produce_body(topic: &str, partition: i32, acks: i16, batch: &[u8]) -> Value {
    json!({"acks": acks, "timeoutMs": 10000, "topicData": [{
        "name": topic, "partitionData": [{"index": partition, "records": STANDARD.encode(batch)}],
    }]})
}

/// A Fetch body of one topic, outside a session, that does not wait.
pub(super) fn fetch_body(topic: &Value, partitions: &Value) -> Value {
    let mut topic = topic.clone();
    topic["partitions"] = partitions.clone();
    json!({"maxWaitMs": 0, "minBytes": 0, "maxBytes": 1 << 20, "topics": [topic]})
}

/// A partition's answer to Produce without its index.
pub(super) fn one_partition(answer: &mut Value) -> Value {
    if let Some(object) = answer.as_object_mut() {
        object.shift_remove("index");
    }
    answer.take()
}

/// A number of an id: `neg5` is -5.
pub(super) fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("neg") {
        Some(rest) => rest.parse::<i64>().ok().map(|n| -n),
        None => text.parse().ok(),
    }
}

/// A version of an id: `v12` is 12.
pub(super) fn version(text: &str) -> Option<i16> {
    text.strip_prefix('v')?.parse().ok()
}
