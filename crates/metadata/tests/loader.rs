//! Metadata transactions: what is published when.

use milena_metadata::{Image, Loader, Provenance, ReplayError};
use milena_protocol::messages::{
    AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord, ProducerIdsRecord, TopicRecord,
};
use milena_protocol::{MetadataRecord, Uuid};

fn topic(name: &'static str) -> MetadataRecord<'static> {
    let mut bytes = [7; 16];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    TopicRecord { name: name.into(), topic_id: Uuid::from_bytes(bytes) }.into()
}

fn begin() -> MetadataRecord<'static> {
    BeginTransactionRecord { name: None }.into()
}

fn end() -> MetadataRecord<'static> {
    EndTransactionRecord {}.into()
}

fn abort() -> MetadataRecord<'static> {
    AbortTransactionRecord { reason: None }.into()
}

fn ids(next_producer_id: i64) -> MetadataRecord<'static> {
    ProducerIdsRecord { broker_id: 1, broker_epoch: 1, next_producer_id }.into()
}

struct Log {
    loader: Loader,
    offset: i64,
}

impl Log {
    fn new() -> Self {
        Self { loader: Loader::new(Image::default()), offset: 0 }
    }

    /// Loads a batch; returns how many topics each image published has, and its last offset.
    fn batch(&mut self, records: &[MetadataRecord<'_>]) -> Result<Vec<(usize, i64)>, ReplayError> {
        let base = self.offset;
        self.offset += records.len() as i64;
        let provenance =
            Provenance { last_contained_offset: self.offset - 1, last_contained_epoch: 1, last_contained_timestamp: 5 };
        let loaded = self.loader.load(base, records, provenance)?;
        Ok(loaded.iter().map(|l| (l.image.topics().len(), l.image.provenance().last_contained_offset)).collect())
    }
}

#[test]
fn nothing_is_published_between_begin_and_end() {
    let mut log = Log::new();
    assert_eq!(log.batch(&[topic("a")]), Ok(vec![(1, 0)]));
    assert_eq!(log.batch(&[begin(), topic("b")]), Ok(vec![]));
    assert!(log.loader.in_transaction());
    assert_eq!(log.batch(&[topic("c")]), Ok(vec![]));
    assert_eq!(log.loader.image().topics().len(), 1);
    assert_eq!(log.batch(&[end(), topic("d")]), Ok(vec![(4, 5)]));
    assert!(!log.loader.in_transaction());
}

#[test]
fn an_abort_forgets_the_transaction_only() {
    let mut log = Log::new();
    assert_eq!(log.batch(&[topic("a"), begin(), topic("b")]), Ok(vec![(1, 0)]));
    assert_eq!(log.batch(&[topic("c"), abort(), topic("d")]), Ok(vec![(2, 5)]));
    assert!(log.loader.image().topics().get("a").is_some() && log.loader.image().topics().get("d").is_some());
}

#[test]
fn a_transaction_can_be_one_batch() {
    let mut log = Log::new();
    assert_eq!(log.batch(&[begin(), topic("a"), end()]), Ok(vec![(1, 2)]));
    assert_eq!(
        log.batch(&[ids(3), begin(), topic("b"), abort(), begin(), topic("c"), end()]).unwrap().last(),
        Some(&(2, 9))
    );
    assert_eq!(log.loader.image().next_producer_id(), 3);
}

#[test]
fn transactions_do_not_nest_and_end_once() {
    let error = |records: &[MetadataRecord<'_>]| Log::new().batch(records).unwrap_err().to_string();
    assert_eq!(error(&[begin(), begin()]), "BeginTransactionRecord at offset 1, but a transaction is already open");
    assert_eq!(error(&[end()]), "EndTransactionRecord at offset 0, but no transaction is open");
    assert_eq!(error(&[topic("a"), abort()]), "AbortTransactionRecord at offset 1, but no transaction is open");
}
