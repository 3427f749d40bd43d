//! The settings of a producer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use milena_records::Compression;

use super::Producer;
use super::partitioner::{Partitioner, RoundRobin};
use crate::client::Client;
use crate::error::Error;
use crate::settings::{boolean, millis, number, set_by_name};

/// Which answer a produced batch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// None at all.
    None,
    /// That the leader has written it.
    Leader,
    /// That all replicas in sync have it.
    All,
}

impl Acks {
    pub(super) fn code(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Leader => 1,
            Self::All => -1,
        }
    }
}

/// What a producer was built with.
#[derive(Debug, Clone)]
pub(super) struct ProducerConfig {
    pub(super) acks: Acks,
    pub(super) linger: Duration,
    pub(super) batch_size: usize,
    pub(super) buffer_memory: usize,
    pub(super) max_block: Duration,
    pub(super) max_request_size: usize,
    pub(super) compression: Compression,
    pub(super) level: i32,
    pub(super) idempotence: bool,
    pub(super) retries: u32,
    pub(super) delivery_timeout: Duration,
    pub(super) max_in_flight: usize,
    pub(super) ignore_keys: bool,
    pub(super) partitioner: Option<Arc<dyn Partitioner>>,
    pub(super) adaptive: bool,
    pub(super) transactional_id: Option<String>,
    pub(super) transaction_timeout: Duration,
}

/// Builds a [`Producer`]. Each common setting has a method; all have Kafka's name for [`set`](Self::set) and
/// [`properties`](Self::properties), and Kafka's default.
///
/// | setting | default | meaning |
/// |---|---|---|
/// | `acks` | `all` | which answer a record waits for: `all`, `1`, `0` |
/// | `enable.idempotence` | `true` | a record that is sent again is not written again |
/// | `linger.ms` | 5 | how long a batch waits for more records |
/// | `batch.size` | 16384 | bytes of a batch, as they are sent |
/// | `buffer.memory` | 33554432 | bytes of records that wait, beyond which [`Producer::send`] waits |
/// | `max.block.ms` | 60000 | how long it waits, for memory and for the topic to be known |
/// | `max.request.size` | 1048576 | the largest record, and the largest request with more than one batch |
/// | `compression.type` | `none` | `none`, `gzip`, `snappy`, `lz4`, `zstd` |
/// | `compression.gzip.level`, `compression.lz4.level`, `compression.zstd.level` | -1, 9, 3 | how hard |
/// | `retries` | 2147483647 | how often a batch is tried again, within the next |
/// | `delivery.timeout.ms` | 120000 | how long a record may take until its fate is known |
/// | `max.in.flight.requests.per.connection` | 5 | requests that wait for answers of one broker |
/// | `partitioner.class` | | `RoundRobinPartitioner`, with or without its package, or as [`partitioner`](Self::partitioner) says; without it keys decide |
/// | `partitioner.ignore.keys` | `false` | whether keys have no say in the partition |
/// | `partitioner.adaptive.partitioning.enable` | `true` | whether partitions that are behind get fewer records |
/// | `transactional.id` | | makes the producer transactional |
/// | `transaction.timeout.ms` | 60000 | when the broker gives a transaction up |
#[derive(Debug, Clone)]
pub struct ProducerBuilder {
    client: Client,
    config: ProducerConfig,
    /// What was set rather than left at its default.
    set: BTreeSet<String>,
    levels: [Option<i32>; 5],
}

impl ProducerBuilder {
    pub(crate) fn new(client: Client) -> Self {
        let ms = Duration::from_millis;
        let config = ProducerConfig {
            acks: Acks::All,
            linger: ms(5),
            batch_size: 16_384,
            buffer_memory: 32 << 20,
            max_block: ms(60_000),
            max_request_size: 1 << 20,
            compression: Compression::None,
            level: 0,
            idempotence: true,
            retries: i32::MAX.unsigned_abs(),
            delivery_timeout: ms(120_000),
            max_in_flight: 5,
            ignore_keys: false,
            partitioner: None,
            adaptive: true,
            transactional_id: None,
            transaction_timeout: ms(60_000),
        };
        Self { client, config, set: BTreeSet::new(), levels: [None; 5] }
    }

    /// Which answer a record waits for. Less than all is not idempotent.
    #[must_use]
    pub fn acks(mut self, acks: Acks) -> Self {
        self.config.acks = acks;
        self
    }

