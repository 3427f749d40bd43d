//! A process that is killed again and again while it does everything at once that changes the files of its logs: producers with acks=all, segments
//! that are rolled, compacted, too many or below what DeleteRecords has cut off, replicas that move between two directories, topics that are
//! deleted and made again, and consumers that read all of it. After each start everything acknowledged is there, once and in its place. So it is
//! where the disk is full for much of the time.

mod partition;
mod small;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use milena_testkit::client::RawClient;
use milena_testkit::server::{Options, Server};
use serde_json::{Value, json};

use partition::{Kind, Partition};
use small::SmallDisk;

/// How often the process is killed in one round.
const KILLS: u64 = 4;
/// Partitions of each kind.
const EACH: usize = 2;
/// The topic that is deleted and made again.
const FLEETING: &str = "fleeting";
/// How long a start has until every partition is led.
const PATIENCE: Duration = Duration::from_secs(30);

/// Kills it; gives the number of checks.
pub(super) fn storms(options: &Options) -> Result<usize> {
    let dir = tempfile::Builder::new().prefix("milena-killed-").tempdir()?;
    let checked = storm(options, dir.path(), None)
        .map_err(|error| error.context(format!("the folder is {}", dir.keep().display())))?;
    let Some(disk) = SmallDisk::mount()? else {
        println!("          killed: no disk of its own can be mounted here, so that none is full");
        return Ok(checked);
    };
    let full = storm(options, &disk.path(), Some(&disk)).context("on a disk that is full at times")?;
    Ok(checked + full)
}

fn storm(options: &Options, dir: &Path, small: Option<&SmallDisk>) -> Result<usize> {
    let binary = super::binary(options)?;
    let dirs = [dir.join("data"), dir.join("data-b")];
    let mut options: Options =
        options.clone().dir(dir).set("log.dirs", &format!("{},{}", dirs[0].display(), dirs[1].display()));
    for (key, value) in [
        ("log.cleaner.backoff.ms", "15"),
        ("log.initial.task.delay.ms", "0"),
        ("log.retention.check.interval.ms", "30"),
        ("log.flush.offset.checkpoint.interval.ms", "40"),
        ("log.flush.start.offset.checkpoint.interval.ms", "40"),
        ("log.segment.delete.delay.ms", "100"),
    ] {
        options = options.set(key, value);
    }
    let seed = super::now()?.cast_unsigned();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut server = options.start()?;
    let mut partitions = create(&mut server.client()?, small.is_some())?;
    let (mut checked, fleeting) = (0, AtomicU64::new(0));
    for kill in 0..=KILLS * super::rounds() {
        if kill > 0 {
            server.start()?;
        }
        let mut client = server.client()?;
        for partition in &mut partitions {
            led(&mut client, partition)?;
            partition.check(&mut client).with_context(|| format!("{}, after kill {kill}", partition.topic()))?;
            checked += 1;
        }
        if kill == KILLS * super::rounds() {
            break;
        }
        let wanted = 100 + random.u64(..1500);
        one_life(&mut server, &mut partitions, &dirs, &fleeting, wanted, small)?;
        verify(binary, &dirs).with_context(|| format!("kill {}", kill + 1))?;
    }
    server.stop()?;
    server.start()?;
    let mut client = server.client()?;
    for partition in &mut partitions {
        led(&mut client, partition)?;
        partition.check(&mut client).with_context(|| format!("{}, after a stop", partition.topic()))?;
    }
    Ok(checked + partitions.len())
}

/// What a kill leaves is no damage.
fn verify(binary: &Path, dirs: &[PathBuf]) -> Result<()> {
    let verified = Command::new(binary).args(["log", "verify"]).args(dirs).output()?;
    if verified.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&verified.stdout);
    let problems: Vec<_> = told.lines().filter(|line| !line.starts_with("note: ")).collect();
    bail!("log verify: {}", problems.join("\n"))
}

fn create(client: &mut RawClient, may_be_full: bool) -> Result<Vec<Partition>> {
    let mut partitions = Vec::new();
    for kind in Kind::ALL {
        let configs: Vec<_> =
            kind.settings().iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let topic = json!({"name": kind.topic(), "numPartitions": EACH, "replicationFactor": 1, "configs": configs});
        let reply = client.call("CreateTopics", 7, &json!({"topics": [topic], "timeoutMs": 30000}))?;
        if reply["topics"][0]["errorCode"] != 0 {
            bail!("{reply}");
        }
        for index in 0..EACH {
            let init = json!({"transactionalId": null, "transactionTimeoutMs": 1000});
            let given = client.call("InitProducerId", 4, &init)?;
            partitions.push(Partition::new(kind, index, given["producerId"].as_i64().context("an id")?, may_be_full)?);
        }
    }
    Ok(partitions)
}

