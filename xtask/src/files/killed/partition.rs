//! A partition, what its producer was promised, and what must be read of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use milena_testkit::batch::{Batch, Codec, Record, Stored};
use milena_testkit::client::RawClient;
use milena_testkit::wire;
use serde_json::{Value, json};

/// Requests that a producer has under way.
const UNDER_WAY: i64 = 3;
/// Records of a batch.
const RECORDS: i64 = 2;
/// Batches of a segment.
const BATCHES: i64 = 4;
/// Keys that the records have in turn.
const KEYS: i64 = 17;
/// Outside of the log.
const OFFSET_OUT_OF_RANGE: i64 = 1;
/// A batch of its producer that should come before is not there.
const OUT_OF_ORDER: i64 = 45;
/// The disk is full.
pub(super) const FULL: i64 = 56;
/// For a moment a partition is not led, or not there.
const PASSING: [i64; 3] = [3, 6, 9];

/// What becomes of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// All stay.
    Kept,
    /// The last one of each key stays.
    Compacted,
    /// Old segments go by size.
    Short,
    /// Records are deleted by a client.
    Shrunk,
    /// Compacted, and old segments go.
    Both,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [Self::Kept, Self::Compacted, Self::Short, Self::Shrunk, Self::Both];

    pub(super) fn topic(self) -> &'static str {
        ["kept", "compacted", "short", "shrunk", "both"][self as usize]
    }

    pub(super) fn settings(self) -> Vec<(&'static str, &'static str)> {
        // The stamps of the records say when a segment is old enough.
        let mut settings = vec![("segment.ms", "1000"), ("retention.ms", "-1"), ("min.cleanable.dirty.ratio", "0.01")];
        settings.push(match self {
            Self::Kept => ("file.delete.delay.ms", "0"),
            Self::Compacted => ("cleanup.policy", "compact"),
            Self::Short => ("retention.bytes", "20000"),
            Self::Shrunk => ("preallocate", "true"),
            Self::Both => ("cleanup.policy", "compact,delete"),
        });
        if self == Self::Both {
            settings.push(("retention.bytes", "5000"));
        }
        settings
    }

    fn is_compacted(self) -> bool {
        matches!(self, Self::Compacted | Self::Both)
    }

    /// Records go from the beginning.
    fn loses_its_beginning(self) -> bool {
        matches!(self, Self::Short | Self::Shrunk | Self::Both)
    }
}

/// What is known of a partition while others write to it.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Records below are acknowledged.
    pub(super) end: AtomicI64,
    /// Most that DeleteRecords was asked for.
    pub(super) asked: AtomicI64,
    /// Most that it has answered.
    pub(super) deleted: AtomicI64,
}

/// A partition as all see it.
#[derive(Clone)]
pub(super) struct View {
    pub(super) kind: Kind,
    pub(super) topic: &'static str,
    pub(super) index: usize,
    pub(super) seen: Arc<Known>,
    /// The disk may be full.
    pub(super) may_be_full: bool,
}

/// A partition with its only producer, whose record number `n` gets offset `n`.
pub(super) struct Partition {
    view: View,
    producer_id: i64,
    /// First record of the batch that is sent next.
    next: i64,
    /// Stamp of the first record, ms.
    begun: i64,
}

impl Partition {
    pub(super) fn new(kind: Kind, index: usize, producer_id: i64, may_be_full: bool) -> Result<Self> {
        let view = View { kind, topic: kind.topic(), index, seen: Arc::default(), may_be_full };
        // So long ago that no stamp is ever of the future, and not so long that a start forgets the producer.
        Ok(Self { view, producer_id, next: 0, begun: super::super::now()? - 12 * 60 * 60 * 1000 })
    }

    pub(super) fn view(&self) -> View {
        self.view.clone()
    }

    pub(super) fn topic(&self) -> String {
        format!("{}-{}", self.view.topic, self.view.index)
    }

