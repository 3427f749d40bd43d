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
/// Of a pattern's regular expression only brackets and repetitions are looked at.
///
/// # Errors
/// INVALID_REQUEST for the name, an unknown key or the interval, INVALID_CONFIG for a bad pattern or value.
pub fn validate(subscription: &str, overrides: &Overrides) -> Result<(), AlterError> {
    if subscription.is_empty() {
        return Err(AlterError::InvalidRequest("Subscription name can't be empty".to_owned()));
    }
    let known = definition::client_metrics();
    // Names come before values.
    if let Some(unknown) = overrides.keys().find(|name| known.get(name).is_none()) {
        return Err(AlterError::InvalidRequest(format!("Unknown client metrics configuration: {unknown}")));
    }
    for (name, text) in overrides {
        let Some(definition) = known.get(name) else { continue };
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
    let parts: Vec<&str> = pattern.split('=').map(str::trim).collect();
    let valid = matches!(parts[..], [key, regex] if MATCH_KEYS.contains(&key) && !regex.is_empty() && is_closed(regex));
    if valid {
        return Ok(());
    }
    Err(AlterError::InvalidConfig(format!("Illegal client matching pattern: {pattern}")))
}

/// Whether the groups and classes of a regular expression are closed and no repetition stands at its start.
fn is_closed(regex: &str) -> bool {
    let (mut groups, mut classes) = (0_usize, 0_usize);
    let mut chars = regex.chars();
    if regex.starts_with(['*', '+', '?']) {
        return false;
    }
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.next().is_none() => return false,
            '[' => classes += 1,
            ']' => classes = classes.saturating_sub(1),
            '(' if classes == 0 => groups += 1,
            ')' if classes == 0 => match groups.checked_sub(1) {
                Some(open) => groups = open,
                None => return false,
            },
            _ => {}
        }
    }
    groups == 0 && classes == 0
}
