//! ListTransactions. v0: flexible. v1: by duration. v2: by a pattern of transactional ids.

use std::collections::BTreeSet;
use std::sync::Arc;

use milena_coordinator::transaction::{ListFilter, Reply as TransactionReply, Request, State};
use milena_coordinator::whole_match;
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::{ListTransactionsRequest, ListTransactionsResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::dispatch::frame;
use crate::registry::{Api, Handler};
use crate::request::{OwnedRequest, Refusal};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::LIST_TRANSACTIONS, 0..=2, Handler::Later(handle));

fn handle(request: OwnedRequest, services: Arc<Services>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let asked: ListTransactionsRequest<'_> = call.request()?;
        let mut response = list(&asked, &services).await;
        if response.error_code == 0 {
            let unknown = asked.state_filters.iter().filter(|name| !State::is_name(name)).cloned();
            response.unknown_state_filters = unknown.collect::<BTreeSet<_>>().into_iter().collect();
        }
        frame(|out| call.answer(out, &response))
    })
}

async fn list<'r>(asked: &ListTransactionsRequest<'r>, services: &Services) -> ListTransactionsResponse<'r> {
    let failed = |error: ErrorCode| ListTransactionsResponse { error_code: error.0, ..Default::default() };
    let Ok(pattern) = pattern(asked.transactional_id_pattern.as_deref()) else {
        return failed(ErrorCode::INVALID_REGULAR_EXPRESSION);
    };
    let admits = |id: &str| pattern.as_ref().is_none_or(|matches| matches(id));
    let states: BTreeSet<&str> = asked.state_filters.iter().map(|state| &**state).collect();
    let producer_ids: BTreeSet<i64> = asked.producer_id_filters.iter().copied().collect();
    let filter = || ListFilter {
        states: &states,
        producer_ids: &producer_ids,
        longer_than_ms: asked.duration_filter,
        admits: &admits,
    };
    let answers = services.coordinators.transactions().request_all(|| Request::List(filter()));
    let mut response = ListTransactionsResponse::default();
    for answer in answers {
        match answer.get().await {
            Ok(TransactionReply::Listed(listed)) => response.transaction_states.extend(listed),
            // It is another broker's by now.
            Err(ErrorCode::NOT_COORDINATOR) => {}
            other => return failed(other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR)),
        }
    }
    response
}

/// Whether an id is asked for; an empty pattern is none.
fn pattern(asked: Option<&str>) -> Result<Option<impl Fn(&str) -> bool>, String> {
    asked.filter(|pattern| !pattern.is_empty()).map(whole_match).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_ids() {
        let matches = |asked, id| pattern(asked).unwrap().is_none_or(|matches| matches(id));
        assert!(matches(Some("tx-.*"), "tx-1") && matches(Some("a|tx-1"), "tx-1"));
        assert!(matches(None, "x") && matches(Some(""), "x"));
        assert!(!matches(Some("tx"), "tx-1") && !matches(Some("x-1"), "tx-1"));
        for wrong in ["(", "a)(b", "[", "(?:.?){1000}{80}"] {
            assert!(pattern(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
