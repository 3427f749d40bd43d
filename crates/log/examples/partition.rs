//! Makes a partition's directory, or opens one and tells what is in it: for comparing with Kafka's own tools by hand.
//!
//! `partition make|crash DIR BATCHES SEGMENT_BYTES` · `partition open DIR clean|unclean RECOVERY_POINT`

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "an example measures")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use milena_io::RealDisk;
use milena_log::{Log, LogConfig, OpenParams};
use milena_records::{BatchBuilder, Compression, Compressor, batches};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [how @ ("make" | "crash"), dir, count, segment_bytes] => {
            make(Path::new(dir), count.parse()?, segment_bytes.parse()?, how == "crash")
        }
        ["open", dir, stop, recovery_point] => open(Path::new(dir), stop == "clean", recovery_point.parse()?),
        _ => Err("make|crash DIR BATCHES SEGMENT_BYTES | open DIR clean|unclean RECOVERY_POINT".into()),
    }
}

fn params(clean: bool, recovery_point: i64) -> OpenParams {
    OpenParams { clean, recovery_point, log_start_offset: 0, cleaned_to: 0, now_ms: 0 }
}

fn make(dir: &Path, count: i64, segment_bytes: u64, crash: bool) -> Result<(), Failure> {
    let config = LogConfig { segment_bytes, ..LogConfig::default() };
    let (mut log, _) = Log::open(Arc::new(RealDisk::new()), dir, Arc::new(config), params(false, 0))?;
    let mut compressor = Compressor::new();
    for at in 0..count {
        let codec = Compression::ALL[at as usize % Compression::ALL.len()];
        let mut builder = BatchBuilder::new().compression(codec, codec.default_level());
        for record in 0..1 + at % 7 {
            let value =
                format!("value {at}/{record}, which goes on for a while so that there is something to compress");
            builder.push(1_700_000_000_000 + at * 10 - record, Some(b"key"), Some(value.as_bytes()), &[]);
        }
        let mut bytes = Vec::new();
        builder.finish(&mut compressor, &mut bytes)?;
        log.append(&mut [&mut bytes], &[], (at * 3 / count) as i32, 0)?;
    }
    if !crash {
        log.close()?;
    }
    println!(
        "log end offset {}, {} bytes, segments {:?}",
        log.log_end_offset(),
        log.size(),
        log.segment_base_offsets().collect::<Vec<_>>()
    );
    Ok(())
}

fn open(dir: &Path, clean: bool, recovery_point: i64) -> Result<(), Failure> {
    let begun = Instant::now();
    let disk = Arc::new(RealDisk::new());
    let (log, recovery) = Log::open(disk, dir, Arc::new(LogConfig::default()), params(clean, recovery_point))?;
    let opened = begun.elapsed();
    let (mut offset, mut count) = (log.log_start_offset(), 0u64);
    let mut bytes = Vec::new();
    while let Some(slice) = log.read(offset, 1 << 20, i64::MAX, true)? {
        bytes.resize(slice.len, 0);
        slice.file.read_at(&mut bytes, slice.position)?;
        for batch in batches(&bytes).map_while(Result::ok) {
            batch.verify_crc()?;
            (offset, count) = (batch.next_offset(), count + 1);
        }
    }
    println!("{recovery:?} in {opened:?}");
    println!("offsets {} to {}, read to {offset} in {count} batches", log.log_start_offset(), log.log_end_offset());
    println!("{} bytes, segments {:?}", log.size(), log.segment_base_offsets().collect::<Vec<_>>());
    println!("leader epochs {:?}", log.leader_epochs());
    Ok(())
}
