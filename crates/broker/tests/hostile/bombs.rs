//! Small batches that are enormous when decompressed.

use std::io::Write;

use milena_testkit::batch::{Batch, Codec, varint};

use crate::common::Node;
use crate::common::requests::{create_topic, produce};
use crate::{alone, memory};

/// Bytes of the only record's value, all zero.
const LARGE: usize = 400 << 20;
/// How much memory looking at them may take.
const LITTLE: u64 = 64 << 20;

/// The records of a batch with one record of `LARGE` bytes, written piece by piece.
fn write_record(out: &mut impl Write) {
    // Attributes, deltas, a null key, the value's length; after the value no headers.
    let mut before = vec![0, 0, 0, 1];
    varint(LARGE as i64, &mut before);
    let mut length = Vec::new();
    varint((before.len() + LARGE + 1) as i64, &mut length);
    out.write_all(&length).unwrap();
    out.write_all(&before).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..LARGE >> 20).for_each(|_| out.write_all(&zeros).unwrap());
    out.write_all(&[0]).unwrap();
}

fn bomb(codec: Codec) -> Vec<u8> {
    let payload = match codec {
        Codec::Gzip => {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            write_record(&mut writer);
            writer.finish().unwrap()
        }
        _ => {
            let mut writer = zstd::Encoder::new(Vec::new(), 1).unwrap();
            write_record(&mut writer);
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
        let batch = bomb(codec);
        assert!(batch.len() < 1 << 20, "{} bytes", batch.len());
        let before = memory("VmHWM");
        let answer = produce(&mut client, "t", 0, &batch);
        let after = memory("VmHWM");
        println!("{codec:?} {} bytes: {answer}, {} KiB more", batch.len(), (after - before) >> 10);
        assert!(after < before + LITTLE, "{codec:?}: {before} bytes before, {after} after");
    }
}
