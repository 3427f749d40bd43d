//! Membership in a group: who reads which partition.
//!
//! A [`Member`] keeps one task, which asks the coordinator; what it asks and what follows from the answers is decided by a
//! state machine without I/O, one for each protocol.
//!
//! | module | what lives there |
//! |---|---|
//! | `membership` | what both machines have in common |
//! | `classic` | the classic protocol, eager and cooperative |
//! | `reconciling` | the consumer protocol (KIP-848) |
//! | `assignor` | how a leader divides partitions |
//! | `wire` | bytes of subscriptions and assignments |
//! | `driver` | the task: requests, metadata, time |
//! | `config` | the settings of a member |

mod assignor;
mod classic;
mod config;
mod driver;
mod membership;
mod reconciling;
mod wire;

pub use assignor::Assignor;
pub(crate) use config::GroupConfig;
pub use config::GroupProtocol;
pub(crate) use membership::{Change, Wanted};

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use milena_protocol::ErrorCode;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use crate::client::Client;
use crate::error::Error;
use crate::producer::GroupMetadata;
use driver::Driver;
use membership::{Duties, Membership};

/// A member of a group, from subscription to leaving. Dropping it ends its task at once, without leaving the group.
#[derive(Debug)]
pub(crate) struct Member {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What the member's holder and its task share.
#[derive(Debug)]
struct Shared {
    machine: Mutex<Box<dyn Membership>>,
    /// What the holder wants last, for the task to see.
    wanted: Mutex<Wanted>,
    /// The holder has done something.
    woken: Notify,
    /// The holder waits for something to see.
    holder: Mutex<Option<Waker>>,
}

/// A consumer that asks for records.
#[derive(Debug)]
pub(crate) struct Polling(Arc<Shared>);

impl Drop for Polling {
    fn drop(&mut self) {
        self.0.polls(false);
    }
}

impl Shared {
    fn polls(&self, polling: bool) {
        if self.machine.lock().duties().polls(polling, Instant::now()) {
            self.woken.notify_one();
        }
    }

    fn wake_holder(&self) {
        if let Some(waker) = self.holder.lock().take() {
            waker.wake();
        }
    }
}

/// Who a member is; that changes from generation to generation.
#[derive(Debug, Clone)]
pub(crate) struct Identity(Arc<Shared>);

impl Identity {
    /// Group, member, and generation or epoch, as they are now.
    pub(crate) fn metadata(&self) -> GroupMetadata {
        self.0.machine.lock().identity()
    }

    /// How often the member has lost what it had: others may have that since.
    pub(crate) fn losses(&self) -> u64 {
        self.0.machine.lock().duties().losses()
    }

    /// What was asked in this name, such as a commit, was refused with this code.
    pub(crate) fn refused(&self, code: ErrorCode, name: &GroupMetadata) {
        self.0.machine.lock().refused(code, name);
        self.0.wake_holder();
        self.0.woken.notify_one();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Member {
    /// Begins to join. It needs to be inside a tokio runtime, where it starts its task. What is wanted was
    /// [checked](Wanted::check).
    pub(crate) fn join(client: Client, config: Arc<GroupConfig>, wanted: Wanted) -> Self {
        let now = Instant::now();
        let duties = Duties::new(config.max_poll_interval, client.config().retry_backoff, now);
        let machine: Box<dyn Membership> = match (config.protocol, &wanted) {
            (GroupProtocol::Consumer, _) => {
                Box::new(reconciling::Reconciling::new(Arc::clone(&config), duties, wanted.clone(), now))
            }
            (GroupProtocol::Classic, Wanted::Topics(topics)) => {
                Box::new(classic::Classic::new(Arc::clone(&config), duties, topics.clone(), now))
            }
            // What matches is found out before it joins.
            (GroupProtocol::Classic, Wanted::Pattern(_)) => {
                Box::new(classic::Classic::new(Arc::clone(&config), duties, std::collections::BTreeSet::new(), now))
            }
        };
        let (machine, wanted) = (Mutex::new(machine), Mutex::new(wanted));
        let shared = Arc::new(Shared { machine, wanted, woken: Notify::new(), holder: Mutex::new(None) });
        let span = tracing::debug_span!("member", group = config.group);
        let driver = Driver::new(client, config, Arc::clone(&shared));
        Self { shared, task: tokio::spawn(driver.run().instrument(span)) }
    }

    /// Subscribes to something else, which was [checked](Wanted::check).
    pub(crate) fn subscribe(&self, wanted: Wanted) {
        *self.shared.wanted.lock() = wanted;
        self.shared.woken.notify_one();
    }

    /// The next change that is to be followed. It is told again until it is [acknowledged](Self::acknowledge), so that who
    /// waits may stop waiting at any time. Only the last one that has waited is woken.
    ///
    /// # Errors
    /// What the consumer has to hear, each time once: which topics it can't read, or why it can't be a member, which is
    /// tried again after that.
    pub(crate) fn poll_change(&self, cx: &mut Context<'_>) -> Poll<Result<Change, Error>> {
        *self.shared.holder.lock() = Some(cx.waker().clone());
        let mut machine = self.shared.machine.lock();
        let duties = machine.duties();
        if let Some(change) = duties.change() {
            return Poll::Ready(Ok(change.clone()));
        }
        let Some(error) = duties.take_error(Instant::now()) else { return Poll::Pending };
        self.shared.woken.notify_one();
        Poll::Ready(Err(error))
    }

    /// The last change was followed: what was revoked was committed, and is not read any more.
    pub(crate) fn acknowledge(&self) {
        self.shared.machine.lock().duties().acknowledge();
        self.shared.woken.notify_one();
    }

    /// The consumer asks for records, until what this gives is dropped; it must do so each `max.poll.interval.ms`.
    pub(crate) fn polling(&self) -> Polling {
        self.shared.polls(true);
        Polling(Arc::clone(&self.shared))
    }

    /// Who it is, to whoever asks in its name.
    pub(crate) fn identity(&self) -> Identity {
        Identity(Arc::clone(&self.shared))
    }

    /// Leaves the group, and waits so long for the coordinator to hear it.
    pub(crate) async fn leave(mut self, patience: Duration) {
        self.shared.machine.lock().leave();
        self.shared.woken.notify_one();
        // Dropping it ends the task if it has not ended.
        let _ = timeout(patience, &mut self.task).await;
    }
}
