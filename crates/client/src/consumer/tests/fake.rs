//! Brokers with logs that never change, which keep fetch sessions as strictly as Apache Kafka does, and lose connections, forget
//! sessions, move leaders and refuse requests by a seed.

mod group;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use milena_protocol::messages::api_versions_response::ApiVersion;
use milena_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use milena_protocol::messages::find_coordinator_response::Coordinator;
use milena_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use milena_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use milena_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use milena_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use milena_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use milena_protocol::messages::{
    ApiVersionsResponse, FetchRequest, FetchResponse, FindCoordinatorResponse, ListOffsetsRequest, ListOffsetsResponse,
    MetadataResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};
use milena_protocol::{ApiKey, ErrorCode, Records, Structs, Uuid, apis};
use milena_records::{Batch, BatchBuilder, BatchMut};
use parking_lot::Mutex;
use tokio::io::duplex;
use tokio::time::Instant;

use crate::config::ClientConfig;
use crate::test_peer::{Came, Peer, quick};
use crate::transport::{Opening, Transport, Transports};
use crate::{Client, TopicPartition};
use group::Group;

pub(super) const TOPIC: &str = "t";
const TOPIC_ID: Uuid = Uuid::from_bytes([1; 16]);
const BROKERS: i32 = 2;

/// A partition.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) leader: i32,
    pub(super) epoch: i32,
    pub(super) start: i64,
    pub(super) batches: Vec<Vec<u8>>,
    /// A replica that consumers are sent to.
    pub(super) preferred: Option<i32>,
}

impl Log {
    pub(super) fn end(&self) -> i64 {
        self.batches.last().map_or(0, |bytes| Batch::parse(bytes).unwrap().next_offset())
    }

    /// Appends the records of one batch, whose values are their offsets.
    pub(super) fn append(&mut self, count: i64) {
        let base = self.end();
        let mut builder = BatchBuilder::new();
        for offset in base..base + count {
            builder.push(1000 + offset, None, Some(offset.to_string().as_bytes()), &[]);
        }
        let mut bytes = builder.build().unwrap();
        let mut batch = BatchMut::parse(&mut bytes).unwrap();
        batch.set_base_offset(base);
        batch.set_partition_leader_epoch(self.epoch);
        self.batches.push(bytes);
    }

    /// The batches from an offset on, up to so many, and a piece of one more.
    fn read(&self, from: i64, most: usize) -> Vec<u8> {
        let wanted = |bytes: &&Vec<u8>| Batch::parse(bytes).unwrap().last_offset() >= from;
        let mut batches = self.batches.iter().filter(wanted);
        let mut bytes: Vec<u8> = batches.by_ref().take(most).flatten().copied().collect();
        if let Some(next) = batches.next() {
            bytes.extend_from_slice(&next[..next.len() / 2]);
        }
        bytes
    }
}

/// What the broker does to a request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Sound,
    LostBefore,
    LostAfter,
    /// The request, its session or each of its partitions is refused.
    Refused(ErrorCode),
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) logs: Vec<Log>,
    sessions: HashMap<(i32, i32), FetchSession>,
    next_session: i32,
    pub(super) random: Rng,
    /// Requests in a hundred that go wrong.
    pub(super) trouble: u32,
    pub(super) committed: BTreeMap<i32, i64>,
    /// What the next commits are answered.
    pub(super) commit_codes: Vec<ErrorCode>,
    /// Broker of each fetch that asked for something, and the number of partitions that it told of.
    pub(super) fetches: Vec<(i32, usize)>,
    /// Sessions that were ended by their consumers.
    pub(super) ended: usize,
    /// Replicas that are behind: they have nothing yet.
    pub(super) empty: Vec<i32>,
    /// What answers to Fetch say, and when the requests came.
    pub(super) throttle_time_ms: i32,
    pub(super) fetched_at: Vec<Instant>,
    pub(super) group: Group,
    /// Generation of each commit that came, with partitions and offsets.
    pub(super) commits: Vec<(i32, Vec<(i32, i64)>)>,
    /// How long a commit takes.
    pub(super) commit_delay: Duration,
    /// Commits of earlier generations are refused.
    pub(super) least_generation: i32,
    /// Connections are lost by asking for metadata.
    pub(super) no_metadata: bool,
    /// What metadata says of the topic.
    pub(super) topic_code: ErrorCode,
    /// No offset can be told.
    pub(super) no_offsets: bool,
    /// A high watermark other than the end.
    pub(super) watermark: Option<i64>,
}

