//! A connection that is kept: the one that is open, or the try to make one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::Connection;
use crate::error::Error;

type Connecting = Pin<Box<dyn Future<Output = Result<Connection, Error>> + Send>>;

/// Either, or neither.
#[derive(Default)]
pub(crate) struct KeptConnection {
    open: Option<Connection>,
    connecting: Option<Connecting>,
}

impl KeptConnection {
    /// The connection, if it is open.
    pub(crate) fn open(&self) -> Option<&Connection> {
        self.open.as_ref().filter(|connection| !connection.is_closed())
    }

    /// Whether one is being made.
    pub(crate) fn is_connecting(&self) -> bool {
        self.connecting.is_some()
    }

    /// The connection, if it is open; if not, one begins to be made.
    pub(crate) fn get<F>(&mut self, connect: impl FnOnce() -> F) -> Option<&Connection>
    where
        F: Future<Output = Result<Connection, Error>> + Send + 'static,
    {
        if self.open().is_none() {
            self.open = None;
            if self.connecting.is_none() {
                self.connecting = Some(Box::pin(connect()));
            }
        }
        self.open.as_ref()
    }

    /// What came of the try to make one.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(connecting) = &mut self.connecting else { return Poll::Pending };
        let connected = ready!(connecting.as_mut().poll(cx));
        self.connecting = None;
        Poll::Ready(connected.map(|connection| self.open = Some(connection)))
    }
}
