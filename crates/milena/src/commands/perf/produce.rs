//! `milena perf produce`.

use std::cell::RefCell;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use milena_client::{Error, Producer, Record};
use tokio::time::Instant;

use super::{Progress, Stock, pace, report};
use crate::connect::{self, run_client};
use crate::deliveries::{Deliveries, Outcome};
use crate::perf::{Latencies, Pace};
use crate::signal::Signal;

/// How long the end of a producer is waited for whose records have theirs.
const CLOSING: Duration = Duration::from_secs(1);

/// Arguments of `milena perf produce`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The topic
    topic: String,
    /// How many records
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 1_000_000)]
    records: u64,
    /// Bytes of each value
    #[arg(long, short, value_name = "BYTES", default_value_t = 100)]
    size: usize,
    /// At most so many records a second; without it as many as possible
    #[arg(long, short, value_name = "PER SECOND")]
    rate: Option<f64>,
    /// Gives records keys, of which there are so many
    #[arg(long, value_name = "COUNT")]
    keys: Option<u64>,
    /// Compression: none, gzip, snappy, lz4, zstd
    #[arg(long, short = 'z', value_name = "CODEC")]
    compression: Option<String>,
    /// Which answer counts as written: all, 1, 0
    #[arg(long, short)]
    acks: Option<String>,
    /// A setting of the producer by Kafka's name; can be given many times
    #[arg(long, short = 'X', value_name = "NAME=VALUE")]
    property: Vec<String>,
}

/// Measures.
pub fn run(at: &connect::Arguments, arguments: &Arguments) -> Result<ExitCode> {
    let rate = pace(arguments.rate)?;
    let properties = super::super::producer_properties(&arguments.property, &arguments.compression, &arguments.acks)?;
    let connection = at.connection(properties.clone())?;
    run_client(&connection, async |client| {
        let mut known = client.producer();
        super::super::check_known(&properties, "a producer", |key, value| known.property(key, value))?;
        let producer = client.producer().max_block(at.timeout()?).properties(connection.properties())?.build()?;
        // What it takes to get to know the cluster is not measured.
        producer.partitions(&arguments.topic).await.with_context(|| format!("topic {}", arguments.topic))?;
        let run = Run::new(arguments, rate, &producer);
        let took = run.send_all().await?;
        producer.close(CLOSING).await;
        let figures = run.figures.into_inner();
        figures.progress.end();
        let written = figures.latencies.len();
        report(at.output(), written, figures.bytes, took, &figures.latencies);
        match figures.failed {
            None => Ok(ExitCode::SUCCESS),
            Some((error, count)) => {
                Err(anyhow::Error::from(error).context(format!("{count} records were not written")))
            }
        }
    })
}

/// What was measured.
struct Figures {
    latencies: Latencies,
    bytes: u64,
    progress: Progress,
    /// What went wrong first, and how often anything did.
    failed: Option<(Error, u64)>,
}

/// One run.
struct Run<'r> {
    arguments: &'r Arguments,
    producer: &'r Producer,
    rate: f64,
    figures: RefCell<Figures>,
}

impl<'r> Run<'r> {
    fn new(arguments: &'r Arguments, rate: f64, producer: &'r Producer) -> Self {
        let progress = Progress::new(arguments.records);
        let figures = Figures { latencies: Latencies::new(), bytes: 0, progress, failed: None };
        Self { arguments, producer, rate, figures: RefCell::new(figures) }
    }

    /// Sends all records, until a signal says to stop, and waits for their ends; gives how long that took.
    async fn send_all(&self) -> Result<Duration> {
        let start = Instant::now();
        let deliveries = Deliveries::new();
        let mut arrived = |sent, outcome| self.arrived(sent, outcome);
        let work = async {
            tokio::select! {
                outcome = self.send(&deliveries) => outcome,
                _ = Signal::to_end() => Ok(()),
            }
        };
        deliveries.during(work, &mut arrived).await?;
        deliveries.flush(self.producer, &mut arrived).await;
        Ok(start.elapsed())
    }

    async fn send(&self, deliveries: &Deliveries<Instant>) -> Result<(), Error> {
        let Arguments { topic, records, size, keys, .. } = self.arguments;
        let pace = Pace::new(self.rate);
        let mut stock = Stock::new(*size);
        for number in 0..*records {
            let mut record = Record::to(topic).value(stock.next());
            let key = keys.map(|keys| (number % keys.max(1)).to_be_bytes());
            if let Some(key) = &key {
                record = record.key(key);
            }
            let sent = Instant::now();
            deliveries.add(self.producer.send(&record).await?, sent);
            pace.wait(number + 1).await;
        }
        Ok(())
    }

    fn arrived(&self, sent: Instant, outcome: Outcome) {
        let mut figures = self.figures.borrow_mut();
        match outcome {
            Ok(_) => {
                figures.latencies.add(sent.elapsed());
                figures.bytes += self.arguments.size as u64;
            }
            Err(error) => figures.failed.get_or_insert((error, 0)).1 += 1,
        }
        figures.progress.add(1);
    }
}
