//! `milena perf e2e`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use milena_client::Record;
use tokio::time::Instant;

use super::{Progress, Stock, pace, report};
use crate::connect::{self, run_client};
use crate::perf::{Latencies, Pace, RoundTrips};
use crate::signal::Signal;

/// How long the end of the producer and of the consumer is waited for.
const CLOSING: Duration = Duration::from_secs(1);

/// Arguments of `milena perf e2e`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The topic
    topic: String,
    /// How many records
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 10_000)]
    records: u64,
    /// Bytes of each value
    #[arg(long, short, value_name = "BYTES", default_value_t = 100)]
    size: usize,
    /// At most so many records a second; without it the next one is sent when the last has come back
    #[arg(long, short, value_name = "PER SECOND")]
    rate: Option<f64>,
    /// Which answer counts as written: all, 1, 0
    #[arg(long, short)]
    acks: Option<String>,
    /// A setting of the producer or of the consumer by Kafka's name; can be given many times
    #[arg(long, short = 'X', value_name = "NAME=VALUE")]
    property: Vec<String>,
}

/// What was measured.
struct Figures {
    latencies: Latencies,
    progress: Progress,
}

/// Measures.
pub fn run(at: &connect::Arguments, arguments: &Arguments) -> Result<ExitCode> {
    let (pace, patience) = (Pace::new(pace(arguments.rate)?), at.timeout()?);
    let mut properties = vec![("linger.ms".to_owned(), "0".to_owned())];
    properties.extend(super::super::producer_properties(&arguments.property, &None, &arguments.acks)?);
    let connection = at.connection(properties.clone())?;
    run_client(&connection, async |client| {
        let (mut sends, mut reads) = (client.producer(), client.consumer());
        super::super::check_known(&properties, "a producer or a consumer", |key, value| {
            Ok(sends.property(key, value)? || reads.property(key, value)?)
        })?;
        let producer = client.producer().max_block(patience).properties(connection.properties())?.build()?;
        let consumer = client.consumer().properties(connection.properties())?.build()?;
        let trips = RoundTrips::begin(client, producer, consumer, &arguments.topic).await;
        let mut trips = trips.with_context(|| format!("topic {}", arguments.topic))?;
        let mut figures = Figures { latencies: Latencies::new(), progress: Progress::new(arguments.records) };
        let start = Instant::now();
        let outcome = tokio::select! {
            outcome = measure(arguments, pace, patience, &mut trips, &mut figures) => outcome,
            _ = Signal::to_end() => Ok(()),
        };
        let took = start.elapsed();
        trips.close(CLOSING).await;
        figures.progress.end();
        let back = figures.latencies.len();
        report(at.output(), back, back * arguments.size as u64, took, &figures.latencies);
        outcome.map(|()| ExitCode::SUCCESS)
    })
}

async fn measure(
    arguments: &Arguments,
    pace: Pace,
    patience: Duration,
    trips: &mut RoundTrips,
    figures: &mut Figures,
) -> Result<()> {
    let mut stock = Stock::new(arguments.size);
    for number in 0..arguments.records {
        // No two records have the same key, so that those of others are not taken for it.
        let (key, value) = (number.to_be_bytes(), stock.next());
        let record = Record::to(&arguments.topic).key(&key).value(value);
        let sent = trips.send(&record, patience, |records| {
            records.iter().any(|record| record.key == Some(&key) && record.value == Some(value))
        });
        let (latency, records) = sent.await?;
        if records.is_none() {
            bail!("a record did not come back within {patience:?}");
        }
        figures.latencies.add(latency);
        figures.progress.add(1);
        pace.wait(number + 1).await;
    }
    Ok(())
}
