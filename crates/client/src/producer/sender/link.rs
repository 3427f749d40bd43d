//! A broker as the sender sees it: its connection, or the try to make one, and the requests that wait for its answers.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::time::Instant;

use crate::call::Target;
use crate::client::Client;
use crate::connection::{Connection, KeptConnection, Throttle};
use crate::error::Error;
use crate::metadata::Topic;
use crate::producer::batch::SealedBatch;

/// A request on its way.
pub(super) struct InFlight {
    answer: Pin<Box<dyn Future<Output = Result<Bytes, Error>> + Send>>,
    pub(super) version: i16,
    pub(super) batches: Vec<(Arc<Topic>, SealedBatch)>,
    /// Of the connection that it is sent on.
    pub(super) throttle: Throttle,
}

#[derive(Default)]
pub(super) struct Link {
    connection: KeptConnection,
    pub(super) in_flight: VecDeque<InFlight>,
}

/// What came of something that the sender waits for.
pub(super) enum Event {
    /// There is a connection.
    Connected,
    /// There is none.
    NotConnected(Error),
    /// A request was answered, or will not be.
    Answered(InFlight, Result<Bytes, Error>),
}

impl Link {
    /// The connection, if it is open; if not, one begins to be made.
    pub(super) fn connection(&mut self, client: &Client, broker: i32) -> Option<&Connection> {
        self.connection.get(|| {
            let client = client.clone();
            async move { client.connection(Target::Broker(broker)).await }
        })
    }

    /// Sends a request. Its place among others is certain once it was polled.
    pub(super) fn send(
        &mut self,
        answer: impl Future<Output = Result<Bytes, Error>> + Send + 'static,
        version: i16,
        batches: Vec<(Arc<Topic>, SealedBatch)>,
        throttle: Throttle,
    ) {
        self.in_flight.push_back(InFlight { answer: Box::pin(answer), version, batches, throttle });
    }

    /// Until when the broker wants to hear nothing.
    pub(super) fn throttled(&self, now: Instant) -> Option<Instant> {
        self.connection.open()?.throttle().until(now)
    }

    /// The next thing that happened.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if let Poll::Ready(connected) = self.connection.poll(cx) {
            return Poll::Ready(connected.map_or_else(Event::NotConnected, |()| Event::Connected));
        }
        // In their order: so they are handed to the connection, and so they are answered.
        for place in 0..self.in_flight.len() {
            if let Poll::Ready(answer) = self.in_flight[place].answer.as_mut().poll(cx)
                && let Some(request) = self.in_flight.remove(place)
            {
                return Poll::Ready(Event::Answered(request, answer));
            }
        }
        Poll::Pending
    }
}
