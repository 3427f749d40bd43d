//! Answers of Produce that come after a flush. The reactor goes on meanwhile, with later requests of the connection too.

use std::cell::RefCell;
use std::rc::Rc;

use milena_net::{Pipelining, Replies, Reply};

use super::plan::Plan;
use super::reply;
use crate::purgatory::Waiting;
use crate::request::Refusal;

/// Answers each request, at once or when what it waits for is durable.
///
/// # Errors
/// As [`reply::answer`].
pub(super) fn answer(plan: Plan, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    let requests = 0..plan.requests.len();
    let plan = Rc::new(RefCell::new(plan));
    for request in requests {
        if plan.borrow_mut().settle(request) {
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
