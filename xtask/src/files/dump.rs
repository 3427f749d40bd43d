//! `milena log dump` against Apache Kafka's dump tool: on directories that Kafka wrote, on every record that Kafka's topics of its
//! own can hold, and on damaged files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use milena_testkit::batch::{Batch, Codec, Record};
use milena_testkit::cache;
use milena_testkit::server::{Kind, Options};
use serde_json::Value;

use super::clients::{self, Ran, Tools};

/// Damages tried on each kind of file in one round.
const DAMAGES: u64 = 60;

/// Compares, and gives the number of comparisons.
pub(super) fn compare(milena: &Path, libs: &Path) -> Result<usize> {
    let mut both = Both::start(milena, libs)?;
    let dir = tempfile::Builder::new().prefix("milena-dump-").tempdir()?;
    both.all_records(&dir.path().join("records"))?;
    let mut server = Options::new(Kind::Kafka(libs.to_owned()))
        .set("metadata.log.max.record.bytes.between.snapshots", "2000")
        .set("log.cleaner.backoff.ms", "500")
        .start()?;
    let checked = (|| {
        let bootstrap = server.addr().to_string();
        let base = (super::now()? - 3_600_000).to_string();
        let commands = "create,write,transactions,open,classic,consumer,simple,share";
        clients::files(libs, &[commands, &bootstrap, &base, "1"])?;
        server.kill()?;
        // Indexes are as they are while a broker runs: their space is reserved.
        both.directory(&server.data_dir()).context("after a kill")?;
        server.start()?;
        server.stop()?;
        both.directory(&server.data_dir()).context("after a stop")?;
        both.damaged(&server.data_dir(), dir.path())?;
        both.mended(&server.data_dir())
    })();
    if checked.is_err() {
        server.keep();
        let kept = dir.keep();
        eprintln!("the folders are {} and {}", server.dir().display(), kept.display());
    }
    checked.map(|()| both.compared)
}

/// Both tools.
pub(super) struct Both<'m> {
    milena: &'m Path,
    kafka: Tools,
    compared: usize,
}

impl<'m> Both<'m> {
    pub(super) fn start(milena: &'m Path, libs: &Path) -> Result<Self> {
        Ok(Self { milena, kafka: Tools::start(libs)?, compared: 0 })
    }

    /// Number of comparisons.
    pub(super) fn compared(&self) -> usize {
        self.compared
    }

    /// Runs both tools on the same files with the same flags; gives what both found.
    fn same(&mut self, files: &[PathBuf], flags: &[&str]) -> Result<Ran> {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let mut args = vec!["--files".to_owned(), names.join(",")];
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let theirs = self.kafka.run("DumpLogSegments", "", &args)?;
        let ours = clients::ran(Command::new(self.milena).arg("kafka-dump-log").args(&args))?;
        self.compared += 1;
        judge(&theirs, &ours).with_context(|| format!("milena kafka-dump-log {}", args.join(" ")))?;
        Ok(theirs)
    }

    /// What Kafka's tool finds, `milena log verify` finds too.
    fn verified(&mut self, file: &Path, dumped: &Ran) -> Result<()> {
        let words = ["isvalid: false", "invalid bytes"];
        let found = dumped.code != 0 || !dumped.err.is_empty() || words.iter().any(|word| dumped.out.contains(word));
        let ours = clients::ran(Command::new(self.milena).args(["log", "verify"]).arg(file))?;
        self.compared += 1;
        if found && ours.code != 1 {
            bail!(
                "milena log verify {} gives {}: {}\n{}\nKafka: {}",
                file.display(),
                ours.code,
                ours.out,
                ours.err,
                dumped.err
            );
        }
        Ok(())
    }

    /// All is well on a directory that Kafka has stopped on; and again after its indexes were lost and made anew.
    fn mended(&mut self, data: &Path) -> Result<()> {
        let mut run = |args: &[&str], expected: i32| -> Result<()> {
            let ran = clients::ran(Command::new(self.milena).arg("log").args(args).arg(data))?;
            self.compared += 1;
            if ran.code == expected {
                Ok(())
            } else {
                bail!("milena log {args:?} gives {}: {}{}", ran.code, ran.out, ran.err)
            }
        };
        run(&["verify"], 0)?;
        let mut indexes = Vec::new();
        for dir in super::listed(data)?.into_iter().filter(|path| path.is_dir()) {
            let is_index = |file: &PathBuf| super::has_suffix(file, "index") || super::has_suffix(file, "timeindex");
            indexes.extend(super::listed(&dir)?.into_iter().filter(is_index));
        }
        for (number, index) in indexes.iter().enumerate() {
            match number % 3 {
                0 => fs::remove_file(index)?,
                1 => fs::write(index, [0x55; 1200])?,
                _ => {}
            }
        }
        run(&["verify"], 1)?;
        run(&["rebuild-index", "--index-interval-bytes", "300"], 0)?;
        run(&["verify"], 0)?;
        for flags in [["--verify-index-only"], ["--index-sanity-check"]] {
            let found = self.same(&indexes, &flags)?;
            if !found.err.is_empty() {
                bail!("Kafka finds in indexes that were made anew: {}", found.err);
            }
        }
        Ok(())
    }

