//! Client quotas: which keys an entity may have and which values they may take.

use crate::error::AlterError;

/// Keys of users and clients, and whether a fraction is allowed.
const CLIENT_KEYS: [(&str, bool); 4] = [
    ("consumer_byte_rate", false),
    ("controller_mutation_rate", true),
    ("producer_byte_rate", false),
    ("request_percentage", true),
];

/// The key of IP addresses.
const IP_KEY: &str = "connection_creation_rate";

/// Checks one change of a quota. `entity` are the entity's types and names, `None` for the default;
/// a `value` of `None` removes the quota.
///
/// Whether an ip resolves is the caller's business.
///
/// # Errors
/// INVALID_REQUEST with Kafka's message.
pub fn validate(entity: &[(&str, Option<&str>)], key: &str, value: Option<f64>) -> Result<(), AlterError> {
    validate_entity(entity)?;
    let of_ip = entity.iter().any(|(kind, _)| *kind == "ip");
    let fraction = match (of_ip, CLIENT_KEYS.iter().find(|(name, _)| *name == key)) {
        (false, Some((_, fraction))) => *fraction,
        (true, _) if key == IP_KEY => false,
        _ => return Err(AlterError::InvalidRequest(format!("Invalid configuration key {key}"))),
    };
    match value {
        Some(v) if v <= 0.0 => Err(AlterError::InvalidRequest(format!("Quota {key} must be greater than 0"))),
        Some(v) if !fraction && v.fract() > 1e-6 => {
            Err(AlterError::InvalidRequest(format!("{key} cannot be a fractional value.")))
        }
        _ => Ok(()),
    }
}

/// Checks which types make up an entity.
///
/// # Errors
/// INVALID_REQUEST with Kafka's message.
pub fn validate_entity(entity: &[(&str, Option<&str>)]) -> Result<(), AlterError> {
    let refuse = |message: String| Err(AlterError::InvalidRequest(message));
    if entity.is_empty() {
        return refuse("Invalid empty client quota entity".to_owned());
    }
    if let Some((kind, _)) = entity.iter().find(|(kind, _)| !matches!(*kind, "user" | "client-id" | "ip")) {
        return refuse(format!("Unhandled client quota entity type: {kind}"));
    }
    if let Some((kind, _)) = entity.iter().find(|(_, name)| *name == Some("")) {
        return refuse(format!("Empty {kind} not supported"));
    }
    if entity.len() > 1 && entity.iter().any(|(kind, _)| *kind == "ip") {
        return refuse(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId".to_owned(),
        );
    }
    Ok(())
}
