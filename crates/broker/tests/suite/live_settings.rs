//! Every setting that concerns a topic's log, changed while the topic is in use: as its own, and as the brokers' default.
//! What it does must not show before the change, and must show after it.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use milena_testkit::batch::{Batch, Codec, Record, Stored};
use milena_testkit::client::RawClient;
use serde_json::{Value, json};

use crate::common::Node;
use crate::common::requests::{create_topic, fetch_all, produce};

const LONG_AGO: i64 = 1_700_000_000_000;
const WEEK: i64 = 7 * 24 * 3600 * 1000;

/// A setting, and what shows that it has its effect.
struct Row {
    /// The topic's name of it.
    topic: &'static str,
    /// The broker's name of it.
    broker: &'static str,
    value: &'static str,
    /// What the topic is created with.
    with: &'static [(&'static str, &'static str)],
    /// Uses the topic, and says whether the effect has shown.
    shows: fn(&mut Used) -> bool,
}

/// A topic in use.
struct Used {
    client: RawClient,
    name: String,
    dir: PathBuf,
    /// Timestamp of the next batch.
    time: i64,
    /// Bytes of the first stored batch that was compressed here.
    first_size: Option<usize>,
}

impl Used {
    /// Produces after `wait` ms of the records' time.
    fn produce_after(&mut self, wait: i64) -> Value {
        self.time += wait;
        self.send(&Batch::of(1, self.time))
    }

    fn send(&mut self, batch: &Batch) -> Value {
        produce(&mut self.client, &self.name, 0, &batch.build())
    }

    fn refused_with(&mut self, batch: &Batch, error: i64) -> bool {
        let answer = self.send(batch);
        assert!(answer["errorCode"] == 0 || answer["errorCode"] == error, "{answer}");
        answer["errorCode"] == error
    }

    /// Names of the files that end so, in order.
    fn files(&self, suffix: &str) -> Vec<String> {
        let entries = std::fs::read_dir(&self.dir).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(suffix)).collect();
        names.sort_unstable();
        names
    }

    fn segments(&self) -> usize {
        self.files(".log").len()
    }

    /// Whether a batch begins a segment.
    fn rolls(&mut self, batch: &Batch) -> bool {
        let before = self.segments();
        assert_eq!(self.send(batch)["errorCode"], 0);
        self.segments() > before
    }

    fn log_start(&mut self) -> i64 {
        let partition = json!({"partitionIndex": 0, "timestamp": -2});
        let body = json!({"replicaId": -1, "topics": [{"name": self.name, "partitions": [partition]}]});
        self.client.call("ListOffsets", 7, &body).unwrap()["topics"][0]["partitions"][0]["offset"].as_i64().unwrap()
    }

    /// The topic's line in a checkpoint.
    fn checkpointed(&self, file: &str) -> i64 {
        let text = std::fs::read_to_string(self.dir.with_file_name(file)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{} 0 ", self.name)));
        line.map_or(0, |offset| offset.parse().unwrap())
    }

    /// The last stored batch: its attributes and its size.
    fn last_stored(&mut self) -> (i16, usize) {
        let bytes = fetch_all(&mut self.client, &self.name, 0);
        let last = *Stored::split(&bytes).unwrap().last().unwrap();
        (last.attributes(), last.bytes().len())
    }

    /// Whether what the topic compresses has another size than when it first compressed it.
    fn compresses_otherwise(&mut self) -> bool {
        let words = (0..6000_u32).map(|at| ["quick ", "brown ", "fox ", "jumps "][(at * at / 7 % 4) as usize]);
        let record = Record::text(0, 0, "k", &words.collect::<String>());
        self.send(&Batch::new(LONG_AGO, vec![record]));
        let size = self.last_stored().1;
        size != *self.first_size.get_or_insert(size)
    }
}

fn sized(bytes: usize) -> Batch {
    Batch::new(LONG_AGO, vec![Record { value: Some(vec![b'v'; bytes]), ..Record::text(0, 0, "key", "") }])
}

fn keyless() -> Batch {
    Batch::new(LONG_AGO, vec![Record { key: None, ..Record::text(0, 0, "", "v") }])
}

fn ahead(wait: Duration) -> Batch {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Batch::of(1, (now + wait).as_millis() as i64)
}

const QUICK_ROLL: (&str, &str) = ("segment.ms", "1000");