#[derive(Debug, Default)]
struct FetchSession {
    epoch: i32,
    /// Offset and leader epoch by partition.
    partitions: BTreeMap<i32, (i64, i32)>,
}

/// The brokers; each connection is served by a task of its own.
#[derive(Debug, Clone)]
pub(super) struct Fake(pub(super) Arc<Mutex<State>>);

impl Transports for Fake {
    fn open<'a>(&'a self, _: &'a str, port: u16, _: &'a ClientConfig) -> Opening<'a> {
        let (ours, theirs) = duplex(1 << 16);
        tokio::spawn(self.clone().serve(i32::from(port), Peer(theirs)));
        Box::pin(async move { io::Result::Ok(Box::new(ours) as Box<dyn Transport>) })
    }
}

impl Fake {
    /// Partitions whose logs have so many batches of one to five records.
    pub(super) fn new(seed: u64, trouble: u32, partitions: usize, batches: usize) -> Self {
        let mut random = Rng::with_seed(seed);
        let log = |_| {
            let mut log = Log { leader: 1, ..Log::default() };
            (0..batches).for_each(|_| log.append(random.i64(1..=5)));
            log
        };
        let state = State {
            logs: (0..partitions).map(log).collect(),
            sessions: HashMap::new(),
            next_session: 1,
            random: Rng::with_seed(seed),
            trouble,
            committed: BTreeMap::new(),
            commit_codes: Vec::new(),
            fetches: Vec::new(),
            ended: 0,
            empty: Vec::new(),
            throttle_time_ms: 0,
            fetched_at: Vec::new(),
            group: Group { epoch: 1, ..Group::default() },
            commits: Vec::new(),
            commit_delay: Duration::ZERO,
            least_generation: -1,
            no_metadata: false,
            topic_code: ErrorCode::NONE,
            no_offsets: false,
            watermark: None,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    pub(super) fn client(&self) -> Client {
        quick().build_over(Arc::new(self.clone())).unwrap()
    }

    pub(super) fn partitions(&self) -> Vec<TopicPartition> {
        (0..).take(self.0.lock().logs.len()).map(|partition| TopicPartition::new(TOPIC, partition)).collect()
    }

    /// Serves a connection to the broker with this id, which is its port too.
    async fn serve(self, id: i32, mut peer: Peer) {
        while let Some(came) = peer.try_next().await {
            let (request, version) = (came.id, came.version);
            let fate = self.fate(came.api);
            if fate == Fate::LostBefore {
                return;
            }
            // An answer is written by who holds nothing.
            match came.api {
                ApiKey::API_VERSIONS => peer.answer(request, version, &versions()).await,
                ApiKey::METADATA if self.0.lock().no_metadata => return,
                ApiKey::METADATA => {
                    let response = self.0.lock().metadata();
                    peer.answer(request, version, &response).await;
                }
                ApiKey::FETCH => {
                    self.0.lock().fetched_at.push(Instant::now());
                    let (response, bytes) = self.0.lock().fetch(id, &came, fate);
                    if response.responses.is_empty() {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    if fate == Fate::LostAfter {
                        return;
                    }
                    let throttle_time_ms = self.0.lock().throttle_time_ms;
                    let response = FetchResponse { throttle_time_ms, ..with_records(response, &bytes) };
                    peer.answer(request, version, &response).await;
                }
                ApiKey::LIST_OFFSETS => {
                    let response = self.0.lock().list_offsets(id, &came, fate);
                    peer.answer(request, version, &response).await;
                }
                ApiKey::OFFSET_FOR_LEADER_EPOCH => {
                    let response = self.0.lock().epoch_ends(&came, fate);
                    peer.answer(request, version, &response).await;
                }
                ApiKey::FIND_COORDINATOR => {
                    let coordinator = Coordinator { node_id: 1, host: "pipe".into(), port: 1, ..Default::default() };
                    let response = FindCoordinatorResponse { coordinators: vec![coordinator], ..Default::default() };
                    peer.answer(request, version, &response).await;
                }
                ApiKey::OFFSET_FETCH => {
                    let response = self.0.lock().committed(&came);
                    peer.answer(request, version, &response).await;
                }
                ApiKey::OFFSET_COMMIT => {
                    let delay = self.0.lock().commit_delay;
                    tokio::time::sleep(delay).await;
                    let response = self.0.lock().commit(&came);
                    peer.answer(request, version, &response).await;
                }
                other => {
                    let delay =
                        if other == ApiKey::JOIN_GROUP { self.0.lock().group.join_delay } else { Duration::ZERO };
                    tokio::time::sleep(delay).await;
                    let reply = self.0.lock().group.reply(&came);
                    reply.unwrap_or_else(|| panic!("{other} is not served")).send(&mut peer, &came).await;
                }
            }
        }
    }

    fn fate(&self, api: ApiKey) -> Fate {
        let mut state = self.0.lock();
        let is_subject = [ApiKey::FETCH, ApiKey::LIST_OFFSETS, ApiKey::OFFSET_FOR_LEADER_EPOCH].contains(&api);
        if !is_subject || state.random.u32(..100) >= state.trouble {
            return Fate::Sound;
        }
        match state.random.u32(..8) {
            0 => Fate::LostBefore,
            1 => Fate::LostAfter,
            2 => {
                let count = state.logs.len();
                let place = state.random.usize(..count);
                let log = &mut state.logs[place];
                (log.leader, log.epoch) = (log.leader % BROKERS + 1, log.epoch + 1);
                Fate::Sound
            }
            3 => Fate::Refused(ErrorCode::FETCH_SESSION_ID_NOT_FOUND),
            4 => Fate::Refused(ErrorCode::INVALID_FETCH_SESSION_EPOCH),
            5 => Fate::Refused(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            6 => Fate::Refused(ErrorCode::OFFSET_NOT_AVAILABLE),
            _ => Fate::Refused(ErrorCode::UNKNOWN_SERVER_ERROR),
        }
    }
}

type Data = (FetchResponse<'static>, BTreeMap<i32, Vec<u8>>);

impl State {
    fn fetch(&mut self, id: i32, came: &Came, fate: Fate) -> Data {
        let request: FetchRequest<'_> = came.body();
        let refused = |code: ErrorCode| (FetchResponse { error_code: code.0, ..Default::default() }, BTreeMap::new());
        let key = (id, request.session_id);
        let of_session = [ErrorCode::FETCH_SESSION_ID_NOT_FOUND, ErrorCode::INVALID_FETCH_SESSION_EPOCH];
        if let Fate::Refused(code) = fate
            && of_session.contains(&code)
        {
            self.sessions.remove(&key);
            return refused(code);
        }
        let session_id = match request.session_epoch {
            -1 => {
                assert!(self.sessions.remove(&key).is_some(), "a session is ended once");
                self.ended += 1;
                return refused(ErrorCode::NONE);
            }
            0 => {
                self.sessions.remove(&key);
                self.next_session += 1;
                self.sessions.insert((id, self.next_session), FetchSession { epoch: 1, ..Default::default() });
                self.next_session
            }
            epoch => match self.sessions.get_mut(&key) {
                None => return refused(ErrorCode::FETCH_SESSION_ID_NOT_FOUND),
                Some(session) if session.epoch != epoch => return refused(ErrorCode::INVALID_FETCH_SESSION_EPOCH),
                Some(session) => {
                    session.epoch += 1;
                    request.session_id
                }
            },
        };
        let session = self.sessions.get_mut(&(id, session_id)).unwrap();
        let told = request.topics.iter().flat_map(|topic| {
            assert_eq!(topic.topic_id, TOPIC_ID);
            &topic.partitions
        });
        let before = session.partitions.len();
        let mut count = 0;
        for partition in told {
            count += 1;
            session.partitions.insert(partition.partition, (partition.fetch_offset, partition.current_leader_epoch));
        }
        for partition in request.forgotten_topics_data.iter().flat_map(|topic| topic.partitions.iter()) {
            assert!(session.partitions.remove(partition).is_some(), "{partition} was never fetched");
        }
        let is_new = before == 0;
        let partitions: Vec<_> = session.partitions.iter().map(|(partition, at)| (*partition, *at)).collect();
        self.fetches.push((id, count));
        let mut bytes = BTreeMap::new();
        let mut answers = Vec::new();
        for (partition, (offset, epoch)) in partitions {
            let (data, records) = self.read(id, partition, offset, epoch, fate);
            if is_new || data.error_code != 0 || data.preferred_read_replica >= 0 || !records.is_empty() {
                bytes.insert(partition, records);
                answers.push(data);
            }
        }
        let topic = FetchableTopicResponse { topic_id: TOPIC_ID, partitions: answers, ..Default::default() };
        let responses = if topic.partitions.is_empty() { Vec::new() } else { vec![topic] };
        (FetchResponse { session_id, responses, ..Default::default() }, bytes)
    }

    fn read(
        &mut self,
        id: i32,
        partition: i32,
        offset: i64,
        epoch: i32,
        fate: Fate,
    ) -> (PartitionData<'static>, Vec<u8>) {
        let is_empty = self.empty.contains(&id);
        let log = &self.logs[partition as usize];
        let is_replica = log.preferred == Some(id);
        let end = if is_empty { 0 } else { log.end() };
        let code = match fate {
            Fate::Refused(code) => code,
            _ if log.leader != id && !is_replica => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            _ if epoch < log.epoch => ErrorCode::FENCED_LEADER_EPOCH,
            _ if epoch > log.epoch => ErrorCode::UNKNOWN_LEADER_EPOCH,
            _ if !(log.start..=end).contains(&offset) => ErrorCode::OFFSET_OUT_OF_RANGE,
            _ => ErrorCode::NONE,
        };
        let mut data = PartitionData {
            partition_index: partition,
            error_code: code.0,
            high_watermark: self.watermark.unwrap_or(end),
            last_stable_offset: end,
            log_start_offset: log.start,
            ..Default::default()
        };
        if code != ErrorCode::NONE {
            return (data, Vec::new());
        }
        if let Some(preferred) = log.preferred
            && !is_replica
        {
            data.preferred_read_replica = preferred;
            return (data, Vec::new());
        }
        let most = self.random.usize(1..4);
        (data, self.logs[partition as usize].read(offset, most))
    }

    fn list_offsets(&self, id: i32, came: &Came, fate: Fate) -> ListOffsetsResponse<'static> {
        let request: ListOffsetsRequest<'_> = came.body();
        let answer = request.topics[0].partitions.iter().map(|asked| {
            let log = &self.logs[asked.partition_index as usize];
            let code = match fate {
                Fate::Refused(code) => code,
                _ if self.no_offsets => ErrorCode::OFFSET_NOT_AVAILABLE,
                _ if log.leader != id => ErrorCode::NOT_LEADER_OR_FOLLOWER,
                _ => ErrorCode::NONE,
            };
            let found = match asked.timestamp {
                -2 => log.start,
                -1 => log.end(),
                time if time - 1000 < log.end() => (time - 1000).max(log.start),
                _ => -1,
            };
            ListOffsetsPartitionResponse {
                partition_index: asked.partition_index,
                error_code: code.0,
                offset: if code == ErrorCode::NONE { found } else { -1 },
                ..Default::default()
            }
        });
        let topic = ListOffsetsTopicResponse { name: TOPIC.into(), partitions: answer.collect() };
        ListOffsetsResponse { topics: vec![topic], ..Default::default() }
    }

    fn epoch_ends(&self, came: &Came, fate: Fate) -> OffsetForLeaderEpochResponse<'static> {
        let request: OffsetForLeaderEpochRequest<'_> = came.body();
        let answer = request.topics[0].partitions.iter().map(|asked| {
            let log = &self.logs[asked.partition as usize];
            let error_code = if let Fate::Refused(code) = fate { code.0 } else { 0 };
            let batches = log.batches.iter().map(|bytes| Batch::parse(bytes).unwrap());
            let before = batches.rev().find(|batch| batch.partition_leader_epoch() <= asked.leader_epoch);
            EpochEndOffset {
                partition: asked.partition,
                error_code,
                leader_epoch: before.map_or(-1, |batch| batch.partition_leader_epoch()),
                end_offset: before.map_or(-1, |batch| batch.next_offset()),
            }
        });
        let topic = OffsetForLeaderTopicResult { topic: TOPIC.into(), partitions: answer.collect() };
        OffsetForLeaderEpochResponse { topics: vec![topic], ..Default::default() }
    }

    fn committed(&self, came: &Came) -> OffsetFetchResponse<'static> {
        let request: OffsetFetchRequest<'_> = came.body();
        let asked = &request.groups[0].topics.as_ref().unwrap()[0];
        let partitions = asked.partition_indexes.iter().map(|partition| OffsetFetchResponsePartitions {
            partition_index: *partition,
            committed_offset: self.committed.get(partition).copied().unwrap_or(-1),
            ..Default::default()
        });
        let topic = OffsetFetchResponseTopics {
            name: if came.version < 10 { TOPIC.into() } else { "".into() },
            topic_id: asked.topic_id,
            partitions: partitions.collect(),
        };
        let group = OffsetFetchResponseGroup { group_id: "g".into(), topics: vec![topic], error_code: 0 };
        OffsetFetchResponse { groups: vec![group], ..Default::default() }
    }

    fn commit(&mut self, came: &Came) -> OffsetCommitResponse<'static> {
        let request: OffsetCommitRequest<'_> = came.body();
        let is_late = request.generation_id_or_member_epoch < self.least_generation;
        let late = is_late.then_some(ErrorCode::ILLEGAL_GENERATION);
        let code = late.or_else(|| self.commit_codes.pop()).unwrap_or(ErrorCode::NONE);
        let asked = &request.topics[0];
        let offsets = asked.partitions.iter().map(|partition| (partition.partition_index, partition.committed_offset));
        self.commits.push((request.generation_id_or_member_epoch, offsets.collect()));
        let partitions = asked.partitions.iter().map(|partition| {
            if code == ErrorCode::NONE {
                self.committed.insert(partition.partition_index, partition.committed_offset);
            }
            OffsetCommitResponsePartition { partition_index: partition.partition_index, error_code: code.0 }
        });
        let partitions = partitions.collect();
        let name = if came.version < 10 { TOPIC.into() } else { "".into() };
        let topic = OffsetCommitResponseTopic { name, topic_id: asked.topic_id, partitions };
        OffsetCommitResponse { topics: vec![topic], ..Default::default() }
    }

    fn metadata(&self) -> MetadataResponse<'static> {
        let partition = |(partition_index, log): (i32, &Log)| MetadataResponsePartition {
            partition_index,
            leader_id: log.leader,
            leader_epoch: log.epoch,
            ..Default::default()
        };
        let topic = MetadataResponseTopic {
            name: Some(TOPIC.into()),
            topic_id: TOPIC_ID,
            error_code: self.topic_code.0,
            partitions: Structs::Items((0..).zip(&self.logs).map(partition).collect()),
            ..Default::default()
        };
        let broker = |id| MetadataResponseBroker { node_id: id, host: "pipe".into(), port: id, ..Default::default() };
        let brokers = (1..=BROKERS).map(broker).collect();
        MetadataResponse { brokers, topics: vec![topic], controller_id: 1, ..Default::default() }
    }
}

/// The response with its records in place.
fn with_records<'a>(response: FetchResponse<'static>, bytes: &'a BTreeMap<i32, Vec<u8>>) -> FetchResponse<'a> {
    let mut response: FetchResponse<'a> = response;
    for data in response.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
        data.records = bytes.get(&data.partition_index).map(|bytes| Records::Bytes(bytes));
    }
    response
}

fn versions() -> ApiVersionsResponse<'static> {
    let api_keys =
        apis().map(|info| ApiVersion { api_key: info.key.0, min_version: info.min, max_version: info.stable_max() });
    ApiVersionsResponse { api_keys: api_keys.collect(), ..Default::default() }
}
