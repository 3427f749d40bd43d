//! What a server listens on, and every limit of this crate, with its configuration name where it has one. Reading and
//! checking the configuration itself is not done here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// One entry of `listeners`.
#[derive(Debug, Clone)]
pub struct ListenerConfig {
    /// The listener's name, such as `PLAINTEXT` or `CONTROLLER`.
    pub name: Arc<str>,
    /// Host name or address; empty binds every interface.
    pub host: String,
    /// Port; 0 lets the system choose, see [`BoundServer::local_addrs`](crate::BoundServer::local_addrs).
    pub port: u16,
}

/// How many connections there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// At once; further ones wait to be accepted (`max.connections`).
    pub max: usize,
    /// At once from one address; further ones are closed (`max.connections.per.ip`).
    pub max_per_ip: usize,
    /// Exceptions to `max_per_ip` (`max.connections.per.ip.overrides`).
    pub per_ip_overrides: HashMap<IpAddr, usize>,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { max: i32::MAX as usize, max_per_ip: i32::MAX as usize, per_ip_overrides: HashMap::new() }
    }
}

/// Everything a server needs to know.
#[derive(Debug, Clone)]
pub struct NetConfig {
    /// The listeners; one socket each.
    pub listeners: Vec<ListenerConfig>,
    /// Reactor threads (`num.network.threads`); `None` is one per available core.
    pub reactors: Option<usize>,
    /// Longest frame taken, in bytes without the prefix (`socket.request.max.bytes`).
    pub max_frame_bytes: usize,
    /// Bytes that half-received frames, requests that wait, and the unsent replies of connections that have more than
    /// `max_unsent_bytes` of them may take in memory together, before connections that need more wait to be read
    /// (`queued.max.request.bytes`).
    pub max_receive_memory_bytes: u64,
    /// While this memory is short, connections that hold some and made no progress for this long are closed, and of those
    /// whose frame or reply began so long ago one after the other.
    pub stalled_frame_timeout: Duration,
    /// Replies of one connection that may be outstanding before its next frames wait.
    pub max_in_flight: usize,
    /// Unsent reply bytes of one connection from which on its next frames wait.
    pub max_unsent_bytes: usize,
    /// A connection without traffic is closed after this, whether or not a reply is outstanding
    /// (`connections.max.idle.ms`); `None` is never.
    pub max_idle: Option<Duration>,
    /// How many connections there may be; see [`BoundServer::limits`](crate::BoundServer::limits) to change them.
    pub connections: ConnectionLimits,
    /// Kernel send buffer in bytes (`socket.send.buffer.bytes`); `None` lets the kernel adapt it.
    pub send_buffer_bytes: Option<usize>,
    /// Kernel receive buffer in bytes (`socket.receive.buffer.bytes`); `None` lets the kernel adapt it.
    pub receive_buffer_bytes: Option<usize>,
    /// Connections that the kernel keeps ready to be accepted (`socket.listen.backlog.size`).
    pub backlog: u32,
}

impl Default for NetConfig {
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            reactors: None,
            max_frame_bytes: 100 << 20,
            max_receive_memory_bytes: 512 << 20,
            stalled_frame_timeout: Duration::from_secs(10),
            max_in_flight: 1000,
            max_unsent_bytes: 1 << 20,
            max_idle: Some(Duration::from_secs(600)),
            connections: ConnectionLimits::default(),
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            backlog: 50,
        }
    }
}
