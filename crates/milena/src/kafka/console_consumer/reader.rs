//! What kafka-console-consumer does between its options and its formatter: it finds partitions, reads, and counts.

use std::sync::Arc;
use std::time::Duration;

use milena_client::{Client, Consumer, ConsumerRecords, Error, SeekTo, Topic, TopicPartition};
use regex_lite::Regex;
use tokio::time::{Instant, timeout};

use super::formatter::Formatter;
use crate::kafka::options::Options;
use crate::kafka::{Ended, Thrown, java};
use crate::output::print_error;
use crate::printed::{Printed, Printing};

/// How long it takes until a topic that was not there is looked for again.
const RETRY: Duration = Duration::from_millis(200);
/// Longer than any program runs.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
/// How old what is known of the topics may be when nobody says otherwise, ms.
const MAX_AGE_MS: u64 = 300_000;

/// What is to be read, and for how long.
pub struct Wanted {
    topics: Topics,
    partition: Option<i32>,
    offset: SeekTo,
    /// How many messages at the most.
    max: u64,
    /// How long to wait for a message.
    patience: Duration,
    /// Whether a message that can't be printed is passed over.
    skip: bool,
}

enum Topics {
    One(String),
    Matching(Regex),
}

impl Wanted {
    /// What the options say.
    pub fn new(options: &Options) -> Result<Self, Ended> {
        let topics = match (options.value("topic")?, options.value("include")?) {
            (None, Some(pattern)) => Topics::Matching(
                Regex::new(&format!("^(?:{pattern})$"))
                    .map_err(|error| Thrown::new("java.util.regex.PatternSyntaxException", error.to_string()))?,
            ),
            (topic, _) => Topics::One(topic.unwrap_or_default().to_owned()),
        };
        let max: i32 = options.number("max-messages")?.unwrap_or(-1);
        let patience: i64 = options.number("timeout-ms")?.unwrap_or(-1);
        Ok(Self {
            topics,
            partition: options.number("partition")?,
            offset: offset(options.value("offset")?, options.has("from-beginning"))?,
            max: if max == -1 { u64::MAX } else { max.try_into().unwrap_or(0) },
            patience: u64::try_from(patience).map_or(FOREVER, Duration::from_millis),
            skip: options.has("skip-message-on-error"),
        })
    }
}

fn offset(text: Option<&str>, from_beginning: bool) -> Result<SeekTo, Ended> {
    let Some(text) = text else { return Ok(if from_beginning { SeekTo::Beginning } else { SeekTo::End }) };
    match (text.to_lowercase().as_str(), text.parse()) {
        ("earliest", _) => Ok(SeekTo::Beginning),
        ("latest", _) => Ok(SeekTo::End),
        (_, Ok(offset)) if offset >= 0 => Ok(SeekTo::Offset(offset)),
        _ => Err(Ended::Usage(format!(
            "The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a non-negative long."
        ))),
    }
}

/// One run.
pub struct Reader {
    wanted: Wanted,
    formatter: Formatter,
    /// Whether partitions are shared with the members of a group, rather than all of them read.
    in_group: bool,
    /// Whether topics of the servers' own match a pattern.
    internal: bool,
    /// How old what is known of the topics may be.
    max_age: Duration,
    /// When the topics are looked at again, if ever.
    look: Option<Instant>,
    read: u64,
}

