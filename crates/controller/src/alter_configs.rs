//! AlterConfigs and IncrementalAlterConfigs.

use milena_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use crate::view::{Records, View};

/// Decides an AlterConfigs request.
pub fn alter_configs<'a>(view: View<'_>, request: &AlterConfigsRequest<'a>) -> (Records, AlterConfigsResponse<'a>) {
    let _ = (view, request);
    (Vec::new(), AlterConfigsResponse::default())
}

/// Decides an IncrementalAlterConfigs request.
pub fn incremental_alter_configs<'a>(
    view: View<'_>,
    request: &IncrementalAlterConfigsRequest<'a>,
) -> (Records, IncrementalAlterConfigsResponse<'a>) {
    let _ = (view, request);
    (Vec::new(), IncrementalAlterConfigsResponse::default())
}
