//! What the hot path costs in CPU time: appends and reads on the real disk, beside the bare system calls. `hot DIR`

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "an example measures")]

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use milena_io::{Disk, OpenMode, RealDisk};
use milena_log::{Log, LogConfig, OpenParams};
use milena_records::{BatchBuilder, Compressor};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let dir = std::env::args().nth(1).ok_or("hot DIR")?;
    let dir = Path::new(&dir);
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    for (size, count) in [(100, 300_000), (1000, 200_000), (16_000, 40_000)] {
        let mut builder = BatchBuilder::new();
        builder.push(1, None, Some(&vec![7; size]), &[]);
        let mut batch = Vec::new();
        builder.finish(&mut Compressor::new(), &mut batch)?;
        let bare = bare_writes(&*disk, dir, &batch, count)?;
        let params = OpenParams { clean: false, recovery_point: 0, log_start_offset: 0, cleaned_to: 0, now_ms: 0 };
        let path = dir.join(format!("bench-{size}"));
        let (mut log, _) = Log::open(Arc::clone(&disk), &path, Arc::new(LogConfig::default()), params)?;
        let begun = cpu()?;
        for _ in 0..count {
            log.append(&mut [&mut batch], &[], 0, 0)?;
        }
        let append = cpu()? - begun;
        println!("{} B batches: append {}, bare pwritev {}", batch.len(), each(append, count), each(bare, count));
        let end = log.log_end_offset();
        read(&log, "at the log end", count, |_| (end - 1, end))?;
        read(&log, "a few appends behind", count, |at| (end - 100 - at as i64 % 400, end))?;
        let spread = |at: usize| (at as i64 * 7919) % end;
        read(&log, "anywhere", count, |at| (spread(at), end))?;
        read(&log, "anywhere below a high watermark", count, |at| (spread(at), end - 1))?;
        log.delete()?;
    }
    Ok(())
}

/// CPU time of this process, user and system, by the scheduler's own accounting.
fn cpu() -> Result<Duration, Failure> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    Ok(Duration::from_nanos(text.split_whitespace().next().ok_or("no schedstat")?.parse()?))
}

fn each(time: Duration, count: usize) -> String {
    format!("{:.2} µs", time.as_secs_f64() * 1e6 / count as f64)
}

fn bare_writes(disk: &dyn Disk, dir: &Path, batch: &[u8], count: usize) -> Result<Duration, Failure> {
    let path = dir.join("bare");
    let file = disk.open(&path, OpenMode::Create)?;
    file.allocate(0, (batch.len() * count) as u64)?;
    let begun = cpu()?;
    for at in 0..count {
        file.write_vectored_at(&[IoSlice::new(batch)], (at * batch.len()) as u64)?;
    }
    let time = cpu()? - begun;
    disk.remove_file(&path)?;
    Ok(time)
}

fn read(log: &Log, what: &str, count: usize, range: impl Fn(usize) -> (i64, i64)) -> Result<(), Failure> {
    let begun = cpu()?;
    for at in 0..count {
        let (offset, end) = range(at);
        let slice = log.read(offset, 1 << 20, end, true)?;
        assert!(slice.is_some_and(|slice| slice.len > 0) || offset >= end);
    }
    println!("    read {what}: {}", each(cpu()? - begun, count));
    Ok(())
}
