//! What the compared logs hold: random batches of every codec with few keys, tombstones and headers, by producers without and with
//! an id, and transactions that are committed and aborted.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use milena_testkit::batch::{Batch, Codec, Record};
use milena_testkit::client::RawClient;
use milena_testkit::wire;
use serde_json::{Value, json};

/// A topic with one partition.
pub(super) struct Topic {
    pub(super) name: &'static str,
    /// Records have this many keys.
    keys: usize,
    /// Producers with transactions, each with at most one at a time.
    transactional: usize,
    /// Of its batches.
    pub(super) codecs: &'static [Codec],
    configs: &'static [(&'static str, &'static str)],
}

pub(super) const TOPICS: [Topic; 5] = [
    Topic { name: "few-keys", keys: 7, transactional: 0, codecs: &Codec::ALL, configs: &[GO_SOON] },
    Topic { name: "many-keys", keys: 300, transactional: 0, codecs: &Codec::ALL, configs: &[] },
    Topic { name: "plain", keys: 100, transactional: 1, codecs: &[Codec::None], configs: &[] },
    Topic { name: "transactions", keys: 40, transactional: 3, codecs: &Codec::ALL, configs: &[GO_SOON] },
    Topic {
        name: "repacked",
        keys: 15,
        transactional: 2,
        codecs: &Codec::ALL,
        configs: &[("compression.type", "zstd")],
    },
];
/// Tombstones and markers go with the second cleaning.
const GO_SOON: (&str, &str) = ("delete.retention.ms", "0");

/// Of all topics.
const CONFIGS: [(&str, &str); 5] = [
    ("cleanup.policy", "compact"),
    ("min.cleanable.dirty.ratio", "0"),
    ("internal.segment.bytes", "6000"),
    ("index.interval.bytes", "300"),
    ("file.delete.delay.ms", "0"),
];
const STEPS: usize = 150;
/// A transactional batch.
const TRANSACTIONAL: i16 = 1 << 4;
/// CONCURRENT_TRANSACTIONS, and what is said while a coordinator is not there yet.
const AGAIN: [i64; 6] = [3, 6, 14, 15, 16, 51];

struct Producer {
    /// `None`: it is only idempotent.
    transactional_id: Option<String>,
    id: i64,
    epoch: i16,
    sequence: i32,
    in_transaction: bool,
}

/// A batch for a topic.
pub(super) struct Sent {
    topic: &'static str,
    transactional_id: Option<String>,
    bytes: Vec<u8>,
}

impl Sent {
    /// Gives it to a server.
    pub(super) fn produce(&self, client: &mut RawClient) -> Result<()> {
        let records = wire::base64(&self.bytes);
        let data = json!([{"name": self.topic, "partitionData": [{"index": 0, "records": records}]}]);
        let body = json!({"transactionalId": self.transactional_id, "acks": -1, "timeoutMs": 10000, "topicData": data});
        let error = |reply: &Value| reply["responses"][0]["partitionResponses"][0]["errorCode"].clone();
        call(client, "Produce", 9, &body, error).map(drop)
    }
}

/// Makes the input, the same for the same seed, apart from timestamps.
pub(super) struct Input {
    rng: fastrand::Rng,
    now_ms: i64,
    /// For each topic, the idempotent one last.
    producers: Vec<Vec<Producer>>,
}

