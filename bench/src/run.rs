//! Runs: connect, warm up, measure the steady window, drain, verify, report.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::admin::{Admin, Versions};
use crate::batch;
use crate::caller::{Caller, Silent};
use crate::cli::{Call, Company, FetchArgs, GroupArgs, Load, Target, TopicArgs, Window};
use crate::conn::Conn;
use crate::consumer::{Consumer, ConsumerSpec};
use crate::member::{Manner, Member};
use crate::messages::{self, TOPIC_ID_VERSION, Topic};
use crate::procstat::{self, Sample};
use crate::producer::{Pace, Producer, ProducerSpec};
use crate::reactor::{Reactor, Role};
use crate::report::{self, Measured};
use crate::transactor::{Transactor, TransactorSpec};
use crate::world::{Ledger, ReaderKind, World};

/// How long the last replies may take, in ns.
const DRAIN_LIMIT: u64 = 30_000_000_000;
const SECOND: f64 = 1e9;
/// Distinct batches that a producer's frames are made of.
const DISTINCT_BATCHES: u64 = 16;

/// `kbench produce` and `kbench mix`; a plain produce has no company.
pub(crate) fn produce(
    target: &Target,
    window: &Window,
    topic_args: &TopicArgs,
    load: &Load,
    company: Option<(&Company, &FetchArgs)>,
) -> Result<Value> {
    let mut admin = Admin::connect(target.addr)?;
    let versions = admin.versions(target.names)?;
    let name = topic_args.topic.clone().unwrap_or_else(|| own_name("load"));
    let settings: Vec<_> = topic_args.config.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    let topic = admin.create_topic(&name, topic_args.partitions, &settings)?;
    admin.wait_until_led(versions.fetch, &topic)?;

    let spec = load.batch_spec();
    let records = batch::build(&spec, 1)?.records;
    let one_writer = load.connections <= topic_args.active();
    let keep_times = one_writer && company.is_some_and(|(company, _)| company.fanout > 0);
    let ledgers = (0..topic.partitions).map(|_| Ledger::new(records, one_writer, keep_times)).collect();
    let mut run = Run::new(target, window, ledgers)?;
    add_producers(&mut run, &mut admin, versions, (&topic, topic_args.active()), load)?;
    let mut idle_topic = None;
    if let Some((company, fetch)) = company {
        add_company(&mut run, &mut admin, versions, &topic, company, fetch)?;
        if company.idle > 0 {
            idle_topic = Some(own_name("idle"));
            let idle = admin.create_topic(idle_topic.as_deref().unwrap_or_default(), company.idle_partitions, &[])?;
            admin.wait_until_led(versions.fetch, &idle)?;
            add_idle(&mut run, versions, &idle, company, fetch)?;
        }
    }
    let measured = run.measure()?;
    verify_offsets(&mut admin, versions, &topic, load, &run.world)?;
    if !topic_args.keep {
        admin.delete_topic(&name)?;
    }
    if let Some(name) = idle_topic {
        admin.delete_topic(&name)?;
    }
    Ok(report::produce(target, load, records, &run.world.stats, &measured))
}

/// `kbench fetch`.
pub(crate) fn fetch(target: &Target, window: &Window, args: &FetchArgs, name: &str, consumers: u32) -> Result<Value> {
    let mut admin = Admin::connect(target.addr)?;
    let versions = admin.versions(target.names)?;
    let topic = admin.find_topic(name, None)?;
    let mut run = Run::new(target, window, Vec::new())?;
    for at in 0..consumers {
        let partitions = share(at, consumers, topic.partitions);
        run.add_consumer(ReaderKind::Replay, versions, &topic, partitions, args, 0)?;
    }
    let measured = run.measure()?;
    Ok(report::fetch(target, &run.world.stats, &measured))
}

/// `kbench call`.
pub(crate) fn call(
    target: &Target,
    window: &Window,
    api: Call,
    (name, partitions): (&str, u32),
    connections: u32,
    depth: usize,
) -> Result<Value> {
    let mut admin = Admin::connect(target.addr)?;
    let topic = if api == Call::ApiVersions { None } else { Some(admin.create_topic(name, partitions, &[])?) };
    let mut run = Run::new(target, window, Vec::new())?;
    for at in 0..connections {
        run.add(match api {
            Call::Metadata => Caller::new(messages::metadata(&[name]), depth),
            Call::ApiVersions => Caller::new(messages::api_versions(), depth),
            Call::OffsetCommit => {
                let topic = topic.as_ref().context("offsets are those of a topic")?;
                Caller::new(admin.commit(&format!("kbench-{at}"), topic)?, depth).checked(messages::read_offset_commit)
            }
            Call::Connection => Caller::anew(vec![messages::api_versions(), messages::metadata(&[name])]),
        })?;
    }
    let measured = run.measure()?;
    Ok(report::call(target, &run.world.stats, &measured))
}

