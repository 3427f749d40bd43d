//! Committed offsets when the process is killed under load while their topic is compacted, and when the disk is full.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use milena_testkit::client::RawClient;
use serde_json::{Value, json};

use crate::common::child::{self, Process};
use crate::common::requests::create_topic;
use crate::common::seeded::Random;
use crate::common::{Node, TempDir, format_directory};

const PARTITIONS: i32 = 50;
const COMMITTERS: usize = 4;
const NOT_COORDINATOR: i64 = 16;

/// Commits one number after the other, each for all partitions at once, in a group of its own.
struct Committer {
    group: String,
    sent: i64,
    acknowledged: i64,
}

impl Committer {
    fn new(number: usize) -> Self {
        Self { group: format!("group-{number}"), sent: 0, acknowledged: 0 }
    }

    /// Commits the next number with so many bytes beside it; the error, or none when the other side is gone.
    fn commit(&mut self, client: &mut RawClient, bytes: usize) -> Option<i64> {
        self.sent += 1;
        let partition = |index: i32| json!({"partitionIndex": index, "committedOffset": self.sent, "committedMetadata": "x".repeat(bytes)});
        let topic = json!({"name": "t", "partitions": (0..PARTITIONS).map(partition).collect::<Vec<_>>()});
        let body = json!({"groupId": self.group, "generationIdOrMemberEpoch": -1, "memberId": "", "topics": [topic]});
        let answer = client.call("OffsetCommit", 8, &body).ok()?;
        let errors = answer["topics"][0]["partitions"].as_array().unwrap();
        let error = errors[0]["errorCode"].as_i64().unwrap();
        assert!(errors.iter().all(|answer| answer["errorCode"] == error), "{answer}");
        if error == 0 {
            self.acknowledged = self.sent;
        }
        Some(error)
    }

    /// All partitions have the same number: the last one that was acknowledged, or one that was sent after it.
    fn check(&self, client: &mut RawClient) {
        let group = json!({"groupId": self.group, "topics": null});
        let body = json!({"groups": [group], "requireStable": false});
        let answer = until(
            || client.call("OffsetFetch", 8, &body).unwrap()["groups"][0].take(),
            |group| group["errorCode"] == 0,
        );
        let mut offsets: Vec<_> = answer["topics"].as_array().unwrap().iter().flat_map(offsets).collect();
        assert!(self.acknowledged == 0 || offsets.len() == PARTITIONS as usize, "{answer}");
        offsets.dedup();
        let expected = self.acknowledged..=self.sent;
        assert!(
            offsets.is_empty() || offsets.len() == 1 && expected.contains(&offsets[0]),
            "{offsets:?} in place of {expected:?} in {}",
            self.group
        );
    }
}

fn offsets(topic: &Value) -> Vec<i64> {
    topic["partitions"].as_array().unwrap().iter().map(|one| one["committedOffset"].as_i64().unwrap()).collect()
}

/// Asks until the answer is good.
fn until(mut ask: impl FnMut() -> Value, good: impl Fn(&Value) -> bool) -> Value {
    loop {
        let answer = ask();
        if good(&answer) {
            return answer;
        }
        std::thread::yield_now();
    }
}

/// Makes the topic of the offsets, and has it compacted all the time.
fn prepare(client: &mut RawClient) {
    create_topic(client, "t", PARTITIONS, &[]);
    let find = json!({"keyType": 0, "coordinatorKeys": ["g"]});
    until(|| client.call("FindCoordinator", 4, &find).unwrap(), |found| found["coordinators"][0]["errorCode"] == 0);
    let set = |(name, value): (&str, &str)| json!({"name": name, "configOperation": 0, "value": value});
    let topic = [("segment.bytes", "1048576"), ("min.cleanable.dirty.ratio", "0.01")].map(set);
    let resources = json!([
        {"resourceType": 2, "resourceName": "__consumer_offsets", "configs": topic},
        {"resourceType": 4, "resourceName": "", "configs": [set(("log.cleaner.backoff.ms", "1"))]},
    ]);
    let answer = client.call("IncrementalAlterConfigs", 1, &json!({"resources": resources})).unwrap();
    assert!(answer["responses"].as_array().unwrap().iter().all(|one| one["errorCode"] == 0), "{answer}");
}

#[test]
fn no_commit_is_lost_or_torn_however_often_the_process_is_killed_while_commits_are_compacted() {
    let dir = TempDir::with_prefix("milena-commits-").unwrap();
    let data = dir.path().join("data");
    format_directory(&data);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let mut committers: Vec<_> = (0..COMMITTERS).map(Committer::new).collect();
    for round in 0..4 * milena_testkit::rounds() {
        let process = Process::start(&data);
        let mut client = process.client();
        if round == 0 {
            prepare(&mut client);
        }
        committers.iter().for_each(|committer| committer.check(&mut client));
        let (total, enough) = (AtomicU64::new(0), 50 + random.below(300) as u64);
        std::thread::scope(|scope| {
            for committer in &mut committers {
                let (mut client, total) = (process.client(), &total);
                scope.spawn(move || {
                    while committer.commit(&mut client, 1000).is_some() {
                        total.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            while total.load(Ordering::SeqCst) < enough {
                std::thread::yield_now();
            }
            process.kill();
        });
    }
    let node = Node::on(dir);
    committers.iter().for_each(|committer| committer.check(&mut node.client()));
}

/// The error of joining a new group.
fn join(client: &mut RawClient, group: &str) -> i64 {
    let join = json!({
        "groupId": group, "sessionTimeoutMs": 30_000, "rebalanceTimeoutMs": 30_000, "memberId": "",
        "protocolType": "consumer", "protocols": [{"name": "range", "metadata": ""}],
    });
    client.call("JoinGroup", 3, &join).unwrap()["errorCode"].as_i64().unwrap()
}

#[test]
fn on_a_full_disk_commits_and_new_groups_are_refused_and_what_was_committed_stays() {
    if !child::can_mount() {
        println!("no file system can be mounted here");
        return;
    }
    let dir = TempDir::with_prefix("milena-full-").unwrap();
    let process = Process::start_on_small_disk(dir.path(), 24);
    let mut client = process.client();
    prepare(&mut client);
    let mut committer = Committer::new(0);
    until(|| committer.commit(&mut client, 10).unwrap().into(), |error| error == 0);
    for round in 0..2 {
        let filler = process.inside(dir.path()).join("filler");
        // The disk takes as much as there is.
        let _ = std::fs::write(&filler, vec![1; 24 << 20]);
        for bytes in [1000, 10, 0] {
            let refused = until(|| committer.commit(&mut client, bytes).unwrap().into(), |error| error != 0);
            assert_eq!(refused, NOT_COORDINATOR, "round {round}");
        }
        committer.sent = committer.acknowledged;
        committer.check(&mut client);
        // Its record may still fit behind the last page of its partition.
        assert!([0, NOT_COORDINATOR].contains(&join(&mut client, &format!("full-{round}"))), "round {round}");
        std::fs::remove_file(&filler).unwrap();
        assert_eq!(committer.commit(&mut client, 1000).unwrap(), 0, "round {round}");
        committer.check(&mut client);
        assert_eq!(join(&mut client, &format!("space-{round}")), 0);
    }
}
