//! Connections over a pipe inside the process; the other end is the test.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use milena_protocol::messages::api_versions_response::ApiVersion;
use milena_protocol::messages::{ApiVersionsResponse, ListGroupsRequest, ListGroupsResponse, MetadataResponse};
use milena_protocol::{ApiKey, ErrorCode};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::time::{Instant, timeout};

use super::Frame;
use crate::config::ClientConfig;
use crate::test_peer::{Came, Peer, client, quick};
use crate::transport::{Opening, Transport, Transports};
use crate::{Client, Error, Target};

const VERSION: i16 = 4;

impl Peer {
    async fn versions(&mut self, came: &Came, version: i16, error_code: i16) {
        let api = |key: ApiKey, max_version| ApiVersion { api_key: key.0, max_version, ..Default::default() };
        let api_keys = vec![api(ApiKey::API_VERSIONS, 2), api(ApiKey::LIST_GROUPS, VERSION)];
        self.answer(came.id, version, &ApiVersionsResponse { api_keys, error_code, ..Default::default() }).await;
    }

    /// Answers the first exchange.
    async fn greet(&mut self) {
        let came = self.next().await;
        assert_eq!(came.api, ApiKey::API_VERSIONS);
        self.versions(&came, came.version, 0).await;
    }

    async fn groups(&mut self, came: &Came, throttle_time_ms: i32) {
        assert_eq!(came.api, ApiKey::LIST_GROUPS);
        self.answer(came.id, VERSION, &ListGroupsResponse { throttle_time_ms, ..Default::default() }).await;
    }
}

async fn ask(client: &Client) -> Result<i32, Error> {
    let request = ListGroupsRequest::default();
    client.call(Target::Any, &request).once().read(|response| Ok(response.throttle_time_ms)).await
}

