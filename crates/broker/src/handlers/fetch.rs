//! Fetch. v5: log start offset. v7: sessions. v9: current leader epoch. v11: rack. v12: flexible, last fetched epoch,
//! diverging epoch. v13: topics by id. v15: replica state. v16: node endpoints. v17: replica directory. v18: high
//! watermark of the replica.
//!
//! A fetch reads where each partition stands without its lock, takes file ranges rather than bytes, and waits only for
//! the partitions that it names. The disk is another thread's business: what is far from the log end is looked for there.

mod context;
mod read;
mod reply;
mod wait;

use std::sync::Arc;

use milena_net::{Pipelining, Replies};
use milena_protocol::ApiKey;

use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::FETCH, 4..=18, Handler::Either(serve));

/// Serves one request: at once, or later when there is not enough yet or the disk must be asked.
///
/// # Errors
/// When its bytes are not a Fetch request or its answer is too long to be said.
pub fn serve(call: &Call<'_>, services: &Arc<Services>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    let most_bytes = services.config().fetch_max_bytes();
    let (topics, sessions) = (services.replicas.topics(), &services.fetch_sessions);
    let fetch = context::open(call, &topics, sessions, most_bytes, services.node.id)?;
    if !fetch.isolation_is_known() && fetch.finds_a_partition() {
        return replies.try_ready(|out| reply::refuse_isolation(call, out));
    }
    let mut read = read::read(&fetch, read::Reach::Memory);
    if read.answers(&fetch) {
        return replies.try_ready(|out| reply::answer(&fetch, &mut read, &services.fetch_sessions, out));
    }
    replies.later(Box::pin(wait::answer_later(fetch, Arc::clone(services))), Pipelining::Hold);
    Ok(())
}
