//! Transactions against the same broker, which is the coordinator too: what is committed is what the producer says it is.

use std::collections::HashSet;
use std::time::Duration;

use fastrand::Rng;
use milena_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use milena_protocol::messages::api_versions_response::FinalizedFeatureKey;
use milena_protocol::messages::find_coordinator_response::Coordinator as Found;
use milena_protocol::messages::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, ApiVersionsResponse, EndTxnRequest, EndTxnResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, InitProducerIdResponse,
};
use milena_protocol::{ApiKey, ErrorCode};
use milena_records::Batch;

use super::{FakeBroker, Fate, PARTITIONS, TOPIC, client, versions};
use crate::test_peer::{Came, Peer};
use crate::{Error, Producer, Record};

/// The one producer's state, and what became of its records.
#[derive(Debug, Default)]
pub(super) struct Coordinator {
    version_2: bool,
    epoch: i16,
    open: bool,
    /// How the last one ended.
    committed_last: Option<bool>,
    added: HashSet<i32>,
    pub(super) pending: Vec<u32>,
    committed: Vec<u32>,
}

impl Coordinator {
    /// Whether a batch may be appended.
    pub(super) fn check(&mut self, partition: i32, batch: &Batch<'_>) -> Result<(), ErrorCode> {
        assert!(batch.is_transactional());
        if batch.producer_epoch() != self.epoch {
            return Err(ErrorCode::INVALID_PRODUCER_EPOCH);
        }
        if self.version_2 {
            self.open = true;
            return Ok(());
        }
        assert!(self.open && self.added.contains(&partition), "partition {partition} is not a part of a transaction");
        Ok(())
    }

    fn finish(&mut self, commit: bool) {
        let pending = std::mem::take(&mut self.pending);
        if commit {
            self.committed.extend(pending);
        }
        (self.open, self.committed_last) = (false, Some(commit));
        self.added.clear();
    }

    fn end(&mut self, request: &EndTxnRequest<'_>) -> EndTxnResponse {
        let told = |error_code, epoch| EndTxnResponse {
            error_code,
            producer_id: if epoch < 0 { -1 } else { 7 },
            producer_epoch: epoch,
            ..Default::default()
        };
        let again = !self.open && self.committed_last == Some(request.committed);
        let before = if self.version_2 { self.epoch - 1 } else { self.epoch };
        if again && request.producer_epoch == before {
            return told(0, if self.version_2 { self.epoch } else { -1 });
        }
        if request.producer_epoch != self.epoch {
            return told(ErrorCode::PRODUCER_FENCED.0, -1);
        }
        if !self.open && (request.committed || !self.version_2) {
            return told(ErrorCode::INVALID_TXN_STATE.0, -1);
        }
        self.finish(request.committed);
        if self.version_2 {
            self.epoch += 1;
        }
        told(0, if self.version_2 { self.epoch } else { -1 })
    }
}

impl FakeBroker {
    /// Does what is asked other than to produce; `false` ends the connection.
    pub(super) async fn coordinate(&self, id: i32, came: &Came, peer: &mut Peer) -> bool {
        let fate = match came.api {
            ApiKey::API_VERSIONS | ApiKey::METADATA | ApiKey::FIND_COORDINATOR => Fate::Sound,
            _ => self.fate(),
        };
        if fate == Fate::LostBefore {
            return false;
        }
        let refused = matches!(fate, Fate::Refused(_) | Fate::Moved).then_some(ErrorCode::CONCURRENT_TRANSACTIONS);
        let code = refused.map_or(0, |code| code.0);
        let lost = fate == Fate::LostAfter;
        match came.api {
            ApiKey::API_VERSIONS => peer.answer(came.id, came.version, &self.features()).await,
            ApiKey::METADATA => peer.answer(came.id, came.version, &self.metadata()).await,
            ApiKey::FIND_COORDINATOR => peer.answer(came.id, came.version, &found(came, id)).await,
            ApiKey::INIT_PRODUCER_ID => {
                let epoch = self.init(refused.is_none());
                let response = InitProducerIdResponse {
                    error_code: code,
                    producer_id: 7,
                    producer_epoch: epoch,
                    ..Default::default()
                };
                if !lost {
                    peer.answer(came.id, came.version, &response).await;
                }
            }
            ApiKey::ADD_PARTITIONS_TO_TXN => {
                let response = self.add(came, code);
                if !lost {
                    peer.answer(came.id, came.version, &response).await;
                }
            }
            ApiKey::END_TXN => {
                let request: EndTxnRequest<'_> = came.body();
                let response = match refused {
                    Some(code) => EndTxnResponse { error_code: code.0, ..Default::default() },
                    None => self.0.lock().coordinator.as_mut().unwrap().end(&request),
                };
                if !lost {
                    peer.answer(came.id, came.version, &response).await;
                }
            }
            other => panic!("{other} is not served"),
        }
        !lost
    }

