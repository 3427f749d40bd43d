//! A consumer that is subscribed: it follows its group, and gives up nothing before it has committed it.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

use super::group::{Change, Member, Polling, Wanted};
use super::offsets::{Commit, GroupOffsets, Name, Offsets};
use super::{Consumer, SeekTo};
use crate::admin::CommittedOffset;
use crate::error::Error;
use crate::topic_partition::TopicPartition;

/// Hears which partitions a consumer gets and gives up while it is a member of a group; see [`Consumer::on_rebalance`].
///
/// It is called by the consumer's own futures, [`recv`](Consumer::recv) and [`poll`](Consumer::poll) above all, between two
/// lots of records. What has to be done with the consumer itself is what its methods give back.
pub trait RebalanceListener: Send {
    /// These are read from now on, beside those that were read before. Each begins at the offset that the group has committed,
    /// or where this says.
    fn assigned(&mut self, partitions: &[TopicPartition]) -> Vec<(TopicPartition, SeekTo)> {
        let _ = partitions;
        Vec::new()
    }

    /// These are given up, so that another member can read on. The offsets that this gives are committed before; a consumer
    /// that commits by itself has its own beside them.
    fn revoked(&mut self, partitions: &[TopicPartition]) -> Vec<(TopicPartition, CommittedOffset)> {
        let _ = partitions;
        Vec::new()
    }

    /// Others may read these already: the group has gone on without this member. Nothing can be committed for them.
    fn lost(&mut self, partitions: &[TopicPartition]) {
        let _ = partitions;
    }
}

/// A membership, as the consumer sees it.
pub(super) struct Subscribed {
    member: Member,
    wanted: Wanted,
    /// The partitions that are being given up.
    farewell: Option<Farewell>,
}

/// Partitions that are given up as soon as a commit is done, or was tried long enough.
struct Farewell {
    partitions: Vec<TopicPartition>,
    offsets: Offsets,
    /// In whose name: the consumer may be another's member by then, or none.
    name: Option<Name>,
    commit: Option<Commit>,
    again: Option<Pin<Box<Sleep>>>,
    failures: u32,
    until: Instant,
}

impl Consumer {
    /// Joins the group, to read those partitions of these topics that it gives to this member, from now on and in place of
    /// what was read before. The first [`recv`](Self::recv) or [`poll`](Self::poll) with partitions comes when the group has
    /// agreed. Topics that do not exist yet are read when they do.
    ///
    /// ```no_run
    /// use milena_client::{Client, OffsetReset};
    ///
    /// # async fn example() -> Result<(), milena_client::Error> {
    /// let client = Client::builder().bootstrap_servers("localhost:9092").build()?;
    /// let builder = client.consumer().group_id("billing").offset_reset(OffsetReset::Earliest);
    /// let mut consumer = builder.set("group.protocol", "consumer")?.build()?;
    /// consumer.subscribe(["orders", "returns"])?;
    /// for _ in 0..100 {
    ///     let records = consumer.recv().await?;
    ///     println!("{}: {} records", records.topic_partition(), records.len());
    /// }
    /// consumer.close(std::time::Duration::from_secs(5)).await
    /// # }
    /// ```
    ///
    /// A member must call [`recv`](Self::recv) or [`poll`](Self::poll) at least each `max.poll.interval.ms`; until then its
    /// partitions stay with it, and after that they go to others. What keeps it from being a member at all, and which topics it
    /// may not read, is told there too, and tried again after that.
    ///
    /// # Errors
    /// [`Error::Config`] without a `group.id` or a topic.
    pub fn subscribe<T: Into<String>>(&mut self, topics: impl IntoIterator<Item = T>) -> Result<(), Error> {
        let topics: BTreeSet<String> = topics.into_iter().map(Into::into).collect();
        if topics.is_empty() {
            return Err(Error::config("subscription", "names no topic"));
        }
        self.follow(Wanted::Topics(topics))
    }

