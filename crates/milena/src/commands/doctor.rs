//! `milena doctor`: looks at a cluster, or with `--config` or `--data-dir` at a node of this machine, and says in plain words what is
//! wrong and what to do about it.

mod cluster;
mod node;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use crate::connect;
use crate::output::{Output, Table};

/// Arguments of `milena doctor`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    at: connect::Arguments,
    /// Looks at the node that this properties file describes, instead of a cluster.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Looks at this data directory, instead of a cluster.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
}

/// Looks, reports, and fails when something is wrong.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut findings = Findings::default();
    if arguments.config.is_some() || arguments.data_dir.is_some() {
        node::look(arguments.config.clone(), arguments.data_dir.clone(), &mut findings)?;
    } else {
        arguments.at.ask(async |admin| cluster::look(admin, &mut findings).await)?;
    }
    findings.report(arguments.at.output());
    Ok(if findings.count(Level::Wrong) > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// As it should be.
    Good,
    /// Worth knowing.
    Note,
    /// It works, and may not do so for long.
    Warning,
    /// It does not work.
    Wrong,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Wrong => "error",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    level: Level,
    check: &'static str,
    what: String,
    advice: Option<String>,
}

/// What was found, in the order in which it was looked for.
#[derive(Debug, Default)]
struct Findings {
    all: Vec<Finding>,
}

impl Findings {
    fn good(&mut self, check: &'static str, what: impl Into<String>) {
        self.all.push(Finding { level: Level::Good, check, what: what.into(), advice: None });
    }

    /// Something that a person should know of, and what can be done.
    fn add(&mut self, level: Level, check: &'static str, what: impl Into<String>, advice: impl Into<String>) {
        self.all.push(Finding { level, check, what: what.into(), advice: Some(advice.into()) });
    }

    /// What could not be looked at.
    fn failed(&mut self, check: &'static str, error: &impl ToString) {
        let advice = "The rest was looked at all the same.";
        self.add(Level::Warning, check, format!("can't be told: {}", error.to_string()), advice);
    }

    fn count(&self, level: Level) -> usize {
        self.all.iter().filter(|finding| finding.level == level).count()
    }

    fn report(&self, output: Output) {
        if output.is_table() {
            self.lines().iter().for_each(|line| output.note(line));
            return;
        }
        let mut table = Table::new(["level", "check", "finding", "advice"]);
        for finding in &self.all {
            table.row([json!(finding.level.name()), json!(finding.check), json!(finding.what), json!(finding.advice)]);
        }
        output.table(&table);
    }

    /// For people: each finding, what to do about it below, and at last how many there are.
    fn lines(&self) -> Vec<String> {
        let width = self.all.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
        let mut lines = Vec::new();
        for Finding { level, check, what, advice } in &self.all {
            lines.push(format!("{:<7}  {check:<width$}  {what}", level.name()));
            lines.extend(advice.iter().map(|advice| format!("{:<7}  {:<width$}  {advice}", "", "")));
        }
        let many = |level: Level, one: &str| match self.count(level) {
            1 => format!("1 {one}"),
            count => format!("{count} {one}s"),
        };
        lines.push(format!("{}, {}", many(Level::Wrong, "error"), many(Level::Warning, "warning")));
        lines
    }
}

/// The first names of many.
fn names<T: ToString>(things: impl IntoIterator<Item = T>) -> String {
    const SHOWN: usize = 5;
    let all: Vec<String> = things.into_iter().map(|thing| thing.to_string()).collect();
    let shown = all[..all.len().min(SHOWN)].join(", ");
    if all.len() > SHOWN { format!("{shown} and {} more", all.len() - SHOWN) } else { shown }
}

/// How full a file system with a log directory is, if that is worth a word.
fn fullness(findings: &mut Findings, place: &str, usable: u64, total: u64) {
    /// Percent that are left, below which writing will soon fail, and below which it may fail at any time.
    const LITTLE: u64 = 10;
    const NOTHING: u64 = 2;
    let left = usable.saturating_mul(100).checked_div(total).unwrap_or(100);
    let what = format!("{place}: {left} % of {} MiB are left", total >> 20);
    let advice =
        "Shorter retention.ms or retention.bytes, or `milena topic delete`, make room; a full disk stops all writing.";
    match left {
        _ if left < NOTHING => findings.add(Level::Wrong, "disk space", what, advice),
        _ if left < LITTLE => findings.add(Level::Warning, "disk space", what, advice),
        _ => findings.good("disk space", what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_stands_below_what_was_found_and_the_sum_at_the_end() {
        let mut findings = Findings::default();
        findings.good("cluster", "is there");
        fullness(&mut findings, "/data", 5 << 20, 100 << 20);
        fullness(&mut findings, "/other", 1 << 20, 100 << 20);
        let lines = findings.lines();
        assert_eq!(lines[0], "ok       cluster     is there");
        assert_eq!(lines[1], "warning  disk space  /data: 5 % of 100 MiB are left");
        assert!(lines[2].starts_with("                     Shorter retention.ms"));
        assert!(lines[3].starts_with("error    disk space  /other"));
        assert_eq!(lines.last().unwrap(), "1 error, 1 warning");
    }

    #[test]
    fn of_many_names_the_first_are_told() {
        assert_eq!(names(["a", "b"]), "a, b");
        assert_eq!(names(1..=7), "1, 2, 3, 4, 5 and 2 more");
    }
}
