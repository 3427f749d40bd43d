//! The producer against a broker that loses connections and refuses requests by a seed, and that checks sequences as Apache
//! Kafka does: whatever goes wrong, its log has each record once and in order.

mod transactions;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use milena_protocol::messages::api_versions_response::ApiVersion;
use milena_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use milena_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use milena_protocol::messages::{
    ApiVersionsResponse, InitProducerIdResponse, MetadataResponse, ProduceRequest, ProduceResponse,
};
use milena_protocol::{ApiKey, ErrorCode, Structs, Uuid, apis};
use milena_records::{Batch, Decompressor};
use parking_lot::Mutex;
use tokio::io::duplex;
use tokio::time::Instant;

use crate::config::ClientConfig;
use crate::metrics::seen::Seen;
use crate::test_peer::{Came, Peer, quick};
use crate::transport::{Opening, Transport, Transports};
use crate::{Client, Compression, Partitioner, Record, Topic};

const PARTITIONS: i32 = 3;
const TOPIC: &str = "t";
/// Batches of a producer that a broker remembers.
const REMEMBERED: usize = 5;

/// A partition of the broker.
#[derive(Debug, Default)]
struct Log {
    values: Vec<u32>,
    epoch: i16,
    /// First sequence, next sequence and offset of the last batches.
    batches: VecDeque<(i32, i32, i64)>,
}

impl Log {
    /// As a leader does it: duplicates are told from gaps.
    fn append(&mut self, batch: &Batch<'_>, limit: usize) -> Result<i64, ErrorCode> {
        if batch.size() > limit {
            return Err(ErrorCode::MESSAGE_TOO_LARGE);
        }
        if batch.producer_epoch() < self.epoch {
            return Err(ErrorCode::INVALID_PRODUCER_EPOCH);
        }
        let (first, next) = (batch.base_sequence(), batch.last_sequence() + 1);
        if batch.producer_epoch() > self.epoch {
            self.batches.clear();
        }
        if let Some(known) = self.batches.iter().find(|known| (known.0, known.1) == (first, next)) {
            return Ok(known.2);
        }
        if first != self.batches.back().map_or(0, |last| last.1) {
            return Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
        }
        self.epoch = batch.producer_epoch();
        let offset = self.values.len() as i64;
        let mut decompressor = Decompressor::new(1 << 20);
        for record in batch.records(&mut decompressor).unwrap().map(Result::unwrap) {
            self.values.push(std::str::from_utf8(record.value.unwrap()).unwrap().parse().unwrap());
        }
        assert!(batch.has_producer_id(), "every batch is of an idempotent producer");
        self.batches.push_back((first, next, offset));
        if self.batches.len() > REMEMBERED {
            self.batches.pop_front();
        }
        Ok(offset)
    }
}

/// What the broker does to a request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    /// Nothing unusual.
    Sound,
    /// The connection ends before the request is looked at.
    LostBefore,
    /// The request is carried out, and the connection ends instead of an answer.
    LostAfter,
    /// Each of its partitions is refused with this code.
    Refused(ErrorCode),
    /// The partition has just got another leader.
    Moved,
}

/// How many brokers there are; they share their logs, and a partition is written to by way of its leader.
const BROKERS: i32 = 2;

#[derive(Debug)]
struct State {
    leaders: [i32; PARTITIONS as usize],
    logs: HashMap<i32, Log>,
    random: Rng,
    /// Requests in a hundred that go wrong.
    trouble: u32,
    limit: usize,
    /// Where there are transactions.
    coordinator: Option<transactions::Coordinator>,
    /// Now and then, a batch is refused for good.
    harsh: bool,
    /// What answers to Produce say, and when the requests came.
    throttle_time_ms: i32,
    came: Vec<Instant>,
}

