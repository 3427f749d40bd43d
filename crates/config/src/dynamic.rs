//! Dynamic broker configuration: which keys may change while the node runs, per broker or for all, with or
//! without a listener's prefix, and what they are looked up together with. Checking a change is in `change`.

mod change;

pub use change::{check_alter, check_replacement};

use crate::Overrides;
use crate::definition::{self, Definition, UpdateMode};
use crate::error::ConfigError;

/// Keys that take a listener's and a SASL mechanism's prefix: `listener.name.{listener}.{mechanism}.{key}`.
const LISTENER_MECHANISM_KEYS: [&str; 5] = [
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
];

/// Keys that are looked up together, first one first.
const SYNONYMS: [&[&str]; 3] = [
    &["log.roll.ms", "log.roll.hours"],
    &["log.roll.jitter.ms", "log.roll.jitter.hours"],
    &["log.retention.ms", "log.retention.minutes", "log.retention.hours"],
];

/// Base key of `listener.name.{listener}.{key}`, without a mechanism's prefix if the key takes one.
pub fn listener_base(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("listener.name.")?;
    let (_, base) = rest.split_once('.')?;
    let mechanism_key = LISTENER_MECHANISM_KEYS.into_iter().find(|key| base.ends_with(key));
    Some(mechanism_key.map_or(base, |key| &base[base.len() - key.len()..]))
}

/// Names under which a broker key's value may be set, in the order they are looked up.
pub fn synonyms(name: &str) -> Vec<&str> {
    if let Some(group) = SYNONYMS.iter().find(|group| group.contains(&name)) {
        return group.to_vec();
    }
    if name == "log.flush.interval.ms" {
        return vec!["log.flush.interval.ms", "log.flush.scheduler.interval.ms"];
    }
    std::iter::once(name).chain(listener_base(name)).collect()
}

/// The definition of a broker key, with or without a listener's prefix.
pub fn definition_of(name: &str) -> Option<&'static Definition> {
    let catalog = definition::broker();
    catalog.get(name).or_else(|| listener_base(name).and_then(|base| catalog.get(base)))
}

/// Whether a key may change while the node runs. A key with a listener's prefix and an unknown one may not.
pub fn is_dynamic(name: &str) -> bool {
    definition::broker().get(name).is_some_and(|d| d.update_mode != UpdateMode::ReadOnly)
}

/// Whether the value is one its definition allows; unknown names may have any.
///
/// # Errors
/// Kafka's message.
pub fn check_value(name: &str, text: &str) -> Result<(), ConfigError> {
    definition_of(name).map_or(Ok(()), |definition| definition.parse(text).map(drop))
}

/// `below` with the entries of `above` on top; an entry also hides those it is looked up together with.
pub(crate) fn overlay(below: &Overrides, above: &Overrides) -> Overrides {
    let mut result = below.clone();
    for name in above.keys() {
        for hidden in SYNONYMS.iter().find(|group| group.contains(&name.as_str())).copied().unwrap_or_default() {
            result.remove(*hidden);
        }
    }
    result.extend(above.iter().map(|(n, v)| (n.clone(), v.clone())));
    result
}
