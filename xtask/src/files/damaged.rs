//! Damaged files beside Apache Kafka: what either server makes of each kind of file with each kind of damage, after a stop and after a kill.
//! The outcomes are rows of `data/damage.tsv`, and a difference has a reason there. `UPDATE_DAMAGE=1` writes the table anew.

mod look;
mod rows;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use milena_testkit::batch::Batch;
use milena_testkit::cache;
use milena_testkit::client::RawClient;
use milena_testkit::server::{Kind, Options};
use milena_testkit::wire;
use serde_json::{Value, json};

use look::{RECORDS, Sound};
use rows::{After, Known, Row};

const TABLE: &str = "xtask/data/damage.tsv";
/// Says in the table that a server does not start.
const REFUSES: &str = "refuses";
/// Batches of a segment, and of a topic.
const BATCHES: i64 = 3;
const ALL_BATCHES: i64 = 12;
const HOUR: i64 = 60 * 60 * 1000;
/// How far ahead of now the last segment begins: a marker of now is never too late for it.
const AHEAD: i64 = HOUR / 2;
/// The topic that is never damaged.
const UNTOUCHED: &str = "untouched";
/// Of the rows that cost Kafka a start of their own, one in so many is asked in one round.
const STRIDE: usize = 4;

/// Compares with the table, or writes it; gives the number of comparisons.
pub(super) fn compare(options: &Options, libs: &Path) -> Result<usize> {
    let path = cache::repository().join(TABLE);
    let mut known = rows::all(&fs::read_to_string(&path)?)?;
    let told = fs::read_to_string(cache::repository().join("docs/differences.md"))?;
    let bases = Bases { full: Base::fill(options, &known)?, lean: Base::fill(options, &[])? };
    let update = std::env::var_os("UPDATE_DAMAGE").is_some();
    let all = update || super::rounds() > 1;
    let mut asked = 0;
    let mut wrong = Vec::new();
    for kind in [options.kind().clone(), Kind::Kafka(libs.to_owned())] {
        let is_kafka = matches!(kind, Kind::Kafka(_));
        let outcomes = bases.outcomes(&kind, &known, all || !is_kafka)?;
        for (at, outcome) in outcomes {
            let row = &mut known[at];
            let expected = if is_kafka { &mut row.kafka } else { &mut row.milena };
            asked += 1;
            if update {
                *expected = outcome;
            } else if *expected != outcome {
                wrong.push(format!("{}\n  {} now: {outcome}", row.line(), kind.name()));
            }
        }
        if update {
            let lines: Vec<_> = known.iter().map(Known::line).collect();
            fs::write(&path, format!("# file\tdamage\tafter\tApache Kafka\tMilena\twhy\n{}\n", lines.join("\n")))?;
        }
    }
    for row in known.iter().filter(|row| !update && row.kafka != row.milena) {
        if row.reason.is_empty() || !told.contains(&row.reason) {
            wrong.push(format!("{}\n  docs/differences.md does not say why", row.line()));
        }
    }
    if wrong.is_empty() { Ok(asked) } else { bail!("{}", wrong.join("\n")) }
}

/// A directory for damages of partitions, and one for all others, which is read sooner.
struct Bases {
    full: Base,
    lean: Base,
}

impl Bases {
    /// The outcomes of rows by their places. Rows of partitions share a start, unless it would fail.
    fn outcomes(&self, kind: &Kind, known: &[Known], all: bool) -> Result<Vec<(usize, String)>> {
        let refuses =
            |known: &Known| (if matches!(kind, Kind::Kafka(_)) { &known.kafka } else { &known.milena }) == REFUSES;
        let mut outcomes = Vec::new();
        for (after, _) in After::ALL {
            let of_this = known.iter().enumerate().filter(|(_, known)| known.row.after == after);
            let (together, alone): (Vec<_>, Vec<_>) =
                of_this.partition(|(_, known)| known.row.is_of_a_partition() && !refuses(known));
            let together: Vec<_> = together.into_iter().map(|(at, known)| (at, &known.row)).collect();
            self.full.together(kind, after, &together, &mut outcomes)?;
            for (number, (at, known)) in alone.into_iter().enumerate() {
                if all || number % STRIDE == 0 {
                    self.lean.together(kind, after, &[(at, &known.row)], &mut outcomes)?;
                }
            }
        }
        Ok(outcomes)
    }
}

/// A directory that was stopped in order, with a topic for each damage of a partition.
struct Base {
    dir: tempfile::TempDir,
    /// By file and damage.
    topics: BTreeMap<(String, String), Sound>,
    untouched: Sound,
}

