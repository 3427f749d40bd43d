//! How much one request may change.

use milena_protocol::{ErrorCode, MetadataRecord};

use crate::error::ApiError;

/// Most records that one request may make, since they are committed together.
pub const MAX_RECORDS: usize = 10_000;

/// # Errors
/// POLICY_VIOLATION for the whole request when it makes too many partitions, of which each is a record; `what` they are in words.
pub(crate) fn check_partitions(count: u64, what: &str) -> Result<(), ApiError> {
    if count <= MAX_RECORDS as u64 {
        return Ok(());
    }
    Err(ApiError::new(ErrorCode::POLICY_VIOLATION, format!("Excessively large number of {what} per request.")))
}

/// # Errors
/// POLICY_VIOLATION for the whole request when there are too many records.
pub(crate) fn check_records(records: &[MetadataRecord<'_>]) -> Result<(), ApiError> {
    if records.len() <= MAX_RECORDS {
        return Ok(());
    }
    Err(ApiError::new(ErrorCode::POLICY_VIOLATION, "Unable to perform excessively large batch operation."))
}
