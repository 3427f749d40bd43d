//! Reading a partition back, request by request.

use std::collections::HashSet;

use milena_client::protocol::messages::FetchRequest;
use milena_client::protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use milena_client::{Client, Target, check};
use milena_records::{Decompressor, batches};

/// A record as a consumer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<String>,
    pub value: Option<String>,
    pub headers: Vec<(String, Option<String>)>,
}

/// All records of a partition. The checksum of each batch is looked at.
pub async fn read_all(client: &Client, topic: &str, partition: i32) -> Vec<Read> {
    read_all_with(client, topic, partition, 0).await
}

/// All records of a partition that are committed.
pub async fn read_committed(client: &Client, topic: &str, partition: i32) -> Vec<Read> {
    read_all_with(client, topic, partition, 1).await
}

async fn read_all_with(client: &Client, topic: &str, partition: i32, isolation_level: i8) -> Vec<Read> {
    let mut records = Vec::new();
    let mut offset = 0;
    loop {
        let (more, next, end) = read_from(client, topic, partition, offset, isolation_level).await;
        offset = next;
        records.extend(more);
        if offset >= end {
            return records;
        }
    }
}

/// Records from an offset on, the offset that follows, and where the partition ends.
async fn read_from(
    client: &Client,
    topic: &str,
    partition: i32,
    offset: i64,
    isolation_level: i8,
) -> (Vec<Read>, i64, i64) {
    let wanted = FetchPartition { partition, fetch_offset: offset, partition_max_bytes: 1 << 20, ..Default::default() };
    let topics = vec![FetchTopic { topic: topic.into(), partitions: vec![wanted], ..Default::default() }];
    let request = FetchRequest { max_wait_ms: 500, min_bytes: 1, isolation_level, topics, ..Default::default() };
    let fetch = client.call(Target::Leader(topic, partition), &request).versions(4..=12).read(|response| {
        check(response.error_code, None)?;
        let data = &response.responses[0].partitions[0];
        check(data.error_code, None)?;
        let bytes = data.records.map(|records| records.bytes()).unwrap_or_default();
        let aborted = data.aborted_transactions.iter().flatten();
        let aborted = aborted.map(|aborted| (aborted.producer_id, aborted.first_offset)).collect();
        let (records, next) = decode(bytes, offset, aborted);
        // Also where a transaction is about to end: its markers are waited for.
        Ok((records, next, data.high_watermark))
    });
    fetch.await.unwrap()
}

fn decode(bytes: &[u8], from: i64, mut aborted: Vec<(i64, i64)>) -> (Vec<Read>, i64) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut decompressor = Decompressor::new(64 << 20);
    let (mut all, mut next) = (Vec::new(), from);
    let mut skipped = HashSet::new();
    // A batch that is cut off is fetched again.
    for batch in batches(bytes).map_while(Result::ok) {
        batch.verify_crc().unwrap();
        next = batch.next_offset();
        let (begun, later): (Vec<_>, _) = aborted.into_iter().partition(|(_, first)| *first <= batch.base_offset());
        skipped.extend(begun.into_iter().map(|(id, _)| id));
        aborted = later;
        if batch.is_control() {
            skipped.remove(&batch.producer_id());
            continue;
        }
        if batch.is_transactional() && skipped.contains(&batch.producer_id()) {
            continue;
        }
        for record in batch.records(&mut decompressor).unwrap().map(Result::unwrap) {
            all.push(Read {
                offset: record.offset(&batch),
                timestamp: record.timestamp(&batch),
                key: record.key.map(text),
                value: record.value.map(text),
                headers: record.headers.iter().map(|header| (text(header.key), header.value.map(text))).collect(),
            });
        }
    }
    all.retain(|record| record.offset >= from);
    (all, next)
}
