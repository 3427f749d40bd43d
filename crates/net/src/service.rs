//! The contract between this crate and the broker: who connects, and what turns frames into replies.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::{Frames, Replies};

/// The two ends of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Number of this connection; never used again while the process runs.
    pub id: u64,
    /// Name of the listener that accepted it.
    pub listener: Arc<str>,
    /// The address it came to.
    pub local: SocketAddr,
    /// The address it came from; IPv4 even when it was accepted by an IPv6 socket.
    pub remote: SocketAddr,
    /// Index of the reactor that it lives on, below the number of reactors.
    pub reactor: usize,
}

/// Turns frames into replies. All calls for a connection come from its reactor's thread, inside a tokio runtime that
/// has `spawn_local` and timers. A panic in any of them closes that connection only.
pub trait Service: Send + Sync + 'static {
    /// State of one connection; lives on its reactor.
    type Session: 'static;

    /// A connection was accepted.
    fn connect(&self, peer: &Peer) -> Self::Session;

    /// Takes one or more of the complete frames that one wake-up brought, and gives each frame taken exactly one
    /// reply, in the order of the frames: ready, later, or none. It is called again while frames are left. It must
    /// not block.
    fn serve(&self, session: &mut Self::Session, frames: &mut Frames<'_>, replies: &mut Replies<'_>);

    /// The connection has ended; outstanding replies were dropped.
    fn disconnect(&self, session: Self::Session);
}
