//! What goes with records of configurations: the longest value, and forgetting eligible leader replicas.

use std::borrow::Cow;

use milena_metadata::{ConfigResourceType, Image};
use milena_protocol::messages::ClearElrRecord;
use milena_protocol::{ErrorCode, MetadataRecord};

use crate::error::ApiError;

/// The configuration that says which replicas are eligible.
pub(crate) const MIN_INSYNC_REPLICAS: &str = "min.insync.replicas";

/// Longest value in bytes.
pub(crate) const MAX_VALUE_LENGTH: usize = 32_767;

/// The refusal of a value above [`MAX_VALUE_LENGTH`].
pub(crate) fn value_too_long() -> ApiError {
    let message = format!(
        "The configuration value cannot be added because it exceeds the maximum value size of {MAX_VALUE_LENGTH} bytes."
    );
    ApiError::new(ErrorCode::INVALID_CONFIG, message)
}

/// The records that must follow `configs`: with another minimum of in-sync replicas, what is known about eligible leader
/// replicas is not true any more.
pub(crate) fn clear_elr_records(image: &Image, configs: &[MetadataRecord<'static>]) -> Vec<MetadataRecord<'static>> {
    if !image.features().elr_enabled() {
        return Vec::new();
    }
    let clear = |record: &MetadataRecord<'static>| match record {
        MetadataRecord::Config(config) if config.name == MIN_INSYNC_REPLICAS => {
            let of_topic = config.resource_type == ConfigResourceType::TOPIC.0;
            let topic_name = if of_topic { config.resource_name.clone() } else { Cow::Borrowed("") };
            Some(ClearElrRecord { topic_name }.into())
        }
        _ => None,
    };
    configs.iter().filter_map(clear).collect()
}
