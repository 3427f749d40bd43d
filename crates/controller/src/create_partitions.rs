//! CreatePartitions.

use milena_io::Rng;
use milena_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

use crate::view::{Records, View};

/// Decides a CreatePartitions request.
pub fn create_partitions<'a>(
    view: View<'_>,
    request: &CreatePartitionsRequest<'a>,
    rng: &mut dyn Rng,
) -> (Records, CreatePartitionsResponse<'a>) {
    let _ = (view, request, rng);
    (Vec::new(), CreatePartitionsResponse::default())
}
