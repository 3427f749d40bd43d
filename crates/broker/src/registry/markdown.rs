//! The registry as the README shows it.

use milena_protocol::{ApiKey, apis};

use super::{APIS, find};

/// Stands before the table in the README.
const BEGIN: &str = "<!-- apis:begin -->\n";
/// Stands behind it.
const END: &str = "<!-- apis:end -->";

/// `page` with the table between its marks made anew; `None` when it has no marks.
pub fn refresh(page: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{}{END}{after}", table()))
}

/// The APIs that are served, one a line, and those of Kafka's brokers that are not.
fn table() -> String {
    let mut out = "| API | key | versions |\n|---|---|---|\n".to_owned();
    for api in APIS {
        let (ApiKey(key), name) = (api.key, api.key.name());
        out += &format!("| {name} | {key} | {} to {} |\n", api.versions.start(), api.versions.end());
    }
    let missing = apis().filter(|api| api.on_broker && find(api.key).is_none()).map(|api| api.name);
    let missing: Vec<_> = missing.collect();
    if !missing.is_empty() {
        out += &format!("\nNot served: {}.\n", missing.join(", "));
    }
    out
}
