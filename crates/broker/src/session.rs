//! What the broker remembers of a connection.

use std::sync::Arc;

/// The other end of a connection, and the listener it came in by.
pub type Peer = Arc<milena_net::Peer>;
