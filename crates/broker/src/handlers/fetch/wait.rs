//! A Fetch that waits: for the disk, where its records are further away than memory, or until its partitions have enough for it or its
//! time is up.

use std::sync::Arc;

use milena_net::{Outgoing, Reply};
use tokio::time::{Instant, timeout_at};

use super::context::Fetch;
use super::read::{Reach, Read, read};
use super::reply;
use crate::purgatory::Waiting;
use crate::request::Refusal;
use crate::services::Services;

/// Answers when enough has come, at the latest after the fetch's longest wait.
pub(super) async fn answer_later(fetch: Fetch, services: Arc<Services>) -> Reply {
    let deadline = Instant::now() + fetch.max_wait;
    let waiting = {
        let mut partitions = fetch.partitions.lock();
        Waiting::join(partitions.slots().iter().filter_map(|slot| slot.place.as_ref().ok()).cloned())
    };
    let fetch = Arc::new(fetch);
    let mut is_late = false;
    loop {
        let mut read = read(&fetch, Reach::Memory);
        if read.wants_disk {
            if let Some(reply) = answer_from_disk(&fetch, &services, is_late).await {
                return reply;
            }
        } else if is_late || read.answers(&fetch) {
            return answer(&fetch, &mut read, &services).map_or_else(close, Reply::frame);
        }
        is_late = timeout_at(deadline, waiting.changed()).await.is_err();
    }
}

/// Reads on another thread. `None` when there is not enough, which is answered all the same if it is late.
async fn answer_from_disk(fetch: &Arc<Fetch>, services: &Arc<Services>, is_late: bool) -> Option<Reply> {
    let (fetch, its_services) = (Arc::clone(fetch), Arc::clone(services));
    let answered = services.readers.ask(move || {
        let mut read = read(&fetch, Reach::Disk);
        (is_late || read.answers(&fetch)).then(|| answer(&fetch, &mut read, &its_services))
    });
    match answered.await {
        Some(answered) => answered.map(|answered| answered.map_or_else(close, Reply::frame)),
        None => Some(Reply::close("its read was given up")),
    }
}

fn answer(fetch: &Fetch, read: &mut Read, services: &Services) -> Result<Outgoing, Refusal> {
    let mut out = Outgoing::new();
    reply::answer(fetch, read, &services.fetch_sessions, &mut out).map(|()| out)
}

fn close(refusal: Refusal) -> Reply {
    Reply::close(refusal.to_string())
}
