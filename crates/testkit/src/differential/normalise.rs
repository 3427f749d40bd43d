//! Makes answers of two servers, or of two days, comparable: ids, addresses, times and texts of error messages become
//! names, error codes get their names, record sets become lists of batches.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::batch::Stored;

const ERRORS: &str = include_str!("../../data/errors.tsv");
const ZERO_UUID: &str = "AAAAAAAAAAAAAAAAAAAAAA";

static ERROR_NAMES: LazyLock<HashMap<i64, &str>> = LazyLock::new(|| {
    let rows = ERRORS.lines().filter_map(|line| line.split_once('\t'));
    rows.filter_map(|(code, name)| Some((code.parse().ok()?, name))).collect()
});

/// What is known of the server and the case, and the names given so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Replaced by `R` in every text.
    pub(super) prefix: String,
    /// Times near it are written `T0+n`.
    pub(super) t0: i64,
    pub(super) cluster: String,
    pub(super) host: String,
    pub(super) port: i64,
    pub(super) node: i64,
    /// Topic ids that the case has seen being given to topics.
    pub(super) topics: HashMap<String, String>,
    pub(super) uuids: Vec<String>,
    pub(super) sessions: Vec<i64>,
    pub(super) producers: Vec<i64>,
    pub(super) members: Vec<String>,
}

/// The place in a list, counted from one; a new value goes to its end.
fn number<T: PartialEq + Clone>(list: &mut Vec<T>, value: &T) -> usize {
    if let Some(at) = list.iter().position(|v| v == value) {
        return at + 1;
    }
    list.push(value.clone());
    list.len()
}

/// `NAME(code)`.
pub(super) fn error(code: i64) -> String {
    format!("{}({code})", ERROR_NAMES.get(&code).unwrap_or(&"?"))
}

impl Names {
    /// The normal form of an answer.
    pub(super) fn normal(&mut self, value: &Value) -> Value {
        self.walk("", value)
    }

    /// A time, relative to the case's own if it is near it.
    pub(super) fn time(&self, time: i64) -> Value {
        match time.wrapping_sub(self.t0) {
            near @ -100_000_000..=100_000_000 if near < 0 => format!("T0{near}").into(),
            near @ -100_000_000..=100_000_000 => format!("T0+{near}").into(),
            _ => time.into(),
        }
    }

    fn walk(&mut self, key: &str, value: &Value) -> Value {
        match value {
            Value::Object(object) => {
                let walked: Map<_, _> = object.iter().map(|(k, v)| (k.clone(), self.walk(k, v))).collect();
                Value::Object(walked)
            }
            Value::Array(all) => Value::Array(all.iter().map(|v| self.walk(key, v)).collect()),
            Value::Number(n) => n.as_i64().map_or(value.clone(), |n| self.number(key, n)),
            Value::String(text) => self.text(key, text),
            Value::Null if key == "records" => Value::Array(Vec::new()),
            other => other.clone(),
        }
    }

    fn number(&mut self, key: &str, n: i64) -> Value {
        match key {
            "errorCode" => error(n).into(),
            "nodeId" | "brokerId" | "leaderId" | "controllerId" if n == self.node => "<node>".into(),
            "port" if n == self.port => "<port>".into(),
            "sessionId" if n != 0 => format!("<session{}>", number(&mut self.sessions, &n)).into(),
            "producerId" if n != -1 => format!("<pid{}>", number(&mut self.producers, &n)).into(),
            "timestamp" | "baseTs" | "maxTs" | "ts" | "logAppendTimeMs" => self.time(n),
            _ => n.into(),
        }
    }

    fn text(&mut self, key: &str, text: &str) -> Value {
        match key {
            "errorMessage" | "batchIndexErrorMessage" if !text.is_empty() => "<set>".into(),
            "host" if text == self.host => "<host>".into(),
            "clusterId" if text == self.cluster => "<cluster>".into(),
            "topicId" => self.topic_id(text).into(),
            "memberId" | "leader" if !text.is_empty() => {
                format!("<member{}>", number(&mut self.members, &text.to_owned())).into()
            }
            "records" => brief(text),
            _ => self.own(text).into(),
        }
    }

    /// A text with the case's own prefix replaced.
    pub(super) fn own(&self, text: &str) -> String {
        if self.prefix.is_empty() { text.to_owned() } else { text.replace(&self.prefix, "R") }
    }

    fn topic_id(&mut self, id: &str) -> String {
        match self.topics.get(id) {
            _ if id == ZERO_UUID => id.to_owned(),
            Some(topic) => format!("<id:{}>", self.own(topic)),
            None => format!("<uuid{}>", number(&mut self.uuids, &id.to_owned())),
        }
    }
}

fn brief(records: &str) -> Value {
    let bytes = STANDARD.decode(records).unwrap_or_default();
    match Stored::split(&bytes) {
        Ok(batches) => batches.iter().map(Stored::brief).collect(),
        Err(error) => format!("{error:#}").into(),
    }
}
