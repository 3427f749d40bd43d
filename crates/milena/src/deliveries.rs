//! Records that were sent and whose end is waited for.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use milena_client::{Delivery, Error, Producer, RecordMetadata};

/// What became of a record.
pub type Outcome = Result<RecordMetadata, Error>;

/// Records of one topic on their way, each with what its sender wants to know again when it has arrived. Those of a
/// partition arrive in their order, so that only the first of each partition is looked at.
#[derive(Debug)]
pub struct Deliveries<T> {
    partitions: RefCell<Vec<VecDeque<(Delivery, T)>>>,
}

impl<T> Deliveries<T> {
    /// None yet.
    pub fn new() -> Self {
        Self { partitions: RefCell::default() }
    }

    /// One more.
    pub fn add(&self, delivery: Delivery, of: T) {
        let partition = usize::try_from(delivery.partition().1).expect("a record was put into a partition that exists");
        let mut partitions = self.partitions.borrow_mut();
        if partitions.len() <= partition {
            partitions.resize_with(partition + 1, VecDeque::new);
        }
        partitions[partition].push_back((delivery, of));
    }

    /// Does `work`, which sends; what arrives meanwhile is handed to `arrived`.
    pub async fn during<R>(&self, work: impl Future<Output = R>, arrived: &mut impl FnMut(T, Outcome)) -> R {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let _ = self.poll(cx, arrived);
            work.as_mut().poll(cx)
        })
        .await
    }

    /// Has the producer send what is there without waiting for more, and hands all that are left to `arrived`.
    pub async fn flush(&self, producer: &Producer, arrived: &mut impl FnMut(T, Outcome)) {
        self.during(producer.flush(), arrived).await;
        poll_fn(|cx| self.poll(cx, arrived)).await;
    }

    /// Hands on those that have arrived; ready when none is left.
    fn poll(&self, cx: &mut Context<'_>, arrived: &mut impl FnMut(T, Outcome)) -> Poll<()> {
        let mut all = Poll::Ready(());
        for waiting in self.partitions.borrow_mut().iter_mut() {
            while let Some((delivery, _)) = waiting.front_mut() {
                let Poll::Ready(outcome) = Pin::new(delivery).poll(cx) else {
                    all = Poll::Pending;
                    break;
                };
                if let Some((_, of)) = waiting.pop_front() {
                    arrived(of, outcome);
                }
            }
        }
        all
    }
}