    /// How long a batch waits for more records.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.config.linger = linger;
        self
    }

    /// Bytes of a batch, as they are sent.
    #[must_use]
    pub fn batch_size(mut self, bytes: usize) -> Self {
        self.config.batch_size = bytes;
        self
    }

    /// Bytes of records that may wait.
    #[must_use]
    pub fn buffer_memory(mut self, bytes: usize) -> Self {
        self.config.buffer_memory = bytes;
        self
    }

    /// The codec of batches, at its default level.
    #[must_use]
    pub fn compression(mut self, codec: Compression) -> Self {
        self.config.compression = codec;
        self
    }

    /// How long a record may take until its fate is known.
    #[must_use]
    pub fn delivery_timeout(mut self, timeout: Duration) -> Self {
        self.config.delivery_timeout = timeout;
        self
    }

    /// How long [`Producer::send`] waits for memory and for the topic to be known.
    #[must_use]
    pub fn max_block(mut self, time: Duration) -> Self {
        self.config.max_block = time;
        self
    }

    /// Who chooses the partitions of records that name none, instead of their keys and the producer.
    #[must_use]
    pub fn partitioner(mut self, partitioner: impl Partitioner + 'static) -> Self {
        self.config.partitioner = Some(Arc::new(partitioner));
        self
    }

    /// Makes the producer transactional.
    #[must_use]
    pub fn transactional_id(mut self, id: impl Into<String>) -> Self {
        self.config.transactional_id = Some(id.into());
        self
    }

    set_by_name!("producer", "the client's");

    /// The producer. It needs to be inside a tokio runtime, where it starts its task.
    ///
    /// # Errors
    /// [`Error::Config`] for settings that contradict each other.
    pub fn build(mut self) -> Result<Producer, Error> {
        self.settle_idempotence()?;
        let config = &mut self.config;
        let codec = config.compression;
        let default = if codec == Compression::Gzip { -1 } else { codec.default_level() };
        config.level = usize::try_from(codec.id()).ok().and_then(|id| self.levels[id]).unwrap_or(default);
        config.batch_size = config.batch_size.max(1);
        let shortest = config.linger + self.client.config().request_timeout;
        if config.delivery_timeout < shortest {
            if self.set.contains("delivery.timeout.ms") {
                let reason = "must be at least linger.ms and request.timeout.ms together";
                return Err(Error::config("delivery.timeout.ms", reason));
            }
            config.delivery_timeout = shortest;
        }
        Ok(Producer::start(self.client, self.config))
    }

    /// As in Kafka: idempotence that nobody asked for gives way to settings that exclude it.
    fn settle_idempotence(&mut self) -> Result<(), Error> {
        let config = &mut self.config;
        let wanted = self.set.contains("enable.idempotence") && config.idempotence || config.transactional_id.is_some();
        if config.transactional_id.is_some() && !config.idempotence {
            return Err(Error::config("enable.idempotence", "transactions need it"));
        }
        let against = [
            (config.acks != Acks::All, "acks", "must be all for an idempotent producer"),
            (config.retries == 0, "retries", "must not be 0 for an idempotent producer"),
            (
                config.max_in_flight > 5,
                "max.in.flight.requests.per.connection",
                "must be at most 5 for an idempotent producer",
            ),
        ];
        for (excludes, key, reason) in against {
            if excludes && wanted {
                return Err(Error::config(key, reason));
            }
            config.idempotence &= !excludes;
        }
        Ok(())
    }

    /// Sets one property by Kafka's name, if it is a producer's; says whether it is.
    ///
    /// # Errors
    /// [`Error::Config`] for a value that the property can't have.
    pub fn property(&mut self, key: &str, value: &str) -> Result<bool, Error> {
        let config = &mut self.config;
        let size = |min: usize| number(key, value, min..=i32::MAX as usize);
        match key {
            "acks" => config.acks = acks(key, value)?,
            "enable.idempotence" => config.idempotence = boolean(key, value)?,
            "linger.ms" => config.linger = millis(key, value)?,
            "batch.size" => config.batch_size = size(0)?,
            "buffer.memory" => config.buffer_memory = number(key, value, 0..=usize::MAX >> 1)?,
            "max.block.ms" => config.max_block = millis(key, value)?,
            "max.request.size" => config.max_request_size = size(0)?,
            "compression.type" => {
                let unknown = || Error::config(key, format!("`{value}` is no codec"));
                config.compression = Compression::from_name(value).ok_or_else(unknown)?;
            }
            "compression.gzip.level" => self.level(key, value, Compression::Gzip)?,
            "compression.lz4.level" => self.level(key, value, Compression::Lz4)?,
            "compression.zstd.level" => self.level(key, value, Compression::Zstd)?,
            "retries" => config.retries = number(key, value, 0..=i32::MAX.unsigned_abs())?,
            "delivery.timeout.ms" => config.delivery_timeout = millis(key, value)?,
            "max.in.flight.requests.per.connection" => config.max_in_flight = size(1)?,
            "partitioner.class" => config.partitioner = partitioner(key, value)?,
            "partitioner.ignore.keys" => config.ignore_keys = boolean(key, value)?,
            "partitioner.adaptive.partitioning.enable" => config.adaptive = boolean(key, value)?,
            "transactional.id" => config.transactional_id = Some(value.to_owned()),
            "transaction.timeout.ms" => config.transaction_timeout = millis(key, value)?,
            _ => return Ok(false),
        }
        self.set.insert(key.to_owned());
        Ok(true)
    }

    fn level(&mut self, key: &str, value: &str, codec: Compression) -> Result<(), Error> {
        let level = number(key, value, codec.levels())?;
        self.levels[codec.id().unsigned_abs() as usize] = Some(level);
        Ok(())
    }
}

fn partitioner(key: &str, value: &str) -> Result<Option<Arc<dyn Partitioner>>, Error> {
    match value.trim().rsplit('.').next() {
        Some("") => Ok(None),
        Some("RoundRobinPartitioner") => Ok(Some(Arc::new(RoundRobin::default()))),
        _ => Err(Error::config(key, format!("`{value}` is not RoundRobinPartitioner"))),
    }
}

fn acks(key: &str, value: &str) -> Result<Acks, Error> {
    match value.trim() {
        "all" | "-1" => Ok(Acks::All),
        "1" => Ok(Acks::Leader),
        "0" => Ok(Acks::None),
        _ => Err(Error::config(key, format!("`{value}` is none of all, 1 and 0"))),
    }
}
