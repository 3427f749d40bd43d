//! `milena consume`.

mod ends;
mod print;

use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use milena_client::{Client, Consumer, Error, SeekTo, TopicPartition};

use crate::connect::{self, run_client};
use crate::failure::usage;
use crate::output::Format;
use crate::printed::{Printed, Printing};
use crate::reset;
use crate::signal::Signal;
pub use ends::Ends;
use print::Printer;

const EXAMPLES: &str = "\
Examples:
  milena consume orders                             what comes from now on
  milena consume orders --from beginning -e         all that is there
  milena consume orders --from PT15M                from 15 minutes ago
  milena consume orders:0 --from 1000 -c 10         ten records from an offset
  milena consume orders -n 5 -e                     the last five of each partition
  milena consume orders -g billing                  with the other members of a group
  milena consume orders -J | jq .value              JSON objects, which `milena produce --format json` reads
  milena consume orders -f '%t[%p]@%o %k = %s\\n'

In the format, %t is the topic, %p the partition, %o the offset, %T the time in milliseconds, %k the key, %s the value, %h the
headers, %K and %S the lengths of key and value (-1 for null), %R the value's length in 4 bytes, %% a percent sign; \\n, \\t, \\0
and \\x1f stand for the characters that they name.";

/// The setting that says where a consumer begins.
const RESET: &str = "auto.offset.reset";
/// How long is waited before it is looked whether the end is reached.
const LOOK: Duration = Duration::from_millis(100);
/// How long the consumer may take to commit and to leave its group.
const CLOSING: Duration = Duration::from_secs(10);

/// Arguments of `milena consume`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    at: connect::Arguments,
    /// Topics, or topic:partition
    #[arg(required = true, value_name = "TOPIC[:PARTITION]")]
    topics: Vec<String>,
    /// Where to begin: beginning, end, an offset, a time such as 2026-12-01T10:15:30Z, or so long ago: PT15M. Without it at the
    /// end, or where -X auto.offset.reset says
    #[arg(long, value_name = "WHERE", conflicts_with = "last")]
    from: Option<String>,
    /// Begins with the last records of each partition, so many
    #[arg(long, short = 'n', value_name = "COUNT")]
    last: Option<i64>,
    /// Shares the partitions with the other members of a group, goes on where it has committed, and commits
    #[arg(long, short, value_name = "GROUP", conflicts_with_all = ["exit", "last"])]
    group: Option<String>,
    /// Ends where the partitions ended at the beginning
    #[arg(long, short)]
    exit: bool,
    /// Ends after so many records
    #[arg(long, short, value_name = "COUNT")]
    count: Option<u64>,
    /// How to print a record
    #[arg(long, short, value_name = "FORMAT", default_value = "%s\\n", conflicts_with = "json")]
    format: String,
    /// Prints records as JSON objects, one a line; so does -o json
    #[arg(long, short = 'J')]
    json: bool,
    /// Leaves out records of transactions that are not committed
    #[arg(long)]
    committed: bool,
    /// A setting of the consumer by Kafka's name; can be given many times
    #[arg(long, short = 'X', value_name = "NAME=VALUE")]
    property: Vec<String>,
}

/// Where to begin.
enum From {
    Place(SeekTo),
    /// So many before the end.
    Last(i64),
}

/// Reads records.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut properties = super::assignments(&arguments.property)?;
    let reset = properties.iter().find(|(key, _)| key == RESET).map(|(_, value)| value.clone());
    if arguments.from.is_some() && reset.is_some() {
        return Err(usage!("--from and {RESET}: one of them says where to begin"));
    }
    let from = arguments.from(reset.as_deref())?;
    if arguments.committed {
        properties.push(("isolation.level".to_owned(), "read_committed".to_owned()));
    }
    if let Some(group) = &arguments.group {
        let place = match from {
            _ if reset.is_some() => None,
            From::Place(SeekTo::Beginning) => Some("earliest"),
            From::Place(SeekTo::End) => Some("latest"),
            _ => {
                return Err(usage!(
                    "--group: without committed offsets it goes on --from beginning or end; `milena group reset` sets others"
                ));
            }
        };
        properties.extend(place.map(|place| (RESET.to_owned(), place.to_owned())));
        properties.push(("group.id".to_owned(), group.clone()));
    }
    let json = arguments.json || arguments.at.format() == Format::Json;
    let printer = if json { Printer::json() } else { Printer::new(&arguments.format)? };
    let connection = arguments.at.connection(properties.clone())?;
    run_client(&connection, async |client| {
        let consumer = client.consumer().properties(connection.properties())?;
        let mut known = client.consumer();
        super::check_known(&properties, "a consumer", |key, value| known.property(key, value))?;
        let mut consumer = consumer.build()?;
        let mut ends = Ends::default();
        if arguments.group.is_some() {
            consumer.subscribe(&arguments.topics)?;
        } else {
            let partitions = partitions(client, &arguments.topics).await?;
            ends = Ends::of(&mut consumer, &partitions).await?;
            consumer.assign(partitions);
            begin(&mut consumer, &from, &ends).await?;
        }
        let mut reading = Reading { consumer, printer, ends, exit: arguments.exit, count: arguments.count };
        let outcome = tokio::select! {
            outcome = reading.read() => outcome,
            _ = Signal::to_end() => Ok(()),
        };
        let closed = reading.consumer.close(CLOSING).await;
        outcome?;
        Ok(closed.map(|()| ExitCode::SUCCESS)?)
    })
}

