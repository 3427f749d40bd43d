//! Small batches that are enormous when decompressed.

use std::io::Write;

use milena_testkit::batch::{Batch, Codec, varint};
use milena_testkit::wire;
use serde_json::{Value, json};

use super::amplify::forget_most_memory;
use crate::common::Node;
use crate::common::requests::{create_topic, produce};
use crate::{alone, memory};

/// Bytes of the only record's value, all zero.
const LARGE: usize = 400 << 20;
/// How much memory looking at them may take.
const LITTLE: u64 = 64 << 20;

/// The records of a batch with one record of `large` bytes, written piece by piece.
fn write_record(large: usize, out: &mut impl Write) {
    // Attributes, deltas, a null key, the value's length; after the value no headers.
    let mut before = vec![0, 0, 0, 1];
    varint(large as i64, &mut before);
    let mut length = Vec::new();
    varint((before.len() + large + 1) as i64, &mut length);
    out.write_all(&length).unwrap();
    out.write_all(&before).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..large >> 20).for_each(|_| out.write_all(&zeros).unwrap());
    out.write_all(&[0]).unwrap();
}

fn bomb(codec: Codec, large: usize) -> Vec<u8> {
    let payload = match codec {
        Codec::Gzip => {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            write_record(large, &mut writer);
            writer.finish().unwrap()
        }
        _ => {
            let mut writer = zstd::Encoder::new(Vec::new(), 1).unwrap();
            write_record(large, &mut writer);
            writer.finish().unwrap()
        }
    };
    let batch = Batch { payload: Some(payload), ..Batch::of(1, 1_700_000_000_000).with(codec) };
    batch.build()
}

#[test]
fn a_decompression_bomb_takes_little_memory() {
    let _alone = alone();
    let node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    for codec in [Codec::Zstd, Codec::Gzip] {
        let batch = bomb(codec, LARGE);
        assert!(batch.len() < 1 << 20, "{} bytes", batch.len());
        let before = memory("VmHWM");
        let answer = produce(&mut client, "t", 0, &batch);
        let after = memory("VmHWM");
        println!("{codec:?} {} bytes: {answer}, {} KiB more", batch.len(), (after - before) >> 10);
        assert!(after < before + LITTLE, "{codec:?}: {before} bytes before, {after} after");
    }
}

#[test]
fn a_request_of_many_bombs_takes_little_time() {
    let _alone = alone();
    let node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 40, &[]);
    let records = wire::base64(&bomb(Codec::Zstd, 100 << 20));
    let parts: Value = (0..40).map(|index| json!({"index": index, "records": records})).collect();
    let body = json!({"acks": -1, "timeoutMs": 30000, "topicData": [{"name": "t", "partitionData": parts}]});
    let answer = client.call("Produce", 9, &body).unwrap();
    let errors: Vec<&Value> =
        (0..40).map(|at| &answer["responses"][0]["partitionResponses"][at]["errorCode"]).collect();
    // Which two is not said.
    assert_eq!(errors.iter().filter(|error| **error == 0).count(), 2, "{errors:?}");
    assert_eq!(errors.iter().filter(|error| **error == 10).count(), 38, "{errors:?}");
    let small = Batch::of(1, 1_700_000_000_000).with(Codec::Zstd).build();
    assert_eq!(produce(&mut client, "t", 0, &small)["errorCode"], 0);
}

/// Ten thousand records whose stamps lie in the future, many times.
#[test]
fn lists_of_rejected_records_take_little_memory() {
    let _alone = alone();
    let node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 500, &[]);
    let future = 4_000_000_000_000;
    let records = wire::base64(&Batch::of(10_000, future).with(Codec::Zstd).build());
    let parts: Value = (0..500).map(|index| json!({"index": index, "records": records})).collect();
    let body = json!({"acks": -1, "timeoutMs": 30000, "topicData": [{"name": "t", "partitionData": parts}]});
    forget_most_memory();
    let before = memory("VmRSS");
    let answer = client.call("Produce", 9, &body).unwrap();
    let most = memory("VmHWM");
    let parts = answer["responses"][0]["partitionResponses"].as_array().unwrap();
    assert!(parts.iter().all(|part| part["errorCode"] == 32), "{parts:?}");
    let listed: usize = parts.iter().map(|part| part["recordErrors"].as_array().unwrap().len()).sum();
    assert_eq!(listed, 10_000);
    assert!(most < before + 4 * LITTLE, "{before} bytes before, {most} after");
}
