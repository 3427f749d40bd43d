//! Listeners, reactor threads, framing, pooled buffers and ordered replies. Knows no API: a [`Service`] turns
//! frames into replies.

/// Accepting, and dealing connections to the reactors in turn.
mod accept;
/// What a server listens on, and every limit.
mod config;
/// One connection: what it does in a wake-up.
mod connection;
/// Why a server could not start.
mod error;
/// The complete frames at the front of a receive buffer.
mod frames;
/// How many connections there may be, and how much memory half-received frames and unsent replies may take.
mod limits;
/// Bytes and file ranges on their way out.
mod outgoing;
/// Buffers that no connection holds now.
mod pool;
/// The replies of one connection in request order.
mod queue;
/// One thread with its connections, and the sweep that closes idle ones.
mod reactor;
/// Received bytes that are not served yet.
mod received;
/// What a service answers with, at once or later.
mod replies;
/// Starting and stopping.
mod server;
/// The contract between this crate and the broker.
mod service;
/// The socket of one connection.
mod stream;
/// Bringing ranges of files into the page cache before they are sent.
mod warm;

pub use config::{ConnectionLimits, ListenerConfig, NetConfig};
pub use error::NetError;
pub use frames::Frames;
pub use limits::{Claim, Connections};
pub use outgoing::{FileOwner, FileRange, Outgoing};
pub use replies::{LocalBoxFuture, Pipelining, Replies, Reply};
pub use server::{BoundServer, Server};
pub use service::{Peer, Service};
