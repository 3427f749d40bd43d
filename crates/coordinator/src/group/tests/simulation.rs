//! Members that come, go, lose requests and answers, and a coordinator that dies: no partition has two owners at any time,
//! and when the trouble is over every member has its share.

use std::collections::BTreeSet;

use milena_protocol::messages::ConsumerGroupHeartbeatRequest;

use super::consumers::{Consumer, over, send};
use super::*;

const MEMBERS: usize = 3;
const PARTITIONS: usize = 7;
const SESSION_MS: i64 = 45_000;

struct Client {
    consumer: Consumer,
    /// When the coordinator was last heard of, in ticks.
    heard: i64,
    runs: bool,
}

impl Client {
    fn forget(&mut self) {
        self.consumer.epoch = 0;
        self.consumer.owned.clear();
    }

    /// One heartbeat, of which the request or the answer may be lost.
    fn beat(&mut self, bench: &mut Group, lost: (bool, bool)) {
        let now = bench.log.now.ticks_ms;
        if self.consumer.epoch > 0 && now - self.heard >= SESSION_MS {
            // The coordinator may have given its partitions to others.
            self.forget();
        }
        if lost.0 {
            return;
        }
        // Long enough that only silence drops a member: what it believes to own is its own until then.
        let request = ConsumerGroupHeartbeatRequest { rebalance_timeout_ms: 500_000, ..self.consumer.request() };
        let response = send(bench, request);
        if lost.1 {
            return;
        }
        self.heard = now;
        match ErrorCode(response.error_code) {
            ErrorCode::NONE => self.consumer.follow(&response),
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_MEMBER_EPOCH | ErrorCode::GROUP_ID_NOT_FOUND => {
                self.forget()
            }
            other => panic!("{other:?}"),
        }
    }
}

fn check_owners(clients: &[Client], now: i64, seed: u64) {
    let valid = |client: &&Client| client.runs && now - client.heard < SESSION_MS;
    let mut seen = BTreeSet::new();
    for client in clients.iter().filter(valid) {
        for partition in &client.consumer.owned {
            assert!(seen.insert(*partition), "seed {seed}: partition {partition} has two owners");
        }
    }
}

fn simulate(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bench = over(PARTITIONS);
    let client = |n: usize| Client { consumer: Consumer::new(&format!("m{n}")), heard: 0, runs: false };
    let mut clients: Vec<_> = (0..MEMBERS).map(client).collect();
    for _ in 0..400 {
        bench.advance(rng.i64(0..6_000));
        let client = &mut clients[rng.usize(..MEMBERS)];
        match rng.u32(..100) {
            0..3 => bench = bench.restart(),
            3..6 if client.runs => {
                client.runs = false;
                client.forget();
            }
            6..10 if client.runs => {
                let request = client.consumer.request();
                send(&mut bench, ConsumerGroupHeartbeatRequest { member_epoch: -1, ..request });
                client.runs = false;
                client.forget();
            }
            _ => {
                client.runs = true;
                client.beat(&mut bench, (rng.u32(..10) == 0, rng.u32(..10) == 0));
            }
        }
        check_owners(&clients, bench.log.now.ticks_ms, seed);
    }
    for _ in 0..40 {
        bench.advance(5_000);
        for client in &mut clients {
            client.runs = true;
            client.beat(&mut bench, (false, false));
        }
        check_owners(&clients, bench.log.now.ticks_ms, seed);
    }
    let mut shares: Vec<_> = clients.iter().map(|client| client.consumer.owned.len()).collect();
    shares.sort_unstable();
    assert_eq!(shares, [2, 2, 3], "seed {seed}");
}

#[test]
fn no_partition_has_two_owners_and_all_get_their_share() {
    for seed in 0..12 {
        simulate(seed);
    }
}
