//! The requests that a run sends and the replies that it reads, written out by hand.
//!
//! Only flexible versions are used: Produce 9 (topic names) or 13 (topic ids), Fetch 12 or 13,
//! Metadata 12, CreateTopics 7, DeleteTopics 6, InitProducerId 4, ApiVersions 3,
//! FindCoordinator 4, OffsetCommit 8, EndTxn 5.

use anyhow::{Result, bail, ensure};

use crate::wire::{Put, Reader, Uuid};

/// API keys.
pub(crate) mod api {
    #![allow(missing_docs)]
    pub(crate) const PRODUCE: i16 = 0;
    pub(crate) const FETCH: i16 = 1;
    pub(crate) const METADATA: i16 = 3;
    pub(crate) const OFFSET_COMMIT: i16 = 8;
    pub(crate) const FIND_COORDINATOR: i16 = 10;
    pub(crate) const API_VERSIONS: i16 = 18;
    pub(crate) const CREATE_TOPICS: i16 = 19;
    pub(crate) const DELETE_TOPICS: i16 = 20;
    pub(crate) const INIT_PRODUCER_ID: i16 = 22;
    pub(crate) const END_TXN: i16 = 26;
    pub(crate) const INCREMENTAL_ALTER_CONFIGS: i16 = 44;
}

/// Produce and Fetch versions from this one on carry topic ids.
pub(crate) const TOPIC_ID_VERSION: i16 = 13;

/// Where a frame's correlation id stands.
const CORRELATION_AT: usize = 8;
const CLIENT_ID: &str = "kbench";

/// A topic as requests name it.
#[derive(Clone, Debug)]
pub(crate) struct Topic {
    /// Its name.
    pub name: String,
    /// Its id; zero where the server gives none.
    pub id: Uuid,
    /// How many partitions it has.
    pub partitions: u32,
}

/// Whose configuration is changed.
#[derive(Clone, Copy)]
pub(crate) enum Resource<'a> {
    /// A topic's.
    Topic(&'a str),
    /// That of all brokers.
    Brokers,
}

/// Whose coordinator is looked for.
#[derive(Clone, Copy)]
pub(crate) enum Coordinated<'a> {
    /// A group's.
    Group(&'a str),
    /// A transactional id's.
    Transactions(&'a str),
}

/// Builds a whole frame, length prefix included, around the body that `body` appends.
pub(crate) fn frame(key: i16, version: i16, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.i16(key);
    out.i16(version);
    out.i32(0); // correlation id: set when the frame is sent
    out.str16(CLIENT_ID);
    out.no_tags();
    body(&mut out);
    let len = out.len() as i32 - 4;
    out[..4].copy_from_slice(&len.to_be_bytes());
    out
}

/// Sets a frame's correlation id.
pub(crate) fn set_correlation(frame: &mut [u8], id: i32) {
    frame[CORRELATION_AT..CORRELATION_AT + 4].copy_from_slice(&id.to_be_bytes());
}

/// Opens a reply with a flexible header, checking its correlation id.
pub(crate) fn open_reply(reply: &[u8], correlation: i32) -> Result<Reader<'_>> {
    let mut reader = Reader::new(reply);
    let got = reader.i32()?;
    ensure!(got == correlation, "reply {got} where {correlation} is due");
    reader.skip_tags()?;
    Ok(reader)
}

/// Fails on an error code other than zero.
pub(crate) fn check_code(code: i16, what: &str) -> Result<()> {
    ensure!(code == 0, "{what}: the server answers error code {code}");
    Ok(())
}

fn put_topic(out: &mut Vec<u8>, version: i16, topic: &Topic) {
    if version >= TOPIC_ID_VERSION {
        out.raw(&topic.id);
    } else {
        out.compact_str(&topic.name);
    }
}

fn skip_topic(reader: &mut Reader<'_>, version: i16) -> Result<()> {
    if version >= TOPIC_ID_VERSION {
        reader.uuid()?;
    } else {
        reader.compact_bytes()?;
    }
    Ok(())
}

/// ApiVersions 3.
pub(crate) fn api_versions() -> Vec<u8> {
    frame(api::API_VERSIONS, 3, |out| {
        out.compact_str(CLIENT_ID);
        out.compact_str("1");
        out.no_tags();
    })
}

/// Reads an ApiVersions 3 reply, whose header has no tags: the newest version of each API.
pub(crate) fn read_api_versions(reply: &[u8]) -> Result<Vec<(i16, i16)>> {
    let mut reader = Reader::new(reply);
    reader.i32()?;
    check_code(reader.i16()?, "ApiVersions")?;
    let mut newest = Vec::new();
    for _ in 0..reader.compact_len()?.unwrap_or(0) {
        let key = reader.i16()?;
        reader.i16()?;
        newest.push((key, reader.i16()?));
        reader.skip_tags()?;
    }
    Ok(newest)
}