impl State {
    fn append(&mut self, partition: i32, batch: &Batch<'_>, limit: usize) -> Result<i64, ErrorCode> {
        let log = self.logs.entry(partition).or_default();
        let Some(coordinator) = &mut self.coordinator else { return log.append(batch, limit) };
        coordinator.check(partition, batch)?;
        let before = log.values.len();
        let offset = log.append(batch, limit)?;
        coordinator.pending.extend_from_slice(&log.values[before..]);
        Ok(offset)
    }
}

/// A broker; each connection is served by a task of its own.
#[derive(Debug, Clone)]
struct FakeBroker(Arc<Mutex<State>>);

impl Transports for FakeBroker {
    fn open<'a>(&'a self, _: &'a str, port: u16, _: &'a ClientConfig) -> Opening<'a> {
        let (ours, theirs) = duplex(1 << 16);
        tokio::spawn(self.clone().serve(i32::from(port), Peer(theirs)));
        Box::pin(async move { io::Result::Ok(Box::new(ours) as Box<dyn Transport>) })
    }
}

impl FakeBroker {
    fn new(seed: u64, trouble: u32, limit: usize) -> Self {
        let state = State {
            leaders: [1; PARTITIONS as usize],
            logs: HashMap::new(),
            random: Rng::with_seed(seed),
            trouble,
            limit,
            coordinator: None,
            harsh: false,
            throttle_time_ms: 0,
            came: Vec::new(),
        };
        Self(Arc::new(Mutex::new(state)))
    }

    fn values(&self, partition: i32) -> Vec<u32> {
        self.0.lock().logs.get(&partition).map(|log| log.values.clone()).unwrap_or_default()
    }

    /// Serves a connection to the broker with this id, which is its port too.
    async fn serve(self, id: i32, mut peer: Peer) {
        while let Some(came) = peer.try_next().await {
            if came.api != ApiKey::PRODUCE && self.0.lock().coordinator.is_some() {
                if self.coordinate(id, &came, &mut peer).await {
                    continue;
                }
                return;
            }
            match came.api {
                ApiKey::API_VERSIONS => peer.answer(came.id, came.version, &versions()).await,
                ApiKey::METADATA => peer.answer(came.id, came.version, &self.metadata()).await,
                ApiKey::INIT_PRODUCER_ID => {
                    let response = InitProducerIdResponse { producer_id: 7, ..Default::default() };
                    peer.answer(came.id, came.version, &response).await;
                }
                ApiKey::PRODUCE => {
                    let fate = self.fate();
                    if fate == Fate::LostBefore {
                        return;
                    }
                    let response = self.produce(id, &came, fate);
                    if fate == Fate::LostAfter {
                        return;
                    }
                    peer.answer(came.id, came.version, &response).await;
                }
                other => panic!("{other} is not served"),
            }
        }
    }

    fn metadata(&self) -> MetadataResponse<'static> {
        metadata(&self.0.lock().leaders)
    }

    fn fate(&self) -> Fate {
        let mut state = self.0.lock();
        let trouble = state.trouble;
        if state.random.u32(..100) >= trouble {
            return Fate::Sound;
        }
        let harsh = state.harsh && state.random.u32(..8) == 0;
        match state.random.u32(..5) {
            _ if harsh => Fate::Refused(ErrorCode::INVALID_RECORD),
            0 => Fate::LostBefore,
            1 => Fate::LostAfter,
            2 => Fate::Moved,
            3 => Fate::Refused(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            _ => Fate::Refused(ErrorCode::NOT_ENOUGH_REPLICAS),
        }
    }

    fn produce(&self, id: i32, came: &Came, fate: Fate) -> ProduceResponse<'static> {
        let request: ProduceRequest<'_> = came.body();
        let mut state = self.0.lock();
        let limit = state.limit;
        state.came.push(Instant::now());
        let throttle_time_ms = state.throttle_time_ms;
        let topic = &request.topic_data[0];
        let partition_responses = topic.partition_data.iter().map(|partition| {
            let batch = Batch::parse(partition.records.as_ref().unwrap().bytes()).unwrap();
            batch.verify_crc().unwrap();
            let leader = &mut state.leaders[partition.index as usize];
            if fate == Fate::Moved {
                *leader = *leader % BROKERS + 1;
            }
            let appended = match fate {
                Fate::Refused(code) => Err(code),
                _ if *leader != id => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
                _ => state.append(partition.index, &batch, limit),
            };
            let error_code = appended.err().map_or(0, |code| code.0);
            PartitionProduceResponse {
                index: partition.index,
                error_code,
                base_offset: appended.unwrap_or(-1),
                ..Default::default()
            }
        });
        let partition_responses = partition_responses.collect();
        let answer = TopicProduceResponse { name: TOPIC.into(), topic_id: topic.topic_id, partition_responses };
        ProduceResponse { responses: vec![answer], throttle_time_ms, ..Default::default() }
    }
}

