//! What the floor answers. It reads requests just far enough to keep a true log.

use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};

use super::conn::{Conn, WaitingFetch};
use super::log::{Log, PartitionId, Pending};
use crate::batch;
use crate::messages::{TOPIC_ID_VERSION, api};
use crate::wire::{Put, Reader};

/// File ranges shorter than this are copied into the reply, longer ones go by sendfile; in bytes.
const SENDFILE_BYTES: usize = 32 << 10;
/// API, oldest version, newest version.
const VERSIONS: [(i16, i16, i16); 7] = [
    (api::PRODUCE, 9, 13),
    (api::FETCH, 12, 13),
    (api::METADATA, 12, 12),
    (api::API_VERSIONS, 0, 3),
    (api::CREATE_TOPICS, 7, 7),
    (api::DELETE_TOPICS, 6, 6),
    (api::INIT_PRODUCER_ID, 4, 4),
];

/// A request's header, and the reader of its body.
pub(super) struct Request<'a> {
    key: i16,
    version: i16,
    correlation: i32,
    body: Reader<'a>,
}

impl<'a> Request<'a> {
    fn open(frame: &'a [u8]) -> Result<Self> {
        let mut body = Reader::new(frame);
        let (key, version, correlation) = (body.i16()?, body.i16()?, body.i32()?);
        body.str16()?; // client id
        if key != api::API_VERSIONS || version >= 3 {
            body.skip_tags()?;
        }
        Ok(Self { key, version, correlation, body })
    }

    fn topic(&mut self, log: &Log) -> Result<usize> {
        if self.version >= TOPIC_ID_VERSION {
            log.identified(&self.body.uuid()?)
        } else {
            log.named(self.body.compact_str()?)
        }
        .context("unknown topic")
    }
}

/// Batches taken in during one wake-up, by partition.
#[derive(Default)]
pub(super) struct Intake {
    /// Partitions with batches to write.
    pub dirty: Vec<(PartitionId, Vec<Pending>)>,
    next_producer_id: i64,
}

impl Intake {
    fn add(&mut self, id: PartitionId, pending: Pending) {
        // Few partitions are written in a wake-up, and mostly one after another.
        match self.dirty.iter_mut().rev().take(16).find(|(dirty, _)| *dirty == id) {
            Some((_, batches)) => batches.push(pending),
            None => self.dirty.push((id, vec![pending])),
        }
    }

    fn init_producer_id(&mut self, out: &mut Vec<u8>) {
        out.no_tags();
        out.i32(0); // throttle, ms
        out.i16(0);
        out.i64(self.next_producer_id);
        out.i16(0);
        out.no_tags();
        self.next_producer_id += 1;
    }
}

/// Starts a reply; returns where, for [`seal`].
fn begin(out: &mut Vec<u8>, correlation: i32) -> usize {
    let at = out.len();
    out.i32(0);
    out.i32(correlation);
    at
}

/// Sets the length prefix of the reply begun at `at`, of which `elsewhere` bytes are in files.
fn seal(out: &mut [u8], at: usize, elsewhere: usize) {
    let len = (out.len() - at - 4 + elsewhere) as i32;
    out[at..at + 4].copy_from_slice(&len.to_be_bytes());
}

/// What requests are answered from.
pub(super) struct Broker {
    /// The log.
    pub log: Log,
    /// What this wake-up has taken in.
    pub intake: Intake,
    /// The port that Metadata names.
    pub port: u16,
    /// The server's clock at this wake-up, in ns.
    pub now: u64,
}

impl Broker {
    /// Handles one request, which stands at `at` in the buffer of connection `number`.
    pub(super) fn handle(&mut self, conn: &mut Conn, number: usize, at: Range<usize>) -> Result<()> {
        ensure!(conn.fetch.is_none(), "the floor takes nothing behind a waiting fetch");
        // Taken out while it's read, so that the reply can go onto the same connection.
        let buffer = std::mem::take(&mut conn.buffer);
        let from = conn.out.len();
        let result = self.answer(&buffer[..at.end], at.start, conn, number);
        conn.buffer = buffer;
        if conn.out.len() > from {
            conn.queue_bytes(from);
        }
        result
    }

