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
/// STALE_BROKER_EPOCH when the broker is not the registered one, UNKNOWN_SERVER_ERROR when all ids are used up.
pub fn allocate_producer_ids(
    image: &Image,
    broker_id: i32,
    broker_epoch: i64,
) -> Result<(Records, ProducerIdBlock), ApiError> {
    if image.cluster().broker(broker_id).is_none_or(|broker| broker.epoch != broker_epoch) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Node;

    #[test]
    fn every_block_begins_where_the_last_one_ended() {
        let mut node = Node::new();
        for first in [0, 1000] {
            let (records, block) = allocate_producer_ids(&node.image, 1, 1).unwrap();
            assert_eq!(block, ProducerIdBlock { first, length: 1000 });
            node.commit(&records);
        }
        assert_eq!(node.image.next_producer_id(), 2000);
    }

    #[test]
    fn a_broker_that_is_not_the_registered_one_gets_no_block() {
        let image = Node::new().image;
        for (id, epoch) in [(1, 2), (2, 1)] {
            let error = allocate_producer_ids(&image, id, epoch).unwrap_err();
            assert_eq!(error.code, ErrorCode::STALE_BROKER_EPOCH);
        }
    }

    #[test]
    fn the_last_ids_are_not_given_out() {
        let mut node = Node::new();
        let next_producer_id = i64::MAX - PRODUCER_ID_BLOCK + 1;
        node.commit(&[ProducerIdsRecord { broker_id: 1, broker_epoch: 1, next_producer_id }.into()]);
        let error = allocate_producer_ids(&node.image, 1, 1).unwrap_err();
        assert_eq!(error.code, ErrorCode::UNKNOWN_SERVER_ERROR);
    }
}