    /// As [`subscribe`](Self::subscribe), to all topics whose whole name matches a regular expression, those of the future
    /// too. With `group.protocol=consumer` it is the coordinator that matches, in RE2's syntax.
    ///
    /// # Errors
    /// [`Error::Config`] without a `group.id` or an expression. One that the coordinator can't understand is told by
    /// [`recv`](Self::recv).
    pub fn subscribe_pattern(&mut self, pattern: &str) -> Result<(), Error> {
        if pattern.is_empty() {
            return Err(Error::config("subscription", "has no expression"));
        }
        self.follow(Wanted::Pattern(pattern.to_owned()))
    }

    fn follow(&mut self, wanted: Wanted) -> Result<(), Error> {
        if self.config.group.is_none() {
            return Err(Error::config("group.id", "is needed for a subscription"));
        }
        wanted.check(self.config.membership.protocol)?;
        if let Some(subscribed) = &mut self.subscribed {
            subscribed.member.subscribe(wanted.clone());
            subscribed.wanted = wanted;
            return Ok(());
        }
        self.assign([]);
        let member = Member::join(self.client.clone(), Arc::new(self.config.membership.clone()), wanted.clone());
        self.be(Some(&member));
        self.subscribed = Some(Subscribed { member, wanted, farewell: None });
        Ok(())
    }

    /// Commits and asks as this member from now on, or as none.
    fn be(&mut self, member: Option<&Member>) {
        let identity = member.map(Member::identity);
        self.fetcher.member.clone_from(&identity);
        if let Some(group) = &mut self.group {
            group.member = identity;
        }
    }

    /// Topics that the consumer is subscribed to by name.
    pub fn subscription(&self) -> Vec<String> {
        match self.subscribed.as_ref().map(|subscribed| &subscribed.wanted) {
            Some(Wanted::Topics(topics)) => topics.iter().cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// Has this hear which partitions come and go, in place of the one before.
    pub fn on_rebalance(&mut self, listener: impl RebalanceListener + 'static) {
        self.listener = Some(Box::new(listener));
    }

    /// Leaves the group: commits what was received if the consumer commits by itself, gives up all partitions, and tells the
    /// coordinator, so that others get them at once; those of a static member stay with it for a while. All within
    /// `default.api.timeout.ms`. When this future is dropped, the rest is left undone: it is subscribed as before,
    /// or reads nothing any more.
    ///
    /// # Errors
    /// When what was received could not be committed.
    pub async fn unsubscribe(&mut self) -> Result<(), Error> {
        self.leave(Instant::now() + self.client.config().api_timeout).await
    }

    pub(super) fn forget_subscription(&mut self) {
        if self.subscribed.take().is_some() {
            self.be(None);
        }
    }

    /// Leaves the group, if it is a member.
    pub(super) async fn leave(&mut self, until: Instant) -> Result<(), Error> {
        // What is being given up already comes first.
        let revoked = poll_fn(|cx| self.poll_revoked(until, cx)).await;
        let Some(Subscribed { member, .. }) = self.subscribed.take() else { return Ok(()) };
        // From here on nothing is read, also when this is dropped.
        let mut farewell = self.farewell(self.assignment(), until);
        self.drop_partitions(&farewell.partitions);
        self.be(None);
        let committed = poll_fn(|cx| self.poll_farewell(&mut farewell, cx)).await;
        member.leave(until.saturating_duration_since(Instant::now())).await;
        revoked.and(committed)
    }

    /// Ready when nothing is being given up.
    fn poll_revoked(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(mut farewell) = self.subscribed.as_mut().and_then(|subscribed| subscribed.farewell.take()) else {
            return Poll::Ready(Ok(()));
        };
        farewell.until = farewell.until.min(until);
        let committed = self.poll_farewell(&mut farewell, cx);
        if committed.is_ready() {
            self.drop_partitions(&farewell.partitions);
        } else if let Some(subscribed) = &mut self.subscribed {
            subscribed.farewell = Some(farewell);
        }
        committed
    }

    /// Follows the group as far as that can be done at once; ready when all is done that it wants now.
    pub(super) fn poll_group(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(mut subscribed) = self.subscribed.take() else { return Poll::Ready(Ok(())) };
        let followed = self.poll_changes(&mut subscribed, cx);
        self.subscribed = Some(subscribed);
        followed
    }

    fn poll_changes(&mut self, subscribed: &mut Subscribed, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            let change = match subscribed.member.poll_change(cx) {
                Poll::Ready(change) => change?,
                Poll::Pending => return Poll::Ready(Ok(())),
            };
            match change {
                Change::Assign(partitions) => self.take_partitions(&partitions),
                Change::Revoke(partitions) => {
                    let until = Instant::now() + self.config.membership.max_poll_interval;
                    let farewell = subscribed.farewell.get_or_insert_with(|| self.farewell(partitions.clone(), until));
                    if let Err(error) = ready!(self.poll_farewell(farewell, cx)) {
                        tracing::warn!(%error, "offsets of partitions that are given up were not committed");
                    }
                    subscribed.farewell = None;
                    self.drop_partitions(&partitions);
                }
                Change::Lost(partitions) => {
                    self.drop_partitions(&partitions);
                    if let Some(listener) = &mut self.listener {
                        listener.lost(&partitions);
                    }
                }
            }
            subscribed.member.acknowledge();
        }
    }

    fn take_partitions(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            self.fetcher.partitions.add(partition.clone());
        }
        if partitions.is_empty() {
            return;
        }
        tracing::info!(partitions = partitions.len(), "assigned");
        let begin = self.listener.as_mut().map_or_else(Vec::new, |listener| listener.assigned(partitions));
        for (partition, to) in begin {
            if let Err(error) = self.seek(&partition, to) {
                tracing::warn!(%partition, %error, "can't begin where the listener says");
            }
        }
    }