/// CreateTopics 7 of one topic, replication factor 1.
pub(crate) fn create_topic(name: &str, partitions: u32, configs: &[(&str, &str)]) -> Vec<u8> {
    frame(api::CREATE_TOPICS, 7, |out| {
        out.compact_len(1);
        out.compact_str(name);
        out.i32(partitions as i32);
        out.i16(1);
        out.compact_len(0); // no manual assignment
        out.compact_len(configs.len());
        for (key, value) in configs {
            out.compact_str(key);
            out.compact_str(value);
            out.no_tags();
        }
        out.no_tags();
        out.i32(30_000); // timeout, ms
        out.i8(0); // not only validated
        out.no_tags();
    })
}

/// Reads the error code of a CreateTopics 7 reply.
pub(crate) fn read_create_topic(mut reader: Reader<'_>) -> Result<i16> {
    reader.i32()?; // throttle, ms
    ensure!(reader.compact_len()? == Some(1), "CreateTopics answers for another number of topics");
    reader.compact_str()?;
    reader.uuid()?;
    reader.i16()
}

/// IncrementalAlterConfigs 1: sets one value.
pub(crate) fn alter_config(resource: Resource<'_>, key: &str, value: &str) -> Vec<u8> {
    let (kind, name) = match resource {
        Resource::Topic(name) => (2, name),
        Resource::Brokers => (4, ""),
    };
    frame(api::INCREMENTAL_ALTER_CONFIGS, 1, |out| {
        out.compact_len(1);
        out.i8(kind);
        out.compact_str(name);
        out.compact_len(1);
        out.compact_str(key);
        out.i8(0); // set
        out.compact_str(value);
        out.no_tags();
        out.no_tags();
        out.i8(0); // not only validated
        out.no_tags();
    })
}

/// Reads the error code of an IncrementalAlterConfigs 1 reply.
pub(crate) fn read_alter_config(mut reader: Reader<'_>) -> Result<i16> {
    reader.i32()?; // throttle, ms
    ensure!(reader.compact_len()? == Some(1), "IncrementalAlterConfigs answers for another number of resources");
    reader.i16()
}

/// DeleteTopics 6 of one topic, by name.
pub(crate) fn delete_topic(name: &str) -> Vec<u8> {
    frame(api::DELETE_TOPICS, 6, |out| {
        out.compact_len(1);
        out.compact_str(name);
        out.raw(&Uuid::default());
        out.no_tags();
        out.i32(30_000); // timeout, ms
        out.no_tags();
    })
}

/// Metadata 12 of the given topics.
pub(crate) fn metadata(names: &[&str]) -> Vec<u8> {
    frame(api::METADATA, 12, |out| {
        out.compact_len(names.len());
        for name in names {
            out.raw(&Uuid::default());
            out.compact_str(name);
            out.no_tags();
        }
        out.i8(0); // don't create
        out.i8(0); // no authorized operations
        out.no_tags();
    })
}

/// Reads a Metadata 12 reply: each topic with how many of its partitions have a leader.
pub(crate) fn read_metadata(mut reader: Reader<'_>) -> Result<Vec<(Topic, u32)>> {
    reader.i32()?; // throttle, ms
    for _ in 0..reader.compact_len()?.unwrap_or(0) {
        reader.i32()?; // node
        reader.compact_str()?; // host
        reader.i32()?; // port
        reader.compact_str()?; // rack
        reader.skip_tags()?;
    }
    reader.compact_str()?; // cluster id
    reader.i32()?; // controller
    let mut topics = Vec::new();
    for _ in 0..reader.compact_len()?.unwrap_or(0) {
        topics.push(read_metadata_topic(&mut reader)?);
    }
    Ok(topics)
}

fn read_metadata_topic(reader: &mut Reader<'_>) -> Result<(Topic, u32)> {
    reader.i16()?; // error code: a topic still being made shows as partitions without a leader
    let name = reader.compact_str()?.to_owned();
    let id = reader.uuid()?;
    reader.i8()?; // internal
    let partitions = reader.compact_len()?.unwrap_or(0) as u32;
    let mut led = 0;
    for _ in 0..partitions {
        let code = reader.i16()?;
        reader.i32()?; // partition
        let leader = reader.i32()?;
        reader.i32()?; // leader epoch
        for _ in 0..3 {
            // replicas, in-sync replicas, offline replicas
            let count = reader.compact_len()?.unwrap_or(0);
            reader.take(4 * count)?;
        }
        reader.skip_tags()?;
        led += u32::from(code == 0 && leader >= 0);
    }
    reader.i32()?; // authorized operations
    reader.skip_tags()?;
    Ok((Topic { name, id, partitions }, led))
}

