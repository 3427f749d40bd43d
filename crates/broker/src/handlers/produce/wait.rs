//! Answers of Produce that come after a flush. The reactor goes on meanwhile, with later requests of the connection too; behind
//! requests that took long, with those of other connections first.

use std::cell::RefCell;
use std::rc::Rc;

use milena_net::{Pipelining, Replies, Reply};

use super::plan::Plan;
use super::reply;
use crate::purgatory::Waiting;
use crate::request::Refusal;

/// Answers each request, at once or when what it waits for is durable. When they `took_long`, the last one's answer lets others in.
///
/// # Errors
/// As [`reply::answer`].
pub(super) fn answer(plan: Plan, took_long: bool, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    let requests = 0..plan.requests.len();
    let yielding = took_long.then(|| requests.end.saturating_sub(1));
    let plan = Rc::new(RefCell::new(plan));
    for request in requests {
        if yielding == Some(request) {
            let plan = Rc::clone(&plan);
            let answer = async move {
                tokio::task::yield_now().await;
                answer_later(plan, request).await
            };
            replies.later(Box::pin(answer), Pipelining::Hold);
        } else if plan.borrow_mut().settle(request) {
            let plan = plan.borrow();
            reply::answer(&plan.requests[request], &plan, replies)?;
        } else {
            replies.later(Box::pin(answer_later(Rc::clone(&plan), request)), Pipelining::Continue);
        }
    }
    Ok(())
}

async fn answer_later(plan: Rc<RefCell<Plan>>, request: usize) -> Reply {
    let waiting = Waiting::join(plan.borrow().awaited(request));
    while !plan.borrow_mut().settle(request) {
        waiting.changed().await;
    }
    let plan = plan.borrow();
    reply::later(&plan.requests[request], &plan)
}