    /// Answers the request that fills `buffer` from `start` on.
    fn answer(&mut self, buffer: &[u8], start: usize, conn: &mut Conn, number: usize) -> Result<()> {
        let mut request = Request::open(&buffer[start..])?;
        let out = &mut conn.out;
        match request.key {
            api::PRODUCE => return produce(request, buffer.len(), number, out, &mut self.log, &mut self.intake),
            api::FETCH => {
                request.body.i32()?; // replica
                let wait_ns = request.body.i32()?.max(0) as u64 * 1_000_000;
                let deadline = self.now + wait_ns;
                conn.fetch = Some(WaitingFetch { request: buffer[start..].to_vec(), deadline });
                return Ok(());
            }
            _ => {}
        }
        let at = begin(out, request.correlation);
        match request.key {
            api::API_VERSIONS => api_versions(out, request.version),
            api::METADATA => metadata(request, out, &self.log, self.port)?,
            api::CREATE_TOPICS => create_topics(request, out, &mut self.log)?,
            api::DELETE_TOPICS => delete_topics(request, out, &mut self.log)?,
            api::INIT_PRODUCER_ID => self.intake.init_producer_id(out),
            key => bail!("the floor does not speak API {key}"),
        }
        seal(out, at, 0);
        Ok(())
    }

    /// Answers the waiting fetch of a connection if there is data for it or its time is up; else
    /// makes the connection a follower of its partitions.
    pub(super) fn fetch(&mut self, conn: &mut Conn, number: usize) -> Result<()> {
        let Some(waiting) = conn.fetch.take() else { return Ok(()) };
        let log = &mut self.log;
        let plan = plan_fetch(&mut Request::open(&waiting.request)?, log)?;
        if self.now >= waiting.deadline || plan.iter().any(|part| part.len > 0) {
            return reply_to_fetch(&Request::open(&waiting.request)?, &plan, conn, log);
        }
        for part in plan {
            if !conn.follows.contains(&part.id)
                && let Some(partition) = log.partition(part.id)
            {
                conn.follows.push(part.id);
                partition.followers.push(number);
            }
        }
        conn.fetch = Some(waiting);
        Ok(())
    }
}

/// Gives each batch its offset, notes where it stands in the buffer, and answers; the request ends
/// at `end` of that buffer.
fn produce(
    mut request: Request<'_>,
    end: usize,
    number: usize,
    out: &mut Vec<u8>,
    log: &mut Log,
    intake: &mut Intake,
) -> Result<()> {
    request.body.compact_bytes()?; // transactional id
    let acks = request.body.i16()?;
    request.body.i32()?; // timeout
    let at = begin(out, request.correlation);
    out.no_tags();
    let topics = request.body.compact_len()?.unwrap_or(0);
    out.compact_len(topics);
    for _ in 0..topics {
        let topic = request.topic(log)?;
        put_topic(out, request.version, topic, log)?;
        let partitions = request.body.compact_len()?.unwrap_or(0);
        out.compact_len(partitions);
        for _ in 0..partitions {
            let partition = request.body.i32()?;
            let len = request.body.compact_len()?.unwrap_or(0);
            let start = end - request.body.remaining();
            let head = batch::header(request.body.take(len)?).context("a batch without a header")?;
            request.body.skip_tags()?;
            let id = (topic, partition as usize);
            let target = log.partition(id).context("unknown partition")?;
            let base_offset = target.take_offsets(i64::from(head.last_offset_delta) + 1);
            intake.add(id, Pending { conn: number, range: start..start + len, base_offset });
            out.i32(partition);
            out.i16(0);
            out.i64(base_offset);
            out.i64(-1); // append time
            out.i64(0); // log start
            out.compact_len(0); // record errors
            out.compact_null(); // message
            out.no_tags();
        }
        request.body.skip_tags()?;
        out.no_tags();
    }
    out.i32(0); // throttle, ms
    out.no_tags();
    if acks == 0 {
        out.truncate(at);
    } else {
        seal(out, at, 0);
    }
    Ok(())
}