/// `kbench transact`: each connection has a transactional id, and partitions of its own.
pub(crate) fn transact(target: &Target, window: &Window, load: &Load) -> Result<Value> {
    let mut admin = Admin::connect(target.addr)?;
    let versions = admin.versions(target.names)?;
    ensure!(versions.produce >= TOPIC_ID_VERSION, "the server has no transactions of version 2");
    let name = own_name("transact");
    let spread = u32::try_from(load.spread.max(1))?;
    let topic = admin.create_topic(&name, load.connections * spread, &[])?;
    admin.wait_until_led(versions.fetch, &topic)?;

    let mut batch = batch::build(&load.batch_spec(), 1)?;
    batch::make_transactional(&mut batch.bytes);
    let mut run = Run::new(target, window, Vec::new())?;
    for at in 0..load.connections {
        let id = format!("{name}-{at}");
        let placed: Vec<_> = (at * spread..(at + 1) * spread).map(|partition| (partition, &batch.bytes[..])).collect();
        run.add(Transactor::new(TransactorSpec {
            version: versions.produce,
            identity: admin.producer_id(Some(&id))?,
            frame: messages::produce(versions.produce, &topic, -1, Some(&id), &placed),
            id,
            records_per_batch: batch.records,
        }))?;
    }
    let measured = run.measure()?;
    admin.delete_topic(&name)?;
    Ok(report::transact(target, batch.records, &run.world.stats, &measured))
}

/// `kbench groups`.
pub(crate) fn groups(target: &Target, window: &Window, args: &GroupArgs) -> Result<Value> {
    let mut admin = Admin::connect(target.addr)?;
    let ms = |ms: u64| ms * 1_000_000;
    let manner =
        Manner { heartbeat: ms(args.heartbeat_ms), rebalance: args.rebalance_ms.map(ms), session_ms: args.session_ms };
    let mut run = Run::new(target, window, Vec::new())?;
    let own = own_name("group");
    for group in 0..args.groups {
        let name = format!("{own}-{group}");
        admin.find_coordinator(&name)?;
        for member in 0..args.members {
            // Heartbeats are spread evenly over the time between two of them.
            let (at, all) = (u64::from(group * args.members + member), u64::from(args.groups * args.members));
            run.add(Member::new(name.clone(), manner, manner.heartbeat * at / all))?;
        }
    }
    let measured = run.measure()?;
    Ok(report::groups(target, &run.world.stats, &measured))
}

/// A run under construction, then under way.
struct Run<'a> {
    target: &'a Target,
    window: &'a Window,
    reactor: Reactor,
    world: World,
}

impl<'a> Run<'a> {
    fn new(target: &'a Target, window: &'a Window, ledgers: Vec<Ledger>) -> Result<Self> {
        Ok(Self { target, window, reactor: Reactor::new()?, world: World::new(ledgers) })
    }

    fn add(&mut self, role: impl Role + 'static) -> Result<()> {
        self.reactor.add(Conn::connect(self.target.addr)?, Box::new(role))
    }

    fn add_consumer(
        &mut self,
        kind: ReaderKind,
        versions: Versions,
        topic: &Topic,
        partitions: Vec<u32>,
        args: &FetchArgs,
        start_at: u64,
    ) -> Result<()> {
        self.add(Consumer::new(ConsumerSpec {
            kind,
            version: versions.fetch,
            topic: topic.clone(),
            partitions,
            limits: args.limits(),
            check_crc: args.check_crc,
            sessions: !args.no_session,
            start_at,
        }))
    }