    fn drop_partitions(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            if let Some(slot) = self.fetcher.partitions.slot(partition) {
                self.fetcher.partitions.remove(slot);
            }
        }
    }

    /// What has to be done before these partitions are given up.
    fn farewell(&mut self, partitions: Vec<TopicPartition>, until: Instant) -> Farewell {
        tracing::info!(partitions = partitions.len(), "revoked");
        let mut offsets = Offsets::new();
        if self.config.auto_commit {
            offsets = self.positions();
            offsets.retain(|(partition, _)| partitions.contains(partition));
        }
        if let Some(listener) = &mut self.listener
            && !partitions.is_empty()
        {
            let told = listener.revoked(&partitions);
            offsets.retain(|(partition, _)| told.iter().all(|(other, _)| other != partition));
            offsets.extend(told);
        }
        let name = self.group.as_ref().map(GroupOffsets::name);
        Farewell { partitions, offsets, name, commit: None, again: None, failures: 0, until }
    }

    /// Ready when the offsets are committed, or can't be.
    fn poll_farewell(&mut self, farewell: &mut Farewell, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let (Some(group), Some(name)) = (&self.group, &farewell.name) else { return Poll::Ready(Ok(())) };
        loop {
            if let Some(again) = &mut farewell.again {
                ready!(again.as_mut().poll(cx));
                farewell.again = None;
            }
            let begin = || group.begin_as(name.clone(), farewell.offsets.clone());
            let committed = ready!(Pin::new(farewell.commit.get_or_insert_with(begin)).poll(cx));
            farewell.commit = None;
            farewell.failures += 1;
            let at = Instant::now() + self.client.config().retry_backoff.after(farewell.failures);
            if committed.as_ref().is_err_and(Error::is_retriable) && at < farewell.until {
                farewell.again = Some(Box::pin(sleep_until(at)));
                continue;
            }
            return Poll::Ready(committed);
        }
    }

    /// It asks for records, until what this gives is dropped.
    pub(super) fn polling(&self) -> Option<Polling> {
        self.subscribed.as_ref().map(|subscribed| subscribed.member.polling())
    }

    /// Whether it reads what a group gives it.
    pub(super) fn is_subscribed(&self) -> bool {
        self.subscribed.is_some()
    }
}
