//! The role of a connection that does one transaction after another: one Produce, then EndTxn. Each end raises the
//! producer's epoch, so sequences begin anew; the server adds the partitions itself.

use anyhow::{Context, Result, bail, ensure};

use crate::batch;
use crate::conn::Conn;
use crate::messages::{self, ProduceFrame, api};
use crate::producer::Identity;
use crate::reactor::Role;
use crate::wire::{Put, Reader};
use crate::world::World;

/// First version of EndTxn that raises the epoch.
const END_TXN_VERSION: i16 = 5;
/// The transaction before is still being ended.
const CONCURRENT_TRANSACTIONS: i16 = 51;
/// When a request that came too early is sent again, in ns: as Kafka's clients do.
const BACKOFF: u64 = 20_000_000;

/// What a connection does again and again.
pub(crate) struct TransactorSpec {
    /// Produce version of the frame.
    pub version: i16,
    /// Transactional id.
    pub id: String,
    /// Its producer.
    pub identity: Identity,
    /// All batches of one transaction.
    pub frame: ProduceFrame,
    /// Records of each batch.
    pub records_per_batch: u32,
}

/// Where a transaction stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Produce,
    End,
}

/// Does transactions, and checks each reply.
pub(crate) struct Transactor {
    spec: TransactorSpec,
    /// What is sent next, or awaits its reply.
    step: Step,
    waits: bool,
    correlation: i32,
    /// When the transaction began, in ns.
    began: u64,
    /// Not to be sent before, in ns.
    not_before: u64,
    /// Base offset that each batch must get.
    next_offset: i64,
}

impl Transactor {
    /// One that has done nothing yet.
    pub(crate) fn new(spec: TransactorSpec) -> Self {
        Self { spec, step: Step::Produce, waits: false, correlation: 0, began: 0, not_before: 0, next_offset: 0 }
    }

    /// The reply to Produce; true when all batches are written.
    fn produced(&mut self, body: Reader<'_>) -> Result<bool> {
        let (mut written, mut early) = (0, 0);
        messages::read_produce_codes(body, self.spec.version, |partition, code, base, message| {
            match code {
                0 => {
                    ensure!(base == self.next_offset, "base offset {base} where {} is next", self.next_offset);
                    written += 1;
                }
                CONCURRENT_TRANSACTIONS => early += 1,
                _ => bail!("Produce to partition {partition}: the server answers error code {code} {message}"),
            }
            Ok(())
        })?;
        let batches = self.spec.frame.batches.len();
        ensure!(
            written + early == batches && (written == 0 || early == 0),
            "{written} of {batches} batches are written"
        );
        Ok(early == 0)
    }

    /// The reply to EndTxn; true when the transaction is ended.
    fn ended(&mut self, body: Reader<'_>) -> Result<bool> {
        let (code, identity) = read_end_txn(body)?;
        if code == CONCURRENT_TRANSACTIONS {
            return Ok(false);
        }
        messages::check_code(code, "EndTxn")?;
        self.spec.identity = identity;
        // A marker follows the records.
        self.next_offset += i64::from(self.spec.records_per_batch) + 1;
        Ok(true)
    }

    fn count(&self, now: u64, world: &mut World) {
        if !world.recording {
            return;
        }
        let batches = &self.spec.frame.batches;
        world.stats.calls += 1;
        world.stats.call_latency.add(now - self.began);
        world.stats.produced_records += batches.len() as u64 * u64::from(self.spec.records_per_batch);
        world.stats.produced_bytes += batches.iter().map(|(_, place)| place.len() as u64).sum::<u64>();
    }
}

impl Role for Transactor {
    fn pump(&mut self, now: u64, conn: &mut Conn, _world: &mut World) -> Result<Option<u64>> {
        if self.waits {
            return Ok(None);
        }
        if now < self.not_before {
            return Ok(Some(self.not_before));
        }
        self.correlation = self.correlation.wrapping_add(1);
        match self.step {
            Step::Produce => {
                let Identity { id, epoch } = self.spec.identity;
                let ProduceFrame { bytes, batches } = &mut self.spec.frame;
                batches.iter().for_each(|(_, place)| batch::stamp(&mut bytes[place.clone()], id, epoch, 0));
                messages::set_correlation(bytes, self.correlation);
                conn.send(bytes)?;
                if self.not_before == 0 {
                    self.began = now;
                }
            }
            Step::End => {
                let mut frame = end_txn(&self.spec.id, self.spec.identity);
                messages::set_correlation(&mut frame, self.correlation);
                conn.send(&frame)?;
            }
        }
        self.waits = true;
        Ok(None)
    }

    fn reply(&mut self, now: u64, reply: &[u8], world: &mut World) -> Result<()> {
        ensure!(std::mem::take(&mut self.waits), "a reply to nothing");
        let body = messages::open_reply(reply, self.correlation)?;
        let is_done = match self.step {
            Step::Produce => self.produced(body)?,
            Step::End => self.ended(body)?,
        };
        if !is_done {
            self.not_before = now + BACKOFF;
            return Ok(());
        }
        self.not_before = 0;
        self.step = match self.step {
            Step::Produce => Step::End,
            Step::End => {
                self.count(now, world);
                Step::Produce
            }
        };
        Ok(())
    }

    fn in_flight(&self) -> usize {
        usize::from(self.waits)
    }
}

/// EndTxn that commits.
fn end_txn(id: &str, producer: Identity) -> Vec<u8> {
    messages::frame(api::END_TXN, END_TXN_VERSION, |out| {
        out.compact_str(id);
        out.i64(producer.id);
        out.i16(producer.epoch);
        out.i8(1); // committed
        out.no_tags();
    })
}

/// Reads an EndTxn 5 reply: the error code, and what the producer is from now on.
fn read_end_txn(mut reader: Reader<'_>) -> Result<(i16, Identity)> {
    reader.i32()?; // throttle, ms
    let code = reader.i16()?;
    let (id, epoch) = (reader.i64()?, reader.i16().context("no epoch")?);
    Ok((code, Identity { id, epoch }))
}
