//! Reading records: [`Consumer`].
//!
//! A consumer has no task of its own, but one while it is a member of a group (`group`, which `subscription` follows). Whoever
//! waits for records drives it: `fetcher` keeps a fetch under way at each broker and takes apart what comes, `session` is what
//! a broker remembers of the fetches (KIP-227), `range` finds the records in the bytes, `lookup` asks where to begin, and
//! `commit` keeps a group's offsets. While nobody waits, the connections' tasks receive what was asked for. Records are never
//! copied one by one: they are views of the bytes that came, or of those that were decompressed.

mod commit;
mod config;
mod fetcher;
mod group;
mod link;
mod lookup;
mod offsets;
mod partitions;
mod range;
mod records;
mod session;
mod settle;
mod subscription;
#[cfg(test)]
mod tests;

pub use config::{ConsumerBuilder, IsolationLevel, OffsetReset};
pub use group::{Assignor, GroupProtocol};
pub use offsets::Commit;
pub use records::{ConsumerRecord, ConsumerRecordIter, ConsumerRecords};
pub use subscription::RebalanceListener;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::client::Client;
use crate::error::Error;
use crate::topic_partition::TopicPartition;
use config::ConsumerConfig;
use fetcher::Fetcher;
use offsets::GroupOffsets;
use partitions::{NOWHERE, Position, Reset, Slot, State};
use subscription::Subscribed;

/// Where to read on; see [`Consumer::seek`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekTo {
    /// At this offset.
    Offset(i64),
    /// At the first record.
    Beginning,
    /// After the last record.
    End,
    /// Where the group has committed; as `auto.offset.reset` says without that.
    Committed,
    /// At the first record with this time or a later one, ms since 1970; after the last record if there is none.
    Time(i64),
}

/// Reads records of the partitions that are [assigned](Self::assign) to it, or that its group gives it after it has
/// [subscribed](Self::subscribe).
///
/// ```no_run
/// use milena_client::{Client, OffsetReset, TopicPartition};
///
/// # async fn example() -> Result<(), milena_client::Error> {
/// let client = Client::builder().bootstrap_servers("localhost:9092").build()?;
/// let mut consumer = client.consumer().group_id("billing").offset_reset(OffsetReset::Earliest).build()?;
/// consumer.assign([TopicPartition::new("orders", 0), TopicPartition::new("orders", 1)]);
/// loop {
///     let records = consumer.recv().await?;
///     for record in &records {
///         println!("{} at {}: {:?}", records.topic_partition(), record.offset, record.value);
///     }
///     consumer.commit_sync().await?;
///     # break;
/// }
/// consumer.close(std::time::Duration::from_secs(5)).await
/// # }
/// ```
///
/// With a `group.id` it begins where the group has committed, and commits by itself every `auto.commit.interval.ms` what was
/// received before the last call of [`recv`](Self::recv) or [`poll`](Self::poll), unless `enable.auto.commit` is off. A consumer
/// that is dropped leaves nothing behind; [`close`](Self::close) also commits and tells the brokers.
///
/// Every future of a consumer may be dropped at any time: what was received by then is not lost, and comes with the next call.
pub struct Consumer {
    client: Client,
    config: Arc<ConsumerConfig>,
    fetcher: Fetcher,
    group: Option<GroupOffsets>,
    subscribed: Option<Subscribed>,
    listener: Option<Box<dyn RebalanceListener>>,
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("assignment", &self.assignment()).finish_non_exhaustive()
    }
}

impl Consumer {
    fn new(client: Client, config: ConsumerConfig) -> Self {
        let config = Arc::new(config);
        let fetcher = Fetcher::new(client.clone(), Arc::clone(&config));
        let group = config.group.as_ref().map(|group| GroupOffsets::new(client.clone(), group, &config));
        Self { client, config, fetcher, group, subscribed: None, listener: None }
    }

    /// Reads these partitions from now on, and no others. Those that were read before are read on where they are. A
    /// subscription ends by that, without a word to the group; [`unsubscribe`](Self::unsubscribe) is kinder.
    pub fn assign(&mut self, partitions: impl IntoIterator<Item = TopicPartition>) {
        self.forget_subscription();
        let partitions: std::collections::HashSet<TopicPartition> = partitions.into_iter().collect();
        let assigned = self.fetcher.partitions.assigned();
        let gone: Vec<Slot> =
            assigned.filter(|(_, partition)| !partitions.contains(&partition.name)).map(|(slot, _)| slot).collect();
        for slot in gone {
            self.fetcher.partitions.remove(slot);
        }
        for partition in partitions {
            self.fetcher.partitions.add(partition);
        }
    }

    /// The partitions that are assigned.
    pub fn assignment(&self) -> Vec<TopicPartition> {
        self.fetcher.partitions.assigned().map(|(_, partition)| partition.name.clone()).collect()
    }

