//! What a topic demands of produced records, while the topic is in use.

use std::time::Duration;

use milena_testkit::batch::{Batch, Codec, Record, Stored};
use milena_testkit::client::RawClient;
use serde_json::json;

use crate::common::Node;
use crate::common::requests::{create_topic, fetch_all, produce, produce_request};

const LONG_AGO: i64 = 1_700_000_000_000;

fn alter(client: &mut RawClient, topic: &str, name: &str, value: &str) {
    let config = json!({"name": name, "configOperation": 0, "value": value});
    let resource = json!({"resourceType": 2, "resourceName": topic, "configs": [config]});
    let body = json!({"resources": [resource], "validateOnly": false});
    let answer = client.call("IncrementalAlterConfigs", 1, &body).unwrap();
    assert_eq!(answer["responses"][0]["errorCode"], 0, "{answer}");
}

/// Produces until the newest stored batch is as wanted: a change of a topic reaches its partitions soon, not at once.
fn comes_true(client: &mut RawClient, sent: &[u8], wanted: impl Fn(&Stored<'_>) -> bool) -> bool {
    for _ in 0..200 {
        assert_eq!(produce(client, "t", 0, sent)["errorCode"], 0);
        let bytes = fetch_all(client, "t", 0);
        if wanted(Stored::split(&bytes).unwrap().last().unwrap()) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn a_topic_in_use_takes_another_codec_another_clock_and_the_need_of_keys() {
    let node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    let sent = Batch::of(3, LONG_AGO).build();
    assert!(comes_true(&mut client, &sent, |stored| stored.attributes() == 0));
    for (value, codec) in [("zstd", 4), ("gzip", 1), ("uncompressed", 0)] {
        alter(&mut client, "t", "compression.type", value);
        assert!(comes_true(&mut client, &sent, |stored| stored.attributes() == codec), "{value}");
    }
    alter(&mut client, "t", "message.timestamp.type", "LogAppendTime");
    assert!(comes_true(&mut client, &sent, |stored| stored.attributes() == 8));
    alter(&mut client, "t", "message.timestamp.type", "CreateTime");
    assert!(comes_true(&mut client, &sent, |stored| stored.attributes() == 0));
    alter(&mut client, "t", "cleanup.policy", "compact");
    let mut keyless = Batch::of(1, LONG_AGO);
    keyless.records[0].key = None;
    let keyless = keyless.build();
    let refused = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        produce(&mut client, "t", 0, &keyless)["errorCode"] == 87
    });
    assert!(refused);
}

#[test]
fn a_broker_that_takes_headers_at_their_word_looks_at_records_only_to_rewrite_them() {
    let node = Node::start_with(&["milena.produce.validation=headers"]);
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    create_topic(&mut client, "other", 1, &[("compression.type", "lz4")]);
    let good = Batch::of(3, LONG_AGO);
    let broken = Batch { plain: Some(vec![0xff; 40]), ..good.clone().with(Codec::Gzip) }.build();
    assert_eq!(produce(&mut client, "t", 0, &broken)["errorCode"], 0);
    assert_eq!(produce(&mut client, "other", 0, &broken)["errorCode"], 87);
    let far = Batch::of(1, 4_000_000_000_000).build();
    assert_eq!(produce(&mut client, "t", 0, &far)["errorCode"], 32);
}

#[test]
fn records_that_are_stored_with_another_codec_are_counted_anew() {
    let node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[("compression.type", "zstd")]);
    create_topic(&mut client, "same", 1, &[]);
    let mut odd = Batch { last_offset_delta: Some(1), ..Batch::of(2, LONG_AGO).with(Codec::Lz4) };
    odd.records[1].offset_delta = 63;
    assert_eq!(produce(&mut client, "same", 0, &odd.build())["errorCode"], 87);
    assert_eq!(produce(&mut client, "t", 0, &odd.build())["errorCode"], 0);
    let bytes = fetch_all(&mut client, "t", 0);
    let records = Stored::split(&bytes).unwrap()[0].records().unwrap();
    assert_eq!((&records[0]["o"], &records[1]["o"]), (&json!(0), &json!(1)));
    assert_eq!(produce(&mut client, "same", 0, &Batch::of(1, -5).build())["errorCode"], 0);
    assert_eq!(produce(&mut client, "t", 0, &Batch::of(1, -5).build())["errorCode"], -1);
    odd.producer_id = -7;
    assert_eq!(produce(&mut client, "t", 0, &odd.build())["errorCode"], -1);
}

#[test]
fn snappy_bodies_of_every_version_are_read() {
    let node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[("compression.type", "zstd")]);
    for version in [0_u32, 1, 2, 0x8000_0000, u32::MAX] {
        let batch = Batch::of(2, LONG_AGO).with(Codec::Snappy);
        let mut payload = Codec::Snappy.compress(&batch.plain()).unwrap();
        payload[8..12].copy_from_slice(&version.to_be_bytes());
        let batch = Batch { payload: Some(payload), ..batch }.build();
        assert_eq!(produce(&mut client, "t", 0, &batch)["errorCode"], 0, "{version}");
    }
}

#[test]
fn a_batch_that_no_segment_can_hold_is_refused_without_harm_to_others_taken_with_it() {
    let node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[("segment.bytes", "1048576"), ("max.message.bytes", "10000000")]);
    let record = Record { value: Some(vec![7; 2_000_000]), ..Record::text(0, 0, "key", "") };
    let large = Batch::new(LONG_AGO, vec![record]).build();
    let small = Batch::of(1, LONG_AGO).build();
    let ids = [&small, &large, &small].map(|batch| client.send("Produce", 9, &produce_request("t", 0, batch)).unwrap());
    let codes = ids.map(|id| {
        let answer = client.receive("Produce", 9, id).unwrap();
        answer["responses"][0]["partitionResponses"][0]["errorCode"].as_i64().unwrap()
    });
    assert_eq!(codes, [0, 18, 0]);
}
