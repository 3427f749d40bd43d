//! Produce. v5: log start offset. v8: record errors and a message. v9: flexible. v10: current leader. v12: implicit
//! transaction partitions. v13: topics by id.
//!
//! All consecutive Produce requests of a wake-up are taken together: every batch is checked where it was received, then
//! each partition appends all of its batches with one write, then the answers leave in request order. A batch that is
//! refused leaves no trace; partitions fail or succeed on their own. Where `flush.messages` wants a flush first, the answer comes
//! after it. What batches are decompressed to is bounded for all of them, and when it was much, other connections come before this one's
//! next requests.

mod append;
mod check;
mod plan;
mod records;
mod repeats;
mod reply;
mod verify;
mod wait;

use milena_net::Replies;
use milena_protocol::ApiKey;

use crate::registry::{Api, Handler};
use crate::request::Refusal;
use crate::services::Services;

use plan::Plan;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::PRODUCE, 3..=13, Handler::Produce).advertised_from(0);

/// Serves consecutive Produce requests of one connection; each frame is whole and has a Produce header.
///
/// # Errors
/// The first request that gets no answer; those before it are answered. Behind one whose bytes are no request nothing is
/// looked at; behind one with acks=0 that failed, batches may have been written that are not answered.
pub fn serve(frames: &mut [&mut [u8]], services: &Services, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    let (topics, now_ms) = (services.replicas.topics(), services.clock.now_ms());
    let mut plan = Plan::take();
    let checked = frames.iter().try_for_each(|frame| check::request(frame, &topics, &mut plan));
    if plan.requests.iter().any(|request| request.transactional_id.is_some()) {
        let always_verify = services.config().transaction_partition_verification_enable();
        verify::verify(frames, &mut plan, &services.coordinators, always_verify, now_ms);
        check::transactional(frames, &mut plan);
    }
    let took_long = append::append(frames, &mut plan, now_ms);
    if took_long || plan.parts.iter().any(|part| part.awaits > 0) {
        return wait::answer(plan, took_long, replies).and(checked);
    }
    for request in &plan.requests {
        reply::answer(request, &plan, replies)?;
    }
    plan.put_back();
    checked
}
