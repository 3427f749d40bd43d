//! A group's configuration: its overrides on top of the broker's values, and the bounds that the broker sets.

use crate::Overrides;
use crate::broker::BrokerConfig;
use crate::definition::{self, Definition};
use crate::error::AlterError;
use crate::value::Value;

/// Effective value of a group key.
///
/// # Errors
/// None: an override that does not parse has no effect, an unknown key is `Null`.
pub fn value(broker: &BrokerConfig, overrides: &Overrides, name: &str) -> Value {
    let Some(definition) = definition::group().get(name) else { return Value::Null };
    let overridden = overrides.get(name).and_then(|text| definition.parse(text).ok());
    overridden.unwrap_or_else(|| default_value(broker, definition))
}

/// The broker's value for a group key, or the key's own default.
pub(crate) fn default_value(broker: &BrokerConfig, definition: &Definition) -> Value {
    match definition.broker_key.map(|key| broker.value(key)) {
        // One assignor per group: the broker's list stands as text.
        Some(Value::List(entries)) if definition.kind == definition::ConfigType::String => {
            Value::String(entries.join(","))
        }
        Some(value) => value.clone(),
        None => definition.default.clone(),
    }
}

/// Checks what a group's overrides would be after an alteration.
///
/// # Errors
/// INVALID_CONFIG with Kafka's message.
pub fn validate(broker: &BrokerConfig, overrides: &Overrides) -> Result<(), AlterError> {
    let catalog = definition::group();
    if let Some(unknown) = overrides.keys().find(|name| catalog.get(name).is_none()) {
        return Err(AlterError::InvalidConfig(format!("Unknown group config name: {unknown}")));
    }
    for (name, text) in overrides {
        if let Some(definition) = catalog.get(name) {
            let value = definition.parse(text)?;
            check_bounds(broker, definition, &value)?;
            check_names(broker, name, &value)?;
        }
    }
    Ok(())
}

fn check_bounds(broker: &BrokerConfig, definition: &Definition, value: &Value) -> Result<(), AlterError> {
    let Some(number) = value.integer() else { return Ok(()) };
    let bound = |key: Option<&str>| key.and_then(|k| broker.integer(k));
    let (low, high) = definition.broker_bounds;
    let name = definition.name;
    let message = match (bound(low), bound(high)) {
        (Some(low), Some(high)) if number < low || number > high => {
            format!("{name} must be in the range {low} to {high} inclusive.")
        }
        (None, Some(high)) if number > high => format!("{name} must be less than or equal to {high}"),
        (Some(low), None) if number < low => format!("{name} must be greater than or equal to {low}"),
        _ => return Ok(()),
    };
    Err(AlterError::InvalidConfig(message))
}

fn check_names(broker: &BrokerConfig, name: &str, value: &Value) -> Result<(), AlterError> {
    let Value::String(text) = value else { return Ok(()) };
    match name {
        "errors.deadletterqueue.topic.name" if text.starts_with("__") => {
            Err(AlterError::InvalidConfig(format!("{name}: DLQ topic name must not start with '__'")))
        }
        "streams.assignor.name" => {
            let known = broker.list("group.streams.assignors");
            if known.contains(text) {
                return Ok(());
            }
            Err(AlterError::InvalidConfig(format!(
                "{name} '{text}' is not a registered task assignor. Registered assignors are: [{}].",
                known.join(", ")
            )))
        }
        _ => Ok(()),
    }
}
