//! Batches made by Apache Kafka's own classes (tests/java/GoldenBatches.java made tests/data) are read here, and ours are read there.

use milena_records::{Batch, BatchBuilder, Compression, Compressor, Decompressor, batches, validate};
use std::path::{Path, PathBuf};

const T0: i64 = 1_700_000_000_000;

struct Expected {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn sample(large: bool) -> Vec<Expected> {
    let record = |i: i64| {
        let key = (i % 5 != 0).then(|| format!("key-{i}").into_bytes());
        let value = match i % 7 {
            0 => None,
            1 => Some(Vec::new()),
            _ => Some(format!("value-{i}").repeat((i % 11) as usize).into_bytes()),
        };
        let value = if large && i % 10 == 2 { Some(format!("large-{i},").repeat(2000).into_bytes()) } else { value };
        let header = |j: i64| (format!("h{j}").into_bytes(), (j % 2 == 0).then(|| format!("v{i}").into_bytes()));
        Expected { timestamp: T0 + (i * 37) % 100 - 50, key, value, headers: (0..i % 3).map(header).collect() }
    };
    (0..100).map(record).collect()
}

fn assert_holds_sample(batch: &Batch<'_>, expected: &[Expected], decompressor: &mut Decompressor) {
    assert_eq!(batch.verify_crc(), Ok(()));
    assert_eq!((batch.count(), batch.last_offset_delta()), (100, 99));
    assert_eq!(
        (batch.producer_id(), batch.producer_epoch(), batch.base_sequence(), batch.last_sequence()),
        (77, 3, 5, 104)
    );
    let mut read = 0;
    for (record, expected) in batch.records(decompressor).unwrap().zip(expected) {
        let record = record.unwrap();
        assert_eq!(record.offset(batch), read);
        assert_eq!(record.timestamp(batch), expected.timestamp);
        assert_eq!(record.key, expected.key.as_deref());
        assert_eq!(record.value, expected.value.as_deref());
        let headers: Vec<_> =
            record.headers.iter().map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec))).collect();
        assert_eq!(headers, expected.headers);
        read += 1;
    }
    assert_eq!(read, 100);
    let summary = validate::walk(batch, decompressor).unwrap();
    assert_eq!((summary.count, summary.offsets_sequential, summary.first_wrong_length), (100, true, None));
    assert_eq!((summary.max_timestamp, summary.first_null_key), (batch.max_timestamp(), Some(0)));
    assert_eq!(summary.min_timestamp, expected.iter().map(|record| record.timestamp).min().unwrap());
}

fn build(codec: Compression, level: i32, large: bool) -> Vec<u8> {
    let mut builder = BatchBuilder::new().compression(codec, level).producer(77, 3, 5);
    for record in sample(large) {
        let headers: Vec<_> = record.headers.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
        builder.push(record.timestamp, record.key.as_deref(), record.value.as_deref(), &headers);
    }
    builder.build().unwrap()
}

fn golden(size: &str, codec: Compression) -> Vec<u8> {
    let name = format!("tests/data/{size}-{}.bin", codec.name());
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

#[test]
fn batches_made_by_kafka_are_read_in_every_codec() {
    let mut decompressor = Decompressor::new(1 << 20);
    for codec in Compression::ALL {
        let bytes = golden("small", codec);
        let batch = Batch::parse(&bytes).unwrap();
        assert_eq!(batch.compression(), Some(codec));
        assert_holds_sample(&batch, &sample(false), &mut decompressor);
    }
    for codec in Compression::ALL.into_iter().skip(1) {
        let bytes = golden("large", codec);
        assert_holds_sample(&Batch::parse(&bytes).unwrap(), &sample(true), &mut decompressor);
    }
}

#[test]
fn a_batch_without_compression_is_byte_for_byte_kafkas() {
    assert!(build(Compression::None, 0, false) == golden("small", Compression::None));
}

#[test]
fn a_compressed_batch_decompresses_to_the_records_that_kafka_wrote() {
    let (mut ours, mut theirs) = (Decompressor::new(1 << 20), Decompressor::new(1 << 20));
    for codec in Compression::ALL.into_iter().skip(1) {
        let (built, golden) = (build(codec, codec.default_level(), true), golden("large", codec));
        let (built, golden) = (Batch::parse(&built).unwrap(), Batch::parse(&golden).unwrap());
        let (built, golden) =
            (ours.decompress(codec, built.body()).unwrap(), theirs.decompress(codec, golden.body()).unwrap());
        assert!(built == golden, "{codec:?}");
    }
}

#[test]
fn golden_batches_that_follow_each_other_are_split() {
    let all: Vec<u8> = Compression::ALL.into_iter().flat_map(|codec| golden("small", codec)).collect();
    let codecs: Vec<_> = batches(&all).map(|batch| batch.unwrap().compression()).collect();
    assert_eq!(codecs, Compression::ALL.map(Some));
}

#[test]
#[ignore = "needs java, and Apache Kafka's jars in the folder that MILENA_KAFKA_LIBS names"]
fn kafka_reads_our_batches_in_every_codec_and_level() {
    let libs = std::env::var("MILENA_KAFKA_LIBS").expect("MILENA_KAFKA_LIBS names the folder of the jars");
    let dir = std::env::temp_dir().join(format!("milena-records-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let levels = [
        (Compression::None, vec![0]),
        (Compression::Gzip, vec![-1, 1, 9]),
        (Compression::Snappy, vec![0]),
        (Compression::Lz4, vec![1, 9, 12, 17]),
        (Compression::Zstd, vec![-5, 1, 3, 19, 22]),
    ];
    let mut files: Vec<PathBuf> = Vec::new();
    for (codec, levels) in levels {
        for level in levels {
            for (size, large) in [("small", false), ("large", true)] {
                let file = dir.join(format!("{size}-{}-{level}.bin", codec.name()));
                std::fs::write(&file, build(codec, level, large)).unwrap();
                files.push(file);
            }
        }
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/java/GoldenBatches.java");
    let output = std::process::Command::new("java")
        .args(["-cp", &format!("{libs}/*")])
        .arg(source)
        .arg("read")
        .args(&files)
        .output()
        .unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout.lines().filter(|line| line.starts_with("ok ")).count(), files.len());
}

#[test]
fn a_compressor_in_use_builds_the_same_as_a_new_one() {
    let mut compressor = Compressor::new();
    for codec in Compression::ALL.into_iter().cycle().take(10) {
        let mut builder = BatchBuilder::new().compression(codec, codec.default_level());
        builder.push(T0, Some(b"key"), Some(&[b'v'; 70_000]), &[]);
        let (once, mut again) = (builder.clone().build().unwrap(), Vec::new());
        builder.finish(&mut compressor, &mut again).unwrap();
        assert!(once == again, "{codec:?}");
    }
}