    fn features(&self) -> ApiVersionsResponse<'static> {
        let level = if self.0.lock().coordinator.as_ref().unwrap().version_2 { 2 } else { 1 };
        let feature = FinalizedFeatureKey {
            name: "transaction.version".into(),
            max_version_level: level,
            min_version_level: level,
        };
        ApiVersionsResponse { finalized_features: vec![feature], ..versions() }
    }

    /// A new epoch, with which a transaction that is under way is aborted.
    fn init(&self, sound: bool) -> i16 {
        let mut state = self.0.lock();
        let coordinator = state.coordinator.as_mut().unwrap();
        if sound {
            coordinator.finish(false);
            (coordinator.committed_last, coordinator.epoch) = (None, coordinator.epoch + 1);
        }
        coordinator.epoch
    }

    fn add(&self, came: &Came, error_code: i16) -> AddPartitionsToTxnResponse<'static> {
        let request: AddPartitionsToTxnRequest<'_> = came.body();
        let mut state = self.0.lock();
        let coordinator = state.coordinator.as_mut().unwrap();
        assert!(!coordinator.version_2);
        assert_eq!(request.v3_and_below_producer_epoch, coordinator.epoch);
        let partitions = request.v3_and_below_topics.iter().flat_map(|topic| topic.partitions.iter().copied());
        let results = partitions.map(|partition_index| {
            if error_code == 0 {
                coordinator.open = true;
                coordinator.added.insert(partition_index);
            }
            AddPartitionsToTxnPartitionResult { partition_index, partition_error_code: error_code }
        });
        let results_by_partition = results.collect();
        let topic = AddPartitionsToTxnTopicResult { name: TOPIC.into(), results_by_partition };
        AddPartitionsToTxnResponse { results_by_topic_v3_and_below: vec![topic], ..Default::default() }
    }
}

fn found(came: &Came, id: i32) -> FindCoordinatorResponse<'static> {
    let request: FindCoordinatorRequest<'_> = came.body();
    let key = request.coordinator_keys[0].to_string().into();
    let found = Found { key, node_id: id, host: "pipe".into(), port: id, ..Default::default() };
    FindCoordinatorResponse { coordinators: vec![found], ..Default::default() }
}

/// One transaction with the numbers given; whether the producer says that it is committed.
async fn transact(producer: &Producer, numbers: std::ops::Range<u32>, random: &mut Rng) -> bool {
    let transaction = producer.begin().await.unwrap();
    for number in numbers {
        let value = number.to_string();
        let record = Record::to(TOPIC).partition(random.i32(0..PARTITIONS)).value(&value);
        match transaction.send(&record).await {
            Ok(_) | Err(Error::Transaction { fatal: false, .. }) => {}
            Err(error) => panic!("{error}"),
        }
        if random.u32(..5) == 0 {
            tokio::time::sleep(Duration::from_millis(random.u64(..20))).await;
        }
    }
    match random.u32(..6) {
        0 => drop(transaction),
        1 => transaction.abort().await.unwrap(),
        _ => match transaction.commit().await {
            Ok(()) => return true,
            Err(Error::Transaction { fatal: false, .. }) => {}
            Err(error) => panic!("{error}"),
        },
    }
    false
}

async fn run(seed: u64, version_2: bool) {
    let broker = FakeBroker::new(seed, seed as u32 % 40, usize::MAX);
    broker.0.lock().coordinator = Some(Coordinator { version_2, ..Default::default() });
    // What is refused for good makes transactions fail.
    broker.0.lock().harsh = true;
    let builder = client(&broker).producer().transactional_id("id").batch_size(100);
    let producer = builder.build().unwrap();
    let mut random = Rng::with_seed(seed);
    let mut expected = Vec::new();
    for round in 0..20 {
        let numbers = round * 10..round * 10 + random.u32(..10);
        if transact(&producer, numbers.clone(), &mut random).await {
            expected.extend(numbers);
        }
    }
    producer.close(Duration::from_secs(60)).await;
    let mut committed = broker.0.lock().coordinator.as_ref().unwrap().committed.clone();
    committed.sort_unstable();
    assert_eq!(committed, expected, "seed {seed}");
    assert!(!committed.is_empty(), "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn what_is_committed_is_what_the_producer_says_whatever_goes_wrong() {
    for seed in 0..40 * milena_testkit::rounds() {
        run(seed, true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn so_it_is_with_transactions_of_version_1() {
    for seed in 0..40 * milena_testkit::rounds() {
        run(seed, false).await;
    }
}
