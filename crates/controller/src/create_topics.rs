//! CreateTopics.

use milena_io::Rng;
use milena_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};

use crate::view::{Records, View};

/// Decides a CreateTopics request.
pub fn create_topics<'a>(
    view: View<'_>,
    request: &CreateTopicsRequest<'a>,
    rng: &mut dyn Rng,
) -> (Records, CreateTopicsResponse<'a>) {
    let _ = (view, request, rng);
    (Vec::new(), CreateTopicsResponse::default())
}
