//! The programs of Apache Kafka's own system tests: a verifiable producer, verifiable consumers of both group protocols, and a
//! copier that works in transactions and aborts some of them, while the server and the copier are killed.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use milena_testkit::server::Server;
use serde_json::Value;

use super::apps::{compile, java};
use super::program::Program;

const TOPIC: &str = "verifiable";
const COPY: &str = "verifiable-copy";
const RECORDS: usize = 6000;

/// What was acknowledged is read by consumers of either protocol, and what was written is copied once.
pub(super) fn copy(class_path: &str, server: &mut Server) -> Result<()> {
    let (dir, address) = (server.dir().to_owned(), server.addr().to_string());
    let tool = |name: &str, class: &str, args: &[&str]| {
        let mut java = java(class_path);
        Program::start(name, java.arg(format!("org.apache.kafka.tools.{class}")).args(args), &dir)
    };
    let at = ["--bootstrap-server", &address, "--topic"];
    for topic in [TOPIC, COPY] {
        tool("topics", "TopicCommand", &[&at[..], &[topic, "--create", "--partitions", "3"]].concat())?.finish()?;
    }
    let consumer = |protocol: &str| {
        let own =
            [TOPIC, "--group-id", protocol, "--group-protocol", protocol, "--reset-policy", "earliest", "--verbose"];
        tool(protocol, "VerifiableConsumer", &[&at[..], &own].concat())
    };
    let consumers = [consumer("classic")?, consumer("consumer")?];
    // By itself it tries nothing again.
    let config = "retries=2147483647\nenable.idempotence=true\n";
    std::fs::write(dir.join("producer.properties"), config)?;
    let written = produce(tool("producer", "VerifiableProducer", &[&at[..], &PRODUCER].concat())?, server)?;
    for mut consumer in consumers {
        read(&mut consumer, &written)?;
        consumer.stop()?;
    }
    println!("verifiable: {} records read by consumers of both protocols", written.len());

    let names = ["--broker-list", &address, "--input-topic", TOPIC, "--output-topic", COPY, "--input-partition", "0"];
    let copier = || tool("copier", "TransactionalMessageCopier", &[&names[..], &COPIER].concat());
    let mut first = copier()?;
    first.wait_for("a third is copied", |line| {
        let progress: Value = serde_json::from_str(line).ok()?;
        (3 * progress["totalProcessed"].as_u64()? >= RECORDS as u64).then_some(())
    })?;
    first.kill()?;
    server.kill()?;
    server.start()?;
    copier()?.finish()?;
    compile("Once.java", class_path, &dir)?;
    let mut java = java(&format!("{class_path}:{}", dir.display()));
    let said = Program::start("once", java.args(["Once", &address, TOPIC, COPY]), &dir)?.finish()?;
    println!("verifiable: {}", said.join("\n"));
    Ok(())
}

const PRODUCER: [&str; 9] = [
    TOPIC,
    "--max-messages",
    "6000",
    "--throughput",
    "1000",
    "--acks",
    "-1",
    "--command-config",
    "producer.properties",
];
const COPIER: [&str; 9] = [
    "--transactional-id",
    "copier",
    "--consumer-group",
    "copiers",
    "--transaction-size",
    "100",
    "--group-mode",
    "--enable-random-aborts",
    "--use-group-metadata",
];

/// Kills the server while the producer writes; the values that were acknowledged.
fn produce(mut producer: Program, server: &mut Server) -> Result<BTreeSet<String>> {
    let mut written = BTreeSet::new();
    let mut until = |producer: &mut Program, count: usize| {
        producer.wait_for("the next acknowledgement", |line| {
            let event: Value = serde_json::from_str(line).ok()?;
            match event["name"].as_str()? {
                "producer_send_success" => written.insert(event["value"].as_str()?.to_owned()),
                "shutdown_complete" => return Some(()),
                _ => false,
            };
            (written.len() >= count).then_some(())
        })
    };
    until(&mut producer, RECORDS / 2)?;
    server.kill()?;
    server.start()?;
    until(&mut producer, usize::MAX).context("to the end")?;
    producer.finish()?;
    if written.len() != RECORDS {
        bail!("only {} of {RECORDS} records were acknowledged", written.len());
    }
    Ok(written)
}

/// Has a consumer read until it has seen all of them.
fn read(consumer: &mut Program, written: &BTreeSet<String>) -> Result<()> {
    let mut missing = written.clone();
    consumer.wait_for("a record that was acknowledged", |line| {
        let event: Value = serde_json::from_str(line).ok()?;
        if event["name"] == "record_data" {
            missing.remove(event["value"].as_str()?);
        }
        missing.is_empty().then_some(())
    })
}
