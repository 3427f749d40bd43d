//! Listeners, reactor threads, framing, pooled buffers and ordered replies. Knows no API: a [`Service`] turns
//! frames into replies.

mod config;
mod error;
mod frames;
mod outgoing;
mod queue;
mod replies;
mod server;
mod service;

pub use config::{ListenerConfig, NetConfig};
pub use error::NetError;
pub use frames::Frames;
pub use outgoing::Outgoing;
pub use replies::{LocalBoxFuture, Pipelining, Replies, Reply};
pub use server::{BoundServer, Server};
pub use service::{Peer, Service};
