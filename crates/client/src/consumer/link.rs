//! A broker as a consumer sees it: a connection of the consumer's own, on which no other request has to wait behind a fetch, the
//! fetch session on it, and the one fetch that is under way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::time::Instant;

use super::session::Session;
use crate::client::Client;
use crate::connection::{Connection, KeptConnection};
use crate::connections::Connections;
use crate::error::Error;

/// Something that is waited for.
pub(super) type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

#[derive(Default)]
pub(super) struct Link {
    connection: KeptConnection,
    in_flight: Option<(Waiting<Result<Bytes, Error>>, i16)>,
    pub(super) session: Session,
    /// The broker wants no request before this, or there was no connection.
    pub(super) not_before: Option<Instant>,
    pub(super) failures: u32,
}

/// What came of something that was waited for.
pub(super) enum Event {
    Connected,
    NotConnected(Error),
    /// The answer to a fetch, and the version that it was sent in.
    Answered(Result<Bytes, Error>, i16),
}

impl Link {
    /// Whether a fetch can be sent, or would be as soon as there is a connection.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.in_flight.is_none() && !self.connection.is_connecting() && self.not_before.is_none_or(|until| until <= now)
    }

    /// The connection, if it is open; if not, one begins to be made.
    pub(super) fn connection(&mut self, client: &Client, own: &Connections, broker: i32) -> Option<Connection> {
        let connect = || {
            let (client, own) = (client.clone(), own.clone());
            async move { client.connection_of(&own, broker).await }
        };
        self.connection.get(connect).cloned()
    }

    /// The open connection.
    pub(super) fn open(&self) -> Option<&Connection> {
        self.connection.open()
    }

    pub(super) fn send(&mut self, answer: impl Future<Output = Result<Bytes, Error>> + Send + 'static, version: i16) {
        self.in_flight = Some((Box::pin(answer), version));
    }

    /// The next thing that happened.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if let Poll::Ready(connected) = self.connection.poll(cx) {
            return Poll::Ready(connected.map_or_else(Event::NotConnected, |()| Event::Connected));
        }
        if let Some((answer, version)) = &mut self.in_flight
            && let Poll::Ready(answer) = answer.as_mut().poll(cx)
        {
            let version = *version;
            self.in_flight = None;
            return Poll::Ready(Event::Answered(answer, version));
        }
        Poll::Pending
    }
}