/// Puts the reply to a fetch onto the connection.
fn reply_to_fetch(request: &Request<'_>, plan: &[Part], conn: &mut Conn, log: &mut Log) -> Result<()> {
    let mut from = conn.out.len();
    let at = begin(&mut conn.out, request.correlation);
    conn.out.no_tags();
    conn.out.i32(0); // throttle, ms
    conn.out.i16(0);
    conn.out.i32(0); // no session
    let topics = plan.chunk_by(|a, b| a.id.0 == b.id.0);
    conn.out.compact_len(topics.clone().count());
    let mut in_files = 0;
    for parts in topics {
        put_topic(&mut conn.out, request.version, parts[0].id.0, log)?;
        conn.out.compact_len(parts.len());
        for part in parts {
            let partition = log.partition(part.id).context("unknown partition")?;
            let out = &mut conn.out;
            out.i32(part.id.1 as i32);
            out.i16(0);
            out.i64(partition.next_offset());
            out.i64(partition.next_offset()); // last stable offset
            out.i64(0); // log start
            out.compact_null(); // aborted transactions
            out.i32(-1); // preferred replica
            out.compact_len(part.len);
            if part.len < SENDFILE_BYTES {
                partition.read(part.position, part.len, out)?;
            } else {
                conn.queue_bytes(from);
                from = conn.out.len();
                conn.queue_file(part.id, part.position, part.len);
                in_files += part.len;
            }
            conn.out.no_tags();
        }
        conn.out.no_tags();
    }
    conn.out.no_tags();
    seal(&mut conn.out, at, in_files);
    conn.queue_bytes(from);
    Ok(())
}

fn put_topic(out: &mut Vec<u8>, version: i16, topic: usize, log: &Log) -> Result<()> {
    if version >= TOPIC_ID_VERSION {
        out.raw(&Log::id(topic));
    } else {
        out.compact_str(log.describe(topic).context("unknown topic")?.0);
    }
    Ok(())
}

/// One partition of a reply under construction.
struct Part {
    id: PartitionId,
    position: u64,
    len: usize,
}

fn plan_fetch(request: &mut Request<'_>, log: &mut Log) -> Result<Vec<Part>> {
    let mut plan = Vec::new();
    let mut room = None;
    for_each_position(request, log, |log, id, offset, (max, partition_max)| {
        let room = room.get_or_insert(max);
        let partition = log.partition(id).context("unknown partition")?;
        let (position, len) = if *room > 0 { partition.slice(offset, partition_max.min(*room)) } else { (0, 0) };
        *room = room.saturating_sub(len);
        plan.push(Part { id, position, len: len as usize });
        Ok(())
    })?;
    Ok(plan)
}

/// Reads a Fetch body: calls `each` with partition, offset, and the limits of reply and partition.
fn for_each_position(
    request: &mut Request<'_>,
    log: &mut Log,
    mut each: impl FnMut(&mut Log, PartitionId, i64, (u64, u64)) -> Result<()>,
) -> Result<()> {
    request.body.take(12)?; // replica, longest wait, least bytes
    let max = request.body.i32()?.max(0) as u64;
    request.body.take(9)?; // isolation, session
    for _ in 0..request.body.compact_len()?.unwrap_or(0) {
        let topic = request.topic(log)?;
        for _ in 0..request.body.compact_len()?.unwrap_or(0) {
            let partition = request.body.i32()? as usize;
            request.body.i32()?; // leader epoch
            let offset = request.body.i64()?;
            request.body.take(12)?; // last fetched epoch, log start
            let partition_max = request.body.i32()?.max(0) as u64;
            request.body.skip_tags()?;
            each(log, (topic, partition), offset, (max, partition_max))?;
        }
        request.body.skip_tags()?;
    }
    Ok(())
}

