//! DeleteTopics.

use milena_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};

use crate::view::{Records, View};

/// Decides a DeleteTopics request of `version`.
pub fn delete_topics<'a>(
    view: View<'_>,
    request: &DeleteTopicsRequest<'a>,
    version: i16,
) -> (Records, DeleteTopicsResponse<'a>) {
    let _ = (view, request, version);
    (Vec::new(), DeleteTopicsResponse::default())
}
