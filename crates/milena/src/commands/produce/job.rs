//! The work of one `milena produce`: reads, sends, counts, and tells.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{IsTerminal, stderr, stdin};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressFinish, ProgressStyle};
use milena_client::{Error, Producer, Topic};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::commands::check_partition;
use crate::deliveries::{Deliveries, Outcome};
use crate::input::lines::{Flaw, Layout};
use crate::input::{self, Draft, Sink};
use crate::output::{Output, print_error};
use crate::signal::Signal;

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// How many records there are between two looks at the progress bar.
const STEP: u64 = 256;

/// How records stand in lines.
pub enum Reading {
    /// As text.
    Lines(Layout),
    /// As JSON objects.
    Json,
}

impl Reading {
    fn read<'l>(&self, line: &'l [u8]) -> Result<Draft<'l>, String> {
        match self {
            Self::Json => input::json::read(line),
            Self::Lines(layout) => layout.read(line).map_err(|flaw| match flaw {
                Flaw::NoHeadersDelimiter => {
                    let text = layout.headers_delimiter.as_deref().unwrap_or_default();
                    format!("there is no {text:?} behind the headers")
                }
                Flaw::NoKeySeparator => {
                    let text = layout.key_separator.as_deref().unwrap_or_default();
                    format!("there is no {text:?} between key and value")
                }
                Flaw::NoHeaderKeySeparator(header) => format!("header `{header}`: is not name=value"),
                Flaw::NullHeaderKey => "a header has no name".to_owned(),
                Flaw::NotText => "a header is not UTF-8".to_owned(),
            }),
        }
    }
}

/// What is known of the records so far.
#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    written: u64,
    bytes: u64,
    partitions: BTreeMap<i32, Place>,
    /// The first that went wrong, and how many did.
    failed: Option<(Error, u64)>,
}

/// What is known of the records in a partition: the offsets as far as the broker tells them.
#[derive(Debug, Default)]
struct Place {
    first: Option<i64>,
    last: Option<i64>,
    records: u64,
}

/// What records have that do not have their own.
#[derive(Clone, Copy)]
pub struct Defaults<'j> {
    /// The key.
    pub key: Option<&'j str>,
    /// Headers, before those of the record.
    pub headers: &'j [(String, String)],
    /// The partition.
    pub partition: Option<i32>,
}

/// One run.
pub struct Job<'j> {
    topic: &'j Topic,
    defaults: Defaults<'j>,
    producer: &'j Producer,
    sink: Sink,
    bar: ProgressBar,
    deliveries: Deliveries<()>,
    tally: RefCell<Tally>,
}

impl<'j> Job<'j> {
    /// Records go to a topic.
    ///
    /// # Errors
    /// A partition that the topic does not have.
    pub fn new(topic: &'j Topic, defaults: Defaults<'j>, producer: &'j Producer, sink: Sink) -> Result<Self> {
        let (deliveries, tally) = (Deliveries::new(), RefCell::default());
        let job = Self { topic, defaults, producer, sink, bar: bar(), deliveries, tally };
        job.check(defaults.partition)?;
        Ok(job)
    }

    fn check(&self, partition: Option<i32>) -> Result<()> {
        partition.map_or(Ok(()), |partition| check_partition(self.topic, partition))
    }

    /// Sends each line of standard input.
    ///
    /// # Errors
    /// A line that is no record; what was before it was sent.
    pub async fn standard_input(&self, reading: &Reading) -> Result<()> {
        if stdin().is_terminal() && stderr().is_terminal() {
            print_error("each line is a record; Ctrl-D ends\n");
        }
        self.to_the_end(self.lines(reading)).await
    }

    /// Sends each file as the value of one record.
    ///
    /// # Errors
    /// A file that can't be read; those before it were sent.
    pub async fn files(&self, paths: &[PathBuf]) -> Result<()> {
        self.to_the_end(async {
            for path in paths {
                let value = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
                let draft = Draft { value: Some(Cow::Borrowed(&value)), ..Draft::default() };
                self.send(draft).await.with_context(|| path.display().to_string())?;
            }
            Ok(())
        })
        .await
    }

