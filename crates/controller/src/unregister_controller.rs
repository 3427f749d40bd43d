//! UnregisterController: a controller that will not come back is forgotten.

use milena_protocol::ErrorCode;
use milena_protocol::messages::{
    UnregisterControllerRecord, UnregisterControllerRequest, UnregisterControllerResponse,
};

use crate::error::ApiError;
use crate::view::{Records, View};

/// Decides an UnregisterController request.
pub fn unregister_controller(
    view: View<'_>,
    request: &UnregisterControllerRequest,
) -> (Records, UnregisterControllerResponse<'static>) {
    match forget(view, request.controller_id) {
        Ok(records) => (records, UnregisterControllerResponse::default()),
        Err(error) => (Records::new(), refuse_controller_unregistration(error)),
    }
}

/// The answer that has this error.
pub fn refuse_controller_unregistration(error: ApiError) -> UnregisterControllerResponse<'static> {
    UnregisterControllerResponse { error_code: error.code.0, error_message: error.message, ..Default::default() }
}

fn forget(view: View<'_>, controller_id: i32) -> Result<Records, ApiError> {
    if controller_id == view.config.node_id() {
        let message = "Controller cannot unregister itself while it is active.";
        return Err(ApiError::new(ErrorCode::INVALID_REQUEST, message));
    }
    match view.image.cluster().controller(controller_id) {
        Some(_) => Ok(vec![UnregisterControllerRecord { controller_id }.into()]),
        None => {
            let message = format!("Controller ID {controller_id} is not currently registered.");
            Err(ApiError::new(ErrorCode::CONTROLLER_ID_NOT_REGISTERED, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use milena_protocol::messages::RegisterControllerRecord;

    use super::*;
    use crate::testing::Node;

    #[test]
    fn another_controller_is_forgotten_and_the_active_one_is_not() {
        let mut node = Node::new();
        for id in [1, 2] {
            node.commit(&[RegisterControllerRecord { controller_id: id, ..Default::default() }.into()]);
        }
        for (controller_id, code, message) in [
            (1, ErrorCode::INVALID_REQUEST, "Controller cannot unregister itself while it is active."),
            (9, ErrorCode::CONTROLLER_ID_NOT_REGISTERED, "Controller ID 9 is not currently registered."),
        ] {
            let (records, answer) = unregister_controller(node.view(), &UnregisterControllerRequest { controller_id });
            assert_eq!((records, answer.error_code, answer.error_message.as_deref()), (vec![], code.0, Some(message)));
        }
        let (records, answer) = unregister_controller(node.view(), &UnregisterControllerRequest { controller_id: 2 });
        assert_eq!(answer, UnregisterControllerResponse::default());
        node.commit(&records);
        assert!(node.image.cluster().controller(2).is_none());
    }
}
