//! How a transcript is written.

use std::fmt::Write;

use serde_json::Value;

/// JSON is broken into lines where one would be longer.
const WIDTH: usize = 110;
/// Bytes on a line of hex.
const BYTES: usize = 32;

/// `ApiVersions` as `api_versions`.
pub fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// JSON on as few lines as fit.
pub fn json(value: &Value) -> String {
    let mut out = String::new();
    write_json(value, 0, &mut out);
    out
}

fn write_json(value: &Value, indent: usize, out: &mut String) {
    let short = value.to_string();
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(all) => all.iter().map(|(key, value)| (format!("\"{key}\": "), value)).collect(),
        Value::Array(all) => all.iter().map(|value| (String::new(), value)).collect(),
        _ => Vec::new(),
    };
    if inner.is_empty() || indent + short.len() <= WIDTH {
        return out.push_str(&short);
    }
    let (open, close) = if value.is_array() { ('[', ']') } else { ('{', '}') };
    out.push(open);
    let last = inner.len() - 1;
    for (at, (key, value)) in inner.into_iter().enumerate() {
        let _ = write!(out, "\n{:1$}{key}", "", indent + 2);
        write_json(value, indent + 2, out);
        if at < last {
            out.push(',');
        }
    }
    let _ = write!(out, "\n{:1$}{close}", "", indent);
}

/// Bytes in hex, a few on each line.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for line in bytes.chunks(BYTES) {
        out.push(' ');
        for four in line.chunks(4) {
            out.push(' ');
            for byte in four {
                let _ = write!(out, "{byte:02x}");
            }
        }
        out.push('\n');
    }
    out
}

/// Where two transcripts part.
pub fn first_difference(api: &str, kept: &str, fresh: &str) -> String {
    let (kept, fresh): (Vec<_>, Vec<_>) = (kept.lines().collect(), fresh.lines().collect());
    let at = kept.iter().zip(&fresh).take_while(|(a, b)| a == b).count();
    let heading = fresh[..at.min(fresh.len())].iter().rev().find(|line| line.starts_with("==")).unwrap_or(&"== start");
    let line = |of: &[&str]| of.get(at).map_or("(end)".to_owned(), |line| (*line).to_owned());
    format!(
        "{api} answers differently, line {} in {heading}\n  kept  {}\n  fresh {}\nIf that is right, write the \
         transcripts with UPDATE_TRANSCRIPTS=1 cargo test -p milena-broker --test suite",
        at + 1,
        line(&kept),
        line(&fresh)
    )
}
