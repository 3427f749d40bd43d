//! What a record costs the client in memory, counted and not timed: nothing of its own, neither when it is sent nor when it is
//! received. A batch and a response cost a few allocations, and a long response no memory that is new. Whoever makes the path longer
//! changes a number here.
#![allow(unreachable_pub, reason = "nothing of a test is reachable")]

use std::alloc::System;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};

use milena_client::protocol::framing::encode_response;
use milena_client::protocol::messages::api_versions_response::ApiVersion;
use milena_client::protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use milena_client::protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use milena_client::protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use milena_client::protocol::messages::{
    ApiVersionsResponse, FetchResponse, InitProducerIdResponse, MetadataResponse, ProduceResponse,
};
use milena_client::protocol::{ApiKey, Message, Records, Structs, Uuid, Writer, apis};
use milena_client::{Client, Compression, Consumer, Producer, Record, SeekTo, TopicPartition};
use milena_records::{BatchBuilder, Compressor};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TOPIC: &str = "t";
const TOPIC_ID: Uuid = Uuid::from_bytes([1; 16]);
/// How often it is counted. The least counts: what is kept for later may grow now and then.
const ROUNDS: usize = 5;

/// What is counted is counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Answers each kind of request always alike, from the second time on without an allocation; only the offsets of fetched records go on.
struct Broker {
    port: u16,
    _alone: MutexGuard<'static, ()>,
}

impl Broker {
    /// `batch` is what each fetch finds, of so many records.
    fn start(batch: Vec<u8>, records: i64) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let batch = batch.clone();
                std::thread::spawn(move || serve(stream, port, &batch, records));
            }
        });
        Self { port, _alone: alone }
    }

    fn client(&self) -> Client {
        Client::builder().bootstrap_servers(&format!("127.0.0.1:{}", self.port)).build().unwrap()
    }
}

/// Serves a connection until it is closed.
fn serve(mut stream: TcpStream, port: u16, batch: &[u8], records: i64) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut request = vec![0; 1 << 20];
    let mut answers: HashMap<ApiKey, Vec<u8>> = HashMap::new();
    let (mut offset, mut batch_at) = (0_i64, 0);
    loop {
        let mut size = [0; 4];
        stream.read_exact(&mut size).ok()?;
        stream.read_exact(&mut request[..u32::from_be_bytes(size) as usize]).ok()?;
        let number = |at: usize| i16::from_be_bytes([request[at], request[at + 1]]);
        let (api, version) = (ApiKey(number(0)), number(2));
        let answer = answers.entry(api).or_insert_with(|| encoded(api, version, port, batch));
        answer[4..8].copy_from_slice(&request[4..8]);
        if api == ApiKey::FETCH {
            if batch_at == 0 {
                batch_at = answer.windows(batch.len()).position(|part| part == batch).unwrap();
            }
            answer[batch_at..batch_at + 8].copy_from_slice(&offset.to_be_bytes());
            offset += records;
        }
        stream.write_all(answer).ok()?;
    }
}

fn encoded(api: ApiKey, version: i16, port: u16, batch: &[u8]) -> Vec<u8> {
    fn whole<'a>(version: i16, response: &impl Message<'a>) -> Vec<u8> {
        let mut writer = Writer::new();
        encode_response(&mut writer, 0, version, response).unwrap();
        writer.into_bytes()
    }
    match api {
        ApiKey::API_VERSIONS => {
            let api = |info: &milena_client::protocol::ApiInfo| ApiVersion {
                api_key: info.key.0,
                min_version: info.min,
                max_version: info.stable_max(),
            };
            whole(version, &ApiVersionsResponse { api_keys: apis().map(api).collect(), ..Default::default() })
        }
        ApiKey::METADATA => whole(version, &metadata(port)),
        ApiKey::INIT_PRODUCER_ID => whole(version, &InitProducerIdResponse { producer_id: 7, ..Default::default() }),
        ApiKey::PRODUCE => {
            let partition_responses = vec![PartitionProduceResponse::default()];
            let topic = TopicProduceResponse { name: TOPIC.into(), topic_id: TOPIC_ID, partition_responses };
            whole(version, &ProduceResponse { responses: vec![topic], ..Default::default() })
        }
        ApiKey::FETCH => {
            let records = Some(Records::Bytes(batch));
            let partitions = vec![PartitionData { high_watermark: i64::MAX, records, ..Default::default() }];
            let topic = FetchableTopicResponse { topic: TOPIC.into(), topic_id: TOPIC_ID, partitions };
            whole(version, &FetchResponse { responses: vec![topic], ..Default::default() })
        }
        other => panic!("{other} is not served"),
    }
}