fn versions() -> ApiVersionsResponse<'static> {
    let api_keys =
        apis().map(|info| ApiVersion { api_key: info.key.0, min_version: info.min, max_version: info.stable_max() });
    ApiVersionsResponse { api_keys: api_keys.collect(), ..Default::default() }
}

fn metadata(leaders: &[i32]) -> MetadataResponse<'static> {
    let partition = |(partition_index, leader_id): (i32, &i32)| MetadataResponsePartition {
        partition_index,
        leader_id: *leader_id,
        ..Default::default()
    };
    let topic = MetadataResponseTopic {
        name: Some(TOPIC.into()),
        topic_id: Uuid::from_bytes([1; 16]),
        partitions: Structs::Items((0..).zip(leaders).map(partition).collect()),
        ..Default::default()
    };
    let broker = |id| MetadataResponseBroker { node_id: id, host: "pipe".into(), port: id, ..Default::default() };
    MetadataResponse {
        brokers: (1..=BROKERS).map(broker).collect(),
        topics: vec![topic],
        controller_id: 1,
        ..Default::default()
    }
}

fn client(broker: &FakeBroker) -> Client {
    quick().build_over(Arc::new(broker.clone())).unwrap()
}

/// Sends numbers to the partitions in turn, with pauses by the seed; the offsets that were told.
async fn send_numbers(broker: &FakeBroker, seed: u64, count: u32, codec: Compression) {
    let mut random = Rng::with_seed(seed);
    let producer = client(broker).producer().batch_size(200).compression(codec).build().unwrap();
    let mut sent = Vec::new();
    for number in 0..count {
        let partition = random.i32(0..PARTITIONS);
        let value = number.to_string();
        let record = Record::to(TOPIC).partition(partition).value(&value);
        sent.push((number, producer.send(&record).await.unwrap()));
        if random.u32(..20) == 0 {
            tokio::time::sleep(Duration::from_millis(random.u64(..10))).await;
        }
    }
    producer.flush().await;
    let mut told = 0;
    for (number, delivery) in sent {
        let written = delivery.await.unwrap();
        let values = broker.values(written.partition);
        if let Some(offset) = written.offset {
            assert_eq!(values[offset as usize], number, "seed {seed}");
            told += 1;
        }
    }
    assert_eq!(told, count, "seed {seed}");
    let mut all = Vec::new();
    for partition in 0..PARTITIONS {
        let values = broker.values(partition);
        assert!(values.is_sorted(), "seed {seed}: partition {partition} is out of order: {values:?}");
        all.extend(values);
    }
    all.sort_unstable();
    assert_eq!(all, (0..count).collect::<Vec<_>>(), "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn each_record_is_written_once_and_in_order_whatever_goes_wrong() {
    for seed in 0..60 * milena_testkit::rounds() {
        let broker = FakeBroker::new(seed, 20 + seed as u32 % 30, usize::MAX);
        send_numbers(&broker, seed, 300, Compression::None).await;
    }
}

#[tokio::test(start_paused = true)]
async fn batches_that_are_split_keep_their_order_whatever_goes_wrong() {
    for seed in 0..60 * milena_testkit::rounds() {
        // A third of a batch, and with one record it fits.
        let broker = FakeBroker::new(seed, seed as u32 % 30, 90);
        send_numbers(&broker, seed, 300, Compression::None).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_has_forgotten_the_producer_is_told_a_new_epoch() {
    let broker = FakeBroker::new(1, 0, usize::MAX);
    let producer = client(&broker).producer().build().unwrap();
    let send = async |value: &str| {
        let record = Record::to(TOPIC).partition(0).value(value);
        producer.send(&record).await.unwrap().await.unwrap()
    };
    send("1").await;
    broker.0.lock().logs.get_mut(&0).unwrap().batches.clear();
    assert_eq!(send("2").await.offset, Some(1));
    assert_eq!(broker.0.lock().logs[&0].epoch, 1);
    send("3").await;
    assert_eq!(broker.values(0), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_can_not_be_delivered_fails_in_time_and_others_go_on() {
    let broker = FakeBroker::new(1, 100, usize::MAX);
    let patient = client(&broker).producer().delivery_timeout(Duration::from_secs(40));
    let producer = patient.build().unwrap();
    let begun = Instant::now();
    let lost = producer.send(&Record::to(TOPIC).partition(0).value("1")).await.unwrap();
    assert!(matches!(lost.await, Err(crate::Error::Timeout { .. })));
    assert!(begun.elapsed() < Duration::from_secs(41));
    broker.0.lock().trouble = 0;
    producer.send(&Record::to(TOPIC).partition(0).value("2")).await.unwrap().await.unwrap();
    assert!(broker.values(0).ends_with(&[2]));
}

#[tokio::test(start_paused = true)]
async fn close_ends_what_can_not_be_delivered_when_its_patience_is_over() {
    let broker = FakeBroker::new(1, 100, usize::MAX);
    let client = client(&broker);
    let producer = client.producer().build().unwrap();
    let lost = producer.send(&Record::to(TOPIC).partition(0).value("1")).await.unwrap();
    producer.close(Duration::from_secs(1)).await;
    assert!(matches!(lost.await, Err(crate::Error::Closed)));
    client.close(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn records_go_out_while_their_sender_has_no_pause() {
    let broker = FakeBroker::new(1, 0, usize::MAX);
    let producer = client(&broker).producer().batch_size(200).build().unwrap();
    for _ in 0..5000 {
        producer.send(&Record::to(TOPIC).partition(0).value("1")).await.unwrap();
    }
    assert!(!broker.values(0).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_wants_to_hear_nothing_for_a_while_gets_no_batches() {
    let broker = FakeBroker::new(1, 0, usize::MAX);
    broker.0.lock().throttle_time_ms = 3000;
    let producer = client(&broker).producer().build().unwrap();
    for value in ["1", "2", "3"] {
        producer.send(&Record::to(TOPIC).partition(0).value(value)).await.unwrap().await.unwrap();
    }
    let came = broker.0.lock().came.clone();
    assert!(came.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(3)), "{came:?}");
}

/// Chooses what it was made with.
#[derive(Debug)]
struct Always(Option<i32>);

impl Partitioner for Always {
    fn partition(&self, topic: &Topic, _: Option<&[u8]>, _: Option<&[u8]>) -> Option<i32> {
        assert_eq!(topic.partitions.len(), PARTITIONS as usize);
        self.0
    }
}

#[tokio::test(start_paused = true)]
async fn a_partitioner_decides_where_records_go_that_name_no_partition() {
    let broker = FakeBroker::new(1, 0, usize::MAX);
    let producer = client(&broker).producer().partitioner(Always(Some(2))).build().unwrap();
    let record = Record::to(TOPIC).key("21").value("1");
    assert_eq!(producer.send(&record).await.unwrap().await.unwrap().partition, 2);
    assert_eq!(producer.send(&record.partition(1)).await.unwrap().await.unwrap().partition, 1);
    let producer = client(&broker).producer().partitioner(Always(Some(PARTITIONS))).build().unwrap();
    let refused = producer.send(&record).await.unwrap_err();
    assert!(matches!(refused, crate::Error::NoSuchPartition { partition: PARTITIONS, of: 3 }), "{refused}");
    let producer = client(&broker).producer().partitioner(Always(None)).build().unwrap();
    producer.send(&record).await.unwrap().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn round_robin_takes_the_partitions_in_turn_whatever_the_key() {
    let broker = FakeBroker::new(1, 0, usize::MAX);
    let class = "org.apache.kafka.clients.producer.RoundRobinPartitioner";
    let producer = client(&broker).producer().set("partitioner.class", class).unwrap().build().unwrap();
    let mut went = Vec::new();
    for value in ["0", "1", "2", "3"] {
        let delivery = producer.send(&Record::to(TOPIC).key("21").value(value)).await.unwrap();
        went.push(delivery.partition().1);
    }
    assert_eq!(went, [0, 1, 2, 0]);
    assert!(client(&broker).producer().set("partitioner.class", "com.example.Mine").is_err());
}

#[tokio::test(start_paused = true)]
async fn keys_decide_unless_they_are_to_be_ignored() {
    let broker = FakeBroker::new(1, 0, usize::MAX);
    for (ignored, places) in [("false", 1), ("true", 2)] {
        let settings = [("partitioner.ignore.keys", ignored), ("batch.size", "1"), ("linger.ms", "0")];
        let producer = client(&broker).producer().properties(settings).unwrap().build().unwrap();
        let mut went = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let delivery = producer.send(&Record::to(TOPIC).key("21").value("1")).await.unwrap();
            went.insert(delivery.partition().1);
        }
        assert!((went.len() == 1) == (places == 1), "{ignored}: {went:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_producer_does_is_counted() {
    let seen = Seen::default();
    let _guard = metrics::set_default_local_recorder(&seen);
    let broker = FakeBroker::new(1, 0, usize::MAX);
    broker.0.lock().throttle_time_ms = 3000;
    let client = client(&broker);
    let producer = client.producer().buffer_memory(1000).build().unwrap();
    for value in ["1", "2", "3"] {
        producer.send(&Record::to(TOPIC).partition(0).value(value)).await.unwrap();
    }
    producer.flush().await;
    assert_eq!(seen.values("kafka_producer_record_send_total"), [3.0]);
    assert_eq!(seen.values("kafka_producer_records_per_request"), [3.0]);
    assert_eq!(seen.values("kafka_producer_compression_rate"), [1.0]);
    assert_eq!(seen.values("kafka_producer_produce_throttle_time_ms"), [3000.0]);
    assert_eq!(seen.values("kafka_client_throttle_time_ms"), [3000.0]);
    assert_eq!(seen.values("kafka_producer_buffer_available_bytes").last(), Some(&1000.0));
    assert_eq!(seen.sum("kafka_client_request_total"), seen.sum("kafka_client_response_total"));
    assert_eq!(seen.values("kafka_client_request_latency_ms").len() as f64, seen.sum("kafka_client_request_total"));
    let size = seen.values("kafka_producer_batch_size")[0];
    assert!(seen.sum("kafka_client_outgoing_byte_total") > size && size > 61.0, "{size}");

    broker.0.lock().trouble = 100;
    let lost = producer.send(&Record::to(TOPIC).partition(0).value("4")).await.unwrap();
    lost.await.unwrap_err();
    assert_eq!(seen.sum("kafka_producer_record_error_total"), 1.0);
    // The last time that it was to be sent again may not have come.
    let again = seen.sum("kafka_producer_record_retry_total");
    let sent = seen.sum("kafka_producer_record_send_total") - 3.0;
    assert!(again > 1.0 && (again..=again + 1.0).contains(&sent), "{sent} {again}");
    producer.close(Duration::ZERO).await;
    client.close(Duration::ZERO).await;
    assert_eq!(seen.sum("kafka_client_connection_creation_total"), seen.sum("kafka_client_connection_close_total"));
}
