//! What the sender does for transactions: adds partitions to them where the client has to (version 1), and ends them when all
//! of their records have come to an end.

use std::collections::HashSet;
use std::sync::Arc;
use std::task::{Context, Poll};

use milena_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use milena_protocol::messages::{AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest};
use tokio::time::Instant;

use super::{Sender, Waiting};
use crate::call::Target;
use crate::client::Client;
use crate::coordinators::CoordinatorKind;
use crate::error::{Error, check};
use crate::producer::accumulator::Key;
use crate::producer::sequences::Identity;
use crate::producer::transaction::{Phase, Transactions, is_fatal};

/// The last version of AddPartitionsToTxn that clients send.
const ADD_BY_CLIENT: i16 = 3;
/// First version of EndTxn that begins a new epoch.
const END_WITH_EPOCH: i16 = 5;
/// First version of InitProducerId that takes the epoch to go on from.
const INIT_WITH_EPOCH: i16 = 3;
/// The feature whose level 2 lets partitions join a transaction by being written to.
const FEATURE: &str = "transaction.version";

/// Partitions that were to be added, and whether they were.
type Added = (Vec<Key>, Result<(), Error>);
/// The identity of the next transaction, where the coordinator gives one.
type Next = Result<Option<Identity>, Error>;

/// The sender's part of a transactional producer.
pub(super) struct Transactional {
    pub(super) shared: Arc<Transactions>,
    id: String,
    /// Partitions that are a part of the transaction.
    added: HashSet<Key>,
    to_add: HashSet<Key>,
    adding: Option<Waiting<Added>>,
    /// The request that ends it, and whether that commits.
    ending: Option<(bool, Waiting<Next>)>,
    /// Something failed, so that the epoch is of no more use once the transaction is aborted.
    needs_epoch: bool,
    /// The identity to go on from.
    before: Option<Identity>,
}

impl Transactional {
    pub(super) fn new(shared: Arc<Transactions>, id: String) -> Self {
        Self {
            shared,
            id,
            added: HashSet::new(),
            to_add: HashSet::new(),
            adding: None,
            ending: None,
            needs_epoch: false,
            before: None,
        }
    }

    /// Whether a batch of the partition may be sent; it is added to the transaction first where that is needed.
    pub(super) fn may_send(&mut self, key: Key) -> bool {
        if self.added.contains(&key) {
            return true;
        }
        if self.shared.is_version_2() {
            self.shared.start();
            return self.added.insert(key);
        }
        self.to_add.insert(key);
        false
    }

    /// Asks for the producer's id and next epoch; with that comes whether the cluster has version 2.
    pub(super) fn identify(&self, client: &Client, timeout_ms: i32) -> Waiting<Result<(Identity, bool), Error>> {
        let (client, id, before) = (client.clone(), self.id.clone(), self.before);
        Box::pin(async move {
            let target = Target::Coordinator(CoordinatorKind::Transaction, &id);
            let request = InitProducerIdRequest {
                transactional_id: Some(id.as_str().into()),
                transaction_timeout_ms: timeout_ms,
                producer_id: before.map_or(-1, |before| before.id),
                producer_epoch: before.map_or(-1, |before| before.epoch),
                ..Default::default()
            };
            let first = if before.is_some() { INIT_WITH_EPOCH } else { 0 };
            let identity = client.call(target, &request).versions(first..).read(|response| {
                check(response.error_code, None)?;
                Ok(Identity { id: response.producer_id, epoch: response.producer_epoch })
            });
            let identity = identity.await?;
            let version = client.connection(target).await?.versions().feature(FEATURE);
            Ok((identity, version >= 2))
        })
    }
}

impl Sender {
    /// Does what the transaction needs next.
    pub(super) fn go_on_with_transaction(&mut self, now: Instant) {
        let Some(transactional) = &mut self.transactional else { return };
        if transactional.adding.is_none() && !transactional.to_add.is_empty() {
            let keys: Vec<Key> = transactional.to_add.drain().collect();
            transactional.shared.start();
            let adding = self.add_partitions(keys);
            if let Some(transactional) = &mut self.transactional {
                transactional.adding = adding;
            }
        }
        let Some(transactional) = &self.transactional else { return };
        let Phase::Ending { commit } = transactional.shared.phase() else { return };
        if transactional.ending.is_some() {
            return;
        }
        let failure = transactional.shared.failure();
        if !commit || failure.is_some() {
            self.fail_unsent(&Error::Aborted);
        }
        let busy = self.transactional.as_ref().is_some_and(|transactional| transactional.adding.is_some());
        if busy || self.accumulator.has_unfinished() || !self.may_try(now) {
            return;
        }
        self.end(commit && failure.is_none());
    }

