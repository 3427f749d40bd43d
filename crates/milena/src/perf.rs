//! What measuring has in common: keeping to a pace, latencies, and records that come back.

use std::time::Duration;

use hdrhistogram::Histogram;
use milena_client::{Client, Consumer, ConsumerRecords, Error, Producer, Record, SeekTo, TopicPartition};
use tokio::time::{Instant, sleep_until};

/// What is not worth sleeping for.
const SHORTEST_SLEEP: Duration = Duration::from_millis(2);
/// Longer latencies count as this, microseconds.
const LONGEST: u64 = 3_600_000_000;

/// So many things a second.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    start: Instant,
    per_second: f64,
}

impl Pace {
    /// From now on; less than nothing is as fast as possible.
    pub fn new(per_second: f64) -> Self {
        Self { start: Instant::now(), per_second }
    }

    /// Waits until it is time for the next, when so many are done.
    pub async fn wait(&self, done: u64) {
        if self.per_second < 0.0 {
            return;
        }
        match Duration::try_from_secs_f64(done as f64 / self.per_second) {
            Ok(after) => {
                let due = self.start + after;
                if due > Instant::now() + SHORTEST_SLEEP {
                    sleep_until(due).await;
                }
            }
            // None a second.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Latencies of records, in microseconds.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// None yet.
    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST, 3).expect("bounds that a histogram can have"))
    }

    /// One more.
    pub fn add(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(LONGEST));
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// So many percent are not longer than this, milliseconds.
    pub fn percentile(&self, percent: f64) -> f64 {
        self.0.value_at_percentile(percent) as f64 / 1000.0
    }

    /// The mean, milliseconds.
    pub fn mean(&self) -> f64 {
        self.0.mean() / 1000.0
    }

    /// The longest, milliseconds.
    pub fn max(&self) -> f64 {
        self.0.max() as f64 / 1000.0
    }
}

/// A producer, and a consumer of what it sends to one topic.
#[derive(Debug)]
pub struct RoundTrips {
    producer: Producer,
    consumer: Consumer,
}

impl RoundTrips {
    /// Has the consumer wait where the topic's partitions end.
    ///
    /// # Errors
    /// When the topic, or an end of it, can't be had.
    pub async fn begin(
        client: &Client,
        producer: Producer,
        mut consumer: Consumer,
        topic: &str,
    ) -> Result<Self, Error> {
        producer.partitions(topic).await?;
        let found = client.topic(topic, false).await?;
        let partitions = found.partitions.iter().map(|partition| TopicPartition::new(topic, partition.index));
        consumer.assign(partitions);
        for partition in consumer.assignment() {
            consumer.seek(&partition, SeekTo::End)?;
            consumer.position(&partition).await?;
        }
        Ok(Self { producer, consumer })
    }

    /// Sends a record and waits until it is written, and then for records that it is among; how long all of that took. There
    /// are no records when their time is up.
    ///
    /// # Errors
    /// Those of the producer and of the consumer.
    pub async fn send(
        &mut self,
        record: &Record<'_>,
        patience: Duration,
        is_among: impl Fn(&ConsumerRecords) -> bool,
    ) -> Result<(Duration, Option<ConsumerRecords>), Error> {
        let begin = Instant::now();
        self.producer.send(record).await?.await?;
        let until = Instant::now() + patience;
        loop {
            let records = self.consumer.poll(until.saturating_duration_since(Instant::now())).await?;
            if records.as_ref().is_none_or(&is_among) {
                return Ok((begin.elapsed(), records));
            }
        }
    }

    /// Commits what was read.
    ///
    /// # Errors
    /// As [`Consumer::commit_sync`].
    pub async fn commit(&mut self) -> Result<(), Error> {
        self.consumer.commit_sync().await
    }

    /// Ends both.
    pub async fn close(self, patience: Duration) {
        self.producer.close(patience).await;
        // Nothing of it is waited for.
        let _ = self.consumer.close(patience).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pace_is_kept_and_none_is_no_wait() {
        let start = Instant::now();
        let pace = Pace::new(1000.0);
        pace.wait(1500).await;
        assert_eq!(start.elapsed(), Duration::from_millis(1500));
        Pace::new(-1.0).wait(u64::MAX).await;
        assert_eq!(start.elapsed(), Duration::from_millis(1500));
    }

    #[test]
    fn latencies_are_told_in_milliseconds() {
        let mut latencies = Latencies::new();
        (1..=100).for_each(|number| latencies.add(Duration::from_millis(number)));
        assert_eq!(latencies.len(), 100);
        for (percent, expected) in [(50.0, 50.0), (99.0, 99.0)] {
            let told = latencies.percentile(percent);
            assert!((told - expected).abs() < expected / 500.0, "{percent}: {told}");
        }
        assert!((latencies.mean() - 50.5).abs() < 0.1 && latencies.max() >= 100.0);
    }
}