    /// Where it begins (-2) or ends (-1).
    pub(super) fn offset(&self, client: &mut RawClient, which: i64) -> Result<i64> {
        let asked = json!([{"partitionIndex": self.view.index, "timestamp": which}]);
        let body = json!({"replicaId": -1, "topics": [{"name": self.view.topic, "partitions": asked}]});
        let reply = client.call("ListOffsets", 7, &body)?;
        let answer = &reply["topics"][0]["partitions"][0];
        if answer["errorCode"] != 0 {
            bail!("{reply}");
        }
        answer["offset"].as_i64().context("an offset")
    }

    fn batch(&self, first: i64) -> Result<Vec<u8>> {
        let record = |delta: i64| {
            let number = first + delta;
            let text = format!("{number} {}", "x".repeat((number * 37 % 900) as usize));
            Record::text(delta, 0, &format!("key-{}", number % KEYS), &text)
        };
        let batch_number = first / RECORDS;
        let stamp = self.begun + batch_number / BATCHES * 2000;
        let batch = Batch::new(stamp, (0..RECORDS).map(record).collect());
        let batch = batch.with(Codec::ALL[(batch_number % 7 % 5) as usize]);
        let base_sequence = i32::try_from(first)?;
        Ok(Batch { producer_id: self.producer_id, producer_epoch: 0, base_sequence, ..batch }.build())
    }

