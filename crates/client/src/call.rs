//! One request with all its tries: who answers, in which version, how often and how long.

use std::ops::{RangeBounds, RangeInclusive};
use std::time::Duration;

use milena_protocol::Request;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::Instrument;

use crate::client::Client;
use crate::connection::{Connection, Reply};
use crate::coordinators::CoordinatorKind;
use crate::error::Error;

/// Who is to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target<'a> {
    /// Any broker.
    Any,
    /// The controller, or the broker that passes on to it.
    Controller,
    /// The broker with this id.
    Broker(i32),
    /// The leader of a topic's partition.
    Leader(&'a str, i32),
    /// The coordinator of a group, of a transactional id or of a share group's partition.
    Coordinator(CoordinatorKind, &'a str),
}

/// A request that is about to be sent; see [`Client::call`]. Dropping the future of its answer gives it up.
#[derive(Debug)]
#[must_use = "nothing is sent before `read` or `reply`"]
pub struct Call<'a, R> {
    client: &'a Client,
    target: Target<'a>,
    request: &'a R,
    versions: RangeInclusive<i16>,
    within: Duration,
    request_timeout: Duration,
    once: bool,
}

impl<'a, R: Request> Call<'a, R> {
    pub(crate) fn new(client: &'a Client, target: Target<'a>, request: &'a R) -> Self {
        let config = client.config();
        let (within, request_timeout) = (config.api_timeout, config.request_timeout);
        Self { client, target, request, versions: 0..=i16::MAX, within, request_timeout, once: false }
    }

    /// Versions that the request may be sent in, where its content needs some of them.
    pub fn versions(mut self, versions: impl RangeBounds<i16>) -> Self {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let first = match versions.start_bound() {
            Included(first) => *first,
            Excluded(before) => before.saturating_add(1),
            Unbounded => 0,
        };
        let last = match versions.end_bound() {
            Included(last) => *last,
            Excluded(after) => after.saturating_sub(1),
            Unbounded => i16::MAX,
        };
        self.versions = first..=last;
        self
    }

    /// How long all tries together may take, instead of `default.api.timeout.ms`.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// How long one try may take, instead of `request.timeout.ms`; for requests that wait at the server.
    pub fn request_timeout(mut self, time: Duration) -> Self {
        self.request_timeout = time;
        self
    }

    /// Tries once only.
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// The response as it came. Only what goes wrong on the way is tried again: a response that refuses is a response.
    ///
    /// # Errors
    /// The last try's error, in an [`Error::Timeout`] when time was up.
    pub async fn reply(self) -> Result<Reply<R>, Error> {
        self.in_span(Ok).await
    }

    /// What `read` makes of the response. An error that it gives is tried again if it is retriable: for what concerns only a
    /// part of the response, such as one of many topics, it gives a value.
    ///
    /// # Errors
    /// The last try's error, in an [`Error::Timeout`] when time was up.
    pub async fn read<T>(self, mut read: impl for<'r> FnMut(R::Response<'r>) -> Result<T, Error>) -> Result<T, Error> {
        self.in_span(|reply| read(reply.decode()?)).await
    }

    async fn in_span<T>(self, read: impl FnMut(Reply<R>) -> Result<T, Error>) -> Result<T, Error> {
        let span = tracing::debug_span!("call", api = R::KEY.name(), target = ?self.target);
        self.tried(read).instrument(span).await
    }

    async fn tried<T>(self, mut read: impl FnMut(Reply<R>) -> Result<T, Error>) -> Result<T, Error> {
        let until = Instant::now() + self.within;
        let mut failures = 0;
        let mut last = None;
        loop {
            let tried = timeout_at(until, self.attempt()).await;
            let Ok(result) = tried.map(|reply| reply.and_then(&mut read)) else {
                return Err(Error::timeout(R::KEY.name(), self.within, last));
            };
            let error = match result {
                Err(error) if error.is_retriable() => error,
                other => return other,
            };
            self.client.note_error(self.target, &error);
            if self.once {
                return Err(error);
            }
            failures += 1;
            let wait = self.client.config().retry_backoff.after(failures);
            tracing::debug!(api = R::KEY.name(), %error, failures, "trying again");
            if Instant::now() + wait >= until {
                return Err(Error::timeout(R::KEY.name(), self.within, Some(error)));
            }
            last = Some(error);
            sleep(wait).await;
        }
    }

    async fn attempt(&self) -> Result<Reply<R>, Error> {
        let connection = self.client.connection(self.target).await?;
        let version = connection.versions().highest(R::KEY, &self.versions)?;
        self.send(&connection, version).await?.await
    }

    async fn send(&self, connection: &Connection, version: i16) -> Result<crate::connection::Pending<R>, Error> {
        connection.send(self.request, version, self.request_timeout).await
    }
}

impl Client {
    /// Asks until an answer comes that another try would not change, or time is up.
    pub(crate) async fn patiently<T, F: Future<Output = Result<T, Error>>>(
        &self,
        what: &str,
        within: Duration,
        mut ask: impl FnMut() -> F,
    ) -> Result<T, Error> {
        let until = Instant::now() + within;
        for failures in 1.. {
            let error = match ask().await {
                Err(error) if error.is_retriable() => error,
                other => return other,
            };
            let wait = self.config().retry_backoff.after(failures);
            if Instant::now() + wait >= until {
                return Err(Error::timeout(what, within, Some(error)));
            }
            sleep(wait).await;
        }
        unreachable!("the loop ends by returning")
    }
}