/// FindCoordinator 4 of one group, or transactional id.
pub(crate) fn find_coordinator(of: Coordinated<'_>) -> Vec<u8> {
    let (kind, key) = match of {
        Coordinated::Group(group) => (0, group),
        Coordinated::Transactions(id) => (1, id),
    };
    frame(api::FIND_COORDINATOR, 4, |out| {
        out.i8(kind);
        out.compact_len(1);
        out.compact_str(key);
        out.no_tags();
    })
}

/// Reads the error code of a FindCoordinator 4 reply for one key.
pub(crate) fn read_find_coordinator(mut reader: Reader<'_>) -> Result<i16> {
    reader.i32()?; // throttle, ms
    ensure!(reader.compact_len()? == Some(1), "FindCoordinator answers for another number of keys");
    reader.compact_str()?;
    reader.i32()?; // node
    reader.compact_bytes()?; // host
    reader.i32()?; // port
    reader.i16()
}

/// OffsetCommit 8 of a group without members: offset 1 of each partition.
pub(crate) fn offset_commit(group: &str, topic: &Topic) -> Vec<u8> {
    frame(api::OFFSET_COMMIT, 8, |out| {
        out.compact_str(group);
        out.i32(-1); // generation
        out.compact_str(""); // member
        out.compact_null(); // group instance
        out.compact_len(1);
        out.compact_str(&topic.name);
        out.compact_len(topic.partitions as usize);
        for partition in 0..topic.partitions {
            out.i32(partition as i32);
            out.i64(1);
            out.i32(-1); // leader epoch
            out.compact_null(); // metadata
            out.no_tags();
        }
        out.no_tags();
        out.no_tags();
    })
}

/// Reads an OffsetCommit 8 reply: the first error code other than zero, or zero.
pub(crate) fn read_offset_commit(mut reader: Reader<'_>) -> Result<i16> {
    reader.i32()?; // throttle, ms
    let mut worst = 0;
    for _ in 0..reader.compact_len()?.unwrap_or(0) {
        reader.compact_str()?;
        for _ in 0..reader.compact_len()?.unwrap_or(0) {
            reader.i32()?;
            let code = reader.i16()?;
            worst = if worst == 0 { code } else { worst };
            reader.skip_tags()?;
        }
        reader.skip_tags()?;
    }
    Ok(worst)
}

/// InitProducerId 4 of an idempotent producer, which may be a transactional one.
pub(crate) fn init_producer_id(transactional_id: Option<&str>) -> Vec<u8> {
    frame(api::INIT_PRODUCER_ID, 4, |out| {
        put_transactional_id(out, transactional_id);
        out.i32(60_000); // transaction timeout, ms
        out.i64(-1);
        out.i16(-1);
        out.no_tags();
    })
}

/// Reads an InitProducerId 4 reply: the error code, the producer id and its epoch.
pub(crate) fn read_init_producer_id(mut reader: Reader<'_>) -> Result<(i16, i64, i16)> {
    reader.i32()?; // throttle, ms
    Ok((reader.i16()?, reader.i64()?, reader.i16()?))
}

/// A Produce request built once and sent many times.
pub(crate) struct ProduceFrame {
    /// The whole frame.
    pub bytes: Vec<u8>,
    /// Each batch: its partition, and where in `bytes` it stands.
    pub batches: Vec<(u32, std::ops::Range<usize>)>,
}

fn put_transactional_id(out: &mut Vec<u8>, id: Option<&str>) {
    match id {
        Some(id) => out.compact_str(id),
        None => out.compact_null(),
    }
}

/// Produce of one batch for each of the given partitions of a topic.
pub(crate) fn produce(
    version: i16,
    topic: &Topic,
    acks: i16,
    transactional_id: Option<&str>,
    batches: &[(u32, &[u8])],
) -> ProduceFrame {
    let mut placed = Vec::with_capacity(batches.len());
    let bytes = frame(api::PRODUCE, version, |out| {
        put_transactional_id(out, transactional_id);
        out.i16(acks);
        out.i32(30_000); // timeout, ms
        out.compact_len(1);
        put_topic(out, version, topic);
        out.compact_len(batches.len());
        for &(partition, batch) in batches {
            out.i32(partition as i32);
            out.compact_len(batch.len());
            placed.push((partition, out.len()..out.len() + batch.len()));
            out.raw(batch);
            out.no_tags();
        }
        out.no_tags();
        out.no_tags();
    });
    ProduceFrame { bytes, batches: placed }
}

