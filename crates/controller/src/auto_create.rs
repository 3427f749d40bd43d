//! Topics that come into being because somebody uses them.

use milena_io::Rng;

use crate::error::ApiError;
use crate::view::{Records, View};

/// Whether a topic belongs to a coordinator.
pub fn is_internal(name: &str) -> bool {
    matches!(name, "__consumer_offsets" | "__transaction_state" | "__share_group_state")
}

/// The records of a topic that is made on first use: internal topics get their coordinator's settings, others the
/// broker's defaults.
///
/// # Errors
/// What CreateTopics would answer, TOPIC_ALREADY_EXISTS among it.
pub fn create_topic_automatically(view: View<'_>, name: &str, rng: &mut dyn Rng) -> Result<Records, ApiError> {
    let _ = (view, name, rng);
    Ok(Vec::new())
}