/// Settings that show in what is written and refused.
const WRITTEN: &[Row] = &[
    Row {
        topic: "segment.bytes",
        broker: "log.segment.bytes",
        value: "1048576",
        with: &[],
        shows: |used| used.rolls(&sized(600_000)) || used.rolls(&sized(600_000)),
    },
    Row {
        topic: "segment.ms",
        broker: "log.roll.ms",
        value: "1000",
        with: &[],
        shows: |used| {
            used.produce_after(0);
            used.rolls(&Batch::of(1, used.time + 1001))
        },
    },
    Row {
        topic: "segment.jitter.ms",
        broker: "log.roll.jitter.ms",
        value: "604800000",
        with: &[],
        // The first of the two begins a segment or stands a week before one would begin.
        shows: |used| {
            used.produce_after(WEEK - 1000);
            used.time += WEEK - 1000;
            used.rolls(&Batch::of(1, used.time))
        },
    },
    Row {
        topic: "segment.index.bytes",
        broker: "log.index.size.max.bytes",
        value: "16",
        with: &[("index.interval.bytes", "0")],
        shows: |used| (0..4).fold(false, |rolled, _| used.rolls(&Batch::of(1, LONG_AGO)) | rolled),
    },
    Row {
        topic: "index.interval.bytes",
        broker: "log.index.interval.bytes",
        value: "0",
        with: &[QUICK_ROLL],
        shows: |used| {
            used.produce_after(2000);
            let file = used.files(".index").pop().unwrap();
            used.produce_after(0);
            used.produce_after(2000);
            std::fs::metadata(used.dir.join(file)).unwrap().len() == 8
        },
    },
    Row {
        topic: "preallocate",
        broker: "log.preallocate",
        value: "true",
        with: &[QUICK_ROLL, ("segment.bytes", "1048576")],
        shows: |used| {
            used.produce_after(2000);
            let file = used.files(".log").pop().unwrap();
            std::fs::metadata(used.dir.join(file)).unwrap().len() == 1_048_576
        },
    },
    Row {
        topic: "max.message.bytes",
        broker: "message.max.bytes",
        value: "100",
        with: &[],
        shows: |used| used.refused_with(&sized(100), 10),
    },
    Row {
        topic: "max.decompressed.message.bytes",
        broker: "max.decompressed.message.bytes",
        value: "1000",
        with: &[],
        shows: |used| used.refused_with(&sized(1000).with(Codec::Zstd), 87),
    },
    Row {
        topic: "message.timestamp.type",
        broker: "log.message.timestamp.type",
        value: "LogAppendTime",
        with: &[],
        shows: |used| used.produce_after(0)["logAppendTimeMs"] != -1,
    },
    Row {
        topic: "message.timestamp.before.max.ms",
        broker: "log.message.timestamp.before.max.ms",
        value: "1000",
        with: &[],
        shows: |used| used.refused_with(&Batch::of(1, LONG_AGO), 32),
    },
    Row {
        topic: "message.timestamp.after.max.ms",
        broker: "log.message.timestamp.after.max.ms",
        value: "9223372036854775807",
        with: &[],
        shows: |used| !used.refused_with(&ahead(Duration::from_hours(2)), 32),
    },
    Row {
        topic: "compression.type",
        broker: "compression.type",
        value: "snappy",
        with: &[],
        shows: |used| {
            used.produce_after(0);
            used.last_stored().0 == 2
        },
    },
    Row {
        topic: "compression.gzip.level",
        broker: "compression.gzip.level",
        value: "1",
        with: &[("compression.type", "gzip")],
        shows: Used::compresses_otherwise,
    },
    Row {
        topic: "compression.lz4.level",
        broker: "compression.lz4.level",
        value: "17",
        with: &[("compression.type", "lz4")],
        shows: Used::compresses_otherwise,
    },
    Row {
        topic: "compression.zstd.level",
        broker: "compression.zstd.level",
        value: "-100",
        with: &[("compression.type", "zstd")],
        shows: Used::compresses_otherwise,
    },
    Row {
        topic: "cleanup.policy",
        broker: "log.cleanup.policy",
        value: "compact",
        with: &[],
        shows: |used| used.refused_with(&keyless(), 87),
    },
];

