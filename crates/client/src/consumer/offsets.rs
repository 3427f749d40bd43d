//! Offsets, as a consumer's user asks for them and commits them.
//!
//! Commits are carried out one after the other, in the order in which they were asked for, by a task that is there only while
//! there is something to commit, and no longer than the consumer.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use milena_protocol::ErrorCode;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout_at};
use tracing::Instrument;

use super::config::ConsumerConfig;
use super::group::Identity;
use super::partitions::Partitions;
use super::{Consumer, commit};
use crate::admin::{CommittedOffset, ListedOffset, OffsetSpec, Outcomes};
use crate::client::Client;
use crate::error::Error;
use crate::producer::GroupMetadata;
use crate::topic_partition::TopicPartition;

pub(super) type Offsets = Vec<(TopicPartition, CommittedOffset)>;

/// How often a member tries to commit while its generation or epoch changes.
const NAME_TRIES: u32 = 10;
/// What a member is told whose generation or epoch is that of a moment ago, or of the next moment.
const NOT_IN_THIS_NAME: [ErrorCode; 3] =
    [ErrorCode::STALE_MEMBER_EPOCH, ErrorCode::ILLEGAL_GENERATION, ErrorCode::REBALANCE_IN_PROGRESS];

/// Waits for the end of a commit, which does not depend on it.
#[derive(Debug)]
pub struct Commit(oneshot::Receiver<Result<(), Error>>);

impl Future for Commit {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|ended| ended.unwrap_or(Err(Error::Closed)))
    }
}

/// In whose name offsets are committed.
#[derive(Debug, Clone)]
pub(super) struct Name {
    group: Arc<str>,
    member: Option<Identity>,
}

impl Name {
    fn metadata(&self) -> GroupMetadata {
        self.member.as_ref().map_or_else(|| GroupMetadata::of(&*self.group), Identity::metadata)
    }

    fn losses(&self) -> u64 {
        self.member.as_ref().map_or(0, Identity::losses)
    }
}

/// A commit that was asked for.
struct Job {
    name: Name,
    /// Who that was then, and how often it had lost its partitions: what it had may be another's when the commit's turn comes.
    group: GroupMetadata,
    losses: u64,
    offsets: Offsets,
    ended: oneshot::Sender<Result<(), Error>>,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    /// There is a task that carries them out.
    is_running: bool,
}

/// The commits of a consumer with a group.
pub(super) struct GroupOffsets {
    client: Client,
    group: Arc<str>,
    /// Who commits, while the consumer is a member.
    pub(super) member: Option<Identity>,
    jobs: Arc<Mutex<Jobs>>,
    task: Mutex<Option<JoinHandle<()>>>,
    auto: Option<AutoCommit>,
}

/// Commits that nobody asks for.
struct AutoCommit {
    interval: Duration,
    due: Pin<Box<Sleep>>,
    /// What the last of them committed, and its end if that is not known yet.
    committed: HashMap<TopicPartition, i64>,
    under_way: Option<Commit>,
}

impl Drop for GroupOffsets {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

impl GroupOffsets {
    pub(super) fn new(client: Client, group: &str, config: &ConsumerConfig) -> Self {
        let interval = config.auto_commit_interval;
        let auto = config.auto_commit.then(|| AutoCommit {
            interval,
            due: Box::pin(sleep_until(Instant::now() + interval)),
            committed: HashMap::new(),
            under_way: None,
        });
        let (jobs, task) = (Arc::default(), Mutex::default());
        Self { client, group: group.into(), member: None, jobs, task, auto }
    }

    pub(super) fn name(&self) -> Name {
        Name { group: Arc::clone(&self.group), member: self.member.clone() }
    }

    /// Begins to commit, after all that was asked for before.
    pub(super) fn begin(&self, offsets: Offsets) -> Commit {
        self.begin_as(self.name(), offsets)
    }

    /// Begins to commit in this name.
    pub(super) fn begin_as(&self, name: Name, offsets: Offsets) -> Commit {
        let (ended, commit) = oneshot::channel();
        let (losses, group) = (name.losses(), name.metadata());
        let mut jobs = self.jobs.lock();
        jobs.waiting.push_back(Job { name, group, losses, offsets, ended });
        if !jobs.is_running {
            jobs.is_running = true;
            let span = tracing::debug_span!("commit", group = &*self.group);
            let work = carry_out(self.client.clone(), Arc::clone(&self.jobs)).instrument(span);
            *self.task.lock() = Some(tokio::spawn(work));
        }
        Commit(commit)
    }

