//! Opens many partitions after a clean stop and tells time and memory: `many DIR PARTITIONS [make]`.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "an example measures")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use milena_io::{Disk, RealDisk};
use milena_log::{Checkpoint, Log, LogConfig, LogDirectory, Offsets, OpenParams};
use milena_records::{BatchBuilder, Compressor};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, count, rest @ ..] = &args[..] else { return Err("many DIR PARTITIONS [make]".into()) };
    let directory = LogDirectory::open(Arc::new(RealDisk::new()), Path::new(dir))?;
    if rest.first().is_some_and(|word| word == "make") { make(&directory, count.parse()?) } else { open(&directory) }
}

/// Partitions of ten batches each, closed in order.
fn make(directory: &LogDirectory, count: i32) -> Result<(), Failure> {
    let config = Arc::new(LogConfig::default());
    let mut points = Offsets::default();
    let mut logs = Vec::new();
    for partition in 0..count {
        let dir = directory.path().join(format!("topic-{partition}"));
        let params = OpenParams { clean: false, recovery_point: 0, log_start_offset: 0, cleaned_to: 0, now_ms: 0 };
        let (mut log, _) = Log::open(Arc::clone(directory.disk()), &dir, Arc::clone(&config), params)?;
        for at in 0..10 {
            let mut builder = BatchBuilder::new();
            builder.push(at, None, Some(&[7; 1000]), &[]);
            let mut bytes = Vec::new();
            builder.finish(&mut Compressor::new(), &mut bytes)?;
            log.append(&mut [&mut bytes], &[], 0, 0)?;
        }
        points.insert("topic", partition, log.log_end_offset());
        logs.push(log);
    }
    let begun = Instant::now();
    directory.close_logs(&mut logs)?;
    println!("{count} changed logs closed in {:?}", begun.elapsed());
    directory.write_checkpoint(Checkpoint::RecoveryPoint, &points)?;
    Ok(directory.write_clean_marker(1)?)
}

fn open(directory: &LogDirectory) -> Result<(), Failure> {
    let before = resident()?;
    let begun = Instant::now();
    let config = Arc::new(LogConfig::default());
    let points = directory.read_checkpoint(Checkpoint::RecoveryPoint)?;
    let disk: Arc<dyn Disk> = Arc::clone(directory.disk());
    let clean = disk.metadata(&directory.path().join(".kafka_cleanshutdown"))?.is_some();
    let mut logs = Vec::new();
    for found in directory.partitions()? {
        let recovery_point = points.get(&found.name.topic, found.name.partition).unwrap_or(0);
        let params = OpenParams { clean, recovery_point, log_start_offset: 0, cleaned_to: 0, now_ms: 0 };
        let path: PathBuf = found.path;
        logs.push(Log::open(Arc::clone(&disk), &path, Arc::clone(&config), params)?.0);
    }
    let (opened, opened_kib) = (begun.elapsed(), resident()?);
    println!("clean {clean}: {} logs in {opened:?}, {} KiB more", logs.len(), opened_kib - before);
    let begun = Instant::now();
    for log in &mut logs {
        log.close()?;
    }
    println!(
        "closed unchanged in {:?}, {} KiB resident, {} bytes a log",
        begun.elapsed(),
        resident()?,
        size_of::<Log>()
    );
    Ok(())
}

/// Resident set of this process, KiB.
fn resident() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}