    fn add_partitions(&self, keys: Vec<Key>) -> Option<Waiting<Added>> {
        let transactional = self.transactional.as_ref()?;
        let identity = self.identity?;
        let (client, id) = (self.client.clone(), transactional.id.clone());
        let names: Vec<_> = keys.iter().map(|key| (Arc::clone(&self.accumulator.topic(key.0).name), key.1)).collect();
        Some(Box::pin(async move {
            let topic = |(name, partition): &(Arc<str>, i32)| AddPartitionsToTxnTopic {
                name: name.to_string().into(),
                partitions: vec![*partition].into(),
            };
            let request = AddPartitionsToTxnRequest {
                v3_and_below_transactional_id: id.as_str().into(),
                v3_and_below_producer_id: identity.id,
                v3_and_below_producer_epoch: identity.epoch,
                v3_and_below_topics: merged(names.iter().map(topic)),
                ..Default::default()
            };
            let target = Target::Coordinator(CoordinatorKind::Transaction, &id);
            let added = client.call(target, &request).versions(..=ADD_BY_CLIENT).read(|response| {
                let topics = response.results_by_topic_v3_and_below.iter();
                let mut partitions = topics.flat_map(|topic| &topic.results_by_partition);
                partitions.try_for_each(|partition| check(partition.partition_error_code, None))
            });
            let added = added.await;
            (keys, added)
        }))
    }

    /// Tells the coordinator, if it has to be told.
    fn end(&mut self, commit: bool) {
        let Some(transactional) = &mut self.transactional else { return };
        let identity = self.identity.filter(|_| transactional.shared.is_started());
        let Some(identity) = identity else { return self.ended(commit, Ok(None)) };
        let (client, id) = (self.client.clone(), transactional.id.clone());
        let version_2 = transactional.shared.is_version_2();
        let ending = async move {
            let request = EndTxnRequest {
                transactional_id: id.as_str().into(),
                producer_id: identity.id,
                producer_epoch: identity.epoch,
                committed: commit,
            };
            let versions = if version_2 { END_WITH_EPOCH..=i16::MAX } else { 0..=END_WITH_EPOCH - 1 };
            let target = Target::Coordinator(CoordinatorKind::Transaction, &id);
            let ended = client.call(target, &request).versions(versions).read(|response| {
                check(response.error_code, None)?;
                let next = Identity { id: response.producer_id, epoch: response.producer_epoch };
                Ok((next.id >= 0).then_some(next))
            });
            ended.await
        };
        transactional.ending = Some((commit, Box::pin(ending)));
    }

    /// The coordinator has answered, or did not have to be asked.
    fn ended(&mut self, commit: bool, ended: Next) {
        let Some(transactional) = &mut self.transactional else { return };
        match ended {
            Ok(next) => self.identity = next.or(self.identity),
            Err(error) if is_fatal(&error) => return self.fail_all(&error),
            // Asked again until it is known.
            Err(error) if error.is_retriable() => return self.back_off(),
            // Aborted next.
            Err(error) if commit => return transactional.shared.fail(&error),
            // The coordinator does not know the producer any more.
            Err(_) => self.identity = None,
        }
        (transactional.added, transactional.to_add) = (HashSet::new(), HashSet::new());
        if std::mem::take(&mut transactional.needs_epoch) && !transactional.shared.is_version_2() {
            transactional.before = self.identity.take();
        }
        if let Some(identity) = self.identity {
            transactional.shared.goes_on_as(identity);
        }
        transactional.shared.ended(self.identity.is_some());
    }

    /// Whether anything that the transaction waits for has happened.
    pub(super) fn poll_transaction(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(transactional) = &mut self.transactional else { return false };
        let mut happened = false;
        if let Some(adding) = &mut transactional.adding
            && let Poll::Ready((keys, added)) = adding.as_mut().poll(cx)
        {
            transactional.adding = None;
            happened = true;
            match added {
                Ok(()) => transactional.added.extend(keys),
                Err(error) => self.fail_transaction(&error, is_fatal(&error)),
            }
        }
        let Some(transactional) = &mut self.transactional else { return happened };
        if let Some((commit, ending)) = &mut transactional.ending
            && let Poll::Ready(ended) = ending.as_mut().poll(cx)
        {
            let commit = *commit;
            transactional.ending = None;
            happened = true;
            self.ended(commit, ended);
        }
        happened
    }

    /// The transaction can't be committed because of this; the producer may be of no more use.
    pub(super) fn fail_transaction(&mut self, error: &Error, fatal: bool) {
        let Some(transactional) = &mut self.transactional else { return };
        transactional.needs_epoch = true;
        if fatal {
            self.fail_all(error);
        } else {
            transactional.shared.fail(error);
        }
    }
}

/// Partitions of the same topic together.
fn merged<'a>(topics: impl Iterator<Item = AddPartitionsToTxnTopic<'a>>) -> Vec<AddPartitionsToTxnTopic<'a>> {
    let mut merged: Vec<AddPartitionsToTxnTopic<'a>> = Vec::new();
    for topic in topics {
        match merged.iter_mut().find(|other| other.name == topic.name) {
            Some(other) => other.partitions.to_mut().extend_from_slice(&topic.partitions),
            None => merged.push(topic),
        }
    }
    merged
}