impl Input {
    /// With timestamps from `from_ms` on, for about half an hour.
    pub(super) fn new(seed: u64, from_ms: i64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), now_ms: from_ms, producers: Vec::new() }
    }

    /// Makes the topics and knows the producers.
    pub(super) fn create(&mut self, client: &mut RawClient) -> Result<()> {
        for topic in &TOPICS {
            let configs =
                CONFIGS.iter().chain(topic.configs).map(|(name, value)| json!({"name": name, "value": value}));
            let configs: Vec<Value> = configs.collect();
            let body = json!({"name": topic.name, "numPartitions": 1, "replicationFactor": 1, "configs": configs});
            let body = json!({"topics": [body], "timeoutMs": 10000});
            call(client, "CreateTopics", 7, &body, |reply| reply["topics"][0]["errorCode"].clone())?;
            let mut producers = Vec::new();
            for number in 0..topic.transactional {
                producers.push(Producer::new(client, Some(format!("{}-{number}", topic.name)))?);
            }
            producers.push(Producer::new(client, None)?);
            self.producers.push(producers);
        }
        Ok(())
    }

    /// Fills the topics; at the end no transaction is open.
    pub(super) fn transactions(&mut self, client: &mut RawClient) -> Result<()> {
        for (at, &Topic { transactional, .. }) in TOPICS.iter().enumerate() {
            for _ in 0..STEPS {
                let ends = self.rng.u8(..4) == 0;
                let by = self.rng.usize(..transactional.max(1));
                if ends && transactional > 0 && self.producers[at][by].in_transaction {
                    let committed = self.rng.bool();
                    self.producers[at][by].end(client, committed)?;
                } else {
                    self.step(at, client)?;
                }
            }
            for producer in self.producers[at].iter_mut().filter(|producer| producer.in_transaction) {
                let committed = self.rng.bool();
                producer.end(client, committed)?;
            }
            // The last segment is never cleaned; no producer's last batch is to be in it alone.
            for _ in 0..20 {
                self.plain(at).produce(client)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, at: usize, client: &mut RawClient) -> Result<()> {
        let producers = self.producers[at].len();
        let by = self.rng.usize(..2 * producers);
        // Half of all batches are of producers without an id.
        if by >= producers {
            return self.plain(at).produce(client);
        }
        self.producers[at][by].begin(client, TOPICS[at].name)?;
        self.by_producer(at, by).produce(client)
    }

    /// More for each topic, of producers that are known from before, without transactions.
    pub(super) fn more(&mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        for (at, topic) in TOPICS.iter().enumerate() {
            for _ in 0..STEPS / 3 {
                let idempotent = topic.transactional;
                all.push(if self.rng.u8(..4) == 0 { self.by_producer(at, idempotent) } else { self.plain(at) });
            }
        }
        all
    }

    fn plain(&mut self, at: usize) -> Sent {
        let bytes = self.batch(at).build();
        Sent { topic: TOPICS[at].name, transactional_id: None, bytes }
    }

    fn by_producer(&mut self, at: usize, by: usize) -> Sent {
        let mut batch = self.batch(at);
        let producer = &mut self.producers[at][by];
        (batch.producer_id, batch.producer_epoch, batch.base_sequence) =
            (producer.id, producer.epoch, producer.sequence);
        producer.sequence += batch.records.len() as i32;
        batch.attributes |= if producer.in_transaction { TRANSACTIONAL } else { 0 };
        Sent { topic: TOPICS[at].name, transactional_id: producer.transactional_id.clone(), bytes: batch.build() }
    }

    fn batch(&mut self, at: usize) -> Batch {
        let rng = &mut self.rng;
        self.now_ms += rng.i64(0..4_000);
        let records = (0..rng.i64(1..8)).map(|delta| {
            let length = rng.usize(..300);
            let value = (0..length).map(|_| rng.u8(b'a'..=b'f')).collect();
            let mut record = Record {
                value: (rng.u8(..5) > 0).then_some(value),
                ..Record::text(delta, rng.i64(0..2_000), &format!("key-{}", rng.usize(..TOPICS[at].keys)), "")
            };
            if rng.u8(..4) == 0 {
                record.headers = vec![(b"name".to_vec(), None), (b"other".to_vec(), Some(b"value".to_vec()))];
            }
            record
        });
        let records = records.collect();
        Batch::new(self.now_ms, records).with(*rng.choice(TOPICS[at].codecs).unwrap_or(&Codec::None))
    }
}

impl Producer {
    fn new(client: &mut RawClient, transactional_id: Option<String>) -> Result<Self> {
        if let Some(id) = &transactional_id {
            let body = json!({"key": id, "keyType": 1});
            call(client, "FindCoordinator", 3, &body, |reply| reply["errorCode"].clone())?;
        }
        let body = json!({"transactionalId": transactional_id, "transactionTimeoutMs": 600_000});
        let reply = call(client, "InitProducerId", 3, &body, |reply| reply["errorCode"].clone())?;
        let id = reply["producerId"].as_i64().context("no producer id")?;
        let epoch = reply["producerEpoch"].as_i64().context("no epoch")? as i16;
        Ok(Self { transactional_id, id, epoch, sequence: 0, in_transaction: false })
    }

    /// Begins a transaction with the topic in it, unless one is open or it has none.
    fn begin(&mut self, client: &mut RawClient, topic: &str) -> Result<()> {
        let Some(id) = self.transactional_id.as_deref().filter(|_| !self.in_transaction) else { return Ok(()) };
        let topics = json!([{"name": topic, "partitions": [0]}]);
        let body = json!({
            "v3AndBelowTransactionalId": id, "v3AndBelowProducerId": self.id, "v3AndBelowProducerEpoch": self.epoch,
            "v3AndBelowTopics": topics,
        });
        let error =
            |reply: &Value| reply["resultsByTopicV3AndBelow"][0]["resultsByPartition"][0]["partitionErrorCode"].clone();
        call(client, "AddPartitionsToTxn", 3, &body, error)?;
        self.in_transaction = true;
        Ok(())
    }

    fn end(&mut self, client: &mut RawClient, committed: bool) -> Result<()> {
        let id = self.transactional_id.as_deref();
        let body =
            json!({"transactionalId": id, "producerId": self.id, "producerEpoch": self.epoch, "committed": committed});
        call(client, "EndTxn", 3, &body, |reply| reply["errorCode"].clone())?;
        self.in_transaction = false;
        Ok(())
    }
}

/// Asks until the answer is without error.
fn call(
    client: &mut RawClient,
    api: &str,
    version: i16,
    body: &Value,
    error: impl Fn(&Value) -> Value,
) -> Result<Value> {
    for _ in 0..1000 {
        let reply = client.call(api, version, body)?;
        match error(&reply).as_i64() {
            Some(0) => return Ok(reply),
            Some(code) if AGAIN.contains(&code) => std::thread::sleep(Duration::from_millis(10)),
            _ => bail!("{api}: {reply}"),
        }
    }
    bail!("{api} is never possible")
}