/// Waits until the broker leads it.
fn led(client: &mut RawClient, partition: &Partition) -> Result<()> {
    let begun = Instant::now();
    while partition.offset(client, -1).is_err() {
        if begun.elapsed() > PATIENCE {
            partition.offset(client, -1).with_context(|| format!("{} is never led", partition.topic()))?;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Everybody does what they do until so many batches are acknowledged; then the process is killed.
fn one_life(
    server: &mut Server,
    partitions: &mut [Partition],
    dirs: &[PathBuf],
    fleeting: &AtomicU64,
    wanted: u64,
    small: Option<&SmallDisk>,
) -> Result<()> {
    let acknowledged = AtomicU64::new(0);
    let views: Vec<_> = partitions.iter().map(Partition::view).collect();
    let connected: Vec<_> = (0..partitions.len() + 3).map(|_| server.client()).collect::<Result<_>>()?;
    let mut clients = connected.into_iter();
    let mut client = || clients.next().context("a client");
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for partition in partitions {
            let (mut client, acknowledged) = (client()?, &acknowledged);
            threads.push(scope.spawn(move || partition.produce(&mut client, acknowledged)));
        }
        let (mut mover, mut reader, mut churner) = (client()?, client()?, client()?);
        let views = &views;
        threads.push(scope.spawn(move || meddle(&mut mover, views, dirs, wanted)));
        threads.push(scope.spawn(move || read(&mut reader, views, wanted)));
        threads.push(scope.spawn(move || churn(&mut churner, fleeting, small.is_some())));
        let mut ended = false;
        let mut random = fastrand::Rng::with_seed(wanted);
        while acknowledged.load(Ordering::Relaxed) < wanted && !ended {
            match small {
                Some(disk) => disk.fill_for_a_while(&mut random)?,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
            ended = threads.iter().any(|thread| thread.is_finished());
        }
        server.kill()?;
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread panics"))?)?;
        if ended { bail!("a connection was closed before the kill") } else { Ok(()) }
    })
}

/// The answer, or `None` when the other side is gone.
fn ask(client: &mut RawClient, api: &str, version: i16, body: &Value) -> Option<Value> {
    client.call(api, version, body).ok()
}

/// Moves replicas and deletes records.
fn meddle(client: &mut RawClient, partitions: &[partition::View], dirs: &[PathBuf], seed: u64) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let partition = &partitions[random.usize(..partitions.len())];
        let topics = json!([{"name": partition.topic, "partitions": [partition.index]}]);
        let to = json!({"dirs": [{"path": dirs[random.usize(..dirs.len())], "topics": topics}]});
        let Some(reply) = ask(client, "AlterReplicaLogDirs", 2, &to) else { return Ok(()) };
        match reply["results"][0]["partitions"][0]["errorCode"].as_i64() {
            Some(0) => {}
            Some(code) if partition.is_full(code) => {}
            _ => bail!("a move: {reply}"),
        }
        let shrinking = partitions.iter().filter(|it| it.kind == Kind::Shrunk);
        for partition in shrinking {
            if random.bool() {
                continue;
            }
            let below = partition.seen.end.load(Ordering::SeqCst);
            let offset = below - random.i64(..=below.min(200));
            partition.seen.asked.fetch_max(offset, Ordering::SeqCst);
            let asked = json!([{"partitionIndex": partition.index, "offset": offset}]);
            let body = json!({"topics": [{"name": partition.topic, "partitions": asked}], "timeoutMs": 10000});
            let Some(reply) = ask(client, "DeleteRecords", 2, &body) else { return Ok(()) };
            let answer = &reply["topics"][0]["partitions"][0];
            let (low, code) = (answer["lowWatermark"].as_i64(), answer["errorCode"].as_i64());
            match (code, low) {
                (Some(0), Some(low)) if low >= offset => {
                    partition.seen.deleted.fetch_max(low, Ordering::SeqCst);
                }
                // Retention or another deletion was there first: it is below the log start.
                (Some(1 | 6), _) => {}
                (Some(code), _) if partition.is_full(code) => {}
                _ => bail!("DeleteRecords to {offset}: {reply}"),
            }
        }
        std::thread::sleep(Duration::from_millis(random.u64(..40)));
    }
}

/// Reads whatever is there, from beginning to end.
fn read(client: &mut RawClient, partitions: &[partition::View], seed: u64) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed + 1);
    loop {
        let partition = &partitions[random.usize(..partitions.len())];
        if partition.read(client)?.is_none() {
            return Ok(());
        }
    }
}

/// Makes a topic, writes to it what says which one it is, and deletes it.
fn churn(client: &mut RawClient, lives: &AtomicU64, may_be_full: bool) -> Result<()> {
    loop {
        let life = lives.fetch_add(1, Ordering::SeqCst);
        let topic = json!({"name": FLEETING, "numPartitions": 1, "replicationFactor": 1, "configs": []});
        let body = json!({"topics": [topic], "timeoutMs": 30000});
        let Some(reply) = ask(client, "CreateTopics", 7, &body) else { return Ok(()) };
        match reply["topics"][0]["errorCode"].as_i64() {
            // The one before outlived its deletion's answer.
            Some(0 | 36) => {}
            Some(partition::FULL) if may_be_full => {}
            _ => bail!("a topic is made again: {reply}"),
        }
        let mut taken = 0;
        for number in 0..3 {
            let batch = partition::fleeting(life, number)?;
            let Some(answer) = partition::produce(client, FLEETING, 0, &batch) else { return Ok(()) };
            if answer["errorCode"] != 0 {
                continue;
            }
            let offset = answer["baseOffset"].as_i64();
            if reply["topics"][0]["errorCode"] == 0 && offset != Some(taken) {
                bail!("record {taken} of a new topic has offset {offset:?}");
            }
            taken += 1;
        }
        let body = json!({"topics": [{"name": FLEETING}], "timeoutMs": 30000});
        let Some(_) = ask(client, "DeleteTopics", 6, &body) else { return Ok(()) };
    }
}
