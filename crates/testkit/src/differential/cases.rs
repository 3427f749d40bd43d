//! The recorded cases.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use serde_json::{Value, json};

const DATA: &[u8] = include_bytes!("../../data/oracle-cases.jsonl.gz");
/// Further cases, recorded in the same way.
const MORE: &str = include_str!("../../data/more-cases.jsonl");
/// Cases of the write path that are data themselves: they say what to send.
const PRODUCE: &[u8] = include_bytes!("../../data/produce-cases.jsonl.gz");

/// One question and what Apache Kafka answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// `area.name.parameters`.
    pub id: String,
    /// What is asked, in words.
    pub text: String,
    /// The answer, with what differs from run to run replaced by `<names>`.
    pub outcome: Value,
    /// Its line. That of a case that is data has topics and steps; otherwise the id says what to send.
    pub(super) data: Value,
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
        let mut data = self.data.clone();
        data["outcome"] = self.outcome.clone();
        data.fmt(f)
    }
}

/// All recorded cases in their order.
///
/// # Errors
/// When the data is damaged.
pub fn all() -> Result<Vec<Case>> {
    let more = MORE.lines().map(|line| Ok(line.to_owned()));
    let unpacked = |packed| BufReader::new(GzDecoder::new(packed)).lines();
    unpacked(DATA).chain(more).chain(unpacked(PRODUCE)).map(|line| parse(&line?)).collect()
}

/// The cases of a file: a line of the data each, or an id, a tab, and what it asks in words. Those without an outcome have that
/// of null.
///
/// # Errors
/// When it can't be read.
pub fn of_file(path: &Path) -> Result<Vec<Case>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let named = |id: &str, words: &str| {
        let area = id.split('.').next();
        case(json!({"id": id, "area": area, "case": words}))
    };
    text.lines()
        .map(|line| match line.split_once('\t') {
            Some((id, words)) => named(id, words),
            None => parse(line),
        })
        .collect()
}

fn parse(line: &str) -> Result<Case> {
    case(serde_json::from_str(line).with_context(|| line.to_owned())?)
}

fn case(mut data: Value) -> Result<Case> {
    let text = |key: &str| data[key].as_str().map(str::to_owned).with_context(|| format!("a case without {key}"));
    let (id, text) = (text("id")?, text("case")?);
    Ok(Case { id, text, outcome: data["outcome"].take(), data })
}