    /// Sends, until a signal says to stop, and waits until all that was sent is written or has failed.
    async fn to_the_end(&self, work: impl Future<Output = Result<()>>) -> Result<()> {
        let mut arrived = |(), outcome| self.arrived(outcome);
        let work = async {
            tokio::select! {
                outcome = work => outcome,
                _ = Signal::to_end() => Ok(()),
            }
        };
        let outcome = self.deliveries.during(work, &mut arrived).await;
        tokio::select! {
            () = self.deliveries.flush(self.producer, &mut arrived) => outcome,
            _ = Signal::to_end() => bail!("interrupted; what became of the last records is not known"),
        }
    }

    async fn lines(&self, reading: &Reading) -> Result<()> {
        let mut input = BufReader::with_capacity(CHUNK, tokio::io::stdin());
        let mut line = Vec::new();
        for number in 1u64.. {
            line.clear();
            let length = input.read_until(b'\n', &mut line).await.context("reading standard input")?;
            if length == 0 || self.tally.borrow().failed.is_some() {
                break;
            }
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let draft = reading.read(text).map_err(|why| anyhow!("line {number}: {why}"))?;
            self.send(draft).await.with_context(|| format!("line {number}"))?;
        }
        Ok(())
    }

    async fn send<'d>(&'d self, mut draft: Draft<'d>) -> Result<()> {
        if draft.key.is_none() {
            draft.key = self.defaults.key.map(|key| Cow::Borrowed(key.as_bytes()));
        }
        self.check(draft.partition)?;
        draft.partition = draft.partition.or(self.defaults.partition);
        let header = |(name, value): &'d (String, String)| (name.as_str().into(), Some(value.as_bytes().into()));
        draft.headers.insert_many(0, self.defaults.headers.iter().map(header));
        self.deliveries.add(draft.send(&self.sink, &self.topic.name).await?, ());
        let mut tally = self.tally.borrow_mut();
        tally.sent += 1;
        tally.bytes += draft.len() as u64;
        if tally.sent.is_multiple_of(STEP) {
            self.bar.set_message(format!("{} records, {}", HumanCount(tally.sent), HumanBytes(tally.bytes)));
            self.bar.set_position(tally.sent);
        }
        Ok(())
    }

    fn arrived(&self, outcome: Outcome) {
        let mut tally = self.tally.borrow_mut();
        match outcome {
            Ok(written) => {
                tally.written += 1;
                let place = tally.partitions.entry(written.partition).or_default();
                place.first = place.first.or(written.offset);
                place.last = written.offset.or(place.last);
                place.records += 1;
            }
            Err(error) => tally.failed.get_or_insert((error, 0)).1 += 1,
        }
    }

    /// Ends what was begun and says what became of the records. Those of a transaction are written together, or not at all.
    ///
    /// # Errors
    /// `outcome`'s, or that of the first record that was not written.
    pub async fn close(self, output: Output, outcome: Result<()>) -> Result<ExitCode> {
        self.bar.finish_and_clear();
        let tally = self.tally.into_inner();
        let well = outcome.is_ok() && tally.failed.is_none();
        let ended = match self.sink {
            Sink::Producer(_) => Ok(true),
            Sink::Transaction(transaction) if well => transaction.commit().await.map(|()| true),
            Sink::Transaction(transaction) => transaction.abort().await.map(|()| false),
        };
        match ended {
            Ok(true) => tally.report(output, &self.topic.name),
            _ => output.note("nothing was written: the transaction was aborted"),
        }
        outcome?;
        if let Some((error, count)) = tally.failed {
            let what = format!("topic {}: {count} of {} records were not written", self.topic.name, tally.sent);
            return Err(anyhow::Error::from(error).context(what));
        }
        ended.map(|_| ExitCode::SUCCESS).context("committing the transaction")
    }
}

impl Tally {
    fn report(&self, output: Output, topic: &str) {
        let plural = if self.written == 1 { "" } else { "s" };
        output.note(&format!("{} record{plural} written to {topic}", self.written));
        if output.is_table() {
            return;
        }
        let partition = |(partition, place): (&i32, &Place)| {
            json!({
                "partition": partition,
                "records": place.records,
                "first_offset": place.first,
                "last_offset": place.last,
            })
        };
        let partitions: Vec<Value> = self.partitions.iter().map(partition).collect();
        let (records, bytes) = (self.written, self.bytes);
        output.value(&json!({ "topic": topic, "records": records, "bytes": bytes, "partitions": partitions }));
    }
}

/// Says how far it is, where that is not in the way of what is typed.
fn bar() -> ProgressBar {
    if stdin().is_terminal() || !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg} {per_sec}");
    ProgressBar::new_spinner()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        .with_finish(ProgressFinish::AndClear)
}