/// Settings that show in what is kept, and how durably.
const KEPT: &[Row] = &[
    Row {
        topic: "flush.messages",
        broker: "log.flush.interval.messages",
        value: "2",
        with: &[],
        shows: |used| {
            used.produce_after(0);
            used.checkpointed("recovery-point-offset-checkpoint") > 0
        },
    },
    Row {
        topic: "flush.ms",
        broker: "log.flush.interval.ms",
        value: "1",
        with: &[],
        shows: |used| {
            used.produce_after(0);
            used.checkpointed("recovery-point-offset-checkpoint") > 0
        },
    },
    Row {
        topic: "retention.ms",
        broker: "log.retention.ms",
        value: "1000",
        with: &[],
        shows: |used| {
            used.produce_after(0);
            used.log_start() > 0
        },
    },
    Row {
        topic: "retention.bytes",
        broker: "log.retention.bytes",
        value: "100",
        with: &[QUICK_ROLL],
        shows: |used| {
            used.produce_after(2000);
            used.log_start() > 0
        },
    },
    Row {
        topic: "cleanup.policy",
        broker: "log.cleanup.policy",
        value: "delete",
        with: &[("retention.ms", "1000"), ("cleanup.policy", "")],
        shows: |used| {
            used.produce_after(0);
            used.log_start() > 0
        },
    },
    Row {
        topic: "file.delete.delay.ms",
        broker: "log.segment.delete.delay.ms",
        value: "0",
        with: &[QUICK_ROLL, ("retention.ms", "1000")],
        shows: |used| {
            used.produce_after(2000);
            // Each segment has one record.
            let removed = used.log_start() as usize;
            used.files(".log.deleted").len() < removed
        },
    },
];

/// Sets a key of a resource, or takes it back.
fn alter(client: &mut RawClient, kind: i8, resource: &str, name: &str, value: Option<&str>) {
    let operation = i8::from(value.is_none());
    let config = json!({"name": name, "configOperation": operation, "value": value});
    let resource = json!({"resourceType": kind, "resourceName": resource, "configs": [config]});
    let answer = client.call("IncrementalAlterConfigs", 1, &json!({"resources": [resource]})).unwrap();
    assert_eq!(answer["responses"][0]["errorCode"], 0, "{answer}");
}

/// Whether the effect shows in time.
fn comes(used: &mut Used, shows: fn(&mut Used) -> bool) -> bool {
    let began = Instant::now();
    while !shows(used) {
        if began.elapsed() > Duration::from_secs(60) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Changes each setting of topics that are in use, as the topic's own or as the default of all brokers.
fn changed(node: &Node, rows: &[Row], as_default: bool) {
    let mut client = node.client();
    for (at, row) in rows.iter().enumerate() {
        let name = format!("t{at}");
        let with: Vec<_> = row.with.iter().copied().filter(|(name, _)| !as_default || *name != row.topic).collect();
        create_topic(&mut client, &name, 1, &with);
        let dir = node.data_dir().join(format!("{name}-0"));
        let mut used = Used { client: node.client(), name, dir, time: LONG_AGO, first_size: None };
        let (kind, resource, key) = if as_default { (4, "", row.broker) } else { (2, used.name.as_str(), row.topic) };
        let before = row.with.iter().find(|(name, _)| as_default && *name == row.topic);
        before.into_iter().for_each(|(_, value)| alter(&mut client, kind, resource, key, Some(value)));
        let resource = resource.to_owned();
        assert!(!(row.shows)(&mut used), "{key} shows before it is set");
        alter(&mut client, kind, &resource, key, Some(row.value));
        assert!(comes(&mut used, row.shows), "{key} does not show");
        alter(&mut client, kind, &resource, key, None);
    }
}

#[test]
fn what_a_topic_in_use_takes_and_how_it_stores_it_follow_its_settings() {
    changed(&Node::start(), WRITTEN, false);
}

#[test]
fn what_topics_in_use_take_and_how_they_store_it_follow_the_brokers_settings() {
    changed(&Node::start(), WRITTEN, true);
}

/// A node on which the time of everything comes soon, and where nothing is due by default.
fn busy() -> Node {
    Node::start_with(&[
        "log.initial.task.delay.ms=0",
        "log.retention.check.interval.ms=10",
        "log.retention.ms=-1",
        "log.flush.offset.checkpoint.interval.ms=10",
        "log.flush.scheduler.interval.ms=10",
        "log.flush.interval.ms=9223372036854775807",
    ])
}

#[test]
fn what_a_topic_in_use_keeps_follows_its_settings() {
    changed(&busy(), KEPT, false);
}

#[test]
fn what_topics_in_use_keep_follows_the_brokers_settings() {
    changed(&busy(), KEPT, true);
}
