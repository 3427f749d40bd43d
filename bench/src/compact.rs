//! `kbench compact`: what it costs to clean a log. Fills a compacted topic that the server leaves alone, lets it clean, and waits
//! until its checkpoint says that it has.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::admin::{Admin, Versions};
use crate::batch;
use crate::cli::{CompactArgs, Target};
use crate::messages::{Resource, Topic};
use crate::procstat::{self, Sample};
use crate::report::{self, Measured};
use crate::run::own_name;

/// How long the server may take.
const PATIENCE: Duration = Duration::from_secs(100);
/// Where Kafka's cleaner says how far it is, in each log directory.
const CHECKPOINT: &str = "cleaner-offset-checkpoint";
/// The server looks for logs to clean this often.
const BACKOFF_MS: &str = "250";
/// A log with a dirty part of more than this is cleaned: none, and any.
const NEVER: &str = "1";
const ALWAYS: &str = "0";
const RATIO: &str = "min.cleanable.dirty.ratio";

/// Runs it.
pub(crate) fn compact(target: &Target, args: &CompactArgs) -> Result<Value> {
    let mut admin = Admin::connect(target.addr)?;
    let versions = admin.versions(target.names)?;
    admin.alter_config(Resource::Brokers, "log.cleaner.backoff.ms", BACKOFF_MS)?;
    let name = own_name("compact");
    let configs = [
        ("cleanup.policy", "compact"),
        (RATIO, NEVER),
        ("segment.bytes", &args.segment_bytes.to_string()),
        ("file.delete.delay.ms", "0"),
    ];
    let topic = admin.create_topic(&name, 1, &configs)?;
    admin.wait_until_led(versions.fetch, &topic)?;
    fill(&mut admin, versions, &topic, args)?;
    let log = args.data_dir.join(format!("{name}-0"));
    let dirty = bytes_below_last_segment(&log)?;

    let me = std::process::id();
    let look = || target.pid.map(Sample::take).transpose();
    let (own_before, before) = (Sample::take(me)?, look()?);
    admin.alter_config(Resource::Topic(&name), RATIO, ALWAYS)?;
    let cleaned_to = wait_until_clean(&args.data_dir, &name)?;
    let (after, own_after) = (look()?, Sample::take(me)?);

    let left = bytes_below_last_segment(&log)?;
    ensure!(left < dirty, "nothing was cleaned: {left} of {dirty} bytes are left");
    admin.delete_topic(&name)?;
    let measured = Measured {
        server: after.zip(before).map(|(after, before)| after.since(&before)),
        memory: target.pid.map(procstat::memory).transpose()?,
        client: own_after.since(&own_before),
    };
    Ok(report::compact(target, (dirty, left), cleaned_to as u64, &measured))
}

/// Produces keyed batches, no two of them alike.
fn fill(admin: &mut Admin, versions: Versions, topic: &Topic, args: &CompactArgs) -> Result<()> {
    let spec = args.batch_spec();
    let (mut produced, mut seed) = (0, 0);
    while produced < args.mib << 20 {
        let batch = batch::build(&spec, seed)?;
        admin.produce(versions.produce, topic, &batch.bytes)?;
        produced += batch.bytes.len() as u64;
        seed += 1;
    }
    Ok(())
}

/// Bytes of the segments' batches, without the segment that is written to.
fn bytes_below_last_segment(log: &Path) -> Result<u64> {
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(log).with_context(|| format!("reading {}", log.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|suffix| suffix == "log") {
            segments.push((path.clone(), path.metadata()?.len()));
        }
    }
    segments.sort();
    segments.pop();
    Ok(segments.iter().map(|(_, bytes)| bytes).sum())
}

/// Waits for the checkpoint's line of the topic; the offset up to which it is clean.
fn wait_until_clean(data_dir: &Path, name: &str) -> Result<i64> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let text = std::fs::read_to_string(data_dir.join(CHECKPOINT)).unwrap_or_default();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(" 0 ")?.parse().ok());
        if let Some(offset) = lines.find(|offset| *offset > 0) {
            return Ok(offset);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("the server has cleaned nothing after {PATIENCE:?}")
}