    /// Restarts the clock, warms up, measures the steady window, and waits for the last replies.
    fn measure(&mut self) -> Result<Measured> {
        self.world.restart_clock();
        let warm = (self.window.warmup * SECOND) as u64;
        self.reactor.run_until(&mut self.world, warm, |_| false)?;

        let me = std::process::id();
        let look = |pid: Option<u32>| pid.map(Sample::take).transpose();
        let (own_before, before) = (Sample::take(me)?, look(self.target.pid)?);
        self.world.recording = true;
        let end = self.world.now() + (self.window.duration * SECOND) as u64;
        let cap = self.window.max_mib.map_or(u64::MAX, |mib| mib << 20);
        let reads_cold = self.world.cold_left > 0;
        self.reactor.run_until(&mut self.world, end, |world| {
            world.stats.produced_bytes >= cap || reads_cold && world.cold_left == 0
        })?;
        self.world.recording = false;
        let (after, own_after) = (look(self.target.pid)?, Sample::take(me)?);

        let measured = Measured {
            server: after.zip(before).map(|(after, before)| after.since(&before)),
            memory: self.target.pid.map(procstat::memory).transpose()?,
            client: own_after.since(&own_before),
        };
        self.reactor.drain(&mut self.world, DRAIN_LIMIT)?;
        Ok(measured)
    }
}

/// A topic name that no other run has.
pub(crate) fn own_name(what: &str) -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    format!("kbench-{what}-{}-{}", std::process::id(), since.as_millis())
}

/// The partitions of member `at` out of `members`: its share, or one of them if there are too few.
fn share(at: u32, members: u32, partitions: u32) -> Vec<u32> {
    if members <= partitions { (at..partitions).step_by(members as usize).collect() } else { vec![at % partitions] }
}

/// Adds the producers for the first `active` partitions of a topic.
fn add_producers(
    run: &mut Run<'_>,
    admin: &mut Admin,
    versions: Versions,
    (topic, active): (&Topic, u32),
    load: &Load,
) -> Result<()> {
    let distinct = DISTINCT_BATCHES.min(u64::from(active));
    let batches: Vec<_> = (0..distinct).map(|seed| batch::build(&load.batch_spec(), seed)).collect::<Result<_>>()?;
    let records = batches[0].records;
    for at in 0..load.connections {
        let partitions = share(at, load.connections, active);
        let frames: Vec<_> = partitions
            .chunks(load.spread.max(1))
            .map(|chunk| {
                let placed: Vec<_> = chunk
                    .iter()
                    .map(|&partition| (partition, &batches[partition as usize % batches.len()].bytes[..]))
                    .collect();
                messages::produce(versions.produce, topic, load.acks, None, &placed)
            })
            .collect();
        let identity = load.idempotent.then(|| admin.producer_id(None)).transpose()?;
        let pace = load.rate.map(|rate| {
            let batches_a_frame = partitions.len() as f64 / frames.len() as f64;
            let records_a_frame = f64::from(records) * batches_a_frame;
            let interval = (records_a_frame * f64::from(load.connections) / rate * SECOND) as u64;
            // Connections take turns rather than all send at once.
            Pace { next: interval * u64::from(at) / u64::from(load.connections), interval: interval.max(1) }
        });
        run.add(Producer::new(ProducerSpec {
            version: versions.produce,
            acked: load.acks != 0,
            depth: load.depth,
            frames,
            records_per_batch: records,
            pace,
            identity,
        }))?;
    }
    Ok(())
}

fn add_company(
    run: &mut Run<'_>,
    admin: &mut Admin,
    versions: Versions,
    topic: &Topic,
    company: &Company,
    fetch: &FetchArgs,
) -> Result<()> {
    for _ in 0..company.fanout {
        let all = (0..topic.partitions).collect();
        run.add_consumer(ReaderKind::Tail, versions, topic, all, fetch, 0)?;
    }
    if let Some(name) = &company.cold_topic {
        let cold = admin.find_topic(name, None)?;
        let from_window = (run.window.warmup * SECOND) as u64;
        for at in 0..company.cold_readers {
            let partitions = share(at, company.cold_readers, cold.partitions);
            run.add_consumer(ReaderKind::Cold, versions, &cold, partitions, fetch, from_window)?;
            run.world.cold_left += 1;
        }
    }
    for _ in 0..company.silent {
        run.add(Silent)?;
    }
    Ok(())
}

/// Adds idle consumers whose polls are spread evenly over the longest wait.
fn add_idle(run: &mut Run<'_>, versions: Versions, topic: &Topic, company: &Company, fetch: &FetchArgs) -> Result<()> {
    let wait_ns = fetch.max_wait_ms as u64 * 1_000_000;
    for at in 0..company.idle {
        let start_at = wait_ns * u64::from(at) / u64::from(company.idle);
        let all = (0..topic.partitions).collect();
        run.add_consumer(ReaderKind::Idle, versions, topic, all, fetch, start_at)?;
    }
    Ok(())
}

