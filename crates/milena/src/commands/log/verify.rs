//! `milena log verify`: reads everything and changes nothing.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use indicatif::{HumanBytes, HumanDuration, ProgressBar};
use milena_io::{Disk, RealDisk};
use milena_log::{Condition, Finding, PartitionDirName, Report, Verified};
use serde_json::{Value, json};

use super::bar;
use crate::holder;

const EXAMPLES: &str = "\
Examples:
  milena log verify /var/lib/milena                       a whole log directory
  milena log verify /var/lib/milena/orders-0              one partition
  milena log verify data/orders-0/00000000000000000042.log  one segment with its indexes
  milena log verify -o json /var/lib/milena | jq '.findings[]'

Nothing is changed, so a broker may be running: what it is writing just now is then a note, not a problem.

Exit code: 0 when no problem was found (there may be notes), 1 when there are problems or something can't be looked at, 4 when
it does not exist.";

/// Arguments of `milena log verify`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[group(skip)]
pub struct Arguments {
    /// Log directories, partitions' directories, or single files
    #[arg(value_name = "DIR|FILE", required = true)]
    paths: Vec<PathBuf>,
    /// How to say what was found
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

/// How findings are said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line each
    Text,
    /// One JSON object
    Json,
}

/// Checks what the arguments name.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let began = Instant::now();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    let places = arguments.paths.iter().map(|path| Place::of(path)).collect::<Result<Vec<_>>>()?;
    let total = places.iter().map(|place| place.bytes(&*disk)).sum();
    let mut teller = Teller { format: arguments.output, bar: bar(total), problems: 0, notes: 0, findings: Vec::new() };
    let mut verified = Verified::default();
    for place in &places {
        if place.condition == Condition::Running && arguments.output == Format::Text {
            let dir = place.home().display();
            teller.line(format_args!("a broker is running on {dir}: what it is writing just now is not a problem"));
        }
        verified += place.verify(&disk, &mut teller)?;
    }
    teller.bar.finish_and_clear();
    teller.summary(&verified, began)?;
    Ok(if teller.problems == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is to be looked at.
struct Place {
    path: PathBuf,
    kind: Kind,
    condition: Condition,
}

enum Kind {
    LogDirectory,
    Partition,
    /// A file of the segment with this base offset.
    Segment(i64),
    /// A snapshot of the metadata quorum.
    Snapshot,
}

impl Place {
    fn of(path: &Path) -> Result<Place> {
        let path = std::path::absolute(path)?;
        let meta = path.metadata().with_context(|| path.display().to_string())?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let kind = if !meta.is_dir() {
            match name.rsplit_once('.') {
                Some((_, "checkpoint")) => Kind::Snapshot,
                Some((stem, "log" | "index" | "timeindex" | "txnindex" | "snapshot")) => {
                    Kind::Segment(stem.parse().with_context(|| format!("{}: no offset in the name", path.display()))?)
                }
                _ => bail!("{}: is neither a directory nor a file of a log", path.display()),
            }
        } else if path.join("meta.properties").exists() {
            Kind::LogDirectory
        } else if PartitionDirName::parse(name).is_some() {
            Kind::Partition
        } else {
            bail!("{}: is neither a log directory (there is no meta.properties) nor a partition's", path.display());
        };
        let mut place = Place { path, kind, condition: Condition::Stopped };
        place.condition = condition(place.home());
        Ok(place)
    }

    /// The log directory.
    fn home(&self) -> &Path {
        let above = match self.kind {
            Kind::LogDirectory => 0,
            Kind::Partition => 1,
            Kind::Segment(_) | Kind::Snapshot => 2,
        };
        self.path.ancestors().nth(above).unwrap_or(&self.path)
    }

    /// Bytes that will be read; as much as can be told.
    fn bytes(&self, disk: &dyn Disk) -> u64 {
        let of = |dir: &Path| milena_log::log_bytes(disk, dir).unwrap_or(0);
        match self.kind {
            Kind::LogDirectory => {
                let dirs = disk.list(&self.path).unwrap_or_default();
                dirs.iter().filter(|entry| entry.is_dir).map(|entry| of(&self.path.join(&entry.name))).sum()
            }
            Kind::Partition => of(&self.path),
            Kind::Segment(_) | Kind::Snapshot => self.path.metadata().map_or(0, |meta| meta.len()),
        }
    }

    fn verify(&self, disk: &Arc<dyn Disk>, teller: &mut Teller) -> Result<Verified> {
        let dir = self.path.parent().unwrap_or(&self.path);
        Ok(match self.kind {
            Kind::LogDirectory => milena_log::verify_directory(disk, &self.path, self.condition, teller)?,
            Kind::Partition => milena_log::verify_partition(disk, &self.path, self.condition, None, teller)?.0,
            Kind::Segment(base) => milena_log::verify_partition(disk, dir, self.condition, Some(base), teller)?.0,
            Kind::Snapshot => {
                if let Some((position, what)) = milena_log::verify_snapshot(disk, &self.path)? {
                    let position = Some(position);
                    teller.found(Finding { path: self.path.clone(), position, is_problem: true, what });
                }
                Verified::default()
            }
        })
    }
}

/// How the broker of a log directory has left it.
fn condition(dir: &Path) -> Condition {
    if holder::holder(dir).is_some() {
        return Condition::Running;
    }
    // A partition that was copied out of its directory has no broker.
    let is_home = dir.join("meta.properties").exists();
    if is_home && !dir.join(".kafka_cleanshutdown").exists() { Condition::Crashed } else { Condition::Stopped }
}

/// Tells findings as they come, or all at the end as JSON.
struct Teller {
    format: Format,
    bar: ProgressBar,
    problems: u64,
    notes: u64,
    findings: Vec<Value>,
}

impl Report for Teller {
    fn found(&mut self, finding: Finding) {
        let kind = if finding.is_problem { "problem" } else { "note" };
        *(if finding.is_problem { &mut self.problems } else { &mut self.notes }) += 1;
        let file = finding.path.display().to_string();
        match self.format {
            Format::Json => self
                .findings
                .push(json!({"kind": kind, "file": file, "position": finding.position, "what": finding.what})),
            Format::Text => {
                let at = finding.position.map_or(String::new(), |position| format!(" at byte {position}"));
                self.line(format_args!("{kind}: {file}{at}: {}", finding.what));
            }
        }
    }

    fn progress(&mut self, bytes: u64) {
        self.bar.inc(bytes);
    }
}

impl Teller {
    /// A line above the bar. Where nobody reads it the exit code still tells.
    fn line(&self, text: std::fmt::Arguments<'_>) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stdout(), "{text}");
        });
    }

    fn summary(&self, verified: &Verified, began: Instant) -> Result<()> {
        let Verified { partitions, segments, batches, bytes } = *verified;
        let (problems, notes) = (self.problems, self.notes);
        if self.format == Format::Json {
            let all = json!({
                "partitions": partitions, "segments": segments, "batches": batches, "bytes": bytes,
                "problems": problems, "notes": notes, "findings": self.findings,
            });
            writeln!(io::stdout(), "{all:#}")?;
            return Ok(());
        }
        let size = HumanBytes(bytes);
        let time = HumanDuration(began.elapsed());
        self.line(format_args!(
            "{partitions} partitions, {segments} segments, {batches} batches, {size} read in {time}"
        ));
        self.line(format_args!("{problems} problems, {notes} notes"));
        Ok(())
    }
}
