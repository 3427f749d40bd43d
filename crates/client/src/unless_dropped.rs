//! Work that goes on whether or not who waits for it is polled, and no longer than somebody waits.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::JoinHandle;
use tracing::Instrument;

use crate::error::Error;

/// A task that is ended when this is dropped. What it gives is [`Error::Closed`] when its runtime has ended.
#[derive(Debug)]
pub(crate) struct UnlessDropped<T>(JoinHandle<Result<T, Error>>);

impl<T: Send + 'static> UnlessDropped<T> {
    pub(crate) fn spawn(work: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self(tokio::spawn(work.in_current_span()))
    }
}

impl<T> Future for UnlessDropped<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|ended| ended.unwrap_or(Err(Error::Closed)))
    }
}

impl<T> Drop for UnlessDropped<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
