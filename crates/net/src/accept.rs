//! Accepting: from one listener, and dealing what comes to the reactors in turn.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::Peer;
use crate::reactor::{Accepted, Shared};
use crate::server::Listener;

/// How long accepting rests when the process or the system is out of descriptors or memory.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Number of the next connection.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// Accepts until dropped.
pub(crate) async fn run(listener: Listener, shared: Arc<Shared>, outboxes: Arc<[mpsc::Sender<Accepted>]>) {
    let Listener { name, socket, address } = listener;
    let socket = match TcpListener::from_std(socket) {
        Ok(socket) => socket,
        Err(e) => return tracing::error!("listener {name} at {address} cannot be watched: {e}"),
    };
    let mut turn = 0;
    let mut exhausted = false;
    loop {
        shared.connections.room().await;
        match socket.accept().await.and_then(|(socket, remote)| Ok((socket.into_std()?, remote))) {
            Ok((socket, remote)) => {
                exhausted = false;
                deal(socket, remote, &name, &shared, &outboxes, &mut turn).await;
            }
            Err(e) if is_exhausted(&e) => {
                if !std::mem::replace(&mut exhausted, true) {
                    tracing::warn!("listener {name} at {address} cannot accept: {e}; trying again until it can");
                }
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
            }
            // The connection that came is gone already.
            Err(e) => tracing::debug!("listener {name} at {address}: {e}"),
        }
    }
}

async fn deal(
    socket: TcpStream,
    remote: SocketAddr,
    name: &Arc<str>,
    shared: &Shared,
    outboxes: &[mpsc::Sender<Accepted>],
    turn: &mut usize,
) {
    // An IPv4 peer of an IPv6 socket.
    let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
    let permit = match shared.connections.admit(remote.ip()) {
        Ok(permit) => permit,
        Err(max) => {
            return tracing::info!("a connection from {remote} is closed: there are {max} from that address already");
        }
    };
    let Ok(local) = socket.local_addr() else { return };
    let reactor = *turn % outboxes.len();
    *turn = turn.wrapping_add(1);
    let peer = Peer {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        listener: Arc::clone(name),
        local: SocketAddr::new(local.ip().to_canonical(), local.port()),
        remote,
        reactor,
    };
    // Fails only when the server stops.
    let _ = outboxes[reactor].send(Accepted { socket, peer, permit }).await;
}

fn is_exhausted(e: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(e), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}