fn api_versions(out: &mut Vec<u8>, version: i16) {
    out.i16(0);
    if version >= 3 {
        out.compact_len(VERSIONS.len());
    } else {
        out.i32(VERSIONS.len() as i32);
    }
    for (key, oldest, newest) in VERSIONS {
        out.i16(key);
        out.i16(oldest);
        out.i16(newest);
        if version >= 3 {
            out.no_tags();
        }
    }
    if version >= 1 {
        out.i32(0); // throttle, ms
    }
    if version >= 3 {
        out.no_tags();
    }
}

fn metadata(mut request: Request<'_>, out: &mut Vec<u8>, log: &Log, port: u16) -> Result<()> {
    out.no_tags();
    out.i32(0); // throttle, ms
    out.compact_len(1);
    out.i32(1); // node
    out.compact_str("127.0.0.1");
    out.i32(i32::from(port));
    out.compact_null(); // rack
    out.no_tags();
    out.compact_str("floor"); // cluster id
    out.i32(1); // controller
    let topics = request.body.compact_len()?.unwrap_or(0);
    out.compact_len(topics);
    for _ in 0..topics {
        request.body.uuid()?;
        let name = request.body.compact_str()?;
        request.body.skip_tags()?;
        metadata_topic(name, out, log);
    }
    out.no_tags();
    Ok(())
}

fn metadata_topic(name: &str, out: &mut Vec<u8>, log: &Log) {
    const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
    let topic = log.named(name);
    let partitions = topic.and_then(|topic| log.describe(topic)).map_or(0, |(_, partitions)| partitions);
    out.i16(if topic.is_some() { 0 } else { UNKNOWN_TOPIC_OR_PARTITION });
    out.compact_str(name);
    out.raw(&topic.map(Log::id).unwrap_or_default());
    out.i8(0); // internal
    out.compact_len(partitions);
    for partition in 0..partitions {
        out.i16(0);
        out.i32(partition as i32);
        out.i32(1); // leader
        out.i32(0); // leader epoch
        for nodes in [&[1][..], &[1], &[]] {
            // replicas, in-sync replicas, offline replicas
            out.compact_len(nodes.len());
            nodes.iter().for_each(|&node| out.i32(node));
        }
        out.no_tags();
    }
    out.i32(i32::MIN); // authorized operations
    out.no_tags();
}

fn create_topics(mut request: Request<'_>, out: &mut Vec<u8>, log: &mut Log) -> Result<()> {
    let count = request.body.compact_len()?;
    if count != Some(1) {
        bail!("the floor creates one topic a request");
    }
    let name = request.body.compact_str()?;
    let partitions = request.body.i32()?.max(1) as usize;
    let topic = log.create_topic(name, partitions)?;
    out.no_tags();
    out.i32(0); // throttle, ms
    out.compact_len(1);
    out.compact_str(name);
    out.raw(&Log::id(topic));
    out.i16(0);
    out.compact_null(); // message
    out.i32(partitions as i32);
    out.i16(1);
    out.compact_len(0); // configs
    out.no_tags();
    out.no_tags();
    Ok(())
}

fn delete_topics(mut request: Request<'_>, out: &mut Vec<u8>, log: &mut Log) -> Result<()> {
    out.no_tags();
    out.i32(0); // throttle, ms
    let topics = request.body.compact_len()?.unwrap_or(0);
    out.compact_len(topics);
    for _ in 0..topics {
        let name = request.body.compact_str()?;
        let id = request.body.uuid()?;
        request.body.skip_tags()?;
        log.delete_topic(name)?;
        out.compact_str(name);
        out.raw(&id);
        out.i16(0);
        out.compact_null(); // message
        out.no_tags();
    }
    out.no_tags();
    Ok(())
}
