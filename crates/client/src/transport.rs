//! What a connection runs on: a stream of bytes to an address. Plain TCP lives here; whatever protects a stream wraps it
//! in the same trait.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, lookup_host};

use crate::config::ClientConfig;

/// A stream of bytes in both directions.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// A stream that comes about.
pub(crate) type Opening<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send + 'a>>;

/// Opens streams.
pub(crate) trait Transports: Debug + Send + Sync {
    /// Opens one to a host and port.
    fn open<'a>(&'a self, host: &'a str, port: u16, config: &'a ClientConfig) -> Opening<'a>;
}

/// Plain TCP.
#[derive(Debug)]
pub(crate) struct Tcp;

impl Transports for Tcp {
    fn open<'a>(&'a self, host: &'a str, port: u16, config: &'a ClientConfig) -> Opening<'a> {
        Box::pin(async move {
            let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in lookup_host((host, port)).await? {
                match connect(address, config).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) => failed = error,
                }
            }
            Err(failed)
        })
    }
}

async fn connect(address: SocketAddr, config: &ClientConfig) -> io::Result<Box<dyn Transport>> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(bytes) = config.send_buffer {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = config.receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.set_nodelay(true)?;
    Ok(Box::new(socket.connect(address).await?))
}