/// Checks that every record sent has its offset, and that the log ends there.
fn verify_offsets(admin: &mut Admin, versions: Versions, topic: &Topic, load: &Load, world: &World) -> Result<()> {
    for (partition, ledger) in world.ledgers.iter().enumerate() {
        if load.acks != 0 {
            ledger.close().with_context(|| format!("partition {partition}"))?;
        }
    }
    let expected: Vec<i64> = world.ledgers.iter().map(Ledger::expected_end).collect();
    let mut ends = admin.end_offsets(versions.fetch, topic)?;
    // With acks=0 the last requests may still be on their way.
    for _ in 0..100 {
        if ends == expected {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
        ends = admin.end_offsets(versions.fetch, topic)?;
    }
    ensure!(ends == expected, "the partitions end at offsets {ends:?}, not at {expected:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    /// Runs command lines, with semicolons between them, against a floor; gives the last one's report.
    fn against_floor(line: &str) -> Value {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("kbench-test-{}-{number}", std::process::id()));
        let addr = crate::floor::tests::start(&dir);
        let mut report = Value::Null;
        for line in line.split(';') {
            report = run_line(line.trim(), addr);
        }
        std::fs::remove_dir_all(dir).unwrap();
        report
    }

    fn run_line(line: &str, addr: std::net::SocketAddr) -> Value {
        let pid = std::process::id();
        let line = format!("kbench {line} --addr {addr} --pid {pid} --duration 0.3 --warmup 0.1");
        match Cli::parse_from(line.split_whitespace()).command {
            Command::Produce { target, window, topic, load } => produce(&target, &window, &topic, &load, None),
            Command::Mix { target, window, topic, load, fetch, company } => {
                produce(&target, &window, &topic, &load, Some((&company, &fetch)))
            }
            Command::Fetch { target, window, fetch: args, topic, consumers } => {
                fetch(&target, &window, &args, &topic, consumers)
            }
            Command::Call { target, window, api, topic, partitions, connections, depth } => {
                call(&target, &window, api, (&topic, partitions), connections, depth)
            }
            _ => panic!("not a run"),
        }
        .unwrap()
    }

    #[test]
    fn batches_of_every_kind_get_the_offsets_they_must() {
        for line in [
            "produce --idempotent --spread 3 --codec lz4 --payload json",
            "produce --acks 0 --names",
            "produce --connections 16 --partitions 5 --depth 8 --records 1 --record-bytes 100",
            "produce --partitions 300 --spread 100 --records 1 --rate 20000",
            "produce --record-bytes 600000 --codec zstd",
            "produce --codec gzip --partitions 50 --active 2 --config compression.type=zstd",
        ] {
            assert!(against_floor(line)["records"].as_u64().unwrap() > 0, "{line}");
        }
    }

    #[test]
    fn a_log_is_read_back_whole() {
        let report =
            against_floor("produce --topic t --keep; fetch --topic t --check-crc --consumers 3 --max-bytes 100000");
        assert!(report["records"].as_u64().unwrap() > 0);
        let report = against_floor(
            "produce --topic t --keep --names; mix --cold-topic t --cold-readers 2 --check-crc --max-bytes 100000",
        );
        assert!(report["cold"]["records"].as_u64().unwrap() > 0);
    }

    #[test]
    fn tail_consumers_get_each_record_once_each() {
        let report = against_floor("mix --rate 5000 --records 5 --fanout 3 --idle 4 --silent 2 --check-crc");
        let (sent, got) = (report["records"].as_f64().unwrap(), report["tail"]["records"].as_f64().unwrap());
        assert!((got / sent - 3.0).abs() < 0.3, "{got} of {sent}");
        assert!(report["end_to_end_us"]["p50"].as_f64().unwrap() > 0.0);
    }

    #[test]
    fn small_requests_are_answered() {
        for line in [
            "call --api metadata --connections 3 --depth 4",
            "call --api api-versions",
            "call --api connection --connections 2",
        ] {
            assert!(against_floor(line)["requests"].as_u64().unwrap() > 0);
        }
    }

    #[test]
    fn every_partition_has_a_member_and_every_member_a_partition() {
        let mut all: Vec<u32> = (0..5).flat_map(|at| share(at, 5, 12)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..12).collect::<Vec<_>>());
        assert_eq!(share(13, 16, 12), [1]);
    }
}
