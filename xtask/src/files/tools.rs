//! Apache Kafka's own tools, asked the same of Milena and of Kafka: what they print and their exit codes are the same.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use milena_testkit::server::{Kind, Options, Server};
use serde_json::json;

use super::clients::{Ran, Tools};
use super::hanging;

/// The runs, one a line: the tool's class and its arguments. `{at}` is where the server is, appended where neither it nor its address
/// `{server}` is said; `{dir}` a folder with the files below; `<` names the standard input. Behind a `~` the numbers are not compared, behind
/// `?` only the exit code is, behind `+` not the APIs that are not served. A number in brackets is the API without which there is nothing to
/// compare.
const RUNS: &str = include_str!("../../data/tools.txt");

/// Runs all of them against both; gives the number of runs.
pub(super) fn compare(options: &Options, libs: &Path) -> Result<usize> {
    let dir = tempfile::Builder::new().prefix("milena-tools-").tempdir()?;
    let files = [
        ("lines", "one\ntwo\nthree\n"),
        ("keyed", "a:1\nb:2\na:3\n"),
        ("delete.json", r#"{"version":1,"partitions":[{"topic":"lines","partition":1,"offset":1}]}"#),
        ("beyond.json", r#"{"version":1,"partitions":[{"topic":"lines","partition":1,"offset":1000}]}"#),
        ("topics.json", r#"{"version":1,"topics":[{"topic":"lines"}]}"#),
        ("reassign.json", r#"{"version":1,"partitions":[{"topic":"lines","partition":0,"replicas":[1]}]}"#),
        ("nowhere.json", r#"{"version":1,"partitions":[{"topic":"lines","partition":0,"replicas":[9]}]}"#),
        ("offsets.csv", "lines,0,1\nlines,1,1\n"),
        // Java's tools wait for a partition that does not exist until their time is up.
        ("impatient", "request.timeout.ms=2000\ndefault.api.timeout.ms=2000\n"),
        ("elect.json", r#"{"partitions":[{"topic":"lines","partition":0}]}"#),
    ];
    for (name, text) in files {
        fs::write(dir.path().join(name), text)?;
    }
    let mut tools = Tools::start(libs)?;
    let ours = options.clone().start()?;
    let served = served(&ours)?;
    let runs: Vec<Run> = RUNS.lines().filter_map(|line| Run::parse(line, &served)).collect();
    let kafka = Options::new(Kind::Kafka(libs.to_owned())).start()?;
    let mut differing = Vec::new();
    [&ours, &kafka].into_iter().try_for_each(hanging::leave)?;
    for run in &runs {
        let ours = run.ask(&mut tools, &ours, dir.path())?;
        let mut theirs = run.ask(&mut tools, &kafka, dir.path())?;
        // What was changed is seen by Kafka's broker a moment later.
        for _ in 0..50 {
            if !run.only_asks() || run.alike(&theirs, &ours) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
            theirs = run.ask(&mut tools, &kafka, dir.path())?;
        }
        if !run.alike(&theirs, &ours) {
            differing.push(format!("{} {}\n{}", run.tool, run.args, difference(&theirs, &ours)));
        }
    }
    if differing.is_empty() { Ok(runs.len()) } else { bail!("{}", differing.join("\n")) }
}

/// A line of [`RUNS`].
pub(super) struct Run {
    pub(super) flag: Option<char>,
    pub(super) tool: &'static str,
    pub(super) args: &'static str,
    input: Option<&'static str>,
}

impl Run {
    /// `None` for a comment, and for a run that needs an API that is not `served`.
    pub(super) fn parse(line: &'static str, served: &[i64]) -> Option<Run> {
        let mut text = line.split('#').next()?.trim();
        if let Some((api, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
            served.contains(&api.parse().ok()?).then_some(())?;
            text = rest.trim();
        }
        let flag = text.chars().next().filter(|first| "~?+".contains(*first));
        let text = text.trim_start_matches(['~', '?', '+', ' ']);
        let (text, input) =
            text.split_once('<').map_or((text, None), |(text, input)| (text.trim(), Some(input.trim())));
        let (tool, args) = text.split_once(' ').unwrap_or((text, ""));
        (!tool.is_empty()).then_some(Run { flag, tool, args, input })
    }

    /// Changes nothing.
    pub(super) fn only_asks(&self) -> bool {
        self.tool == "GetOffsetShell"
            || ["--describe", "--list", "describe"].iter().any(|word| self.args.contains(word))
    }

    /// The arguments for a server.
    pub(super) fn arguments(&self, server: &Server, dir: &Path) -> Vec<String> {
        let says = ["{at}", "{server}", "{controller}"].iter().any(|place| self.args.contains(place));
        let place = if says { "" } else { " {at}" };
        let at = format!("--bootstrap-server {}", server.addr());
        let args = format!("{}{place}", self.args).replace("{at}", &at).replace("{dir}", &dir.display().to_string());
        let args = args.replace("{server}", &server.addr().to_string()).replace("{controller}", &controller(server));
        args.split_whitespace().map(str::to_owned).collect()
    }

    /// The standard input.
    pub(super) fn input(&self, dir: &Path) -> Result<Stdio> {
        Ok(match self.input {
            Some(name) => fs::File::open(dir.join(name))?.into(),
            None => Stdio::null(),
        })
    }

    /// What a server makes of it, without what differs from server to server.
    pub(super) fn ask(&self, tools: &mut Tools, server: &Server, dir: &Path) -> Result<Ran> {
        let input = self.input.map_or(String::new(), |name| dir.join(name).display().to_string());
        let ran = tools.run(self.tool, &input, &self.arguments(server, dir))?;
        Ok(self.without_difference(ran, server))
    }

    /// Without what differs from server to server.
    pub(super) fn without_difference(&self, mut ran: Ran, server: &Server) -> Ran {
        for text in [&mut ran.out, &mut ran.err] {
            *text = plain(text, server, self.flag == Some('~'));
        }
        ran
    }

    fn alike(&self, theirs: &Ran, ours: &Ran) -> bool {
        match self.flag {
            Some('?') => theirs.code == ours.code,
            Some('+') => served_ones(&theirs.out, &ours.out) == served_ones(&ours.out, &ours.out),
            _ => theirs == ours,
        }
    }
}

/// Where the controller of a server is.
fn controller(server: &Server) -> String {
    let settings = fs::read_to_string(server.dir().join("server.properties")).unwrap_or_default();
    let voters = settings.lines().find_map(|line| line.strip_prefix("controller.quorum.voters=1@"));
    voters.unwrap_or_default().to_owned()
}

/// The APIs of a server.
fn served(server: &Server) -> Result<Vec<i64>> {
    let answer = server.client()?.call("ApiVersions", 0, &json!({}))?;
    let keys = answer["apiKeys"].as_array().context("no APIs")?;
    Ok(keys.iter().filter_map(|api| api["apiKey"].as_i64()).collect())
}

/// The lines of a list of APIs, without those that ours says not to be served.
fn served_ones<'t>(text: &'t str, ours: &str) -> Vec<&'t str> {
    let name = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
    let unserved: Vec<String> = ours.lines().filter(|line| line.contains("UNSUPPORTED")).map(name).collect();
    text.lines().filter(|line| !unserved.contains(&name(line))).map(|line| line.trim_end_matches(',')).collect()
}

/// Without addresses, folders, ids and times; without numbers at all if asked.
fn plain(text: &str, server: &Server, numberless: bool) -> String {
    let text = text.replace(&server.dir().display().to_string(), "DIR");
    let text = text.replace(&server.addr().port().to_string(), "PORT");
    let mut out = String::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    for line in text.lines().filter(|line| !line.trim_start().starts_with("at ")) {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|c| is_word(c) != is_word(first)).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            out.push_str(&match is_word(first) {
                true => plain_word(word, numberless),
                // Columns are as wide as their numbers.
                false if numberless => word.replace(' ', ""),
                false => word.to_owned(),
            });
            rest = behind;
        }
        out.push('\n');
    }
    out
}

fn plain_word(word: &str, numberless: bool) -> String {
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let is_id = |text: &str| {
        text.len() == 22 && !text.contains('.') && text.chars().any(|c| c.is_ascii_digit() || c.is_ascii_uppercase())
    };
    // The controller's.
    if let Some(port) = word.strip_prefix("127.0.0.1:") {
        return format!("ADDRESS{}", port.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    let plain: Vec<String> = word
        .split(':')
        .map(|part| match part {
            part if is_id(part) => "ID".to_owned(),
            part if is_number(part) && part.len() == 13 => "TIME".to_owned(),
            // What is a number a second of no time at all.
            part if (is_number(part) || part == "Infinity") && numberless => "N".to_owned(),
            part => part.to_owned(),
        })
        .collect();
    plain.join(":")
}

pub(super) fn difference(theirs: &Ran, ours: &Ran) -> String {
    let mut text = String::new();
    if theirs.code != ours.code {
        text += &format!("  exit code {}, Kafka's {}\n", ours.code, theirs.code);
    }
    for (theirs, ours) in [(&theirs.out, &ours.out), (&theirs.err, &ours.err)] {
        let (theirs, ours): (Vec<_>, Vec<_>) = (theirs.lines().collect(), ours.lines().collect());
        let without = |lines: &[&str], others: &[&str], sign: &str| -> String {
            lines.iter().filter(|line| !others.contains(line)).map(|line| format!("  {sign} {line}\n")).collect()
        };
        let lines = without(&theirs, &ours, "kafka ") + &without(&ours, &theirs, "milena");
        text += if lines.is_empty() && theirs != ours { "  the lines have another order\n" } else { &lines };
    }
    text
}