impl Reader {
    /// Prints what is wanted, as the consumer's properties say.
    pub fn new<'p>(wanted: Wanted, formatter: Formatter, properties: impl Iterator<Item = (&'p str, &'p str)>) -> Self {
        let (mut in_group, mut internal, mut max_age) = (false, false, MAX_AGE_MS);
        for (key, value) in properties {
            match key {
                "group.id" => in_group = true,
                "exclude.internal.topics" => internal = value.trim().eq_ignore_ascii_case("false"),
                "metadata.max.age.ms" => max_age = value.trim().parse().unwrap_or(MAX_AGE_MS),
                _ => {}
            }
        }
        Self { wanted, formatter, in_group, internal, max_age: Duration::from_millis(max_age), look: None, read: 0 }
    }

    /// How many messages were read.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Reads and prints until it is enough. What goes wrong while it waits ends it as well.
    pub async fn run(&mut self, client: &Client, consumer: &mut Consumer) -> Result<(), Ended> {
        if let Err(why) = self.begin(client, consumer).await {
            return terminate(&why);
        }
        let mut printing = Printing::default();
        while self.read < self.wanted.max {
            let records = match self.next(client, consumer).await {
                Ok(Some(records)) => records,
                Ok(None) => return terminate(java::TIMEOUT),
                Err(error) => return terminate(&java::send_error(&error, "").text()),
            };
            let (skip, formatter, read) = (self.wanted.skip, &self.formatter, &mut self.read);
            let most = self.wanted.max - *read;
            let printed = printing.print(consumer, &records, most, |record, text| {
                *read += 1;
                match formatter.write(&records, record, text) {
                    Err(thrown) if skip => {
                        let text = thrown.text();
                        print_error(&format!("ERROR Error processing message, skipping this message: {text}\n"));
                        Ok(())
                    }
                    other => other.map_err(Ended::from),
                }
            });
            if let Printed::Nothing(_) = printed? {
                print_error("Unable to write to standard out, closing consumer.\n");
                return Ok(());
            }
        }
        Ok(())
    }

    /// Joins the group, or takes the partitions; what keeps it from that.
    async fn begin(&mut self, client: &Client, consumer: &mut Consumer) -> Result<(), String> {
        let text = |error: Error| java::send_error(&error, "").text();
        match &self.wanted.topics {
            Topics::One(topic) if self.in_group => return consumer.subscribe([topic]).map_err(text),
            Topics::Matching(pattern) if self.in_group => {
                return consumer.subscribe_pattern(pattern.as_str()).map_err(text);
            }
            _ => {}
        }
        let partitions = timeout(self.wanted.patience, self.partitions(client)).await;
        consumer.assign(partitions.map_err(|_| java::TIMEOUT.to_owned())?.map_err(text)?);
        if self.wanted.partition.is_some() {
            let place = self.wanted.offset;
            consumer.assignment().iter().try_for_each(|partition| consumer.seek(partition, place)).map_err(text)?;
        } else {
            self.look = Some(Instant::now() + self.max_age);
        }
        Ok(())
    }

    /// The next messages, also of partitions that are new; `None` when nobody is patient enough for them.
    async fn next(&mut self, client: &Client, consumer: &mut Consumer) -> Result<Option<ConsumerRecords>, Error> {
        let until = Instant::now() + self.wanted.patience;
        loop {
            if self.look.is_some_and(|look| look <= Instant::now()) {
                // What can't be found out is looked at the next time.
                if let Ok(partitions) = self.find(client).await
                    && !partitions.is_empty()
                {
                    consumer.assign(partitions);
                }
                self.look = Some(Instant::now() + self.max_age.max(RETRY));
            }
            let wake = self.look.map_or(until, |look| look.min(until));
            match consumer.poll(wake.saturating_duration_since(Instant::now())).await? {
                None if Instant::now() < until => {}
                found => return Ok(found),
            }
        }
    }

    /// The partitions to read; waits until there are some.
    async fn partitions(&self, client: &Client) -> Result<Vec<TopicPartition>, Error> {
        loop {
            match self.find(client).await {
                Ok(partitions) if !partitions.is_empty() => return Ok(partitions),
                Err(error) if !error.is_retriable() => return Err(error),
                _ => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// The partitions that are there.
    async fn find(&self, client: &Client) -> Result<Vec<TopicPartition>, Error> {
        match (&self.wanted.topics, self.wanted.partition) {
            (Topics::One(topic), Some(partition)) => Ok(vec![TopicPartition::new(topic.as_str(), partition)]),
            (Topics::One(topic), None) => client.topic(topic, true).await.map(|topic| all(&topic).collect()),
            (Topics::Matching(pattern), _) => {
                let metadata = client.all_topics().await?;
                let named = metadata.topics().filter(|topic| pattern.is_match(&topic.name));
                Ok(named.filter(|topic| self.internal || !topic.is_internal).flat_map(|topic| all(topic)).collect())
            }
        }
    }
}

fn all(topic: &Topic) -> impl Iterator<Item = TopicPartition> {
    topic.partitions.iter().map(|partition| TopicPartition::new(Arc::clone(&topic.name), partition.index))
}

/// Logs why the tool ends, which is well for all that.
fn terminate(why: &str) -> Result<(), Ended> {
    print_error(&format!("ERROR Error processing message, terminating consumer process: {why}\n"));
    Ok(())
}
