//! One connection to a broker: a handle that many may hold, and the task behind it (`driver`), which owns the stream.
//! Requests travel without waiting for one another, and answers come in the same order.

mod driver;
mod frames;
mod handshake;
mod kept;
mod throttle;

use std::collections::BTreeMap;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use milena_protocol::framing::decode_response_header;
use milena_protocol::{ApiKey, Message, Request, Writer, api_info};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tracing::Instrument;

use crate::config::ClientConfig;
use crate::error::Error;
use crate::metrics::ConnectionMetrics;
use crate::transport::Transports;
use driver::{Command, Driver};
pub(crate) use kept::KeptConnection;
pub(crate) use throttle::Throttle;

/// Requests that may wait for the task to take them; further ones make their senders wait.
const QUEUE: usize = 64;

/// What a broker said about itself when the connection began.
#[derive(Debug, Clone, Default)]
pub struct ApiVersions {
    /// Versions by API key.
    pub(crate) apis: BTreeMap<ApiKey, RangeInclusive<i16>>,
    /// Levels of the cluster's features.
    pub(crate) finalized: BTreeMap<String, i16>,
}

impl ApiVersions {
    /// What the broker advertises, by key.
    pub fn iter(&self) -> impl Iterator<Item = (ApiKey, RangeInclusive<i16>)> {
        self.apis.iter().map(|(key, versions)| (*key, versions.clone()))
    }

    /// The level of a feature of the cluster, such as `transaction.version`; 0 without it.
    pub fn feature(&self, name: &str) -> i16 {
        self.finalized.get(name).copied().unwrap_or(0)
    }

    /// The highest version of an API that broker, client and caller have.
    ///
    /// # Errors
    /// [`Error::UnsupportedVersion`] when there is none.
    pub fn highest(&self, api: ApiKey, wanted: &RangeInclusive<i16>) -> Result<i16, Error> {
        let served = self.apis.get(&api);
        let known = api_info(api).map(|info| (info.min, info.stable_max()));
        let common = served.zip(known).and_then(|(served, (min, max))| {
            let version = (*served.end()).min(max).min(*wanted.end());
            (version >= min && version >= *served.start() && version >= *wanted.start()).then_some(version)
        });
        common.ok_or_else(|| Error::UnsupportedVersion { api, wanted: wanted.clone(), served: served.cloned() })
    }
}

/// A request's bytes, and those which belong into it at places of its own.
#[derive(Debug)]
pub(crate) struct Frame {
    /// All but the bytes of `gaps`.
    pub(crate) bytes: Vec<u8>,
    /// Where in `bytes` others belong, ascending.
    pub(crate) gaps: Vec<(usize, Bytes)>,
}

/// A connection that is open, or was. Cheap to clone; the stream is closed when the last one is gone and nothing is
/// waited for.
#[derive(Debug, Clone)]
pub struct Connection(Arc<Shared>);

#[cfg(test)]
mod tests;

#[derive(Debug)]
struct Shared {
    address: Arc<str>,
    client_id: String,
    versions: ApiVersions,
    correlation: AtomicI32,
    commands: mpsc::Sender<Command>,
    throttle: Throttle,
}

impl Connection {
    /// Connects, learns what the broker serves, and starts the task.
    pub(crate) async fn open(
        transports: &dyn Transports,
        host: &str,
        port: u16,
        config: &ClientConfig,
    ) -> Result<(Self, JoinHandle<()>), Error> {
        let address: Arc<str> = format!("{host}:{port}").into();
        let begin = async {
            let mut stream = transports.open(host, port, config).await.map_err(|e| Error::connect(&address, e))?;
            let versions = handshake::learn_versions(&mut *stream, &address, config).await?;
            Ok((stream, versions))
        };
        let (stream, versions) = tokio::time::timeout(config.connect_timeout, begin)
            .await
            .unwrap_or_else(|_| Err(Error::connect(&address, std::io::Error::from(std::io::ErrorKind::TimedOut))))?;
        tracing::debug!(%address, "connected");
        let (commands, queue) = mpsc::channel(QUEUE);
        let metrics = ConnectionMetrics::new(&config.client_id);
        let throttle = Throttle::new(metrics.throttle_time_ms.clone());
        let driver = Driver::new(stream, Arc::clone(&address), queue, config, metrics);
        let span = tracing::debug_span!("connection", address = &*address);
        let task = tokio::spawn(driver.run().instrument(span));
        let client_id = config.client_id.clone();
        let shared = Shared { address, client_id, versions, correlation: AtomicI32::new(0), commands, throttle };
        Ok((Self(Arc::new(shared)), task))
    }

