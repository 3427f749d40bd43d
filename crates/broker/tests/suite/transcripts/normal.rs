//! Replaces what differs from run to run by fixed values of the same type.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

const ZERO_UUID: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// What is replaced, and the ids met so far.
pub struct Normal {
    port: u16,
    data_dir: String,
    uuids: Vec<String>,
    sessions: Vec<i64>,
}

impl Normal {
    /// For answers of the server on this port with this data directory.
    pub fn new(port: u16, data_dir: &Path) -> Self {
        Self { port, data_dir: data_dir.display().to_string(), uuids: Vec::new(), sessions: Vec::new() }
    }

    /// `value` with everything replaced.
    pub fn of(&mut self, value: &Value) -> Value {
        self.walk("", value)
    }

    fn walk(&mut self, key: &str, value: &Value) -> Value {
        match value {
            Value::Object(object) => {
                let walked: Map<_, _> = object.iter().map(|(k, v)| (k.clone(), self.walk(k, v))).collect();
                Value::Object(walked)
            }
            Value::Array(all) => Value::Array(all.iter().map(|v| self.walk(key, v)).collect()),
            Value::Number(number) => number.as_i64().map_or(value.clone(), |n| self.number(key, n).into()),
            Value::String(text) if key == "topicId" && text != ZERO_UUID => {
                let number = place(&mut self.uuids, text);
                let bytes: [u8; 16] = *b"topic id       \0";
                let last = u8::try_from(number).unwrap();
                URL_SAFE_NO_PAD.encode([&bytes[..15], &[b'0' + last]].concat()).into()
            }
            Value::String(text) => text.replace(&self.data_dir, "/data").into(),
            other => other.clone(),
        }
    }

    fn number(&mut self, key: &str, n: i64) -> i64 {
        match key {
            "port" if n == i64::from(self.port) => 9092,
            "sessionId" if n != 0 => place(&mut self.sessions, &n) as i64,
            "totalBytes" | "usableBytes" if n > 0 => 1 << 40,
            "finalizedFeaturesEpoch" if n > 0 => 1,
            "transactionStartTimeMs" if n > 0 => 1_700_000_000_000,
            _ => n,
        }
    }
}

/// The place in a list, counted from one; a new value goes to its end.
fn place<T: PartialEq + Clone>(list: &mut Vec<T>, value: &T) -> usize {
    let at = list.iter().position(|known| known == value).unwrap_or_else(|| {
        list.push(value.clone());
        list.len() - 1
    });
    at + 1
}
