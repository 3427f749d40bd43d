//! UnregisterBroker: a broker that will not come back is forgotten.

use milena_protocol::ErrorCode;
use milena_protocol::messages::{UnregisterBrokerRecord, UnregisterBrokerRequest, UnregisterBrokerResponse};

use crate::error::ApiError;
use crate::view::{Records, View};

/// Decides an UnregisterBroker request. A fenced broker is in no in-sync set that another broker is in, so that its partitions stay as
/// they are.
pub fn unregister_broker(
    view: View<'_>,
    request: &UnregisterBrokerRequest,
) -> (Records, UnregisterBrokerResponse<'static>) {
    match forget(view, request.broker_id) {
        Ok(records) => (records, UnregisterBrokerResponse::default()),
        Err(error) => (Records::new(), refuse_unregistration(error)),
    }
}

/// The answer that has this error.
pub fn refuse_unregistration(error: ApiError) -> UnregisterBrokerResponse<'static> {
    UnregisterBrokerResponse { error_code: error.code.0, error_message: error.message, ..Default::default() }
}

fn forget(view: View<'_>, broker_id: i32) -> Result<Records, ApiError> {
    let refuse = |code, rest| Err(ApiError::new(code, format!("Broker ID {broker_id} is {rest}")));
    match view.image.cluster().broker(broker_id) {
        None => refuse(ErrorCode::BROKER_ID_NOT_REGISTERED, "not currently registered"),
        Some(broker) if !broker.fenced => refuse(ErrorCode::INVALID_REQUEST, "running"),
        Some(broker) => Ok(vec![UnregisterBrokerRecord { broker_id, broker_epoch: broker.epoch }.into()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Node, broker, image};

    #[test]
    fn a_fenced_broker_is_forgotten_and_no_other() {
        let fenced = milena_metadata::Broker { fenced: true, ..broker(2) };
        let mut node = Node { image: image([broker(1), fenced]), ..Node::new() };
        for (broker_id, code, message) in [
            (1, ErrorCode::INVALID_REQUEST, "Broker ID 1 is running"),
            (9, ErrorCode::BROKER_ID_NOT_REGISTERED, "Broker ID 9 is not currently registered"),
        ] {
            let (records, answer) = unregister_broker(node.view(), &UnregisterBrokerRequest { broker_id });
            assert_eq!((records, answer.error_code, answer.error_message.as_deref()), (vec![], code.0, Some(message)));
        }
        let (records, answer) = unregister_broker(node.view(), &UnregisterBrokerRequest { broker_id: 2 });
        assert_eq!(answer, UnregisterBrokerResponse::default());
        node.commit(&records);
        assert!(node.image.cluster().broker(2).is_none());
    }
}
