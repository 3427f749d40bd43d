//! What is known of records that were given to a producer: one [`Completion`] a batch, shared by all who wait for a record
//! of it.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::record::RecordMetadata;
use crate::error::Error;

/// What became of a batch.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// It is written; the offset of its first record, and the broker's time where the topic wants that.
    Written { base_offset: Option<i64>, append_time: Option<i64> },
    /// It is not, or nobody knows; some records may have reasons of their own, by their place in the batch.
    Failed { error: Error, records: Option<Arc<HashMap<i32, Error>>> },
    /// It was too large and went on as several, each from this place of its first record on.
    Split(Arc<[(i32, Arc<Completion>)]>),
}

/// The end of one batch, for all who wait for it.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Waiting(Vec<Waker>),
    Done(Outcome),
}

impl Completion {
    pub(super) fn new(topic: Arc<str>, partition: i32) -> Self {
        Self { topic, partition, state: Mutex::new(State::Waiting(Vec::new())) }
    }

    /// Ends the batch, unless it has ended before, and wakes who waits.
    pub(super) fn complete(&self, outcome: Outcome) {
        let mut state = self.state.lock();
        if let State::Waiting(wakers) = &mut *state {
            let wakers = std::mem::take(wakers);
            *state = State::Done(outcome);
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(*self.state.lock(), State::Done(_))
    }

    /// The outcome; until there is one, `cx` is woken when there is. `place` is who asks, among those who wait.
    fn poll(&self, cx: &mut Context<'_>, place: &mut Option<usize>) -> Poll<Outcome> {
        match &mut *self.state.lock() {
            State::Done(outcome) => Poll::Ready(outcome.clone()),
            State::Waiting(wakers) => {
                match place.and_then(|place| wakers.get_mut(place)) {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => {
                        *place = Some(wakers.len());
                        wakers.push(cx.waker().clone());
                    }
                }
                Poll::Pending
            }
        }
    }

    /// Waits until the batch, and all that it was split into, has ended.
    pub(super) async fn ended(self: Arc<Self>) {
        let mut left = vec![self];
        while let Some(completion) = left.pop() {
            let mut place = None;
            if let Outcome::Split(parts) = poll_fn(|cx| completion.poll(cx, &mut place)).await {
                left.extend(parts.iter().map(|(_, part)| Arc::clone(part)));
            }
        }
    }
}

/// Waits for a record to be written; see [`Producer::send`](super::Producer::send). Dropping it changes nothing for the
/// record.
#[derive(Debug)]
pub struct Delivery {
    completion: Arc<Completion>,
    index: i32,
    timestamp: i64,
    place: Option<usize>,
}

impl Delivery {
    pub(super) fn new(completion: Arc<Completion>, index: i32, timestamp: i64) -> Self {
        Self { completion, index, timestamp, place: None }
    }

    /// The record's topic and partition, known before it is written.
    pub fn partition(&self) -> (&str, i32) {
        (&self.completion.topic, self.completion.partition)
    }
}

impl Future for Delivery {
    type Output = Result<RecordMetadata, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let this = &mut *self;
            match this.completion.poll(cx, &mut this.place) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Outcome::Written { base_offset, append_time }) => {
                    return Poll::Ready(Ok(RecordMetadata {
                        topic: Arc::clone(&this.completion.topic),
                        partition: this.completion.partition,
                        offset: base_offset.map(|offset| offset + i64::from(this.index)),
                        timestamp: append_time.unwrap_or(this.timestamp),
                    }));
                }
                Poll::Ready(Outcome::Failed { error, records }) => {
                    let own = records.and_then(|records| records.get(&this.index).cloned());
                    return Poll::Ready(Err(own.unwrap_or(error)));
                }
                Poll::Ready(Outcome::Split(parts)) => {
                    let after = parts.partition_point(|(first, _)| *first <= this.index);
                    let (first, part) = &parts[after.saturating_sub(1)];
                    this.index -= first;
                    this.completion = Arc::clone(part);
                    this.place = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use milena_protocol::ErrorCode;

    fn completion() -> Arc<Completion> {
        Arc::new(Completion::new("t".into(), 3))
    }

    fn written(base_offset: i64) -> Outcome {
        Outcome::Written { base_offset: Some(base_offset), append_time: None }
    }

    #[tokio::test]
    async fn every_record_of_a_batch_hears_of_its_own_offset() {
        let completion = completion();
        let waiting = [0, 1, 2].map(|index| {
            let delivery = Delivery::new(Arc::clone(&completion), index, 7);
            tokio::spawn(async move { delivery.await.unwrap().offset })
        });
        tokio::task::yield_now().await;
        completion.complete(written(10));
        completion.complete(written(99));
        for (index, waiting) in (0..).zip(waiting) {
            assert_eq!(waiting.await.unwrap(), Some(10 + index));
        }
    }

    #[tokio::test]
    async fn a_split_batch_is_followed_to_the_part_that_has_the_record() {
        let (whole, first, second) = (completion(), completion(), completion());
        let ended = tokio::spawn(Arc::clone(&whole).ended());
        whole.complete(Outcome::Split(Arc::new([(0, Arc::clone(&first)), (2, Arc::clone(&second))])));
        second.complete(written(50));
        assert_eq!(Delivery::new(Arc::clone(&whole), 2, 7).await.unwrap().offset, Some(50));
        assert_eq!(Delivery::new(Arc::clone(&whole), 4, 7).await.unwrap().offset, Some(52));
        assert!(!ended.is_finished());
        first.complete(written(20));
        assert_eq!(Delivery::new(whole, 1, 7).await.unwrap().offset, Some(21));
        ended.await.unwrap();
    }

    #[tokio::test]
    async fn a_record_with_a_reason_of_its_own_gives_that() {
        let own = HashMap::from([(1, Error::from(ErrorCode::INVALID_TIMESTAMP))]);
        let whole = completion();
        let error = Error::from(ErrorCode::INVALID_RECORD);
        whole.complete(Outcome::Failed { error, records: Some(Arc::new(own)) });
        let code = |error: Error| error.code().unwrap();
        let failed = [0, 1].map(|index| Delivery::new(Arc::clone(&whole), index, 0));
        let [first, second] = failed;
        assert_eq!(code(first.await.unwrap_err()), ErrorCode::INVALID_RECORD);
        assert_eq!(code(second.await.unwrap_err()), ErrorCode::INVALID_TIMESTAMP);
    }
}