    /// Reads a partition on from elsewhere. What was fetched of it and not received is forgotten.
    ///
    /// # Errors
    /// When the partition is not assigned, or the offset is negative.
    pub fn seek(&mut self, partition: &TopicPartition, to: SeekTo) -> Result<(), Error> {
        let slot = self.slot(partition)?;
        let (state, position) = match to {
            SeekTo::Offset(offset) if offset < 0 => {
                return Err(Error::config("offset", format!("{offset} is no offset of a record")));
            }
            SeekTo::Offset(offset) => (State::Ready, Position { offset, leader_epoch: None }),
            SeekTo::Committed => (State::New, NOWHERE),
            SeekTo::Beginning => (State::Reset(Reset::Earliest), NOWHERE),
            SeekTo::End => (State::Reset(Reset::Latest), NOWHERE),
            SeekTo::Time(time) => (State::Reset(Reset::Time(time.max(0))), NOWHERE),
        };
        self.fetcher.partitions.seek(slot, state, position);
        Ok(())
    }

    /// Receives nothing of these partitions until they are resumed.
    ///
    /// # Errors
    /// When one of them is not assigned; the others are paused.
    pub fn pause<'p>(&mut self, partitions: impl IntoIterator<Item = &'p TopicPartition>) -> Result<(), Error> {
        self.each(partitions, |fetcher, slot| fetcher.partitions.change(slot).paused = true)
    }

    /// Receives again what was paused.
    ///
    /// # Errors
    /// When one of them is not assigned; the others are resumed.
    pub fn resume<'p>(&mut self, partitions: impl IntoIterator<Item = &'p TopicPartition>) -> Result<(), Error> {
        self.each(partitions, Fetcher::resume)
    }

    /// The partitions that are paused.
    pub fn paused(&self) -> Vec<TopicPartition> {
        let assigned = self.fetcher.partitions.assigned();
        assigned.filter(|(_, partition)| partition.paused).map(|(_, partition)| partition.name.clone()).collect()
    }

    /// The next records, of any of the partitions; waits until there are some. What was received before counts as dealt with,
    /// and is committed if the consumer commits by itself.
    ///
    /// # Errors
    /// What keeps a partition from being read, in an [`Error::Partition`]. The others go on with the next call, and this one
    /// is tried again; it need not be the last try. Of who has subscribed, also what keeps it from being a member, and which
    /// topics it may not read; with the next call, that is tried again too.
    pub async fn recv(&mut self) -> Result<ConsumerRecords, Error> {
        let _polling = self.polling();
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`recv`](Self::recv), but waits only so long; `None` when nothing came.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn poll(&mut self, patience: Duration) -> Result<Option<ConsumerRecords>, Error> {
        timeout(patience, self.recv()).await.ok().transpose()
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<ConsumerRecords, Error>> {
        self.client.check_open()?;
        ready!(self.poll_group(cx))?;
        if self.fetcher.partitions.is_empty() && !self.is_subscribed() {
            return Poll::Ready(Err(Error::NothingAssigned));
        }
        if let Some(group) = &mut self.group {
            group.poll(&self.fetcher.partitions, cx);
        }
        self.fetcher.poll_records(cx)
    }

    /// The offset of the next record of a partition that will be received. Where it is not known yet, it is found out.
    ///
    /// # Errors
    /// When the partition is not assigned, or its position can't be had, within `default.api.timeout.ms` at the most.
    pub async fn position(&mut self, partition: &TopicPartition) -> Result<i64, Error> {
        let slot = self.slot(partition)?;
        let within = self.client.config().api_timeout;
        let position = timeout(within, poll_fn(|cx| self.fetcher.poll_position(slot, cx))).await;
        let late = |_| Error::timeout(format!("the position of {partition}"), within, None);
        Ok(position.map_err(late)??.offset)
    }

    /// How many offsets there are from the next record to be received to the end, as the last fetch knew it; `None` before that.
    /// The end is that of committed records where only those are read.
    pub fn lag(&self, partition: &TopicPartition) -> Option<i64> {
        self.fetcher.lag(self.fetcher.partitions.slot(partition)?)
    }

    fn slot(&self, partition: &TopicPartition) -> Result<Slot, Error> {
        let unknown =
            || Error::Partition { partition: partition.clone(), offset: None, cause: Box::new(Error::NothingAssigned) };
        self.fetcher.partitions.slot(partition).ok_or_else(unknown)
    }

    fn each<'p>(
        &mut self,
        partitions: impl IntoIterator<Item = &'p TopicPartition>,
        mut act: impl FnMut(&mut Fetcher, Slot),
    ) -> Result<(), Error> {
        let mut result = Ok(());
        for partition in partitions {
            match self.slot(partition) {
                Ok(slot) => act(&mut self.fetcher, slot),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Commits what was received if the consumer commits by itself, leaves its group, ends the fetch sessions, and closes the consumer's
    /// connections, all within `patience`; then nothing of the consumer is left.
    ///
    /// # Errors
    /// When what was received could not be committed.
    pub async fn close(mut self, patience: Duration) -> Result<(), Error> {
        let until = Instant::now() + patience;
        let left = timeout_at(until, self.leave(until)).await;
        let left = left.unwrap_or_else(|_| Err(Error::timeout("leaving the group", patience, None)));
        let committed = match &self.group {
            Some(group) => left.and(group.close(&self.fetcher.partitions, until).await),
            None => left,
        };
        self.fetcher.close(until).await;
        committed
    }
}
