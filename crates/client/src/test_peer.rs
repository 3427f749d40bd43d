//! Connections over a pipe inside the process, for tests; the other end is the test.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use milena_protocol::framing::{decode_request_header, encode_response};
use milena_protocol::{ApiKey, Message, Writer};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

use crate::config::ClientConfig;
use crate::transport::{Opening, Transport, Transports};
use crate::{Client, ClientBuilder};

/// Longer than anything takes that comes at all.
const SOON: Duration = Duration::from_secs(20);

/// Where connections end that a client opens: those made beforehand come first.
#[derive(Debug, Default)]
pub(crate) struct Pipes(Mutex<VecDeque<DuplexStream>>);

impl Pipes {
    /// A connection that will be opened; its other end.
    pub(crate) fn expect(&self) -> Peer {
        let (ours, theirs) = duplex(1 << 16);
        self.0.lock().push_back(ours);
        Peer(theirs)
    }
}

impl Transports for Pipes {
    fn open<'a>(&'a self, _: &'a str, _: u16, _: &'a ClientConfig) -> Opening<'a> {
        let stream = self.0.lock().pop_front().ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused));
        Box::pin(async move { stream.map(|stream| Box::new(stream) as Box<dyn Transport>) })
    }
}

/// Settings of a client that does not wait long before it tries again.
pub(crate) fn quick() -> ClientBuilder {
    let quick = Duration::from_millis(1);
    Client::builder().bootstrap_servers("pipe:1").retry_backoff(quick, quick).reconnect_backoff(quick, quick)
}

/// A client whose connections lead to these ends.
pub(crate) fn client<const N: usize>(with: impl FnOnce(ClientBuilder) -> ClientBuilder) -> (Client, [Peer; N]) {
    let pipes = Pipes::default();
    let ends = std::array::from_fn(|_| pipes.expect());
    (with(quick()).build_over(Arc::new(pipes)).unwrap(), ends)
}

/// The broker's end.
pub(crate) struct Peer(pub(crate) DuplexStream);

/// A request that came.
#[derive(Debug, Clone)]
pub(crate) struct Came {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) id: i32,
    frame: Vec<u8>,
}

impl Came {
    /// The request itself.
    pub(crate) fn body<'a, M: Message<'a>>(&'a self) -> M {
        let (_, mut body) = decode_request_header(&self.frame).unwrap();
        M::decode(&mut body, self.version).unwrap()
    }
}

impl Peer {
    /// The next request; `None` when the connection is closed.
    pub(crate) async fn try_next(&mut self) -> Option<Came> {
        let size = self.0.read_i32().await.ok()?;
        let mut frame = vec![0; size as usize];
        self.0.read_exact(&mut frame).await.ok()?;
        let (header, _) = decode_request_header(&frame).unwrap();
        let (api, version) = (ApiKey(header.request_api_key), header.request_api_version);
        let id = header.correlation_id;
        Some(Came { api, version, id, frame })
    }

    pub(crate) async fn next(&mut self) -> Came {
        self.try_next().await.unwrap()
    }

    /// Answers a request. Who does not listen any more does not hear it.
    pub(crate) async fn answer<'a, M: Message<'a>>(&mut self, id: i32, version: i16, body: &M) {
        let mut writer = Writer::new();
        encode_response(&mut writer, id, version, body).unwrap();
        let _ = self.0.write_all(&writer.into_bytes()).await;
    }

    pub(crate) async fn is_closed(&mut self) -> bool {
        timeout(SOON, self.0.read_u8()).await.unwrap().is_err()
    }
}
