//! What Apache Kafka makes of the files that Milena left: its dump tool reads the metadata log, the snapshots and the
//! partitions, and its broker starts on the directory and serves what is there. Below, what Milena makes of Kafka's, and logs that
//! both compact.

mod broken;
mod clients;
mod compacted;
mod damage;
mod damaged;
mod dump;
mod faces;
mod failing;
mod hanging;
mod hops;
mod killed;
mod order;
mod tools;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use milena_testkit::batch::{Batch, Codec, Stored};
use milena_testkit::client::RawClient;
use milena_testkit::oracle;
pub(crate) use milena_testkit::rounds;
use milena_testkit::server::{Kind, Options, Server};
use serde_json::json;

use clients::Tools;

const TOPIC: &str = "left-behind";
const PARTITIONS: i32 = 3;

/// Options of `cargo xtask files`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: crate::target::Target,
    /// Only these parts, with commas between them: left, dump, hops, compacted, tools, faces, faces-kafka, damaged, broken, failing, killed, order
    #[arg(long)]
    only: Option<String>,
}

/// A part of the step: compares, and gives the number of comparisons.
type Part = fn(&Options, &Path) -> Result<usize>;

/// Parts that run at the same time.
const PARTS_AT_ONCE: usize = 2;

const PARTS: [(&str, Part); 12] = [
    ("left", left),
    ("dump", dumps),
    ("hops", hops),
    ("compacted", compacted::compare),
    ("tools", tools::compare),
    ("faces", faces::compare),
    ("faces-kafka", faces::compare_on_kafka),
    ("damaged", damaged::compare),
    ("broken", |options, _| broken::starts(options)),
    ("failing", |options, _| failing::disks(options)),
    ("killed", |options, _| killed::storms(options)),
    ("order", |options, _| order::of_calls(options)),
];

/// Runs the check and says how much it covered.
pub(crate) fn run(args: &Args) -> Result<()> {
    let libs = oracle::ensure_jars()?;
    let checked = check(args.server.options()?, &libs, args.only.as_deref())?;
    println!("{checked} checks passed");
    Ok(())
}

/// Runs the parts, all without names; gives the number of checks. Each part has its own servers, and mostly waits for
/// them or keeps one CPU busy.
pub(crate) fn check(options: Options, libs: &Path, only: Option<&str>) -> Result<usize> {
    let wanted = |name| only.is_none_or(|only| only.split(',').any(|part| part == name));
    let parts: Vec<(&str, Part)> = PARTS.into_iter().filter(|(name, _)| wanted(*name)).collect();
    let next = AtomicUsize::new(0);
    let lane = || -> Result<usize> {
        let mut checked = 0;
        while let Some((name, part)) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let began = Instant::now();
            let count = part(&options, libs).context(*name)?;
            println!("          {name}: {count} checks, {:.1} s", began.elapsed().as_secs_f64());
            checked += count;
        }
        Ok(checked)
    };
    thread::scope(|scope| {
        let lanes = [(); PARTS_AT_ONCE].map(|()| scope.spawn(lane));
        lanes.into_iter().map(|lane| lane.join().expect("a part's thread panicked")).sum()
    })
}

/// `milena log dump` beside Kafka's tool.
fn dumps(options: &Options, libs: &Path) -> Result<usize> {
    dump::compare(binary(options)?, libs)
}

/// Directories that Kafka and Milena serve in turn.
fn hops(options: &Options, libs: &Path) -> Result<usize> {
    hops::pass_on(binary(options)?, libs)
}

fn binary(options: &Options) -> Result<&Path> {
    match options.kind() {
        Kind::Milena(binary) => Ok(binary),
        Kind::Kafka(_) => bail!("this part is about Milena's binary"),
    }
}

/// Fills a directory, once stopped cleanly and once killed, and lets Apache Kafka read it.
fn left(options: &Options, libs: &Path) -> Result<usize> {
    let mut checked = 0;
    let mut tools = Tools::start(libs)?;
    for kill in [false, true] {
        let mut server = options.clone().set("metadata.log.max.record.bytes.between.snapshots", "2000").start()?;
        fill(&server)?;
        if kill {
            server.kill()?
        } else {
            server.stop()?
        };
        checked += judge(&mut server, libs, &mut tools).inspect_err(|_| {
            server.keep();
            eprintln!("the folder is {}", server.dir().display());
        })?;
    }
    Ok(checked)
}

fn judge(server: &mut Server, libs: &Path, tools: &mut Tools) -> Result<usize> {
    let data = server.data_dir();
    let metadata = listed(&data.join("__cluster_metadata-0"))?;
    let snapshots = metadata.iter().filter(|f| has_suffix(f, "checkpoint")).count();
    if snapshots < 2 {
        bail!("beside the bootstrap snapshot there should be another one");
    }
    let mut checked = 0;
    for file in metadata.iter().filter(|f| has_suffix(f, "log") || has_suffix(f, "checkpoint")) {
        dump(tools, file, &["--cluster-metadata-decoder"])?;
        checked += 1;
    }
    for partition in 0..PARTITIONS {
        for file in listed(&data.join(format!("{TOPIC}-{partition}")))? {
            if has_suffix(&file, "log") || has_suffix(&file, "snapshot") {
                dump(tools, &file, &["--deep-iteration"])?;
                checked += 1;
            }
        }
    }
    let theirs = Options::new(Kind::Kafka(libs.to_owned())).dir(server.dir()).start()?;
    verify(&mut theirs.client()?).context("Apache Kafka on Milena's directory")?;
    Ok(checked + 1)
}

fn has_suffix(path: &Path, suffix: &str) -> bool {
    path.extension().is_some_and(|e| e == suffix)
}

