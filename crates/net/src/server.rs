//! Starting and stopping: the listening sockets, the reactor threads, and the order in which they go.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::{mpsc, watch};

use crate::limits::{Connections, ReceiveMemory};
use crate::reactor::{self, Seed, Shared};
use crate::{ListenerConfig, NetConfig, NetError, Service};

/// Accepted connections that wait for their reactor, until accepting waits too.
const INBOX_CONNECTIONS: usize = 256;

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
    connections: Arc<Connections>,
}

/// A running server; dropping it stops it without waiting for requests in flight.
pub struct Server {
    addresses: Vec<(Arc<str>, SocketAddr)>,
    shared: Arc<Shared>,
    stop: watch::Sender<Option<Instant>>,
    threads: Vec<JoinHandle<()>>,
}

impl BoundServer {
    /// Names and addresses of the listeners, with the real ports.
    pub fn local_addrs(&self) -> Vec<(Arc<str>, SocketAddr)> {
        self.listeners.iter().map(|listener| (Arc::clone(&listener.name), listener.address)).collect()
    }

    /// The limits of connections, to be changed while the server runs.
    pub fn limits(&self) -> Arc<Connections> {
        Arc::clone(&self.connections)
    }

    /// Starts the reactor threads, which accept and serve connections until [`Server::stop`].
    ///
    /// # Errors
    /// [`NetError::Reactor`]; then nothing runs.
    pub fn start<S: Service>(self, service: Arc<S>) -> Result<Server, NetError> {
        let addresses = self.local_addrs();
        let Self { config, listeners, connections } = self;
        let reactors = config.reactors.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).max(1);
        let memory = Arc::new(ReceiveMemory::new(config.max_receive_memory_bytes));
        let shared = Arc::new(Shared { config, connections, memory });
        let (stop, stopped) = watch::channel(None);
        let (outboxes, inboxes): (Vec<_>, Vec<_>) = (0..reactors).map(|_| mpsc::channel(INBOX_CONNECTIONS)).unzip();
        let outboxes: Arc<[_]> = outboxes.into();
        let mut server = Server { addresses, shared, stop, threads: Vec::with_capacity(reactors) };
        let mut shares: Vec<Vec<Listener>> = (0..reactors).map(|_| Vec::new()).collect();
        for (index, listener) in listeners.into_iter().enumerate() {
            shares[index % reactors].push(listener);
        }
        for (index, (inbox, listeners)) in inboxes.into_iter().zip(shares).enumerate() {
            let seed = Seed {
                shared: Arc::clone(&server.shared),
                service: Arc::clone(&service),
                listeners,
                inbox,
                outboxes: Arc::clone(&outboxes),
                stop: stopped.clone(),
            };
            server.threads.push(spawn(index, seed).map_err(NetError::Reactor)?);
        }
        Ok(server)
    }
}

/// Starts a reactor's thread; it runs when its runtime stands.
fn spawn<S: Service>(index: usize, seed: Seed<S>) -> io::Result<JoinHandle<()>> {
    let (built, result) = std::sync::mpsc::sync_channel(1);
    let thread = thread::Builder::new().name(format!("reactor-{index}")).spawn(move || match reactor::runtime() {
        Ok(runtime) => {
            let _ = built.send(Ok(()));
            runtime.block_on(reactor::run(seed));
        }
        Err(e) => {
            let _ = built.send(Err(e));
        }
    })?;
    result.recv().unwrap_or_else(|_| Err(io::Error::other("the thread died")))?;
    Ok(thread)
}

impl Server {
    /// Opens the listening sockets, all or none.
    ///
    /// # Errors
    /// [`NetError::Resolve`], [`NetError::AddressInUse`] or [`NetError::Bind`], for the first listener that fails.
    pub fn bind(config: NetConfig) -> Result<BoundServer, NetError> {
        let listeners = config.listeners.iter().map(|listener| listen(listener, &config)).collect::<Result<_, _>>()?;
        let connections = Arc::new(Connections::new(config.connections.clone()));
        Ok(BoundServer { config, listeners, connections })
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
    pub fn stop(mut self, deadline: Duration) {
        self.shut(deadline);
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.shared.connections.total()
    }

    fn shut(&mut self, deadline: Duration) {
        self.stop.send_replace(Some(Instant::now() + deadline));
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a network thread has panicked");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut(Duration::ZERO);
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

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use socket2::SockRef;

    use super::*;

    #[test]
    fn accepted_connections_inherit_the_options_of_their_listener() {
        let buffers =
            NetConfig { send_buffer_bytes: Some(100_000), receive_buffer_bytes: Some(50_000), ..NetConfig::default() };
        let listener = open(SocketAddr::from(([127, 0, 0, 1], 0)), &buffers).unwrap();
        listener.set_nonblocking(false).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let options = SockRef::from(&accepted);
        assert!(options.tcp_nodelay().unwrap() && options.keepalive().unwrap());
        // The kernel doubles what is asked for.
        assert_eq!(options.send_buffer_size().unwrap(), 200_000);
        assert_eq!(options.recv_buffer_size().unwrap(), 100_000);
    }
}
