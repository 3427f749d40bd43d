//! Blocks of producer ids, which brokers hand out one by one.

use milena_metadata::Image;
use milena_protocol::ErrorCode;
use milena_protocol::messages::ProducerIdsRecord;

use crate::error::ApiError;
use crate::view::Records;

/// How many ids a block has.
pub const PRODUCER_ID_BLOCK: i64 = 1000;

/// Ids that belong to one broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerIdBlock {
    /// The first id.
    pub first: i64,
    /// How many there are.
    pub length: i64,
}

/// The next block of producer ids for a broker (AllocateProducerIds).
///
/// # Errors
/// BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH when the broker is not the registered one, UNKNOWN_SERVER_ERROR when
/// all ids are used up.
pub fn allocate_producer_ids(
    image: &Image,
    broker_id: i32,
    broker_epoch: i64,
) -> Result<(Records, ProducerIdBlock), ApiError> {
    let broker = image.cluster().broker(broker_id);
    let broker = broker.ok_or(ApiError::code(ErrorCode::BROKER_ID_NOT_REGISTERED))?;
    if broker.epoch != broker_epoch {
        return Err(ApiError::code(ErrorCode::STALE_BROKER_EPOCH));
    }
    let first = image.next_producer_id();
    let next = first.checked_add(PRODUCER_ID_BLOCK).ok_or_else(|| {
        ApiError::new(
            ErrorCode::UNKNOWN_SERVER_ERROR,
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit",
        )
    })?;
    let record = ProducerIdsRecord { broker_id, broker_epoch, next_producer_id: next };
    Ok((vec![record.into()], ProducerIdBlock { first, length: PRODUCER_ID_BLOCK }))
}