impl Base {
    fn fill(options: &Options, known: &[Known]) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("milena-damaged-").tempdir()?;
        let options = options.clone().dir(dir.path()).set("transaction.state.log.num.partitions", "1");
        let mut server = options.set("metadata.log.max.record.bytes.between.snapshots", "300").start()?;
        let mut client = server.client()?;
        let now = super::now()?;
        let mut topics = BTreeMap::new();
        for known in known.iter().filter(|known| known.row.is_of_a_partition()) {
            let key = (known.row.file.clone(), known.row.damage.clone());
            if !topics.contains_key(&key) {
                let name = format!("t{}", topics.len());
                let sound = partition(&mut client, &name, now, key.0.ends_with("txnindex"))?;
                topics.insert(key, sound);
            }
        }
        let untouched = partition(&mut client, UNTOUCHED, now, false)?;
        server.stop()?;
        Ok(Self { dir, topics, untouched })
    }

    /// One start for these rows, or more when it fails.
    fn together(
        &self,
        kind: &Kind,
        after: After,
        rows: &[(usize, &Row)],
        outcomes: &mut Vec<(usize, String)>,
    ) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let dir = tempfile::Builder::new().prefix("milena-damaged-").tempdir()?;
        let data = self.copy(dir.path(), after)?;
        for (_, row) in rows {
            row.apply(&data, &self.sound(row).topic)?;
        }
        match Options::new(kind.clone()).dir(dir.path()).start() {
            Ok(server) => {
                let mut client = server.client()?;
                for (at, row) in rows {
                    let look = look::at(&mut client, self.sound(row));
                    outcomes.push((*at, look.unwrap_or_else(|error| format!("{error:#}"))));
                }
            }
            Err(error) if rows.len() == 1 => {
                let (at, row) = rows[0];
                let (told, name) = (format!("{error:#}"), row.name().trim_start_matches("newest"));
                let is_told = matches!(kind, Kind::Kafka(_)) || told.contains(name) && !told.contains("panicked");
                outcomes.push((at, if is_told { REFUSES.to_owned() } else { told }));
            }
            Err(_) => {
                let (first, second) = rows.split_at(rows.len() / 2);
                self.together(kind, after, first, outcomes)?;
                self.together(kind, after, second, outcomes)?;
            }
        }
        Ok(())
    }

    fn sound(&self, row: &Row) -> &Sound {
        self.topics.get(&(row.file.clone(), row.damage.clone())).unwrap_or(&self.untouched)
    }

    fn copy(&self, to: &Path, after: After) -> Result<PathBuf> {
        let data = to.join("data");
        super::copy(&self.dir.path().join("data"), &data)?;
        if after != After::Stop {
            fs::remove_file(data.join(".kafka_cleanshutdown"))?;
        }
        if after == After::Scan {
            fs::remove_file(data.join("recovery-point-offset-checkpoint"))?;
        }
        Ok(data)
    }
}

/// Makes a topic of four segments, the last one with an aborted transaction behind it if it is wanted.
fn partition(client: &mut RawClient, name: &str, now: i64, transaction: bool) -> Result<Sound> {
    let configs = json!([{"name": "segment.ms", "value": HOUR.to_string()}]);
    let topic = json!({"name": name, "numPartitions": 1, "replicationFactor": 1, "configs": configs});
    client.call("CreateTopics", 7, &json!({"topics": [topic], "timeoutMs": 30000}))?;
    let batch = |number: i64| {
        let sequence = i32::try_from(number * RECORDS).unwrap_or(i32::MAX);
        let segments_to_come = ALL_BATCHES / BATCHES - 1 - number / BATCHES;
        let batch = Batch::of(RECORDS as usize, now + AHEAD - segments_to_come * 2 * HOUR);
        Batch { producer_id: 77, producer_epoch: 0, base_sequence: sequence, ..batch }.build()
    };
    for number in 0..ALL_BATCHES {
        taken(client, name, &Value::Null, &batch(number))?;
    }
    if transaction {
        abort(client, name, now)?;
    }
    Ok(Sound {
        topic: name.to_owned(),
        batches: look::all(client, name)?,
        last: batch(ALL_BATCHES - 1),
        new: Batch::of(1, now).build(),
    })
}

/// Produces until it is taken: a partition is led a moment after its topic is there.
fn taken(client: &mut RawClient, topic: &str, transactional_id: &Value, batch: &[u8]) -> Result<()> {
    let data = json!([{"index": 0, "records": wire::base64(batch)}]);
    let topics = json!([{"name": topic, "partitionData": data}]);
    let body = json!({"transactionalId": transactional_id, "acks": -1, "timeoutMs": 10000, "topicData": topics});
    let mut reply = Value::Null;
    for _ in 0..500 {
        reply = client.call("Produce", 12, &body)?;
        if reply["responses"][0]["partitionResponses"][0]["errorCode"] == 0 {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    bail!("{topic}: {reply}")
}

/// A transaction that is aborted.
fn abort(client: &mut RawClient, topic: &str, now: i64) -> Result<()> {
    let init = json!({"transactionalId": topic, "transactionTimeoutMs": 60000, "producerId": -1, "producerEpoch": -1});
    let mut given = Value::Null;
    for _ in 0..500 {
        // The first one who asks makes the topic of the coordinators.
        client.call("FindCoordinator", 4, &json!({"keyType": 1, "coordinatorKeys": [topic]}))?;
        given = client.call("InitProducerId", 4, &init)?;
        if given["errorCode"] == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let producer_id = given["producerId"].as_i64().context("a producer id")?;
    let producer_epoch = i16::try_from(given["producerEpoch"].as_i64().context("an epoch")?)?;
    let batch = Batch::of(RECORDS as usize, now + AHEAD);
    let batch = Batch { attributes: 0x10, producer_id, producer_epoch, base_sequence: 0, ..batch };
    taken(client, topic, &json!(topic), &batch.build())?;
    let end = json!({"transactionalId": topic, "producerId": producer_id, "producerEpoch": producer_epoch, "committed": false});
    let ended = client.call("EndTxn", 5, &end)?;
    if ended["errorCode"] != 0 {
        bail!("EndTxn: {ended}");
    }
    for _ in 0..500 {
        // The marker is there.
        let partition = look::fetch(client, topic, 0)?;
        if partition["lastStableOffset"].as_i64() == Some((ALL_BATCHES + 1) * RECORDS + 1) {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    bail!("the transaction in {topic} does not end")
}
