//! The recorded cases that take a Java client: `compat/java/Cases.java` knows from a case's id what to do.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use milena_testkit::differential::cases::{self, Case};
use milena_testkit::server::{Options, Server};
use serde_json::{Value, json};

use super::Client;

/// APIs without which there is nothing to try.
const NEEDS: [(&str, i64); 3] = [("client.share.consume", 78), ("client.admin.quorum", 55), ("client.admin.elect", 43)];
/// Those of transactions are asked byte by byte, but for these: in a cluster of today, and in one with the transactions
/// before version 2, which clients follow.
const TRANSACTIONS: [&str; 2] = ["txn.new.java", "txn.old.java"];

/// Runs them all; gives how many there were.
pub(super) fn check(client: &Client, server: &Server, options: &Options) -> Result<usize> {
    let answer = server.client()?.call("ApiVersions", 0, &json!({}))?;
    let keys = answer["apiKeys"].as_array().context("no APIs")?;
    let is_served = |api: i64| keys.iter().any(|key| key["apiKey"] == api);
    let is_tried = |id: &str| {
        let needs = NEEDS.iter().find(|(case, _)| *case == id);
        (id.starts_with("client.") || TRANSACTIONS.contains(&id)) && needs.is_none_or(|(_, api)| is_served(*api))
    };
    let all: Vec<_> = cases::all()?.into_iter().filter(|case| is_tried(&case.id)).collect();
    let (older, others): (Vec<_>, Vec<_>) = all.iter().partition(|case| case.id == TRANSACTIONS[1]);
    ask(client, server, &others)?;
    ask(client, &options.clone().feature("transaction.version=1").start()?, &older)?;
    println!("java: {} recorded cases", all.len());
    Ok(all.len())
}

/// Runs some of them against one server.
fn ask(client: &Client, server: &Server, cases: &[&Case]) -> Result<()> {
    let output = Command::new(&client.command[0])
        .args(client.command[1..].iter().map(|argument| argument.replace("Compat.java", "Cases.java")))
        .arg(server.addr().to_string())
        .args(cases.iter().map(|case| &case.id))
        .current_dir(&client.dir)
        .output()
        .with_context(|| client.command[0].clone())?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "Cases.java: {}\n{errors}", output.status);
    let mut wrong = Vec::new();
    for case in cases {
        let line = said.lines().find_map(|line| line.strip_prefix(&case.id)?.strip_prefix('\t'));
        let outcome: Value = serde_json::from_str(line.unwrap_or("\"no answer\""))?;
        if outcome != case.outcome {
            wrong.push(format!("{}: {}\n  expected {}\n  got      {outcome}", case.id, case.text, case.outcome));
        }
    }
    if !wrong.is_empty() {
        bail!("{}\n{errors}", wrong.join("\n"));
    }
    Ok(())
}
