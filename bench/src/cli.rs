//! Command-line options, in groups that the commands share.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::batch::{BatchSpec, Codec, Payload};
use crate::messages::FetchLimits;

/// Load tool, CPU meter and practical floor for servers that speak the Kafka protocol.
#[derive(Debug, Parser)]
#[command(version, about)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send record batches and check the offsets they get.
    Produce {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        window: Window,
        #[command(flatten)]
        topic: TopicArgs,
        #[command(flatten)]
        load: Load,
    },
    /// Read an existing topic from its start, again and again, and check what comes.
    Fetch {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        window: Window,
        #[command(flatten)]
        fetch: FetchArgs,
        /// Topic to read.
        #[arg(long)]
        topic: String,
        /// Consumers; they share the partitions out among themselves.
        #[arg(long, default_value_t = 1)]
        consumers: u32,
    },
    /// Produce beside tail consumers, cold readers, idle consumers and silent connections.
    Mix {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        window: Window,
        #[command(flatten)]
        topic: TopicArgs,
        #[command(flatten)]
        load: Load,
        #[command(flatten)]
        fetch: FetchArgs,
        #[command(flatten)]
        company: Company,
    },
    /// Repeat one small request.
    Call {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        window: Window,
        /// Which request.
        #[arg(long, value_enum, default_value_t = Call::Metadata)]
        api: Call,
        /// Topic asked for, with Metadata; created if it's not there.
        #[arg(long, default_value = "kbench-call")]
        topic: String,
        /// Partitions of that topic.
        #[arg(long, default_value_t = 12)]
        partitions: u32,
        /// Connections.
        #[arg(long, default_value_t = 1)]
        connections: u32,
        /// Requests in flight on each connection.
        #[arg(long, default_value_t = 1)]
        depth: usize,
    },
    /// Do transactions: `--spread` batches, each for another partition of the connection's own, and a commit.
    Transact {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        window: Window,
        #[command(flatten)]
        load: Load,
    },
    /// Keep classic groups alive, and rebalance them.
    Groups {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        window: Window,
        #[command(flatten)]
        groups: GroupArgs,
    },
    /// Fill a compacted topic, let the server clean it, and wait until it has.
    Compact {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        compact: CompactArgs,
    },
    /// Kill the server, start it again, and time it until it serves every partition of a topic.
    Recover {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        recover: RecoverArgs,
    },
    /// Start a server and time it until it answers ApiVersions, then stop it.
    Startup {
        /// Address at which the server will listen.
        #[arg(long)]
        addr: SocketAddr,
        /// How long to let the server settle before its memory is looked at again, in s.
        #[arg(long, default_value_t = 5.0)]
        settle: f64,
        /// Leave the server running.
        #[arg(long)]
        keep: bool,
        /// The server's command line.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Write files back and drop them from the page cache.
    Evict {
        /// Folder whose files are dropped, at any depth.
        dir: PathBuf,
    },
    /// Run the practical floor: the least work that still keeps a log and answers truly.
    Floor {
        /// Address to listen at.
        #[arg(long, default_value = "127.0.0.1:9092")]
        listen: SocketAddr,
        /// Folder for the log; what a former floor left in it is deleted.
        #[arg(long)]
        dir: PathBuf,
    },
}

/// The server under test.
#[derive(Args, Clone, Debug)]
pub(crate) struct Target {
    /// Its address.
    #[arg(long, default_value = "127.0.0.1:9092")]
    pub addr: SocketAddr,
    /// Its process, for CPU time and memory.
    #[arg(long)]
    pub pid: Option<u32>,
    /// Its name in the output.
    #[arg(long, default_value = "server")]
    pub server: String,
    /// The cell's name in the output.
    #[arg(long, default_value = "")]
    pub cell: String,
    /// Use topic names (Produce 9, Fetch 12) even where the server knows topic ids (13, 13).
    #[arg(long)]
    pub names: bool,
}