    /// Where to, as host:port.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// What the broker serves.
    pub fn versions(&self) -> &ApiVersions {
        &self.0.versions
    }

    /// Whether it goes to this host and port.
    pub(crate) fn is_to(&self, host: &str, port: u16) -> bool {
        let rest = self.0.address.strip_prefix(host).and_then(|rest| rest.strip_prefix(':'));
        rest.and_then(|rest| rest.parse().ok()) == Some(port)
    }

    /// Whether it has ended.
    pub fn is_closed(&self) -> bool {
        self.0.commands.is_closed()
    }

    /// Sends a request in the version given; what is returned waits for the answer, which may take so long. While the broker
    /// wants to hear nothing, it is not sent.
    ///
    /// # Errors
    /// When the version can't hold the request, or the connection has ended.
    pub async fn send<R: Request>(&self, request: &R, version: i16, timeout: Duration) -> Result<Pending<R>, Error> {
        while let Some(until) = self.0.throttle.until(Instant::now()) {
            sleep_until(until).await;
        }
        let mut writer = Writer::new();
        let correlation = self.correlation();
        request.encode_request(&mut writer, correlation, Some(&self.0.client_id), version)?;
        let frame = Frame { bytes: writer.into_bytes(), gaps: Vec::new() };
        let answer = self.send_frame(frame, correlation, timeout, true).await?;
        Ok(Pending { answer, version, request: PhantomData })
    }

    /// Until when the broker wants to hear nothing; those who send frames look at it.
    pub(crate) fn throttle(&self) -> &Throttle {
        &self.0.throttle
    }

    /// A number for the next request.
    pub(crate) fn correlation(&self) -> i32 {
        self.0.correlation.fetch_add(1, Ordering::Relaxed) & i32::MAX
    }

    pub(crate) fn client_id(&self) -> &str {
        &self.0.client_id
    }

    /// Sends a frame that has `correlation` in its header. Without `answered`, there is no answer, and an empty one is given
    /// when the frame was handed to the system.
    pub(crate) async fn send_frame(
        &self,
        frame: Frame,
        correlation: i32,
        timeout: Duration,
        answered: bool,
    ) -> Result<Answer, Error> {
        let (reply, receiver) = oneshot::channel();
        let command = Command { frame, correlation, timeout, answered, reply };
        self.0.commands.send(command).await.map_err(|_| self.lost())?;
        Ok(Answer { receiver, connection: self.clone() })
    }

    fn lost(&self) -> Error {
        Error::disconnected(&self.0.address, std::io::ErrorKind::NotConnected.into())
    }
}

/// Waits for a response's frame.
#[derive(Debug)]
pub(crate) struct Answer {
    receiver: oneshot::Receiver<Result<Bytes, Error>>,
    connection: Connection,
}

impl Future for Answer {
    type Output = Result<Bytes, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver).poll(cx).map(|answer| answer.unwrap_or_else(|_| Err(self.connection.lost())))
    }
}

/// Waits for the answer to a request. When it is dropped, the answer is thrown away when it comes.
#[derive(Debug)]
pub struct Pending<R> {
    answer: Answer,
    version: i16,
    request: PhantomData<fn() -> R>,
}

impl<R: Request> Future for Pending<R> {
    type Output = Result<Reply<R>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let version = self.version;
        let frame = ready!(Pin::new(&mut self.answer).poll(cx))?;
        let throttle = self.answer.connection.throttle().clone();
        Poll::Ready(Ok(Reply { frame, version, throttle, request: PhantomData }))
    }
}

/// A response as it came.
#[derive(Debug, Clone)]
pub struct Reply<R> {
    frame: Bytes,
    version: i16,
    throttle: Throttle,
    request: PhantomData<fn() -> R>,
}

impl<R: Request> Reply<R> {
    /// The version that the request was sent in.
    pub fn version(&self) -> i16 {
        self.version
    }

    /// The response's whole frame, without its size.
    pub fn frame(&self) -> &Bytes {
        &self.frame
    }

    /// The response; it borrows from the bytes that came. If it says that the broker wants to hear nothing for a while,
    /// further requests on its connection wait.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub fn decode(&self) -> Result<R::Response<'_>, Error> {
        let response = decode::<R>(&self.frame, self.version)?;
        self.throttle.note(&response);
        Ok(response)
    }
}

/// The response in a frame.
pub(crate) fn decode<R: Request>(frame: &[u8], version: i16) -> Result<R::Response<'_>, Error> {
    let malformed = |source| Error::Malformed { what: <R::Response<'_> as Message<'_>>::NAME, source };
    let (_, mut body) = decode_response_header(frame, R::KEY, version).map_err(malformed)?;
    Message::decode(&mut body, version).map_err(malformed)
}
