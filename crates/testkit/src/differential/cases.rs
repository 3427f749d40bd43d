//! The recorded cases.

use std::fmt;
use std::io::{BufRead, BufReader};

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use serde_json::{Value, json};

const DATA: &[u8] = include_bytes!("../../data/oracle-cases.jsonl.gz");
/// Further cases, recorded in the same way.
const MORE: &str = include_str!("../../data/more-cases.jsonl");

/// One question and what Apache Kafka answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// `area.name.parameters`.
    pub id: String,
    /// What is asked, in words.
    pub text: String,
    /// The answer, with what differs from run to run replaced by `<names>`.
    pub outcome: Value,
}

impl Case {
    /// The part of the id before the first dot.
    #[must_use]
    pub fn area(&self) -> &str {
        self.id.split('.').next().unwrap_or_default()
    }
}

impl fmt::Display for Case {
    /// As a line of the data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        json!({"id": self.id, "area": self.area(), "case": self.text, "outcome": self.outcome}).fmt(f)
    }
}

/// All recorded cases in their order.
///
/// # Errors
/// When the data is damaged.
pub fn all() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let more = MORE.lines().map(|line| Ok(line.to_owned()));
    for line in BufReader::new(GzDecoder::new(DATA)).lines().chain(more) {
        let mut object: Value = serde_json::from_str(&line?)?;
        let text = |key: &str| object[key].as_str().map(str::to_owned).with_context(|| format!("a case without {key}"));
        let (id, text) = (text("id")?, text("case")?);
        cases.push(Case { id, text, outcome: object["outcome"].take() });
    }
    Ok(cases)
}
