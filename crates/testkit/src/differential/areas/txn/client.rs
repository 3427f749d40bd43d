//! Requests of a transactional producer, whose transactional id is the case's `x`.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::batch::{Batch, Record};
use crate::differential::context::{Context, one_partition, produce_body};

/// Attribute bit of a transactional batch.
const TRANSACTIONAL: i16 = 0x10;
const TIMEOUT_MS: i64 = 60_000;
/// How long a test waits for what the server does by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// The versions that a client speaks.
pub(super) struct Protocol {
    pub(super) produce: i16,
    pub(super) end: i16,
    /// The client adds partitions itself.
    pub(super) adds: bool,
}

pub(super) const OLD: Protocol = Protocol { produce: 9, end: 4, adds: true };
pub(super) const NEW: Protocol = Protocol { produce: 12, end: 5, adds: false };

/// A producer, as its id and epoch name it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Producer {
    pub(super) id: i64,
    pub(super) epoch: i16,
}

pub(super) fn code(answer: &Value) -> i64 {
    answer["errorCode"].as_i64().unwrap_or(-1)
}

/// Asks until an answer is neither that something is being made nor that it is busy.
fn patiently(cx: &mut Context<'_>, api: &str, v: i16, body: &Value) -> Result<Value> {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = cx.call(api, v, body.clone())?;
        // Loading, not available, not coordinator, concurrent transactions.
        if ![14, 15, 16, 51].contains(&code(&answer)) {
            return Ok(answer);
        }
        if Instant::now() > until {
            bail!("{api}: {answer}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn init_body(cx: &Context<'_>, v: i16, timeout_ms: i64, own: Option<(i64, i16)>) -> Value {
    let mut body = json!({"transactionalId": cx.name("x"), "transactionTimeoutMs": timeout_ms});
    if v >= 3 {
        let (id, epoch) = own.unwrap_or((-1, -1));
        (body["producerId"], body["producerEpoch"]) = (id.into(), epoch.into());
    }
    body
}

/// Sees to it that there is a coordinator.
pub(super) fn ready(cx: &mut Context<'_>) -> Result<()> {
    patiently(cx, "FindCoordinator", 3, &json!({"key": cx.name("x"), "keyType": 1}))?;
    let other = json!({"transactionalId": cx.name("ready"), "transactionTimeoutMs": TIMEOUT_MS});
    let answer = patiently(cx, "InitProducerId", 1, &other)?;
    if code(&answer) == 0 { Ok(()) } else { bail!("InitProducerId: {answer}") }
}

/// InitProducerId, in normal form.
pub(super) fn init(cx: &mut Context<'_>, v: i16, own: Option<(i64, i16)>) -> Result<Value> {
    let body = init_body(cx, v, TIMEOUT_MS, own);
    cx.ask("InitProducerId", v, body)
}

impl Producer {
    /// The next producer of the transactional id.
    pub(super) fn new(cx: &mut Context<'_>) -> Result<Self> {
        Self::with_timeout(cx, TIMEOUT_MS)
    }

    pub(super) fn with_timeout(cx: &mut Context<'_>, timeout_ms: i64) -> Result<Self> {
        ready(cx)?;
        let body = init_body(cx, 4, timeout_ms, None);
        Self::from(&patiently(cx, "InitProducerId", 4, &body)?)
    }

    /// What an answer of InitProducerId or EndTxn makes of it.
    pub(super) fn from(answer: &Value) -> Result<Self> {
        if code(answer) != 0 {
            bail!("no producer: {answer}");
        }
        let id = answer["producerId"].as_i64().context("no producer id")?;
        Ok(Self { id, epoch: answer["producerEpoch"].as_i64().context("no epoch")?.try_into()? })
    }

    /// A batch of its transaction.
    pub(super) fn batch(self, cx: &Context<'_>, sequence: i32, values: &[&str]) -> Batch {
        let records = (0..).zip(values).map(|(at, value)| Record::text(at, at, &format!("k{at}"), value));
        Batch {
            producer_id: self.id,
            producer_epoch: self.epoch,
            base_sequence: sequence,
            attributes: TRANSACTIONAL,
            ..Batch::new(cx.t0(), records.collect())
        }
    }

    /// Adds the partition if its client does so, and produces; the partition's answer as it came.
    pub(super) fn send_batch(
        self,
        cx: &mut Context<'_>,
        protocol: &Protocol,
        topic: &str,
        partition: i32,
        batch: &Batch,
    ) -> Result<Value> {
        if protocol.adds {
            let x = cx.name("x");
            add(cx, 3, &x, (self.id, self.epoch), &[(topic, &[partition])])?;
        }
        produce(cx, protocol.produce, topic, partition, batch)
    }

    /// As [`send_batch`](Self::send_batch), from sequence 0 on, and it must succeed.
    pub(super) fn send(
        self,
        cx: &mut Context<'_>,
        protocol: &Protocol,
        topic: &str,
        partition: i32,
        values: &[&str],
    ) -> Result<()> {
        let batch = self.batch(cx, 0, values);
        let answer = self.send_batch(cx, protocol, topic, partition, &batch)?;
        if code(&answer) == 0 { Ok(()) } else { bail!("produce: {answer}") }
    }

    /// Ends the transaction and waits for its markers; what the producer is from then on.
    pub(super) fn finish(self, cx: &mut Context<'_>, protocol: &Protocol, committed: bool) -> Result<Self> {
        let body = end_body(&cx.name("x"), (self.id, self.epoch), committed);
        let answer = cx.call("EndTxn", protocol.end, body)?;
        if code(&answer) != 0 {
            bail!("EndTxn: {answer}");
        }
        wait_complete(cx)?;
        if protocol.adds { Ok(self) } else { Self::from(&answer) }
    }
}

/// Produces to one partition for the transactional id `x`; the answer as it came.
pub(super) fn produce(cx: &mut Context<'_>, v: i16, topic: &str, partition: i32, batch: &Batch) -> Result<Value> {
    let x = cx.name("x");
    produce_as(cx, v, Some(&x), topic, partition, batch)
}

pub(super) fn produce_as(
    cx: &mut Context<'_>,
    v: i16,
    id: Option<&str>,
    topic: &str,
    partition: i32,
    batch: &Batch,
) -> Result<Value> {
    let mut body = produce_body(topic, partition, -1, &batch.build());
    body["transactionalId"] = id.into();
    let until = Instant::now() + PATIENCE;
    loop {
        let mut reply = cx.call("Produce", v, body.clone())?;
        let answer = one_partition(&mut reply["responses"][0]["partitionResponses"][0]);
        // Its last transaction is still ending.
        if code(&answer) != 51 || Instant::now() > until {
            return Ok(answer);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// AddPartitionsToTxn, in normal form.
pub(super) fn add(
    cx: &mut Context<'_>,
    v: i16,
    id: &str,
    (producer, epoch): (i64, i16),
    topics: &[(&str, &[i32])],
) -> Result<Value> {
    let topics: Vec<_> = topics.iter().map(|(name, at)| json!({"name": name, "partitions": at})).collect();
    let body = if v < 4 {
        json!({
            "v3AndBelowTransactionalId": id, "v3AndBelowProducerId": producer,
            "v3AndBelowProducerEpoch": epoch, "v3AndBelowTopics": topics,
        })
    } else {
        let one = json!({
            "transactionalId": id, "producerId": producer, "producerEpoch": epoch, "verifyOnly": false, "topics": topics,
        });
        json!({"transactions": [one]})
    };
    let answer = cx.ask("AddPartitionsToTxn", v, body)?;
    Ok(with_names(answer))
}

/// AddPartitionsToTxn that adds nothing, in normal form.
pub(super) fn verify(cx: &mut Context<'_>, id: &str, (producer, epoch): (i64, i16), topic: &str) -> Result<Value> {
    let one = json!({
        "transactionalId": id, "producerId": producer, "producerEpoch": epoch, "verifyOnly": true,
        "topics": [{"name": topic, "partitions": [0]}],
    });
    let answer = cx.ask("AddPartitionsToTxn", 4, json!({"transactions": [one]}))?;
    Ok(with_names(answer))
}

/// Errors of partitions get their names.
fn with_names(mut answer: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(object) => {
                for (key, value) in object.iter_mut() {
                    match value.as_i64().filter(|_| key == "partitionErrorCode") {
                        Some(code) => *value = crate::differential::normalise::error(code).into(),
                        None => walk(value),
                    }
                }
            }
            Value::Array(all) => all.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut answer);
    answer
}

pub(super) fn end_body(id: &str, (producer, epoch): (i64, i16), committed: bool) -> Value {
    json!({"transactionalId": id, "producerId": producer, "producerEpoch": epoch, "committed": committed})
}

/// EndTxn, in normal form.
pub(super) fn end(cx: &mut Context<'_>, v: i16, id: &str, own: (i64, i16), committed: bool) -> Result<Value> {
    cx.ask("EndTxn", v, end_body(id, own, committed))
}

/// DescribeTransactions, as it came.
pub(super) fn describe(cx: &mut Context<'_>) -> Result<Value> {
    let body = json!({"transactionalIds": [cx.name("x")]});
    Ok(cx.call("DescribeTransactions", 0, body)?["transactionStates"][0].take())
}

/// Waits until the transaction is complete; its description as it came.
pub(super) fn wait_complete(cx: &mut Context<'_>) -> Result<Value> {
    let until = Instant::now() + PATIENCE;
    loop {
        let described = describe(cx)?;
        if described["transactionState"].as_str().is_some_and(|state| state.starts_with("Complete")) {
            return Ok(described);
        }
        if Instant::now() > until {
            bail!("the transaction does not end: {described}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