/// When to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct Window {
    /// Load before the steady window, in s.
    #[arg(long, default_value_t = 1.0)]
    pub warmup: f64,
    /// Length of the steady window, in s.
    #[arg(long, default_value_t = 4.0)]
    pub duration: f64,
    /// Ends the steady window once so many MiB of batches were produced in it.
    #[arg(long)]
    pub max_mib: Option<u64>,
}

/// The topic produced to.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopicArgs {
    /// Its name; by default one of its own for each run. It must be new.
    #[arg(long)]
    pub topic: Option<String>,
    /// Its partitions.
    #[arg(long, default_value_t = 12)]
    pub partitions: u32,
    /// How many of them are produced to; all without it.
    #[arg(long)]
    pub active: Option<u32>,
    /// A setting of the topic as `key=value`; may be repeated.
    #[arg(long, value_parser = setting)]
    pub config: Vec<(String, String)>,
    /// Keep it after the run.
    #[arg(long)]
    pub keep: bool,
}

impl TopicArgs {
    /// How many partitions are produced to.
    pub(crate) fn active(&self) -> u32 {
        self.active.map_or(self.partitions, |active| active.min(self.partitions))
    }
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("not key=value")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// What is produced.
#[derive(Args, Clone, Debug)]
pub(crate) struct Load {
    /// Producing connections. They share the partitions out, or share partitions if there are fewer.
    #[arg(long, default_value_t = 4)]
    pub connections: u32,
    /// Requests in flight on each connection.
    #[arg(long, default_value_t = 5)]
    pub depth: usize,
    /// Acknowledgements asked for: 0, 1 or -1.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    pub acks: i16,
    /// Records per second of all connections together: an open loop. Without it, a closed loop.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Bytes of a record's value.
    #[arg(long, default_value_t = 1024)]
    pub record_bytes: usize,
    /// Uncompressed bytes of a batch at most.
    #[arg(long, default_value_t = 64 << 10)]
    pub batch_bytes: usize,
    /// Records of a batch, instead of `--batch-bytes`.
    #[arg(long)]
    pub records: Option<u32>,
    /// Compression.
    #[arg(long, value_enum, default_value_t = Codec::None)]
    pub codec: Codec,
    /// Content of the values.
    #[arg(long, value_enum, default_value_t = Payload::Random)]
    pub payload: Payload,
    /// Batches (each for another partition) in a request at most.
    #[arg(long, default_value_t = 1)]
    pub spread: usize,
    /// Send as idempotent producers: with producer ids and sequence numbers.
    #[arg(long)]
    pub idempotent: bool,
    /// Give the records so many keys, as a compacted topic needs them; none without it.
    #[arg(long)]
    pub keys: Option<u64>,
}

/// What is recovered.
#[derive(Args, Clone, Debug)]
pub(crate) struct RecoverArgs {
    /// The server's log directory, whose recovery points are removed, so that every batch must be checked.
    #[arg(long)]
    pub data_dir: PathBuf,
    /// Topic that must be served.
    #[arg(long)]
    pub topic: String,
}

/// Which groups there are. Their members first wait as long as the server lets a new group wait for members: the warm-up
/// must be longer.
#[derive(Args, Clone, Debug)]
pub(crate) struct GroupArgs {
    /// Groups.
    #[arg(long, default_value_t = 100)]
    pub groups: u32,
    /// Members of each group, with a connection each.
    #[arg(long, default_value_t = 10)]
    pub members: u32,
    /// From one heartbeat of a member to the next, in ms. One that is not answered in that time fails the run.
    #[arg(long, default_value_t = 3000)]
    pub heartbeat_ms: u64,
    /// From one rebalance of a group to the next, in ms; none without it.
    #[arg(long)]
    pub rebalance_ms: Option<u64>,
    /// Session timeout, in ms.
    #[arg(long, default_value_t = 10_000)]
    pub session_ms: i32,
}

/// What is cleaned.
#[derive(Args, Clone, Debug)]
pub(crate) struct CompactArgs {
    /// The server's log directory, where its files are counted and its checkpoint is read.
    #[arg(long)]
    pub data_dir: PathBuf,
    /// MiB of batches.
    #[arg(long, default_value_t = 256)]
    pub mib: u64,
    /// Keys that the records have, all equally often.
    #[arg(long, default_value_t = 100_000)]
    pub keys: u64,
    /// Size of a segment.
    #[arg(long, default_value_t = 32 << 20)]
    pub segment_bytes: u64,
    /// Bytes of a record's value.
    #[arg(long, default_value_t = 1024)]
    pub record_bytes: usize,
    /// Compression.
    #[arg(long, value_enum, default_value_t = Codec::None)]
    pub codec: Codec,
    /// Content of the values.
    #[arg(long, value_enum, default_value_t = Payload::Random)]
    pub payload: Payload,
}

impl CompactArgs {
    /// The shape of the batches.
    pub(crate) fn batch_spec(&self) -> BatchSpec {
        BatchSpec {
            record_bytes: self.record_bytes,
            batch_bytes: 64 << 10,
            records: None,
            codec: self.codec,
            payload: self.payload,
            keys: Some(self.keys),
        }
    }
}

impl Load {
    /// The shape of the batches.
    pub(crate) fn batch_spec(&self) -> BatchSpec {
        BatchSpec {
            record_bytes: self.record_bytes,
            batch_bytes: self.batch_bytes,
            records: self.records,
            codec: self.codec,
            payload: self.payload,
            keys: self.keys,
        }
    }
}

/// How consumers read.
#[derive(Args, Clone, Debug)]
pub(crate) struct FetchArgs {
    /// Longest wait of a fetch without data, in ms.
    #[arg(long, default_value_t = 500)]
    pub max_wait_ms: i32,
    /// Bytes that end that wait.
    #[arg(long, default_value_t = 1)]
    pub min_bytes: i32,
    /// Bytes of a reply at most.
    #[arg(long, default_value_t = 50 << 20)]
    pub max_bytes: i32,
    /// Bytes of a partition in a reply at most.
    #[arg(long, default_value_t = 1 << 20)]
    pub partition_bytes: i32,
    /// Check the CRC of every batch.
    #[arg(long)]
    pub check_crc: bool,
    /// Send whole requests rather than use a fetch session.
    #[arg(long)]
    pub no_session: bool,
}

impl FetchArgs {
    /// The limits of each request.
    pub(crate) fn limits(&self) -> FetchLimits {
        FetchLimits {
            max_wait_ms: self.max_wait_ms,
            min_bytes: self.min_bytes,
            max_bytes: self.max_bytes,
            partition_bytes: self.partition_bytes,
        }
    }
}

/// Who else is connected while a mix produces.
#[derive(Args, Clone, Debug)]
pub(crate) struct Company {
    /// Tail consumers, each of which reads every partition produced to.
    #[arg(long, default_value_t = 0)]
    pub fanout: u32,
    /// Existing topic that the cold readers read once, from the start of the steady window on.
    #[arg(long, requires = "cold_readers")]
    pub cold_topic: Option<String>,
    /// Cold readers; they share the partitions out. The window ends when all are at the end.
    #[arg(long, default_value_t = 0)]
    pub cold_readers: u32,
    /// Consumers that long-poll a topic to which nobody writes.
    #[arg(long, default_value_t = 0)]
    pub idle: u32,
    /// Partitions that each idle consumer polls.
    #[arg(long, default_value_t = 10)]
    pub idle_partitions: u32,
    /// Connections that say nothing.
    #[arg(long, default_value_t = 0)]
    pub silent: u32,
}

/// Requests that `call` repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Call {
    /// Metadata of one topic.
    Metadata,
    /// ApiVersions.
    ApiVersions,
    /// A whole short connection: connect, ApiVersions, Metadata of one topic, close. It counts as one request.
    Connection,
    /// OffsetCommit of all partitions of one topic; each connection has a group of its own.
    OffsetCommit,
}