impl Arguments {
    /// Where to begin, where no offset is committed; `reset` is what the setting says.
    fn from(&self, reset: Option<&str>) -> Result<From> {
        if let Some(last) = self.last {
            return if last < 0 { Err(usage!("--last {last}: is no number of records")) } else { Ok(From::Last(last)) };
        }
        let by_setting = || match reset {
            Some("earliest") => "beginning",
            Some(text) => text.strip_prefix("by_duration:").unwrap_or("end"),
            None => "end",
        };
        Ok(From::Place(match self.from.as_deref().unwrap_or_else(by_setting) {
            "beginning" => SeekTo::Beginning,
            "end" => SeekTo::End,
            text if text.starts_with('P') => SeekTo::Time(reset::ago(text).map_err(|why| usage!("--from: {why}"))?),
            text => match text.parse() {
                Ok(offset) if offset >= 0 => SeekTo::Offset(offset),
                _ => SeekTo::Time(reset::datetime(text).map_err(|_| {
                    usage!("--from {text}: is none of beginning, end, an offset, a time such as 2026-12-01T10:15:30Z, PT15M")
                })?),
            },
        }))
    }
}

/// The partitions of what was asked for, each once.
pub(super) async fn partitions(client: &Client, topics: &[String]) -> Result<Vec<TopicPartition>> {
    let mut partitions = Vec::new();
    for text in topics {
        let one = super::partition(text).ok();
        let name = one.as_ref().map_or(text.as_str(), |partition| &*partition.topic);
        let topic = super::find_topic(client, name, false).await.with_context(|| format!("topic {name}"))?;
        match one {
            Some(one) => {
                super::check_partition(&topic, one.partition)?;
                partitions.push(one);
            }
            None => partitions.extend(topic.partitions.iter().map(|each| TopicPartition::new(name, each.index))),
        }
    }
    partitions.sort();
    partitions.dedup();
    Ok(partitions)
}

/// Goes where the reading begins.
async fn begin(consumer: &mut Consumer, from: &From, ends: &Ends) -> Result<()> {
    let partitions = ends.partitions();
    match from {
        From::Place(place) => partitions.iter().try_for_each(|partition| consumer.seek(partition, *place))?,
        From::Last(last) => {
            for (partition, start) in consumer.beginning_offsets(&partitions).await {
                let start = start.with_context(|| format!("partition {partition}"))?;
                let offset = ends.of_partition(&partition).saturating_sub(*last).max(start);
                consumer.seek(&partition, SeekTo::Offset(offset))?;
            }
        }
    }
    Ok(())
}

/// One run.
struct Reading {
    consumer: Consumer,
    printer: Printer,
    /// Where it may end.
    ends: Ends,
    exit: bool,
    count: Option<u64>,
}

impl Reading {
    /// Reads and prints until it is enough.
    async fn read(&mut self) -> Result<()> {
        let mut printing = Printing::default();
        while self.count != Some(0) {
            if self.exit && self.ends.reached(&mut self.consumer).await? {
                break;
            }
            let Some(records) = self.consumer.poll(LOOK).await? else { continue };
            let most = self.count.unwrap_or(u64::MAX);
            let printer = &self.printer;
            let printed = printing.print(&mut self.consumer, &records, most, |record, text| {
                printer.print(&records, record, text);
                Ok::<_, Error>(())
            });
            match printed? {
                Printed::Records(count) => self.count = self.count.map(|left| left.saturating_sub(count)),
                // Nobody reads any more.
                Printed::Nothing(error) if error.kind() == ErrorKind::BrokenPipe => break,
                Printed::Nothing(error) => return Err(error).context("standard output"),
            }
        }
        Ok(())
    }
}
