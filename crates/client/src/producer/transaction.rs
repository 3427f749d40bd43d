//! Transactions: the guard that callers hold, and what they share with the sender, which does the work. So a transaction comes
//! to its end whatever happens to the futures of its holder.

use milena_protocol::ErrorCode;
use milena_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use milena_protocol::messages::{AddOffsetsToTxnRequest, TxnOffsetCommitRequest};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Producer;
use super::delivery::Delivery;
use super::record::Record;
use super::sequences::Identity;
use crate::admin::{self, CommittedOffset};
use crate::call::Target;
use crate::coordinators::CoordinatorKind;
use crate::error::{Error, check};
use crate::topic_partition::TopicPartition;

/// Last version of TxnOffsetCommit in which the group's partition must have been added to the transaction before.
const OFFSETS_ADDED_BEFORE: i16 = 4;
/// Last version of TxnOffsetCommit with topic names.
const OFFSETS_BY_NAME: i16 = 5;

/// Where a transaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing was begun yet.
    New,
    /// The producer has no id yet, or needs a new epoch.
    Starting,
    /// A transaction can begin.
    Ready,
    /// One is under way.
    Open,
    /// It is to be committed, or aborted.
    Ending { commit: bool },
}

/// What the holder of a transaction and the sender share.
#[derive(Debug)]
pub(super) struct Transactions {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug)]
struct Inner {
    phase: Phase,
    /// Who the producer is, and whether the cluster has transactions of version 2 (KIP-890).
    identity: Option<(Identity, bool)>,
    /// Whether the coordinator has, or may have, a transaction under way.
    started: bool,
    /// Why the transaction can't be committed.
    failed: Option<Error>,
    /// Why there can't be any more.
    fatal: Option<Error>,
    /// How the last one ended, until somebody has heard of it.
    ended: Option<Result<(), Error>>,
}

impl Transactions {
    pub(super) fn new() -> Self {
        let inner = Inner { phase: Phase::New, identity: None, started: false, failed: None, fatal: None, ended: None };
        Self { inner: Mutex::new(inner), changed: Notify::new() }
    }

    pub(super) fn phase(&self) -> Phase {
        self.inner.lock().phase
    }

    /// The producer has an id and an epoch.
    pub(super) fn identified(&self, identity: Identity, version_2: bool) {
        let mut inner = self.inner.lock();
        inner.identity = Some((identity, version_2));
        if inner.phase == Phase::Starting {
            inner.phase = Phase::Ready;
        }
        drop(inner);
        self.changed.notify_waiters();
    }

    pub(super) fn is_version_2(&self) -> bool {
        self.inner.lock().identity.is_some_and(|(_, version_2)| version_2)
    }

    /// From here on the coordinator may have a transaction under way.
    pub(super) fn start(&self) {
        self.inner.lock().started = true;
    }

    pub(super) fn is_started(&self) -> bool {
        self.inner.lock().started
    }

    /// The transaction can't be committed any more.
    pub(super) fn fail(&self, error: &Error) {
        let mut inner = self.inner.lock();
        if matches!(inner.phase, Phase::Open | Phase::Ending { commit: true }) {
            inner.failed.get_or_insert_with(|| error.clone());
        }
    }

    /// There can't be any more transactions.
    pub(super) fn fail_for_ever(&self, error: &Error) {
        let mut inner = self.inner.lock();
        let fatal =
            inner.fatal.get_or_insert_with(|| Error::Transaction { fatal: true, cause: Box::new(error.clone()) });
        let fatal = fatal.clone();
        if matches!(inner.phase, Phase::Ending { .. }) {
            inner.phase = Phase::Starting;
            inner.ended = Some(Err(fatal));
        }
        drop(inner);
        self.changed.notify_waiters();
    }

    /// Why the transaction can't be committed.
    pub(super) fn failure(&self) -> Option<Error> {
        let inner = self.inner.lock();
        let abortable = inner.failed.clone().map(|cause| Error::Transaction { fatal: false, cause: Box::new(cause) });
        inner.fatal.clone().or(abortable)
    }

    /// The next transaction has this identity.
    pub(super) fn goes_on_as(&self, identity: Identity) {
        if let Some((before, _)) = &mut self.inner.lock().identity {
            *before = identity;
        }
    }

