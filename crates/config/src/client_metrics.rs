//! Client metrics subscriptions: the rules their configuration is checked with.

use crate::Overrides;
use crate::definition;
use crate::error::AlterError;

/// What a `match` pattern may select clients by.
const MATCH_KEYS: [&str; 6] = [
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];

/// Checks what a subscription's overrides would be after an alteration.
///
/// The pattern's regular expression itself is not compiled here.
///
/// # Errors
/// INVALID_REQUEST for the name, an unknown key or the interval, INVALID_CONFIG for a bad pattern or value.
pub fn validate(subscription: &str, overrides: &Overrides) -> Result<(), AlterError> {
    if subscription.is_empty() {
        return Err(AlterError::InvalidRequest("Subscription name can't be empty".to_owned()));
    }
    for (name, text) in overrides {
        let Some(definition) = definition::client_metrics().get(name) else {
            return Err(AlterError::InvalidRequest(format!("Unknown client metrics configuration: {name}")));
        };
        let value = definition.parse(text)?;
        match name.as_str() {
            "interval.ms" => check_interval(value.integer().unwrap_or_default())?,
            "match" => crate::value::parse_list(text).iter().try_for_each(|pattern| check_pattern(pattern))?,
            _ => {}
        }
    }
    Ok(())
}

fn check_interval(interval: i64) -> Result<(), AlterError> {
    if (100..=3_600_000).contains(&interval) {
        return Ok(());
    }
    Err(AlterError::InvalidRequest(format!(
        "Invalid value {interval} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
    )))
}

fn check_pattern(pattern: &str) -> Result<(), AlterError> {
    let parts: Vec<&str> = pattern.split('=').collect();
    let known = parts.len() == 2 && MATCH_KEYS.contains(&parts[0].trim());
    if known {
        return Ok(());
    }
    Err(AlterError::InvalidConfig(format!("Illegal client matching pattern: {pattern}")))
}
