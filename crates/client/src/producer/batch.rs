//! A batch on its way: whole bytes that are sent until the broker has them.

use std::sync::Arc;

use bytes::Bytes;
use milena_records::{Batch, BatchBuilder, BatchMut, Compressor, Decompressor};
use tokio::time::Instant;

use super::accumulator::{Accumulator, Key, OpenBatch};
use super::delivery::{Completion, Outcome};
use super::sequences::Identity;
use crate::error::Error;

/// Most bytes that a batch of our own may decompress to.
const MAX_DECOMPRESSED: usize = i32::MAX as usize;

#[derive(Debug)]
pub(super) struct SealedBatch {
    pub(super) number: u64,
    /// Its place among all of its partition: number of the batch that it was begun as, and of its first record in that.
    pub(super) order: (u64, i32),
    pub(super) key: Key,
    pub(super) completion: Arc<Completion>,
    pub(super) begun: Instant,
    /// Bytes that it gives back when it has ended.
    pub(super) memory: usize,
    pub(super) bytes: Bytes,
    pub(super) records: i32,
    /// Of its first record; without meaning where the producer is not idempotent.
    pub(super) sequence: i32,
    /// How often it was sent.
    pub(super) sent: u32,
    /// It was sent, and no answer came, so that the broker may have it.
    pub(super) in_doubt: bool,
}

impl SealedBatch {
    /// Compresses a batch, with its place among those of its producer.
    pub(super) fn seal(
        mut open: OpenBatch,
        place: Option<(Identity, i32)>,
        compressor: &mut Compressor,
    ) -> Result<Self, Box<(OpenBatch, Error)>> {
        let (memory, records) = (open.builder.uncompressed_size(), open.builder.count());
        let sequence = place.map_or(-1, |(_, sequence)| sequence);
        if let Some((identity, sequence)) = place {
            open.builder.set_producer(identity.id, identity.epoch, sequence);
        }
        let bytes = match open.builder.take(compressor) {
            Ok(bytes) => Bytes::from(bytes),
            Err(error) => return Err(Box::new((open, error.into()))),
        };
        let OpenBatch { number, key, completion, begun, .. } = open;
        let order = (number, 0);
        Ok(Self { number, order, key, completion, begun, memory, bytes, records, sequence, sent: 0, in_doubt: false })
    }

    /// Gives the batch another place among those of its producer.
    pub(super) fn place(&mut self, identity: Identity, sequence: i32) {
        let mut bytes: Vec<u8> = std::mem::take(&mut self.bytes).into();
        if let Ok(mut batch) = BatchMut::parse(&mut bytes) {
            batch.set_producer(identity.id, identity.epoch, sequence);
            batch.update_crc();
        }
        self.bytes = bytes.into();
        self.sequence = sequence;
    }

    /// Splits a batch of more than one record, which was too large for the broker, into several of `batch_size` bytes.
    pub(super) fn split(
        self,
        accumulator: &Accumulator,
        template: &BatchBuilder,
        batch_size: usize,
        compressor: &mut Compressor,
    ) -> Result<Vec<Self>, Box<(Self, Error)>> {
        let builders = match self.parts(template, batch_size) {
            Ok(builders) => builders,
            Err(error) => return Err(Box::new((self, error))),
        };
        let mut parts = Vec::with_capacity(builders.len());
        let mut first = 0;
        for builder in builders {
            let completion = Arc::new(Completion::new(Arc::clone(&self.completion.topic), self.key.1));
            let records = builder.count();
            let open = OpenBatch { number: self.number, key: self.key, builder, completion, begun: self.begun };
            match Self::seal(open, None, compressor) {
                Ok(part) => parts.push((first, part)),
                Err(failed) => return Err(Box::new((self, failed.1))),
            }
            first += records;
        }
        // Together they give back what the whole would have.
        let mut left = self.memory;
        for (first, part) in &mut parts {
            part.order = (self.order.0, self.order.1 + *first);
            part.number = accumulator.number_part(&part.completion);
            part.memory = part.memory.min(left);
            left -= part.memory;
        }
        let places = parts.iter().map(|(first, part)| (*first, Arc::clone(&part.completion))).collect();
        self.completion.complete(Outcome::Split(places));
        accumulator.finished(self.number, left);
        Ok(parts.into_iter().map(|(_, part)| part).collect())
    }

    fn parts(&self, template: &BatchBuilder, batch_size: usize) -> Result<Vec<BatchBuilder>, Error> {
        let unreadable = |_| Error::from(milena_protocol::ErrorCode::CORRUPT_MESSAGE);
        let batch = Batch::parse(&self.bytes).map_err(|_| Error::from(milena_protocol::ErrorCode::CORRUPT_MESSAGE))?;
        let mut decompressor = Decompressor::new(MAX_DECOMPRESSED);
        // At least two, also where all of it would fit into one.
        let limit = batch_size.min(self.memory / 2);
        let mut parts = vec![template.clone()];
        for record in batch.records(&mut decompressor).map_err(unreadable)? {
            let record = record.map_err(unreadable)?;
            let mut last = parts.len() - 1;
            let size = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
            if !parts[last].is_empty() && parts[last].uncompressed_size() + size > limit {
                parts.push(template.clone());
                last += 1;
            }
            let delta = parts[last].count();
            parts[last].push_record(delta, record.timestamp(&batch), &record);
        }
        Ok(parts)
    }
}