    /// The transaction is over; `ready` says whether the next can begin as it is.
    pub(super) fn ended(&self, ready: bool) {
        let failure = self.failure();
        let mut inner = self.inner.lock();
        let asked = inner.phase == Phase::Ending { commit: true };
        inner.ended = Some(failure.filter(|_| asked).map_or(Ok(()), Err));
        inner.phase = if ready { Phase::Ready } else { Phase::Starting };
        (inner.failed, inner.started) = (None, false);
        drop(inner);
        self.changed.notify_waiters();
    }

    /// Whether the transaction was open and now is to end.
    fn end(&self, commit: bool) -> bool {
        let mut inner = self.inner.lock();
        let open = inner.phase == Phase::Open;
        if open {
            inner.phase = Phase::Ending { commit };
            inner.ended = None;
        }
        open
    }

    /// Waits for what `look` finds.
    async fn wait_for<T>(&self, mut look: impl FnMut(&mut Inner) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(found) = look(&mut self.inner.lock()) {
                return found;
            }
            changed.await;
        }
    }

    async fn end_of_last(&self) -> Result<(), Error> {
        self.wait_for(|inner| inner.ended.take().or_else(|| inner.fatal.clone().map(Err))).await
    }

    /// Whether this is the first transaction to begin, for which the sender has to get an id.
    fn is_first(&self) -> bool {
        let mut inner = self.inner.lock();
        let first = inner.phase == Phase::New;
        if first {
            inner.phase = Phase::Starting;
        }
        first
    }

    async fn begin(&self) -> Result<(), Error> {
        let begun = self.wait_for(|inner| {
            if let Some(fatal) = &inner.fatal {
                return Some(Err(fatal.clone()));
            }
            (inner.phase == Phase::Ready).then(|| {
                inner.phase = Phase::Open;
                Ok(())
            })
        });
        begun.await
    }
}

/// The group that offsets are committed for in a transaction, and who in it asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMetadata {
    /// `group.id`.
    pub group: String,
    /// Generation, or epoch of the member; -1 without membership.
    pub generation: i32,
    /// The member's id; empty without membership.
    pub member: String,
    /// `group.instance.id`.
    pub instance: Option<String>,
}

impl GroupMetadata {
    /// A group that is used without being a member.
    pub fn of(group: impl Into<String>) -> Self {
        Self { group: group.into(), generation: -1, member: String::new(), instance: None }
    }
}

/// A transaction under way; see [`Producer::begin`]. It is aborted when it is dropped.
#[derive(Debug)]
#[must_use = "a transaction that is dropped is aborted"]
pub struct Transaction(Producer);

impl Drop for Transaction {
    fn drop(&mut self) {
        self.0.end_transaction(false);
    }
}

impl Transaction {
    pub(super) async fn begin(producer: &Producer) -> Result<Self, Error> {
        let transactions = producer.transactions()?;
        if transactions.is_first() {
            producer.wake_sender();
        }
        transactions.begin().await?;
        Ok(Self(producer.clone()))
    }

    /// Sends a record as a part of the transaction; as [`Producer::send`].
    ///
    /// # Errors
    /// As there, and [`Error::Transaction`] when the transaction can't be committed any more.
    pub async fn send(&self, record: &Record<'_>) -> Result<Delivery, Error> {
        if let Some(failure) = self.0.transactions()?.failure() {
            return Err(failure);
        }
        self.0.send_any(record).await
    }

    /// Commits offsets of a group as a part of the transaction, each that of the next record to read.
    ///
    /// ```no_run
    /// # use milena_client::{Consumer, Error, Producer, Record};
    /// # async fn example(consumer: &mut Consumer, producer: &Producer) -> Result<(), Error> {
    /// let records = consumer.recv().await?;
    /// let transaction = producer.begin().await?;
    /// for record in &records {
    ///     transaction.send(&Record::to("doubled").value(record.value.unwrap_or_default())).await?;
    /// }
    /// transaction.send_offsets(&consumer.positions(), &consumer.group_metadata()?).await?;
    /// transaction.commit().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Transaction`]; the transaction can't be committed then.
    pub async fn send_offsets(
        &self,
        offsets: &[(TopicPartition, CommittedOffset)],
        group: &GroupMetadata,
    ) -> Result<(), Error> {
        let transactions = self.0.transactions()?;
        if let Some(failure) = transactions.failure() {
            return Err(failure);
        }
        transactions.start();
        if let Err(error) = self.try_send_offsets(offsets, group).await {
            if is_fatal(&error) {
                transactions.fail_for_ever(&error);
            } else {
                transactions.fail(&error);
            }
            return Err(transactions.failure().unwrap_or(error));
        }
        Ok(())
    }

