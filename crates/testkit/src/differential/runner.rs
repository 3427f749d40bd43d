//! Runs the cases against one server and judges their outcomes.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use serde_json::Value;

use super::context::{Context, Facts, NotServed};
use super::{areas, cases, differences, steps};
use crate::server::Server;

/// How a case ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The outcome is the recorded one.
    Agrees,
    /// It is another one.
    Differs(Value),
    /// It is another one, for a known reason.
    Known(&'static str),
    /// It is the recorded one although a difference is listed.
    Stale(&'static str),
    /// The case could not be run to its end.
    Failed(String),
    /// An API that the case uses is not served.
    NotServed(String),
    /// No code knows this id.
    NoCode,
}

/// A case and how it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The case.
    pub case: cases::Case,
    /// How it ended.
    pub verdict: Verdict,
    /// How long it took, in ms.
    pub millis: u128,
}

impl Judged {
    /// Whether the run must not pass with it.
    #[must_use]
    pub fn is_bad(&self) -> bool {
        matches!(self.verdict, Verdict::Differs(_) | Verdict::Failed(_) | Verdict::Stale(_))
    }
}

/// Runs those of `cases` whose ids begin with one of `only` (all if it is empty) and reports each as it ends.
///
/// # Errors
/// When the server cannot be asked at all.
pub fn run(
    server: &Server,
    cases: Vec<cases::Case>,
    only: &[String],
    mut report: impl FnMut(&Judged),
) -> Result<Vec<Judged>> {
    let facts = Facts::ask(server)?;
    let is_oracle = server.kind().name() == "kafka";
    let mut all = Vec::new();
    for (number, case) in cases.into_iter().enumerate() {
        if !only.is_empty() && !only.iter().any(|o| case.id.starts_with(o.as_str())) {
            continue;
        }
        let started = Instant::now();
        let verdict = if is_oracle {
            ask_oracle(server, &facts, number, &case)
        } else {
            let outcome = outcome(server, &facts, number, &case);
            judge(outcome, &case.outcome, differences::reason(&case.id))
        };
        let judged = Judged { case, verdict, millis: started.elapsed().as_millis() };
        report(&judged);
        all.push(judged);
    }
    Ok(all)
}

/// Asks a server what is not recorded yet. What no code knows, and what fails, is told.
///
/// # Errors
/// When the server cannot be asked at all.
pub fn record(
    server: &Server,
    wanted: Vec<cases::Case>,
    mut report: impl FnMut(Result<cases::Case, String>),
) -> Result<()> {
    let facts = Facts::ask(server)?;
    for (number, case) in wanted.into_iter().enumerate() {
        report(match outcome(server, &facts, number, &case) {
            Ok(Some(outcome)) => Ok(cases::Case { outcome, ..case }),
            Ok(None) => Err(format!("no code knows {}", case.id)),
            Err(error) => Err(format!("{}: {error:#}", case.id)),
        });
    }
    Ok(())
}

/// What comes of a case.
fn outcome(server: &Server, facts: &Facts, number: usize, case: &cases::Case) -> Result<Option<Value>> {
    let cx = &mut Context::new(server, facts, number);
    if case.data["steps"].is_array() { steps::run(cx, &case.data).map(Some) } else { areas::run(cx, &case.id) }
}

/// Whether Apache Kafka gives the recorded outcome: its lists come in the order of a hash table.
fn ask_oracle(server: &Server, facts: &Facts, number: usize, case: &cases::Case) -> Verdict {
    let outcome = outcome(server, facts, number, case);
    judge(outcome.map(|value| value.map(in_one_order)), &in_one_order(case.outcome.clone()), None)
}

fn judge(outcome: Result<Option<Value>>, expected: &Value, known: Option<&'static str>) -> Verdict {
    match (outcome, known) {
        (Ok(None), _) => Verdict::NoCode,
        (Ok(Some(value)), None) if value == *expected => Verdict::Agrees,
        (Ok(Some(value)), Some(reason)) if value == *expected => Verdict::Stale(reason),
        (Err(error), _) if error.is::<NotServed>() => Verdict::NotServed(error.to_string()),
        (_, Some(reason)) => Verdict::Known(reason),
        (Ok(Some(value)), None) => Verdict::Differs(value),
        (Err(error), None) => Verdict::Failed(format!("{error:#}")),
    }
}

/// With lists of topics and partitions in one order.
fn in_one_order(value: Value) -> Value {
    match value {
        Value::Array(all) => {
            let mut all: Vec<_> = all.into_iter().map(in_one_order).collect();
            if all.iter().all(|one| ["name", "partitionIndex"].iter().any(|key| one.get(key).is_some())) {
                all.sort_by_key(ToString::to_string);
            }
            all.into()
        }
        Value::Object(object) => object.into_iter().map(|(key, value)| (key, in_one_order(value))).collect(),
        other => other,
    }
}

/// One line: how many cases ended how.
#[must_use]
pub fn summary(all: &[Judged]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for judged in all {
        let name = match &judged.verdict {
            Verdict::Agrees => "agree",
            Verdict::Differs(_) => "differ",
            Verdict::Known(_) => "known to differ",
            Verdict::Stale(_) => "agree against the list",
            Verdict::Failed(_) => "failed",
            Verdict::NotServed(_) => "need an API that is not served",
            Verdict::NoCode => "have no code",
        };
        *counts.entry(name).or_default() += 1;
    }
    let parts: Vec<_> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    format!("{} cases: {}", all.len(), parts.join(", "))
}