#[tokio::test]
async fn requests_do_not_wait_for_one_another_and_answers_find_who_asked() {
    let (client, [mut peer]) = client(|builder| builder);
    let serve = async {
        peer.greet().await;
        let (first, second) = (peer.next().await, peer.next().await);
        peer.groups(&first, 1).await;
        peer.groups(&second, 2).await;
    };
    let (first, second, ()) = tokio::join!(ask(&client), ask(&client), serve);
    assert_eq!((first.unwrap(), second.unwrap()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_wants_to_hear_nothing_for_a_while_is_left_alone() {
    let (client, [mut peer]) = client(|builder| builder);
    let serve = async {
        peer.greet().await;
        let came = peer.next().await;
        peer.groups(&came, 5000).await;
        let answered = Instant::now();
        let came = peer.next().await;
        let waited = answered.elapsed();
        peer.groups(&came, 0).await;
        waited
    };
    let (_, waited) = tokio::join!(async { (ask(&client).await.unwrap(), ask(&client).await.unwrap()) }, serve);
    assert!(waited >= Duration::from_secs(5), "{waited:?}");
}

#[tokio::test]
async fn an_old_broker_is_asked_again_in_the_version_that_it_has() {
    let (client, [mut peer]) = client(|builder| builder);
    let serve = async {
        let came = peer.next().await;
        peer.versions(&came, 0, ErrorCode::UNSUPPORTED_VERSION.0).await;
        let again = peer.next().await;
        assert_eq!((again.api, again.version), (ApiKey::API_VERSIONS, 2));
        peer.versions(&again, 2, 0).await;
        let came = peer.next().await;
        peer.groups(&came, 3).await;
    };
    let (answer, ()) = tokio::join!(ask(&client), serve);
    assert_eq!(answer.unwrap(), 3);
}

#[tokio::test]
async fn a_request_that_is_given_up_leaves_the_connection_in_use() {
    let (client, [mut peer]) = client(|builder| builder);
    let given_up = tokio::spawn({
        let client = client.clone();
        async move { ask(&client).await }
    });
    peer.greet().await;
    let first = peer.next().await;
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    let serve = async {
        let second = peer.next().await;
        peer.groups(&first, 1).await;
        peer.groups(&second, 2).await;
    };
    let (answer, ()) = tokio::join!(ask(&client), serve);
    assert_eq!(answer.unwrap(), 2);
}

#[tokio::test]
async fn a_wrong_answer_ends_the_connection_and_the_call_goes_to_the_next() {
    let (client, [mut bad, mut good]) = client(|builder| builder);
    let request = ListGroupsRequest::default();
    let call = client.call(Target::Any, &request).read(|response| Ok(response.throttle_time_ms));
    let serve = async {
        bad.greet().await;
        let mut came = bad.next().await;
        came.id += 1;
        bad.groups(&came, 1).await;
        assert!(bad.is_closed().await);
        good.greet().await;
        let came = good.next().await;
        good.groups(&came, 2).await;
    };
    let (answer, ()) = tokio::join!(call, serve);
    assert_eq!(answer.unwrap(), 2);
}

#[tokio::test]
async fn a_retriable_refusal_is_asked_again_and_another_is_not() {
    let (client, [mut peer]) = client(|builder| builder);
    let request = ListGroupsRequest::default();
    let refuse = |code| move |_: ListGroupsResponse<'_>| -> Result<(), Error> { Err(Error::from(code)) };
    let serve = async {
        peer.greet().await;
        for _ in 0..3 {
            let came = peer.next().await;
            peer.groups(&came, 0).await;
        }
    };
    let calls = async {
        let mut tries = 0;
        let patient = client.call(Target::Any, &request).read(|_| {
            tries += 1;
            if tries < 2 { Err(Error::from(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)) } else { Ok(()) }
        });
        patient.await.unwrap();
        client.call(Target::Any, &request).read(refuse(ErrorCode::GROUP_AUTHORIZATION_FAILED)).await
    };
    let (refused, ()) = tokio::join!(calls, serve);
    assert_eq!(refused.unwrap_err().code(), Some(ErrorCode::GROUP_AUTHORIZATION_FAILED));
}

#[tokio::test]
async fn a_first_answer_to_another_request_makes_no_connection() {
    let (client, [mut bad]) = client(|builder| builder);
    let serve = async {
        let mut came = bad.next().await;
        came.id += 1;
        bad.versions(&came, came.version, 0).await;
    };
    let (connected, ()) = tokio::join!(client.connection(Target::Any), serve);
    assert!(matches!(connected, Err(Error::Disconnected { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_ends_the_connection() {
    let (client, [mut peer]) = client(|builder| builder.request_timeout(Duration::from_secs(3)));
    let serve = async {
        peer.greet().await;
        peer.next().await;
        assert!(peer.is_closed().await);
    };
    let (answer, ()) = tokio::join!(ask(&client), serve);
    let error = answer.unwrap_err();
    assert!(matches!(&error, Error::Timeout { after, .. } if *after == Duration::from_secs(3)), "{error}");
    assert!(error.is_retriable());
}

#[tokio::test(start_paused = true)]
async fn an_unused_connection_is_closed() {
    let (client, [mut peer]) = client(|builder| builder.connections_max_idle(Duration::from_secs(10)));
    let serve = async {
        peer.greet().await;
        let came = peer.next().await;
        peer.groups(&came, 1).await;
    };
    let (answer, ()) = tokio::join!(ask(&client), serve);
    answer.unwrap();
    assert!(peer.is_closed().await);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_broker_ends_when_its_time_is_up_and_says_why() {
    let (client, []) = client(|builder| builder.default_api_timeout(Duration::from_secs(2)));
    let request = ListGroupsRequest::default();
    let error = client.call(Target::Any, &request).reply().await.unwrap_err();
    assert!(matches!(&error, Error::Timeout { last: Some(last), .. } if matches!(**last, Error::Connect { .. })));
}

#[tokio::test]
async fn an_oversized_response_is_refused() {
    let (client, [mut peer]) = client(|builder| builder.max_response(200));
    let serve = async {
        peer.greet().await;
        peer.next().await;
        peer.0.write_all(&201i32.to_be_bytes()).await.unwrap();
        assert!(peer.is_closed().await);
    };
    let (answer, ()) = tokio::join!(ask(&client), serve);
    assert!(answer.unwrap_err().to_string().contains("receive.message.max.bytes"));
}

#[tokio::test(start_paused = true)]
async fn close_ends_every_task_at_the_latest_when_its_patience_is_over() {
    let (client, [mut peer]) = client(|builder| builder);
    let asking = tokio::spawn({
        let client = client.clone();
        async move { ask(&client).await }
    });
    peer.greet().await;
    peer.next().await;
    client.close(Duration::from_secs(1)).await;
    assert!(peer.is_closed().await);
    assert!(asking.await.unwrap().is_err());
    assert!(matches!(ask(&client).await, Err(Error::Closed)));
    let alive = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(alive, 0);
}

#[tokio::test]
async fn the_connection_ends_with_the_last_handle() {
    let (client, [mut peer]) = client(|builder| builder);
    let serve = async {
        peer.greet().await;
        let came = peer.next().await;
        peer.groups(&came, 1).await;
    };
    let (answer, ()) = tokio::join!(ask(&client), serve);
    answer.unwrap();
    drop(client);
    assert!(peer.is_closed().await);
}

#[tokio::test]
async fn who_stops_waiting_without_giving_up_keeps_nobody_from_learning_metadata() {
    let (client, [mut peer]) = client(|builder| builder);
    let api = |key: ApiKey| ApiVersion { api_key: key.0, max_version: VERSION, ..Default::default() };
    let versions = ApiVersionsResponse { api_keys: vec![api(ApiKey::METADATA)], ..Default::default() };
    let serve = async {
        let came = peer.next().await;
        peer.answer(came.id, came.version, &versions).await;
        for _ in 0..2 {
            let came = peer.next().await;
            peer.answer(came.id, came.version, &MetadataResponse::default()).await;
        }
    };
    let mut first = Box::pin(client.all_topics());
    // It is polled once, and neither again nor dropped before the other has its answer.
    assert!(std::future::poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending())).await);
    let second = timeout(Duration::from_secs(20), async { tokio::join!(client.all_topics(), serve).0 }).await;
    assert!(second.expect("it is not kept from learning").is_ok());
    assert!(first.await.is_ok());
}

#[tokio::test]
async fn who_stops_waiting_without_giving_up_keeps_nobody_from_connecting() {
    let (client, [mut peer]) = client(|builder| builder);
    let mut first = Box::pin(client.connection(Target::Any));
    // It is polled once, and neither again nor dropped before the other has its connection.
    assert!(std::future::poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending())).await);
    let second = async { tokio::join!(client.connection(Target::Any), peer.greet()).0 };
    let second = timeout(Duration::from_secs(20), second).await;
    assert!(second.expect("it is not kept from connecting").is_ok());
    assert!(first.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn who_connects_stops_when_the_client_is_closed() {
    let (client, [_silent]) = client(|builder| builder);
    let mut connecting = Box::pin(client.connection(Target::Any));
    assert!(std::future::poll_fn(|cx| Poll::Ready(connecting.as_mut().poll(cx).is_pending())).await);
    client.close(Duration::from_secs(1)).await;
    tokio::task::yield_now().await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    assert!(matches!(connecting.await, Err(Error::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_that_is_not_taken_in_time_ends_the_connection() {
    let (client, [mut peer]) = client(|builder| builder);
    let connection = tokio::join!(client.connection(Target::Any), peer.greet()).0.unwrap();
    let (frame, limit) = (Frame { bytes: vec![0; 1 << 20], gaps: Vec::new() }, Duration::from_secs(3));
    let written = connection.send_frame(frame, 0, limit, false).await.unwrap();
    let written = timeout(Duration::from_secs(60), written).await.expect("it is given up");
    assert!(matches!(written, Err(Error::Timeout { after, .. }) if after == limit));
    assert!(connection.is_closed());
}

/// A stream that keeps what is written until it is flushed, which it is not at the first try.
struct Buffered {
    stream: DuplexStream,
    kept: Vec<u8>,
    tried: bool,
}

impl AsyncRead for Buffered {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Buffered {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.kept.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tried = !self.tried;
        if self.tried {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let kept = std::mem::take(&mut self.kept);
        // It is less than the pipe holds.
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &kept))?;
        assert_eq!(written, kept.len());
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[derive(Debug)]
struct BufferedPipe(Mutex<Option<DuplexStream>>);

impl Transports for BufferedPipe {
    fn open<'a>(&'a self, _: &'a str, _: u16, _: &'a ClientConfig) -> Opening<'a> {
        let stream = self.0.lock().take().ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused));
        let buffered = |stream| Box::new(Buffered { stream, kept: Vec::new(), tried: false }) as Box<dyn Transport>;
        Box::pin(async move { stream.map(buffered) })
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_transport_holds_back_is_flushed_as_soon_as_it_can_be() {
    let (ours, theirs) = duplex(1 << 16);
    let client = quick().build_over(Arc::new(BufferedPipe(Mutex::new(Some(ours))))).unwrap();
    let mut peer = Peer(theirs);
    let serve = async {
        peer.greet().await;
        let came = peer.next().await;
        peer.groups(&came, 1).await;
    };
    let (answer, ()) = timeout(Duration::from_secs(20), async { tokio::join!(ask(&client), serve) }).await.unwrap();
    assert_eq!(answer.unwrap(), 1);
}

/// Takes a moment to refuse a connection, and counts.
#[derive(Debug, Default)]
struct Refusing(AtomicUsize);

impl Transports for Refusing {
    fn open<'a>(&'a self, _: &'a str, _: u16, _: &'a ClientConfig) -> Opening<'a> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Err(io::ErrorKind::ConnectionRefused.into())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_several_wait_for_is_tried_once_for_all() {
    let refusing = Arc::new(Refusing::default());
    let client = quick().build_over(Arc::<Refusing>::clone(&refusing)).unwrap();
    let tries = [(); 3].map(|()| client.connection(Target::Any));
    let [first, second, third] = tries;
    let (first, second, third) = tokio::join!(first, second, third);
    assert!([first, second, third].iter().all(|tried| matches!(tried, Err(Error::Connect { .. }))));
    assert_eq!(refusing.0.load(Ordering::Relaxed), 1);
    assert!(client.connection(Target::Any).await.is_err());
    assert_eq!(refusing.0.load(Ordering::Relaxed), 2);
}