    /// Every file of a data directory, with the flags that fit it.
    pub(super) fn directory(&mut self, data: &Path) -> Result<()> {
        let mut partitions: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for dir in super::listed(data)?.into_iter().filter(|path| path.is_dir()) {
            let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let topic = name.rsplit_once('-').map_or(name.as_str(), |(topic, _)| topic).to_owned();
            let known = ["log", "index", "timeindex", "txnindex", "snapshot", "checkpoint"];
            let files =
                super::listed(&dir)?.into_iter().filter(|file| known.iter().any(|k| super::has_suffix(file, k)));
            partitions.entry(topic).or_default().extend(files);
        }
        for (topic, files) in &partitions {
            let flags: &[&[&str]] = match topic.as_str() {
                "__cluster_metadata" => &[&["--cluster-metadata-decoder"], &["--deep-iteration"]],
                "__consumer_offsets" => &[&["--offsets-decoder"], &["--offsets-decoder", "--skip-record-metadata"]],
                "__transaction_state" => &[&["--transaction-log-decoder"]],
                "__share_group_state" => &[&["--share-group-state-decoder"]],
                _ => &[
                    &[],
                    &["--deep-iteration"],
                    &["--print-data-log"],
                    &["--print-data-log", "--skip-record-metadata"],
                    &["--value-decoder-class", "org.apache.kafka.tools.api.LongDecoder", "--max-bytes", "100"],
                    &["--verify-index-only"],
                    &["--max-bytes", "700"],
                ],
            };
            for flags in flags {
                self.same(files, flags)?;
            }
            let is_index = |file: &&PathBuf| super::has_suffix(file, "index") || super::has_suffix(file, "timeindex");
            let indexes: Vec<PathBuf> = files.iter().filter(is_index).cloned().collect();
            // A run ends at the first index that is not sound.
            if !indexes.is_empty() && self.same(&indexes, &["--index-sanity-check"])?.code != 0 {
                for file in indexes {
                    self.same(&[file], &["--index-sanity-check"])?;
                }
            }
        }
        Ok(())
    }

    /// One log for each topic with records of every type, version and form; the bytes are Kafka's own.
    fn all_records(&mut self, dir: &Path) -> Result<()> {
        let mut logs: BTreeMap<&str, Vec<Batch>> = BTreeMap::new();
        for vector in vectors()? {
            if let Some((flag, record, control)) = record_of(&vector)? {
                let mut batch = Batch::new(1_700_000_000_000, vec![record]);
                batch.attributes |= if control { 0x20 } else { 0 };
                logs.entry(flag).or_default().push(batch);
            }
        }
        for (flag, batches) in &logs {
            let name = flag.trim_start_matches('-');
            let log = dir.join(format!("{name}-0")).join("00000000000000000000.log");
            fs::create_dir_all(log.parent().context("a log is in a directory")?)?;
            let mut bytes = Vec::new();
            for (offset, batch) in (0..).zip(batches) {
                bytes.extend(Batch { base_offset: offset, ..batch.clone() }.build());
            }
            fs::write(&log, bytes)?;
            self.same(&[log], &[flag])?;
        }
        if logs.len() < 6 { bail!("records of {} topics only", logs.len()) } else { Ok(()) }
    }

    /// A file of each kind, damaged in many ways.
    fn damaged(&mut self, data: &Path, dir: &Path) -> Result<()> {
        let kinds: [(&str, &str, &[&str]); 10] = [
            ("codec-none-0", "log", &["--print-data-log"]),
            ("codec-none-0", "log", &[]),
            ("codec-gzip-1", "log", &["--deep-iteration"]),
            ("transactional-0", "log", &["--deep-iteration"]),
            ("transactional-0", "txnindex", &[]),
            ("codec-none-0", "index", &[]),
            ("codec-none-0", "timeindex", &[]),
            ("codec-none-0", "timeindex", &["--index-sanity-check"]),
            ("codec-none-0", "snapshot", &[]),
            ("__cluster_metadata-0", "checkpoint", &["--cluster-metadata-decoder"]),
        ];
        for (number, (partition, suffix, flags)) in kinds.into_iter().enumerate() {
            let place = dir.join(format!("{number}")).join(partition);
            super::copy(&data.join(partition), &place)?;
            // The largest of a kind has most to damage.
            let files = super::listed(&place)?.into_iter().filter(|file| super::has_suffix(file, suffix));
            let file = files.max_by_key(|file| file.metadata().map_or(0, |meta| meta.len())).context(suffix)?;
            let sound = fs::read(&file)?;
            for damage in 0..DAMAGES * super::rounds() {
                let damaged = super::damage::damage(&sound, damage);
                // Snapshots can't be written to.
                fs::remove_file(&file)?;
                fs::write(&file, &damaged.1)?;
                let same =
                    self.same(std::slice::from_ref(&file), flags).and_then(|dumped| self.verified(&file, &dumped));
                same.with_context(|| damaged.0.clone())?;
            }
        }
        Ok(())
    }
}

