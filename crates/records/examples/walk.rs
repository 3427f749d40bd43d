//! What validation costs: checksum, decompression and walk of batches as producers send them, in ns a record and GB/s of records.
//!
//! `cargo run --release -p milena-records --example walk`, pinned to one processor; the best of seven rounds counts.

use milena_records::{Batch, BatchBuilder, Compression, Decompressor, crc32c, validate};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUND: Duration = Duration::from_millis(60);

/// Seconds of one call, the best of the rounds.
fn seconds(mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..7 {
        let start = Instant::now();
        let mut calls = 0;
        while start.elapsed() < ROUND {
            work();
            calls += 1;
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(calls));
    }
    best
}

fn json(rng: &mut fastrand::Rng, length: usize) -> Vec<u8> {
    let mut text = String::new();
    while text.len() < length {
        let country = ["de", "fr", "us", "jp"][rng.usize(..4)];
        text += &format!(
            "{{\"id\":{},\"user\":\"user-{}\",\"country\":\"{country}\",\"amount\":{}}}",
            rng.u32(..),
            rng.u16(..5000),
            rng.u16(..)
        );
    }
    text.truncate(length);
    text.into_bytes()
}

fn batch(codec: Compression, size: usize, zeros: bool) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut builder = BatchBuilder::new().compression(codec, codec.default_level());
    let mut stamp = 1_700_000_000_000;
    while builder.uncompressed_size() + size < 1 << 20 {
        stamp += i64::from(rng.u8(..2));
        let value = if zeros { vec![0; size] } else { json(&mut rng, size) };
        builder.push(stamp, None, Some(&value), &[]);
    }
    builder.build().expect("a batch of one MiB can be built")
}

fn main() {
    println!(
        "{:28} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "1 MiB batches", "ratio", "crc ns/r", "walk ns/r", "read ns/r", "GB/s", "crc GB/s"
    );
    for (name, size, zeros) in
        [("100 B", 100, false), ("1 KiB", 1024, false), ("1 KiB zeros", 1024, true), ("100 KiB", 100 << 10, false)]
    {
        for codec in Compression::ALL {
            let bytes = batch(codec, size, zeros);
            let batch = Batch::parse(&bytes).expect("just built");
            let records = f64::from(batch.count());
            let mut decompressor = Decompressor::new(8 << 20);
            let summary = validate::walk(&batch, &mut decompressor).expect("just built");
            let crc = seconds(|| {
                black_box(crc32c(black_box(&bytes)));
            });
            let walk = seconds(|| {
                black_box(validate::walk(&batch, &mut decompressor)).expect("just built");
            });
            let read = seconds(|| {
                for record in batch.records(&mut decompressor).expect("just built") {
                    black_box(record).expect("just built");
                }
            });
            println!(
                "{:28} {:9.2} {:9.1} {:9.1} {:9.1} {:9.2} {:9.1}",
                format!("{name}, {}", codec.name()),
                summary.records_size as f64 / bytes.len() as f64,
                crc * 1e9 / records,
                walk * 1e9 / records,
                read * 1e9 / records,
                summary.records_size as f64 / walk / 1e9,
                bytes.len() as f64 / crc / 1e9,
            );
        }
    }
}
