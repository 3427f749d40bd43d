//! Why a server could not start. What goes wrong on one connection ends that connection and is logged there.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The host of a listener has no address.
    #[error("listener {listener}: cannot resolve {host}: {source}")]
    Resolve {
        /// The listener's name.
        listener: Arc<str>,
        /// The host as configured.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// Another socket listens at that address.
    #[error("listener {listener}: {address} is in use by another process")]
    AddressInUse {
        /// The listener's name.
        listener: Arc<str>,
        /// The address asked for.
        address: SocketAddr,
    },
    /// The system refused the address for another reason.
    #[error("listener {listener}: cannot listen at {address}: {source}")]
    Bind {
        /// The listener's name.
        listener: Arc<str>,
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A reactor thread could not be started.
    #[error("cannot start a network thread: {0}")]
    Reactor(#[source] io::Error),
}