/// Whether both have said the same. Where a file can't be read on, texts of errors differ, and how many records of a compressed batch
/// were shown before.
fn judge(theirs: &Ran, ours: &Ran) -> Result<()> {
    if theirs.code != ours.code {
        bail!("exit code {} where Kafka's is {}\n{}\nKafka: {}", ours.code, theirs.code, ours.err, theirs.err);
    }
    let (out, expected) = (plain(&ours.out), plain(&theirs.out));
    // A record in a version that does not exist is no record to us. Kafka takes it for one of the newest.
    let alike =
        |ours: &str, theirs: &str| ours == theirs || (ours.ends_with("skipping. ") && theirs.contains("\"version\":"));
    let common = out.len().min(expected.len());
    let at = out.iter().zip(&expected).position(|(ours, theirs)| !alike(ours, theirs)).unwrap_or(common);
    if at < common || (ours.code == 0 && out.len() != expected.len()) {
        let line = |lines: &[String]| lines.get(at).cloned().unwrap_or_else(|| "(nothing)".to_owned());
        bail!("line {}\n  is       {}\n  expected {}", at + 1, line(&out), line(&expected));
    }
    let (mut err, mut expected) = (plain(&ours.err), plain(&theirs.err));
    // Kafka goes through findings in no order that means anything.
    err.sort();
    expected.sort();
    match ours.code {
        0 if err != expected => bail!("findings {err:#?}\nexpected {expected:#?}"),
        0 => Ok(()),
        _ if ours.err.trim().is_empty() => bail!("a failure without a word: {}", theirs.err),
        _ => Ok(()),
    }
}

/// The lines, without texts of errors that only a JVM has.
fn plain(text: &str) -> Vec<String> {
    let cut = ["skipping. ", "Snapshot failed schema validation: "];
    let short = |line: &str| {
        let end = cut.iter().filter_map(|word| line.find(word).map(|at| at + word.len())).min();
        line[..end.unwrap_or(line.len())].to_owned()
    };
    text.lines().map(short).collect()
}

/// Messages in every version and many forms, with the bytes that Kafka's own encoder wrote.
fn vectors() -> Result<Vec<Value>> {
    let path = cache::repository().join("crates/protocol/tests/data/vectors.jsonl.gz");
    let text = String::from_utf8(Codec::Gzip.decompress(&fs::read(path)?)?)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// The record that a message is a key, a value or all of: the decoder's flag, and whether it is a control record.
fn record_of(vector: &Value) -> Result<Option<(&'static str, Record, bool)>> {
    let name = vector["name"].as_str().context("a name")?;
    let version = i16::try_from(vector["version"].as_i64().context("a version")?)?;
    let hex = vector["hex"].as_str().context("hex")?;
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16)).collect::<Result<_, _>>()?;
    let prefixed = |prefix: i16| [&prefix.to_be_bytes()[..], &bytes].concat();
    let control =
        ["LeaderChangeMessage", "SnapshotHeaderRecord", "SnapshotFooterRecord", "KRaftVersionRecord", "VotersRecord"];
    if let Some(kind) = control.iter().position(|control| *control == name) {
        // A LeaderChange of version 1 is written as such, and read as one of version 0.
        let key = vec![0, 0, 0, kind as u8 + 2];
        return Ok((version == 0).then(|| ("--deep-iteration", record(Some(key), Some(bytes)), true)));
    }
    let schema = schema(name)?;
    let (kind, id) = (schema["type"].as_str(), schema["apiKey"].as_i64());
    let Some(id) = id.and_then(|id| i16::try_from(id).ok()) else { return Ok(None) };
    let flag = |stem: &str| match stem {
        "TransactionLog" => "--transaction-log-decoder",
        "ShareSnapshot" | "ShareUpdate" => "--share-group-state-decoder",
        _ => "--offsets-decoder",
    };
    Ok(match kind {
        Some("coordinator-key") => Some((flag(name.trim_end_matches("Key")), record(Some(prefixed(id)), None), false)),
        Some("coordinator-value") => {
            let stem = name.trim_end_matches("Value");
            let key = wire_key(stem, id)?;
            Some((flag(stem), record(Some(key), Some(prefixed(version))), false))
        }
        Some("metadata") => {
            let value = [&[1, u8::try_from(id)?, u8::try_from(version)?], &bytes[..]].concat();
            let remote = name.starts_with("Remote");
            let flag = if remote { "--remote-log-metadata-decoder" } else { "--cluster-metadata-decoder" };
            Some((flag, record(None, Some(value)), false))
        }
        _ => None,
    })
}

/// The key of a record with every field at its default.
fn wire_key(stem: &str, id: i16) -> Result<Vec<u8>> {
    let key = milena_testkit::wire::encode_body(&format!("{stem}Key"), 0, &serde_json::json!({}))?;
    Ok([&id.to_be_bytes()[..], &key].concat())
}

fn record(key: Option<Vec<u8>>, value: Option<Vec<u8>>) -> Record {
    Record { key, value, ..Record::text(0, 0, "", "") }
}

fn schema(name: &str) -> Result<Value> {
    let path = cache::repository().join("crates/protocol/schema").join(format!("{name}.json"));
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_str(&text)?)
}