    async fn try_send_offsets(
        &self,
        offsets: &[(TopicPartition, CommittedOffset)],
        group: &GroupMetadata,
    ) -> Result<(), Error> {
        let (client, transactional_id) = (self.0.client(), self.0.transactional_id());
        let identity = self.0.transactions()?.inner.lock().identity;
        let (identity, version_2) = identity.ok_or(Error::Closed)?;
        if !version_2 {
            let request = AddOffsetsToTxnRequest {
                transactional_id: transactional_id.into(),
                producer_id: identity.id,
                producer_epoch: identity.epoch,
                group_id: group.group.as_str().into(),
            };
            let target = Target::Coordinator(CoordinatorKind::Transaction, transactional_id);
            client.call(target, &request).read(|response| check(response.error_code, None)).await?;
        }
        let request = TxnOffsetCommitRequest {
            transactional_id: transactional_id.into(),
            group_id: group.group.as_str().into(),
            producer_id: identity.id,
            producer_epoch: identity.epoch,
            generation_id_or_member_epoch: group.generation,
            member_id: group.member.as_str().into(),
            group_instance_id: group.instance.as_deref().map(Into::into),
            topics: by_topic(offsets),
        };
        let versions = if version_2 { OFFSETS_ADDED_BEFORE + 1..=OFFSETS_BY_NAME } else { 0..=OFFSETS_ADDED_BEFORE };
        let target = Target::Coordinator(CoordinatorKind::Group, &group.group);
        let commit = client.call(target, &request).versions(versions).read(|response| {
            let mut partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
            partitions.try_for_each(|partition| check(partition.error_code, None))
        });
        commit.await
    }

    /// Waits until all records are written, and commits the transaction. It goes on to its end when this future is dropped.
    ///
    /// # Errors
    /// [`Error::Transaction`]: nothing of it is committed, it is aborted instead.
    pub async fn commit(self) -> Result<(), Error> {
        self.0.end_transaction(true);
        self.0.transactions()?.end_of_last().await
    }

    /// Aborts the transaction and waits until that is done.
    ///
    /// # Errors
    /// [`Error::Transaction`] when the producer can't go on.
    pub async fn abort(self) -> Result<(), Error> {
        self.0.end_transaction(false);
        self.0.transactions()?.end_of_last().await
    }
}

impl Producer {
    fn end_transaction(&self, commit: bool) {
        if self.transactions().is_ok_and(|transactions| transactions.end(commit)) {
            self.wake_sender();
        }
    }
}

fn by_topic(offsets: &[(TopicPartition, CommittedOffset)]) -> Vec<TxnOffsetCommitRequestTopic<'_>> {
    let partition = |(partition_index, offset): (i32, &CommittedOffset)| TxnOffsetCommitRequestPartition {
        partition_index,
        committed_offset: offset.offset,
        committed_leader_epoch: offset.leader_epoch.unwrap_or(-1),
        committed_metadata: Some(offset.metadata.clone().into()),
    };
    let topics = admin::by_topic(offsets.iter().map(|(partition, offset)| (partition, offset)));
    let topic = |(name, partitions): (&str, Vec<_>)| TxnOffsetCommitRequestTopic {
        name: name.to_owned().into(),
        partitions: partitions.into_iter().map(partition).collect(),
        ..Default::default()
    };
    topics.into_iter().map(topic).collect()
}

/// Whether a producer with this error can't have any more transactions.
pub(super) fn is_fatal(error: &Error) -> bool {
    match error {
        Error::Broker { code, .. } => matches!(
            *code,
            ErrorCode::PRODUCER_FENCED
                | ErrorCode::INVALID_PRODUCER_EPOCH
                | ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
                | ErrorCode::INVALID_TXN_STATE
                | ErrorCode::INVALID_TRANSACTION_TIMEOUT
                | ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT
        ),
        Error::UnsupportedVersion { .. } | Error::Closed => true,
        _ => false,
    }
}
