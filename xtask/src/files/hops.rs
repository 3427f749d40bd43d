//! One set of directories that Apache Kafka and Milena serve in turn, each of them stopped or killed: every record, start offset, producer,
//! open transaction, committed offset and member of a consumer group must be there for the next.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use milena_testkit::batch::Batch;
use milena_testkit::server::{Kind, Options, Server};

use super::clients;
use super::dump::Both;

/// Servers in turn.
const HOPS: u64 = 4;
const RULE: &str = "---\n";
/// Bytes of a producer snapshot before its entries, and of each of them.
const SNAPSHOT_HEADER: usize = 10;
const SNAPSHOT_ENTRY: usize = 46;
const DIRECTORIES: [&str; 2] = ["data", "data-b"];

/// Passes directories on, once with each of the servers stopped where the other time it is killed.
pub(super) fn pass_on(milena: &Path, libs: &Path) -> Result<usize> {
    let mut both = Both::start(milena, libs)?;
    let mut checked = 0;
    for first_is_killed in [false, true] {
        let dir = tempfile::Builder::new().prefix("milena-hops-").tempdir()?;
        let mut relay =
            Relay { milena, libs, dir: dir.path().to_owned(), expected: String::new(), offset: 0, checked: 0 };
        let mut killed = first_is_killed;
        for number in 0..HOPS * super::rounds() {
            let hop = relay.hop(number, killed, &mut both);
            if let Err(error) = hop {
                let kept = dir.keep();
                let end = if killed { "killed" } else { "stopped" };
                return Err(error.context(format!("hop {number}, to be {end}; the folder is {}", kept.display())));
            }
            killed = !killed;
        }
        checked += relay.checked;
    }
    Ok(checked + both.compared())
}

struct Relay<'r> {
    milena: &'r Path,
    libs: &'r Path,
    dir: PathBuf,
    /// What the last server said of all records and offsets.
    expected: String,
    /// Where the last batch of the idempotent producer is.
    offset: i64,
    checked: usize,
}