    /// Commits, and tries again as long as that can help and time allows.
    async fn commit(&self, offsets: &Offsets, within: Duration) -> Result<(), Error> {
        self.client.patiently("a commit", within, || self.begin(offsets.clone())).await
    }

    /// Commits what was received, if it is time to.
    pub(super) fn poll(&mut self, partitions: &Partitions, cx: &mut Context<'_>) {
        let Some(mut auto) = self.auto.take() else { return };
        if let Some(commit) = &mut auto.under_way
            && let Poll::Ready(ended) = Pin::new(commit).poll(cx)
        {
            auto.under_way = None;
            if let Err(error) = ended {
                tracing::warn!(group = &*self.group, %error, "offsets were not committed");
                auto.committed.clear();
            }
        }
        while auto.due.as_mut().poll(cx).is_ready() {
            auto.due.as_mut().reset(Instant::now() + auto.interval);
            if auto.under_way.is_some() {
                continue;
            }
            let mut offsets = received(partitions);
            offsets.retain(|(partition, offset)| auto.committed.get(partition) != Some(&offset.offset));
            if !offsets.is_empty() {
                let known = offsets.iter().map(|(partition, offset)| (partition.clone(), offset.offset));
                auto.committed.extend(known);
                auto.under_way = Some(self.begin(offsets));
            }
        }
        self.auto = Some(auto);
    }

    /// Commits what was received, if that is not left to the consumer's user, and waits for all that is under way.
    pub(super) async fn close(&self, partitions: &Partitions, until: Instant) -> Result<(), Error> {
        let offsets = if self.auto.is_some() { received(partitions) } else { Vec::new() };
        let within = until.saturating_duration_since(Instant::now());
        let late = || Error::timeout("the last commit", within, None);
        timeout_at(until, self.commit(&offsets, within)).await.unwrap_or_else(|_| Err(late()))
    }
}

/// Carries out all commits that wait.
async fn carry_out(client: Client, jobs: Arc<Mutex<Jobs>>) {
    loop {
        let next = {
            let mut jobs = jobs.lock();
            let next = jobs.waiting.pop_front();
            jobs.is_running = next.is_some();
            next
        };
        let Some(job) = next else { return };
        let committed = job.carry_out(&client).await;
        tracing::debug!(partitions = job.offsets.len(), ok = committed.is_ok(), "committed");
        // Who does not wait for it any more does not hear of it.
        let _ = job.ended.send(committed);
    }
}

impl Job {
    /// Commits once. A member learns what its group thinks of it; where the group is only being divided anew, and the member
    /// has lost nothing, it tries as who it is by then. What it was to give up in between waits for this commit.
    async fn carry_out(&self, client: &Client) -> Result<(), Error> {
        let mut group = self.group.clone();
        for tries in 1.. {
            // A group that is empty by now would take it from who is no member.
            if self.name.member.is_some() && group.generation < 0 && !self.offsets.is_empty() {
                return Err(ErrorCode::UNKNOWN_MEMBER_ID.into());
            }
            let committed = commit::commit(client, &group, &self.offsets).await;
            let code = committed.as_ref().err().and_then(Error::code);
            let (Some(member), Some(code)) = (&self.name.member, code) else { return committed };
            member.refused(code, &group);
            if !NOT_IN_THIS_NAME.contains(&code) || tries >= NAME_TRIES {
                return committed;
            }
            sleep(client.config().retry_backoff.after(tries)).await;
            group = self.name.metadata();
            if self.name.losses() != self.losses {
                return committed;
            }
        }
        unreachable!("the loop ends by returning")
    }
}

/// Where the consumer is in each partition, unless that has to be found out.
fn received(partitions: &Partitions) -> Offsets {
    let positioned = partitions.assigned().filter(|(_, partition)| partition.position.offset >= 0);
    let offset = |(_, partition): (_, &super::partitions::Partition)| {
        let (offset, leader_epoch) = (partition.position.offset, partition.position.leader_epoch);
        (partition.name.clone(), CommittedOffset { offset, leader_epoch, metadata: String::new() })
    };
    positioned.map(offset).collect()
}

impl Consumer {
    fn group(&self) -> Result<&GroupOffsets, Error> {
        let none = || Error::config("group.id", "is needed for committed offsets");
        self.group.as_ref().ok_or_else(none)
    }

