//! `milena produce`.

mod job;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use regex_lite::Regex;

use crate::connect::{self, run_client};
use crate::failure::usage;
use crate::input::lines::Layout;
use crate::input::{Sink, unescape};
use job::{Defaults, Job, Reading};

const EXAMPLES: &str = "\
Examples:
  milena produce orders                            each line that is typed is a record; Ctrl-D ends
  milena produce orders -k : < keyed.txt           key:value in each line
  milena produce orders --headers-delimiter '\\t'   a=1,b=2<tab>value in each line
  milena produce orders --format json < records    {\"key\": …, \"value\": …, \"headers\": {…}, \"partition\": …, \"timestamp\": …}
  milena produce photos --file a.jpg --key a       a whole file as the value of one record
  milena produce orders -X transactional.id=x      all of them in one transaction, or none

In separators, \\t, \\n, \\0 and \\x1f stand for the characters that they name.";

/// Arguments of `milena produce`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    at: connect::Arguments,
    /// The topic
    topic: String,
    /// Has the cluster create the topic if it does not exist and the cluster does that
    #[arg(long)]
    create: bool,
    /// How records stand in standard input
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// What stands behind the key in each line; without it a line is a value
    #[arg(long, short, value_name = "TEXT", conflicts_with = "key")]
    key_separator: Option<String>,
    /// What stands behind the headers in each line, name=value,name=value; without it there are none
    #[arg(long, value_name = "TEXT")]
    headers_delimiter: Option<String>,
    /// What stands for a key or a value that is null
    #[arg(long, value_name = "TEXT")]
    null: Option<String>,
    /// Makes the whole content of a file one record's value, instead of standard input; can be given many times
    #[arg(long, short, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// The key of every record that does not have its own
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// A header of every record, before its own; can be given many times
    #[arg(long, short = 'H', value_name = "NAME=VALUE")]
    header: Vec<String>,
    /// The partition; without it the key decides, or chance
    #[arg(long, short)]
    partition: Option<i32>,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Format {
    /// One record a line, as text.
    #[default]
    Lines,
    /// One JSON object a line.
    Json,
}

/// Writes records.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let headers = super::assignments(&arguments.header)?;
    let properties = super::producer_properties(&arguments.property, &arguments.compression, &arguments.acks)?;
    let connection = arguments.at.connection(properties.clone())?;
    run_client(&connection, async |client| {
        let producer = client.producer().max_block(arguments.at.timeout()?).properties(connection.properties())?;
        let mut known = client.producer();
        super::check_known(&properties, "a producer", |key, value| known.property(key, value))?;
        let topic = super::find_topic(client, &arguments.topic, arguments.create).await;
        let topic = topic.with_context(|| format!("topic {}", arguments.topic))?;
        let producer = producer.build()?;
        let is_transactional = connection.properties().any(|(key, _)| key == "transactional.id");
        let sink = match is_transactional {
            true => Sink::Transaction(producer.begin().await?),
            false => Sink::Producer(producer.clone()),
        };
        let defaults = Defaults { key: arguments.key.as_deref(), headers: &headers, partition: arguments.partition };
        let job = Job::new(&topic, defaults, &producer, sink)?;
        let outcome = arguments.read(&job).await;
        let ended = job.close(arguments.at.output(), outcome).await;
        // What was sent has its end already.
        producer.close(Duration::from_secs(1)).await;
        ended
    })
}

impl Arguments {
    async fn read(&self, job: &Job<'_>) -> Result<()> {
        if !self.file.is_empty() {
            return job.files(&self.file).await;
        }
        let reading = match self.format {
            Format::Json if self.key_separator.is_some() || self.headers_delimiter.is_some() => {
                return Err(usage!("--format json: key and headers are in the objects; there are no separators"));
            }
            Format::Json => Reading::Json,
            Format::Lines => Reading::Lines(self.layout()?),
        };
        job.standard_input(&reading).await
    }

    fn layout(&self) -> Result<Layout> {
        let separator = |text: &Option<String>| text.as_deref().map(unescape);
        if [&self.key_separator, &self.headers_delimiter].into_iter().flatten().any(String::is_empty) {
            return Err(usage!("a separator is not empty"));
        }
        Ok(Layout {
            headers_delimiter: separator(&self.headers_delimiter),
            headers_separator: Regex::new(",").expect("it is a pattern"),
            header_key_separator: "=".to_owned(),
            key_separator: separator(&self.key_separator),
            null_marker: self.null.clone(),
            forgiving: false,
        })
    }
}