/// Reads a Produce reply; calls `seen` with each partition and its base offset.
pub(crate) fn read_produce(
    reader: Reader<'_>,
    version: i16,
    mut seen: impl FnMut(u32, i64) -> Result<()>,
) -> Result<()> {
    read_produce_codes(reader, version, |partition, code, base_offset, message| {
        if code != 0 {
            bail!("Produce to partition {partition}: the server answers error code {code} {message}");
        }
        seen(partition, base_offset)
    })
}

/// Reads a Produce reply; calls `seen` with each partition, its error code, its base offset and its error message.
pub(crate) fn read_produce_codes(
    mut reader: Reader<'_>,
    version: i16,
    mut seen: impl FnMut(u32, i16, i64, &str) -> Result<()>,
) -> Result<()> {
    for _ in 0..reader.compact_len()?.unwrap_or(0) {
        skip_topic(&mut reader, version)?;
        for _ in 0..reader.compact_len()?.unwrap_or(0) {
            let partition = reader.i32()?;
            let code = reader.i16()?;
            let base_offset = reader.i64()?;
            reader.i64()?; // append time
            reader.i64()?; // log start
            for _ in 0..reader.compact_len()?.unwrap_or(0) {
                reader.i32()?;
                reader.compact_bytes()?;
                reader.skip_tags()?;
            }
            let message = reader.compact_str()?;
            reader.skip_tags()?;
            seen(partition as u32, code, base_offset, message)?;
        }
        reader.skip_tags()?;
    }
    Ok(())
}

/// Limits of a Fetch request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchLimits {
    /// How long the server may wait for `min_bytes`, in ms.
    pub max_wait_ms: i32,
    /// Bytes that end the wait.
    pub min_bytes: i32,
    /// Bytes of a whole reply, about.
    pub max_bytes: i32,
    /// Bytes of one partition in a reply, about.
    pub partition_bytes: i32,
}

/// A fetch session's state as the client keeps it; id 0 is no session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Session {
    /// The server's number for it.
    pub id: i32,
    /// Counts its requests.
    pub epoch: i32,
}

/// Fetch of `positions` (partition, offset) of one topic.
pub(crate) fn fetch(
    version: i16,
    topic: &Topic,
    limits: &FetchLimits,
    session: Session,
    positions: impl ExactSizeIterator<Item = (u32, i64)>,
) -> Vec<u8> {
    frame(api::FETCH, version, |out| {
        out.i32(-1); // replica: a consumer
        out.i32(limits.max_wait_ms);
        out.i32(limits.min_bytes);
        out.i32(limits.max_bytes);
        out.i8(0); // read uncommitted
        out.i32(session.id);
        out.i32(session.epoch);
        if positions.len() == 0 {
            out.compact_len(0);
        } else {
            out.compact_len(1);
            put_topic(out, version, topic);
            out.compact_len(positions.len());
            for (partition, offset) in positions {
                out.i32(partition as i32);
                out.i32(-1); // leader epoch
                out.i64(offset);
                out.i32(-1); // last fetched epoch
                out.i64(-1); // log start: a follower's field
                out.i32(limits.partition_bytes);
                out.no_tags();
            }
            out.no_tags();
        }
        out.compact_len(0); // forgotten topics
        out.compact_str(""); // rack
        out.no_tags();
    })
}

/// One partition of a Fetch reply.
pub(crate) struct Fetched<'a> {
    /// The partition.
    pub partition: u32,
    /// Its error code.
    pub code: i16,
    /// Offset after the last committed record.
    pub high_watermark: i64,
    /// Record batches, the last of them perhaps cut.
    pub records: &'a [u8],
}

/// Reads a Fetch reply; returns its error code and its session id.
pub(crate) fn read_fetch<'a>(
    mut reader: Reader<'a>,
    version: i16,
    mut seen: impl FnMut(Fetched<'a>) -> Result<()>,
) -> Result<(i16, i32)> {
    reader.i32()?; // throttle, ms
    let code = reader.i16()?;
    let session = reader.i32()?;
    for _ in 0..reader.compact_len()?.unwrap_or(0) {
        skip_topic(&mut reader, version)?;
        for _ in 0..reader.compact_len()?.unwrap_or(0) {
            let partition = reader.i32()? as u32;
            let code = reader.i16()?;
            let high_watermark = reader.i64()?;
            reader.i64()?; // last stable offset
            reader.i64()?; // log start
            for _ in 0..reader.compact_len()?.unwrap_or(0) {
                reader.take(16)?; // an aborted transaction
                reader.skip_tags()?;
            }
            reader.i32()?; // preferred replica
            let records = reader.compact_bytes()?;
            reader.skip_tags()?;
            seen(Fetched { partition, code, high_watermark, records })?;
        }
        reader.skip_tags()?;
    }
    Ok((code, session))
}