    /// Produces until the other side is gone.
    pub(super) fn produce(&mut self, client: &mut RawClient, acknowledged: &AtomicU64) -> Result<()> {
        let seen = Arc::clone(&self.view.seen);
        loop {
            let from = self.next;
            let mut sent = Vec::new();
            for number in 0..UNDER_WAY {
                let body = request(self.view.topic, self.view.index, &self.batch(from + number * RECORDS)?);
                let Ok(id) = client.send("Produce", 9, &body) else { return Ok(()) };
                sent.push(id);
            }
            for (id, number) in sent.into_iter().zip(0..) {
                let Ok(reply) = client.receive("Produce", 9, id) else { return Ok(()) };
                let answer = &reply["responses"][0]["partitionResponses"][0];
                let (code, offset) = (answer["errorCode"].as_i64().context("a code")?, from + number * RECORDS);
                // Those behind one that is refused for a moment are out of order; all of them are sent again.
                if self.view.passes(code) || (code == OUT_OF_ORDER && self.next < offset) {
                    continue;
                }
                if code != 0 || answer["baseOffset"].as_i64() != Some(offset) || self.next != offset {
                    bail!("{} takes record {offset} like this: {reply}", self.topic());
                }
                self.next = offset + RECORDS;
                seen.end.fetch_max(self.next, Ordering::SeqCst);
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// After a start: all that was acknowledged is there, and nothing else but what was under way.
    pub(super) fn check(&mut self, client: &mut RawClient) -> Result<()> {
        let seen = &self.view.seen;
        let end = seen.end.load(Ordering::SeqCst);
        let (first, last) = (self.offset(client, -2)?, self.offset(client, -1)?);
        if !(end..=end + UNDER_WAY * RECORDS).contains(&last) {
            bail!("it ends at {last}, {end} was acknowledged");
        }
        let found = self.view.read(client)?.context("the server is gone")?;
        let latest = found.last_key_value().map_or(first, |(offset, _)| offset + 1);
        let (asked, deleted) = (seen.asked.load(Ordering::SeqCst), seen.deleted.load(Ordering::SeqCst));
        let start = match self.view.kind {
            Kind::Kept | Kind::Compacted => 0..=0,
            Kind::Shrunk => deleted..=asked,
            Kind::Short | Kind::Both => 0..=last,
        };
        if !start.contains(&first) || latest != last {
            bail!("it goes from {first} to {last}, its records to {latest}; {start:?} was asked for");
        }
        // Retention may take more under the reader.
        let first = self.offset(client, -2)?.max(first);
        let is_there = |number: &i64| found.contains_key(number);
        let missing = match self.view.kind.is_compacted() {
            false => (first..last).find(|number| !is_there(number)),
            true => ((last - KEYS).max(first)..last).find(|number| !is_there(number)),
        };
        if let Some(missing) = missing {
            bail!("record {missing} of {first} to {last} is missing");
        }
        // The last batch is known to be there whatever became of the snapshots of the producers: it is answered as the duplicate that it is.
        self.next = (last - RECORDS).max(0);
        Ok(())
    }
}

impl View {
    /// Whether a refusal with this code is over soon.
    pub(super) fn passes(&self, code: i64) -> bool {
        PASSING.contains(&code) || self.is_full(code)
    }

    /// Whether it says that the disk is full, which it may be.
    pub(super) fn is_full(&self, code: i64) -> bool {
        self.may_be_full && code == FULL
    }

    /// The records by offset, each checked; `None` when the other side is gone.
    pub(super) fn read(&self, client: &mut RawClient) -> Result<Option<BTreeMap<i64, String>>> {
        let (mut found, mut next) = (BTreeMap::new(), 0);
        loop {
            let asked = json!([{"partition": self.index, "fetchOffset": next, "partitionMaxBytes": 30_000}]);
            let topics = json!([{"topic": self.topic, "partitions": asked}]);
            let body = json!({"maxWaitMs": 0, "minBytes": 0, "maxBytes": 30_000, "topics": topics});
            let Some(reply) = super::ask(client, "Fetch", 12, &body) else { return Ok(None) };
            let answer = &reply["responses"][0]["partitions"][0];
            match answer["errorCode"].as_i64() {
                Some(0) => {}
                Some(OFFSET_OUT_OF_RANGE) if self.kind.loses_its_beginning() => {
                    let Some(start) = self.start(client)? else { return Ok(None) };
                    if start <= next {
                        bail!("{}-{} begins at {start}, {next} is not in it: {reply}", self.topic, self.index);
                    }
                    next = start;
                    found.clear();
                    continue;
                }
                Some(code) if self.passes(code) => {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
                _ => bail!("{}-{} is read from {next}: {reply}", self.topic, self.index),
            }
            let bytes = wire::from_base64(answer["records"].as_str().unwrap_or_default())?;
            let batches = Stored::split(&bytes)?;
            let Some(last) = batches.last() else { return Ok(Some(found)) };
            for batch in &batches {
                self.take(batch, next, &mut found)?;
            }
            next = last.base_offset() + i64::from(last.last_offset_delta()) + 1;
        }
    }

    fn take(&self, batch: &Stored<'_>, from: i64, found: &mut BTreeMap<i64, String>) -> Result<()> {
        for record in batch.records()? {
            let offset = record["o"].as_i64().context("an offset")?;
            let (key, value) = (record["k"].as_str().context("a key")?, record["v"].as_str().context("a value")?);
            let expected = (offset.to_string(), format!("key-{}", offset % KEYS));
            if value.split(' ').next() != Some(&expected.0) || key != expected.1 {
                bail!("{}-{} has {key} and {value} at {offset}", self.topic, self.index);
            }
            let is_new = offset < from || found.insert(offset, key.to_owned()).is_none();
            if !is_new {
                bail!("{}-{} has {offset} twice", self.topic, self.index);
            }
        }
        Ok(())
    }

    fn start(&self, client: &mut RawClient) -> Result<Option<i64>> {
        let asked = json!([{"partitionIndex": self.index, "timestamp": -2}]);
        let body = json!({"replicaId": -1, "topics": [{"name": self.topic, "partitions": asked}]});
        let Some(reply) = super::ask(client, "ListOffsets", 7, &body) else { return Ok(None) };
        reply["topics"][0]["partitions"][0]["offset"].as_i64().context("an offset").map(Some)
    }
}

fn request(topic: &str, index: usize, batch: &[u8]) -> Value {
    let data = json!([{"index": index, "records": wire::base64(batch)}]);
    json!({"acks": -1, "timeoutMs": 10000, "topicData": [{"name": topic, "partitionData": data}]})
}

/// The partition's answer; `None` when the other side is gone.
pub(super) fn produce(client: &mut RawClient, topic: &str, index: usize, batch: &[u8]) -> Option<Value> {
    let mut reply = super::ask(client, "Produce", 9, &request(topic, index, batch))?;
    Some(reply["responses"][0]["partitionResponses"][0].take())
}

/// A record of a topic that does not live long.
pub(super) fn fleeting(life: u64, number: i64) -> Result<Vec<u8>> {
    Ok(Batch::new(super::super::now()?, vec![Record::text(0, 0, &life.to_string(), &number.to_string())]).build())
}
