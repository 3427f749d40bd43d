//! One line of our own about each key, made of what the tables say about it.

use crate::definition::Definition;

/// One line about a key, never empty.
pub fn line(definition: &Definition) -> String {
    let default = match definition.default_text() {
        Some(text) if text.is_empty() => ", empty by default".to_owned(),
        Some(text) => format!(", default {text}"),
        None if definition.required => ", required".to_owned(),
        None => String::new(),
    };
    let allowed = definition.validator.describe().map(|a| format!(", allowed: {a}")).unwrap_or_default();
    format!("{} ({}{default}{allowed}).", definition.name, definition.kind.name().to_lowercase())
}