impl Relay<'_> {
    /// One server finds what the one before left, adds to it, and ends.
    fn hop(&mut self, number: u64, kill: bool, both: &mut Both<'_>) -> Result<()> {
        let is_kafka = number.is_multiple_of(2);
        let mut server = self.server(is_kafka)?;
        self.producer(&server, number)?;
        let said = self.ask_and_change(&server, number, is_kafka)?;
        let (found, expected) = said.split_once(RULE).context("no rule")?;
        if number > 0 {
            differ(self.expected.lines().collect(), found.lines().collect())?;
            self.checked += self.expected.lines().count();
        }
        expected.clone_into(&mut self.expected);
        if kill {
            server.kill()?;
        } else {
            server.stop()?;
        }
        self.open_transaction_is_in_snapshots()?;
        for data in self.data() {
            let ran = clients::ran(Command::new(self.milena).args(["log", "verify"]).arg(&data))?;
            if ran.code != 0 {
                bail!("milena log verify {} gives {}: {}{}", data.display(), ran.code, ran.out, ran.err);
            }
            self.checked += 1;
            if number == HOPS - 1 {
                both.directory(&data).context("what Milena wrote")?;
            }
        }
        Ok(())
    }

    fn data(&self) -> [PathBuf; DIRECTORIES.len()] {
        DIRECTORIES.map(|name| self.dir.join(name))
    }

    fn server(&self, is_kafka: bool) -> Result<Server> {
        let kind = if is_kafka { Kind::Kafka(self.libs.to_owned()) } else { Kind::Milena(self.milena.to_owned()) };
        let dirs = self.data().map(|dir| dir.display().to_string()).join(",");
        Options::new(kind)
            .dir(&self.dir)
            .set("log.dirs", &dirs)
            .set("metadata.log.max.record.bytes.between.snapshots", "2000")
            .set("log.cleaner.backoff.ms", "500")
            .set("log.flush.start.offset.checkpoint.interval.ms", "500")
            .set("offsets.topic.num.partitions", "5")
            // Members that are gone are there for the next server.
            .set("group.consumer.max.session.timeout.ms", "1800000")
            .set("group.consumer.session.timeout.ms", "1800000")
            .set("group.consumer.min.heartbeat.interval.ms", "200")
            .set("group.consumer.heartbeat.interval.ms", "200")
            .set("transaction.state.log.num.partitions", "5")
            .start()
    }

    /// What is there, and behind the rule what is there after more was written.
    fn ask_and_change(&self, server: &Server, number: u64, is_kafka: bool) -> Result<String> {
        let mut commands = if number == 0 { vec![] } else { vec!["read", "committed", "groups"] };
        commands.push("rule");
        if number == 0 {
            commands.push("create");
        }
        commands.extend(["write", "transactions", "open", "classic", "simple", "consumer", "member"]);
        if is_kafka {
            commands.push("share");
        }
        commands.extend(["delete", "read", "committed", "groups"]);
        let base = (super::now()? - 3_600_000).to_string();
        let below = 30 * (number + 1);
        let (bootstrap, round) = (server.addr().to_string(), number.to_string());
        let said = clients::files(self.libs, &[&commands.join(","), &bootstrap, &base, &round, &below.to_string()])?;
        self.start_offset_is_written(&format!("deleted 0 {below}"))?;
        Ok(said)
    }

    /// The producer whose transaction is open is in the newest snapshot of its partition, which the next server takes.
    fn open_transaction_is_in_snapshots(&mut self) -> Result<()> {
        let mut dirs = self.data().into_iter().map(|data| data.join("unfinished-0"));
        let dir = dirs.find(|dir| dir.is_dir()).context("no directory has unfinished-0")?;
        let newest = super::listed(&dir)?.into_iter().rfind(|file| super::has_suffix(file, "snapshot"));
        let newest = newest.context("unfinished-0 has no snapshot")?;
        let bytes = fs::read(&newest)?;
        let entries = bytes.get(SNAPSHOT_HEADER..).unwrap_or_default().chunks_exact(SNAPSHOT_ENTRY);
        // The first offset of the open transaction is an entry's last field, negative without one.
        let is_open = |entry: &[u8]| entry[SNAPSHOT_ENTRY - 8] < 0x80;
        if entries.clone().filter(|entry| is_open(entry)).count() != 1 {
            bail!("{} is to have one open transaction among {} producers", newest.display(), entries.len());
        }
        self.checked += 1;
        Ok(())
    }

    /// A killed Kafka forgets a start offset that its checkpoint does not have yet.
    fn start_offset_is_written(&self, line: &str) -> Result<()> {
        for _ in 0..600 {
            for data in self.data() {
                let text = fs::read_to_string(data.join("log-start-offset-checkpoint")).unwrap_or_default();
                if text.lines().any(|known| known == line) {
                    return Ok(());
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        bail!("no log-start-offset-checkpoint says {line}")
    }

    /// A producer that outlives the servers: what the one before took is a duplicate now, and the next sequence follows.
    fn producer(&mut self, server: &Server, number: u64) -> Result<()> {
        let mut client = server.client()?;
        let batch = |number: u64| -> Result<Vec<u8>> {
            let base_sequence = i32::try_from(10 * number)?;
            Ok(Batch { producer_id: 77, producer_epoch: 0, base_sequence, ..Batch::of(10, super::now()?) }.build())
        };
        match number.checked_sub(1) {
            None => super::create(&mut client, super::TOPIC, 1)?,
            Some(last) => {
                let again = super::produce(&mut client, 0, &batch(last)?)?;
                if again != self.offset {
                    bail!("the duplicate of the batch at offset {} is at {again}", self.offset);
                }
            }
        }
        self.offset = super::produce(&mut client, 0, &batch(number)?)?;
        self.checked += 1;
        Ok(())
    }
}

fn differ(expected: Vec<&str>, found: Vec<&str>) -> Result<()> {
    let without = |lines: &[&str], others: &[&str]| -> Vec<String> {
        lines.iter().filter(|line| !others.contains(line)).map(|line| (*line).to_owned()).collect()
    };
    let (lost, new) = (without(&expected, &found), without(&found, &expected));
    if lost.is_empty() && new.is_empty() {
        return Ok(());
    }
    bail!("the server before said:\n{}\nthis one says:\n{}", lost.join("\n"), new.join("\n"))
}
