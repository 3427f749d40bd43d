//! The cases whose outcomes were recorded from Apache Kafka, as far as they are not about what happens with time.

use milena_testkit::differential::cases;
use milena_testkit::differential::runner::{self, Verdict};

use crate::common::Node;

/// Runs the cases whose ids begin with one of `only`; each must end as it did with Apache Kafka.
fn agree(only: &[&str]) {
    let node = Node::start();
    let only: Vec<_> = only.iter().map(|&start| start.to_owned()).collect();
    let mut wrong = Vec::new();
    let all = runner::run(&node.server(), cases::all().unwrap(), &only, |judged| {
        let (case, outcome) = (&judged.case.id, &judged.case.outcome);
        match &judged.verdict {
            Verdict::Differs(got) => wrong.push(format!("{case}: expected {outcome}\n  got {got}")),
            Verdict::Failed(error) => wrong.push(format!("{case}: {error}")),
            Verdict::Stale(reason) => wrong.push(format!("{case} agrees, though it is listed as different: {reason}")),
            _ => {}
        }
    });
    println!("{}", runner::summary(&all.unwrap()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn frames_and_headers_are_read_as_by_kafka() {
    agree(&["frame."]);
}

#[test]
fn versions_are_negotiated_as_by_kafka() {
    agree(&["vers.", "apiv.unsupported", "apiv.v", "apiv.header", "apiv.mid", "apiv.every", "apiv.coherent"]);
}

#[test]
fn produce_answers_as_kafka() {
    agree(&["prod."]);
}

#[test]
fn reads_answer_as_kafka() {
    agree(&["fetch.", "session.", "lo.", "ofle."]);
}

#[test]
fn metadata_topics_and_configurations_answer_as_kafka() {
    agree(&["meta.", "topics.", "conf.default", "conf.describe", "conf.alter", "conf.inc"]);
}

#[test]
fn batches_are_taken_and_refused_as_by_kafka() {
    agree(&["batch.", "ts.", "key.null", "key.third", "key.five", "key.tombstone", "comp.", "limit.", "seed."]);
}

#[test]
fn idempotent_producers_are_answered_as_by_kafka() {
    agree(&["idem."]);
}

#[test]
fn records_are_deleted_as_by_kafka() {
    agree(&["delrec."]);
}

#[test]
fn sequences_of_produce_requests_are_answered_as_by_kafka() {
    agree(&["steps."]);
}

#[test]
fn the_least_request_of_every_version_and_log_directories_answer_as_kafka() {
    agree(&["adv.", "admin."]);
}
