//! Frames of every API and version, changed at random.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use milena_testkit::client::{Event, RawClient};
use milena_testkit::wire;
use serde_json::{Value, json};

use crate::common::Node;
use crate::common::requests::{create_topic, fetch_request, produce};
use crate::common::seeded::Random;
use crate::exchanges::{self, Stage, three_records};
use crate::{alone, memory};

/// How much more memory the process may have after a storm than before it.
const FLAT: u64 = 16 << 20;
/// API key, version and correlation id.
const ADDRESS: usize = 8;

/// Sends bytes, and no more after them; reads until the broker closes. A connection that stays open fails the test.
fn send_and_drain(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The broker may close before everything is sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("neither an answer nor an end: {error}"),
        }
    }
}

/// APIs that can be asked what they would do.
const VALIDATING: [&str; 4] = ["CreateTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs"];
/// Stands for a topic that does not exist.
const NO_TOPIC: &str = "dW5rbm93biB0b3BpYyBpZA";

/// Right requests of every API and version that is advertised, and from where on they may be changed. None of them makes
/// or deletes anything, and how long a Fetch waits stays as it is.
fn requests(client: &mut RawClient, topic_id: &str) -> Vec<(Vec<u8>, usize)> {
    let apis = client.call("ApiVersions", 0, &json!({})).unwrap();
    let number = |api: &Value, name: &str| i16::try_from(api[name].as_i64().unwrap()).unwrap();
    let names = wire::apis().unwrap();
    let mut all = Vec::new();
    for advertised in apis["apiKeys"].as_array().unwrap() {
        let key = number(advertised, "apiKey");
        let api = &*names.iter().find(|(k, _)| *k == key).unwrap().1;
        let topic_id = if api == "DeleteTopics" { NO_TOPIC } else { topic_id };
        for version in number(advertised, "minVersion")..=number(advertised, "maxVersion") {
            for (_, mut body) in exchanges::of(api, &Stage { version, topic_id }) {
                if VALIDATING.contains(&api) {
                    body["validateOnly"] = true.into();
                }
                let body = wire::fit(&format!("{api}Request"), version, &body).unwrap();
                let header = wire::header(api, version, 1, Some("client")).unwrap();
                let from = if api == "Fetch" { header.len() + 12 } else { ADDRESS };
                all.push((wire::request(api, version, 1, Some("client"), &body).unwrap(), from));
            }
        }
    }
    all
}

/// Changes a request somewhere behind `from`.
fn spoil(request: &[u8], from: usize, random: &mut Random) -> Vec<u8> {
    let mut out = request.to_vec();
    let at = from + random.below(request.len().saturating_sub(from).max(1));
    let absurd: [&[u8]; 6] = [
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff],
        &[0x80, 0, 0, 0],
        &[0xff, 0xff, 0xff, 0xff, 0x07],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0x7f, 0xff],
    ];
    match random.below(4) {
        0 => out.truncate(at),
        1 => out.splice(at..at, random.bytes_up_to(20)).for_each(drop),
        2 => {
            let bytes = absurd[random.below(absurd.len())];
            let end = (at + bytes.len()).min(out.len());
            out.splice(at..end, bytes.iter().copied()).for_each(drop);
        }
        _ => {
            if let Some(byte) = out.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
    }
    out
}

#[test]
fn ten_thousand_malformed_frames_leave_memory_and_other_connections_as_they_were() {
    let _alone = alone();
    let node = Node::start_with(&["auto.create.topics.enable=false"]);
    let mut client = node.client();
    let topic_id = create_topic(&mut client, "t", 2, &[]);
    produce(&mut client, "t", 0, &three_records());
    // One that waits for records, one in the middle of a frame.
    let (mut waiting, mut halfway) = (node.client(), node.client());
    let mut fetch = fetch_request("t", &topic_id, 0, 1_000_000);
    fetch["topics"][0]["partitions"][0]["partition"] = 1.into();
    fetch["topics"][0]["partitions"][0]["fetchOffset"] = 0.into();
    fetch["maxWaitMs"] = 600_000.into();
    fetch["minBytes"] = 1.into();
    let fetch = wire::fit("FetchRequest", 16, &fetch).unwrap();
    let waits = waiting.send("Fetch", 16, &fetch).unwrap();
    let whole = wire::framed(&wire::request("Metadata", 9, 77, None, &json!({"topics": []})).unwrap());
    halfway.send_bytes(&whole[..9]).unwrap();

    let requests = requests(&mut client, &topic_id);
    let mut random = Random::new(7);
    let mut storm = |count: usize| {
        for _ in 0..count {
            let (request, from) = &requests[random.below(requests.len())];
            send_and_drain(node.address(), &wire::framed(&spoil(request, *from, &mut random)));
        }
    };
    storm(2_000);
    let before = memory("VmRSS");
    storm(8_000);
    let after = memory("VmRSS");
    assert!(after < before + FLAT, "{before} bytes before, {after} after");

    client.call("ApiVersions", 0, &json!({})).unwrap();
    halfway.send_bytes(&whole[9..]).unwrap();
    assert_eq!(wire::response("Metadata", 9, &halfway.next_frame().unwrap()).unwrap().correlation, 77);
    assert_eq!(waiting.next_event(Duration::ZERO).unwrap(), Event::Silent);
    assert_eq!(produce(&mut client, "t", 1, &three_records())["errorCode"], 0);
    let answer = waiting.receive("Fetch", 16, waits).unwrap();
    assert_eq!(answer["responses"][0]["partitions"][0]["errorCode"], 0, "{answer}");
}

#[test]
fn counts_that_nothing_follows_take_no_memory() {
    let _alone = alone();
    let node = Node::start();
    let mut client = node.client();
    let requests = requests(&mut client, NO_TOPIC);
    send_and_drain(node.address(), &wire::framed(&requests[0].0));
    let before = memory("VmHWM");
    for (request, _) in &requests {
        let header = request.len().min(17);
        for filler in [&[0x7f, 0xff, 0xff, 0xff][..], &[0xff, 0xff, 0xff, 0xff, 0x07]] {
            let body: Vec<u8> = filler.iter().copied().cycle().take(filler.len() * 20).collect();
            for zeros in [0, 1, 4, 13] {
                let frame = [&request[..header], &vec![0; zeros], &body].concat();
                // A Fetch may read this as a long wait.
                if request[..2] != [0, 1] {
                    send_and_drain(node.address(), &wire::framed(&frame));
                }
            }
        }
    }
    let after = memory("VmHWM");
    assert!(after < before + FLAT, "{before} bytes before, {after} after");
}

#[test]
fn frames_that_promise_much_take_no_memory_until_it_comes() {
    let _alone = alone();
    let node = Node::start();
    let mut client = node.client();
    let before = memory("VmHWM");
    let mut open = Vec::new();
    for _ in 0..200 {
        let mut promising = node.client();
        promising.send_bytes(&[&104_857_600_i32.to_be_bytes()[..], &[0, 3, 0]].concat()).unwrap();
        open.push(promising);
        client.call("ApiVersions", 0, &json!({})).unwrap();
    }
    for length in [104_857_601_i32, i32::MAX, -1, i32::MIN] {
        let mut refused = node.client();
        refused.send_bytes(&length.to_be_bytes()).unwrap();
        assert_eq!(refused.next_event(refused.patience).unwrap(), Event::Closed, "{length}");
    }
    let after = memory("VmHWM");
    assert!(after < before + FLAT, "{before} bytes before, {after} after");
    for mut promising in open {
        assert_eq!(promising.next_event(Duration::ZERO).unwrap(), Event::Silent);
    }
}