fn listed(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut files = entries.map(|e| Ok(e?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

/// Copies a directory.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in listed(from)? {
        let target = to.join(entry.file_name().unwrap_or_default());
        if entry.is_dir() {
            copy(&entry, &target)?;
        } else {
            std::fs::copy(&entry, &target)?;
        }
    }
    Ok(())
}

/// Dumps a file; every batch must be valid, and every record must have been understood.
fn dump(tools: &mut Tools, file: &Path, more: &[&str]) -> Result<()> {
    let name = file.display().to_string();
    let args = ["--files", &name].iter().chain(more).map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
    let ran = tools.run("DumpLogSegments", "", &args)?;
    if ran.code != 0 {
        bail!("Kafka's tool on {name} gives {}: {}{}", ran.code, ran.out, ran.err);
    }
    sound(&ran.out).with_context(|| name.clone())
}

/// The dump tool has found nothing wrong.
fn sound(dumped: &str) -> Result<()> {
    let bad = ["isvalid: false", "isValid: false", "Error", "Exception", "Could not", "Skipping", "invalid bytes"];
    for line in dumped.lines() {
        if let Some(word) = bad.iter().find(|word| line.contains(**word)) {
            bail!("{word} in {line}");
        }
    }
    Ok(())
}

/// Topics, configs, records of every codec, an idempotent producer's, and enough changes for a snapshot.
fn fill(server: &Server) -> Result<()> {
    let mut client = server.client()?;
    create(&mut client, TOPIC, PARTITIONS)?;
    for number in 0..20 {
        create(&mut client, &format!("filler-{number}"), 4)?;
    }
    client.call("DeleteTopics", 5, &json!({"topicNames": ["filler-0"], "timeoutMs": 10000}))?;
    let config = json!({"name": "flush.ms", "configOperation": 0, "value": "1234"});
    let resource = json!({"resourceType": 2, "resourceName": TOPIC, "configs": [config]});
    client.call("IncrementalAlterConfigs", 1, &json!({"resources": [resource]}))?;
    client.call("InitProducerId", 4, &json!({"transactionalId": null, "transactionTimeoutMs": 1000}))?;
    for partition in 0..PARTITIONS {
        for codec in Codec::ALL {
            let batch = Batch::of(10, now()? + i64::from(partition)).with(codec).build();
            produce(&mut client, partition, &batch)?;
        }
        produce(&mut client, partition, &idempotent()?)?;
    }
    Ok(())
}

/// Batches are of now: a start forgets the producers that have sent nothing for a day.
fn now() -> Result<i64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64)
}

/// The batch of an idempotent producer.
fn idempotent() -> Result<Vec<u8>> {
    Ok(Batch { producer_id: 77, producer_epoch: 0, base_sequence: 0, ..Batch::of(10, now()?) }.build())
}

fn create(client: &mut RawClient, name: &str, partitions: i32) -> Result<()> {
    let configs = json!([{"name": "retention.ms", "value": "-1"}]);
    let topic = json!({"name": name, "numPartitions": partitions, "replicationFactor": 1, "configs": configs});
    let reply = client.call("CreateTopics", 7, &json!({"topics": [topic], "timeoutMs": 10000}))?;
    if reply["topics"][0]["errorCode"] == 0 { Ok(()) } else { bail!("topic {name}: {reply}") }
}

/// Produces a batch; its offset.
fn produce(client: &mut RawClient, partition: i32, batch: &[u8]) -> Result<i64> {
    let records = milena_testkit::wire::base64(batch);
    let topic = json!({"name": TOPIC, "partitionData": [{"index": partition, "records": records}]});
    let body = json!({"acks": -1, "timeoutMs": 10000, "topicData": [topic]});
    for _ in 0..200 {
        let reply = client.call("Produce", 9, &body)?;
        let answer = &reply["responses"][0]["partitionResponses"][0];
        match answer["errorCode"].as_i64() {
            Some(0) => return answer["baseOffset"].as_i64().context("no offset"),
            // The metadata may show a topic a moment before the broker leads it.
            Some(3 | 6) => thread::sleep(Duration::from_millis(20)),
            _ => bail!("produce: {reply}"),
        }
    }
    bail!("partition {partition} is never led")
}

/// The records, the producers and the config of [`fill`] are all there.
fn verify(client: &mut RawClient) -> Result<()> {
    let codecs = Codec::ALL.len();
    for partition in 0..PARTITIONS {
        let again = produce(client, partition, &idempotent()?)?;
        if again != 10 * codecs as i64 {
            bail!("partition {partition}: the duplicate was taken as new, at offset {again}");
        }
        let question = json!([{"partition": partition, "fetchOffset": 0, "partitionMaxBytes": 1 << 20}]);
        let topics = json!([{"topic": TOPIC, "partitions": question}]);
        let body = json!({"maxWaitMs": 500, "minBytes": 1, "maxBytes": 1 << 20, "topics": topics});
        let reply = client.call("Fetch", 12, &body)?;
        let records = &reply["responses"][0]["partitions"][0]["records"];
        let bytes = milena_testkit::wire::from_base64(records.as_str().unwrap_or_default())?;
        let mut count = 0;
        for batch in Stored::split(&bytes)? {
            count += batch.records()?.len();
        }
        if count != 10 * (codecs + 1) {
            bail!("partition {partition} has {count} records: {reply}");
        }
    }
    let resource = json!({"resourceType": 2, "resourceName": TOPIC, "configurationKeys": ["flush.ms"]});
    let reply = client.call("DescribeConfigs", 4, &json!({"resources": [resource]}))?;
    let value = &reply["results"][0]["configs"][0]["value"];
    if *value == "1234" { Ok(()) } else { bail!("flush.ms is {value}") }
}