fn metadata(port: u16) -> MetadataResponse<'static> {
    let partition = MetadataResponsePartition { leader_id: 1, ..Default::default() };
    let topic = MetadataResponseTopic {
        name: Some(TOPIC.into()),
        topic_id: TOPIC_ID,
        partitions: Structs::Items(vec![partition]),
        ..Default::default()
    };
    let broker =
        MetadataResponseBroker { node_id: 1, host: "127.0.0.1".into(), port: port.into(), ..Default::default() };
    MetadataResponse { brokers: vec![broker], topics: vec![topic], controller_id: 1, ..Default::default() }
}

/// Demands that a turn costs no more than so many allocations and bytes; `turns` are done by `go`.
async fn costs(what: &str, turns: usize, most: (usize, usize), mut go: impl AsyncFnMut()) {
    go().await;
    let mut least = (usize::MAX, usize::MAX);
    for _ in 0..ROUNDS {
        let region = Region::new(MEMORY);
        go().await;
        let used = region.change();
        least.0 = least.0.min((used.allocations + used.reallocations) / turns);
        least.1 = least.1.min(used.bytes_allocated / turns);
    }
    println!("{what}: {} allocations, {} bytes", least.0, least.1);
    assert!(least.0 <= most.0, "{what}: {} allocations a turn, not {}", least.0, most.0);
    assert!(least.1 <= most.1, "{what}: {} bytes a turn, not {}", least.1, most.1);
}

/// Batches that are sent in a round, as far as they can't be compressed.
const BATCHES: usize = 50;
const BATCH_SIZE: usize = 16 << 10;

async fn send(producer: &Producer, value: &[u8]) {
    // What a record takes in a batch beside its value is less than 10 bytes here.
    for _ in 0..BATCHES * BATCH_SIZE / (value.len() + 10) {
        producer.send(&Record::to(TOPIC).value(value)).await.unwrap();
    }
    producer.flush().await;
}

#[tokio::test]
async fn a_batch_that_is_sent_allocates_a_few_times_and_never_for_its_records() {
    let broker = Broker::start(Vec::new(), 0);
    for (codec, most) in [(Compression::None, (32, 24 << 10)), (Compression::Lz4, (12, 40 << 10))] {
        // Only what is full goes out.
        let settings = [("linger.ms", "60000"), ("batch.size", "16384")];
        let builder = broker.client().producer().properties(settings).unwrap().compression(codec);
        let producer = builder.build().unwrap();
        for size in [10, 100, 1000] {
            let value = vec![b'v'; size];
            let what = format!("16 KiB of records of {size} bytes, {}", codec.name());
            costs(&what, BATCHES, most, async || send(&producer, &value).await).await;
        }
    }
}

fn batch(records: i64, size: usize, codec: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new().compression(codec, codec.default_level());
    for number in 0..records {
        builder.push(number, None, Some(&vec![b'v'; size]), &[]);
    }
    builder.take(&mut Compressor::new()).unwrap()
}

async fn receive(consumer: &mut Consumer, records: usize) {
    let mut seen = 0;
    while seen < records {
        seen += consumer.recv().await.unwrap().iter().filter(|record| record.value.is_some()).count();
    }
}

#[tokio::test]
async fn a_response_that_is_received_allocates_a_few_times_and_never_for_its_records() {
    const RESPONSES: usize = 30;
    for (records, size, codec) in [
        (1, 100, Compression::None),
        (1000, 100, Compression::None),
        (1000, 1000, Compression::None),
        (1000, 1000, Compression::Lz4),
    ] {
        let broker = Broker::start(batch(records, size, codec), records);
        let mut consumer = broker.client().consumer().build().unwrap();
        let partition = TopicPartition::new(TOPIC, 0);
        consumer.assign([partition.clone()]);
        consumer.seek(&partition, SeekTo::Offset(0)).unwrap();
        let what = format!("a response with {records} records of {size} bytes, {}", codec.name());
        let all = RESPONSES * records as usize;
        costs(&what, RESPONSES, (24, 4096), async || receive(&mut consumer, all).await).await;
    }
}
