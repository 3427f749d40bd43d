//! Listeners, reactor threads, framing, pooled buffers and ordered replies. Knows no API: a [`Service`] turns
//! frames into replies.

mod accept;
mod config;
mod connection;
mod error;
mod frames;
mod limits;
mod outgoing;
mod pool;
mod queue;
mod reactor;
mod received;
mod replies;
mod server;
mod service;
mod stream;
mod warm;

pub use config::{ConnectionLimits, ListenerConfig, NetConfig};
pub use error::NetError;
pub use frames::Frames;
pub use limits::{Claim, Connections};
pub use outgoing::{FileOwner, FileRange, Outgoing};
pub use replies::{LocalBoxFuture, Pipelining, Replies, Reply};
pub use server::{BoundServer, Server};
pub use service::{Peer, Service};