    /// The group that offsets are committed for, and who in it asks; for [`Transaction::send_offsets`](crate::Transaction::send_offsets).
    ///
    /// # Errors
    /// [`Error::Config`] without a `group.id`.
    pub fn group_metadata(&self) -> Result<GroupMetadata, Error> {
        Ok(self.group()?.name().metadata())
    }

    /// Where the consumer is in each partition that it has a position in: what [`commit_sync`](Self::commit_sync) commits.
    pub fn positions(&self) -> Vec<(TopicPartition, CommittedOffset)> {
        received(&self.fetcher.partitions)
    }

    /// Commits all that was received, and waits until that is done. It is tried again as long as that can help, within
    /// `default.api.timeout.ms`.
    ///
    /// # Errors
    /// When the group's coordinator does not answer, or refuses.
    pub async fn commit_sync(&mut self) -> Result<(), Error> {
        let offsets = self.positions();
        self.commit_offsets(&offsets).await
    }

    /// Commits these offsets, each that of the next record to be read, as [`commit_sync`](Self::commit_sync) does.
    ///
    /// # Errors
    /// As [`commit_sync`](Self::commit_sync).
    pub async fn commit_offsets(&mut self, offsets: &[(TopicPartition, CommittedOffset)]) -> Result<(), Error> {
        self.group()?.commit(&offsets.to_vec(), self.client.config().api_timeout).await
    }

    /// Begins to commit all that was received, and tells how it ended to whoever waits for it. It is tried once: a later commit
    /// will have it too.
    ///
    /// # Errors
    /// [`Error::Config`] without a `group.id`.
    pub fn commit_async(&mut self) -> Result<Commit, Error> {
        Ok(self.group()?.begin(self.positions()))
    }

    /// What the group has committed for partitions; `None` where there is nothing.
    ///
    /// # Errors
    /// When the group's coordinator does not answer, or refuses.
    pub async fn committed(
        &mut self,
        partitions: &[TopicPartition],
    ) -> Result<Vec<(TopicPartition, Option<CommittedOffset>)>, Error> {
        let group = self.group()?;
        let (client, metadata) = (&self.client, &GroupMetadata::of(&*group.group));
        let ask = || async move {
            let outcomes = commit::fetch(client, metadata, partitions).await?;
            outcomes.into_iter().map(|(partition, outcome)| Ok((partition, outcome?))).collect()
        };
        client.patiently("OffsetFetch", client.config().api_timeout, ask).await
    }

    /// The first offset of each partition.
    pub async fn beginning_offsets(&mut self, partitions: &[TopicPartition]) -> Outcomes<TopicPartition, i64> {
        self.offsets_at(partitions, OffsetSpec::Earliest).await
    }

    /// The offset that follows the last record of each partition that this consumer could receive.
    pub async fn end_offsets(&mut self, partitions: &[TopicPartition]) -> Outcomes<TopicPartition, i64> {
        self.offsets_at(partitions, OffsetSpec::Latest).await
    }

    /// The first record of each partition whose time is this or later, ms since 1970.
    pub async fn offsets_for_times(
        &mut self,
        times: &[(TopicPartition, i64)],
    ) -> Outcomes<TopicPartition, ListedOffset> {
        let asked = times.iter().map(|(partition, time)| (partition.clone(), OffsetSpec::Timestamp(*time)));
        self.list(asked.collect()).await
    }

    async fn offsets_at(&mut self, partitions: &[TopicPartition], spec: OffsetSpec) -> Outcomes<TopicPartition, i64> {
        let listed = self.list(partitions.iter().map(|partition| (partition.clone(), spec)).collect()).await;
        let offset = |listed: ListedOffset| listed.offset.unwrap_or(0);
        listed.into_iter().map(|(partition, listed)| (partition, listed.map(offset))).collect()
    }

    async fn list(&mut self, asked: Vec<(TopicPartition, OffsetSpec)>) -> Outcomes<TopicPartition, ListedOffset> {
        self.client.admin().list_offsets_seen(asked, self.config.isolation.code()).await
    }
}
