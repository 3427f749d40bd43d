//! The line of JSON that a run prints.

use serde_json::{Map, Value, json};

use crate::cli::{Load, Target};
use crate::procstat::{Memory, Usage};
use crate::world::{Latency, ReaderKind, ReaderStats, Stalls, Stats};

/// What was measured beside the counters.
pub(crate) struct Measured {
    /// The server's use of the CPU, if its process is known.
    pub server: Option<Usage>,
    /// The server's memory at the end of the window.
    pub memory: Option<Memory>,
    /// The load tool's own use of the CPU.
    pub client: Usage,
}

/// Counts by which the server's CPU time is divided.
#[derive(Default)]
struct Work {
    records: u64,
    requests: u64,
    /// Batch bytes in and out.
    bytes: u64,
}

/// The report of `produce` and `mix`.
pub(crate) fn produce(
    target: &Target,
    load: &Load,
    records_per_batch: u32,
    stats: &Stats,
    measured: &Measured,
) -> Value {
    let work = Work { records: stats.produced_records, requests: stats.produce_requests, bytes: stats.produced_bytes };
    let mut out = common(target, measured, &work);
    put(&mut out, "records_per_batch", json!(records_per_batch));
    put(&mut out, "offered_per_s", json!(load.rate));
    put(&mut out, "latency_us", latency(&stats.produce_latency));
    put(&mut out, "stalls", stalls(&stats.stalls));
    for (name, kind) in [("tail", ReaderKind::Tail), ("cold", ReaderKind::Cold), ("idle", ReaderKind::Idle)] {
        let counters = &stats.readers[kind as usize];
        if counters.requests > 0 {
            put(&mut out, name, reader(counters, measured));
        }
    }
    if !stats.end_to_end.0.is_empty() {
        put(&mut out, "end_to_end_us", latency(&stats.end_to_end));
    }
    Value::Object(out)
}

/// The report of `fetch`.
pub(crate) fn fetch(target: &Target, stats: &Stats, measured: &Measured) -> Value {
    let counters = &stats.readers[ReaderKind::Replay as usize];
    let work = Work { records: counters.records, requests: counters.requests, bytes: counters.bytes };
    let mut out = common(target, measured, &work);
    put(&mut out, "empty_replies", json!(counters.empty));
    Value::Object(out)
}

/// The report of `call`.
pub(crate) fn call(target: &Target, stats: &Stats, measured: &Measured) -> Value {
    let work = Work { requests: stats.calls, ..Work::default() };
    let mut out = common(target, measured, &work);
    put(&mut out, "latency_us", latency(&stats.call_latency));
    Value::Object(out)
}

/// The report of `transact`: a transaction counts as one request.
pub(crate) fn transact(target: &Target, records_per_batch: u32, stats: &Stats, measured: &Measured) -> Value {
    let work = Work { records: stats.produced_records, requests: stats.calls, bytes: stats.produced_bytes };
    let mut out = common(target, measured, &work);
    put(&mut out, "records_per_batch", json!(records_per_batch));
    put(&mut out, "latency_us", latency(&stats.call_latency));
    Value::Object(out)
}

/// The report of `groups`: requests of all kinds, the latency of heartbeats, and of whole rebalances.
pub(crate) fn groups(target: &Target, stats: &Stats, measured: &Measured) -> Value {
    let work = Work { requests: stats.calls, ..Work::default() };
    let mut out = common(target, measured, &work);
    put(&mut out, "latency_us", latency(&stats.call_latency));
    if stats.rebalances > 0 {
        put(&mut out, "rebalances", json!(stats.rebalances));
        put(&mut out, "rebalance_us", latency(&stats.rebalance_latency));
    }
    Value::Object(out)
}

/// The report of `compact`: the bytes before and after, and how many offsets were cleaned.
pub(crate) fn compact(target: &Target, (dirty, left): (u64, u64), offsets: u64, measured: &Measured) -> Value {
    let work = Work { records: offsets, bytes: dirty, ..Work::default() };
    let mut out = common(target, measured, &work);
    put(&mut out, "bytes_left", json!(left));
    Value::Object(out)
}

/// The report of `recover`: the new process, and how long it took until it answered and until it served everything, ms.
pub(crate) fn recover(
    target: &Target,
    (pid, ready_ms, served_ms): (u32, f64, f64),
    (records, bytes): (u64, u64),
    measured: &Measured,
) -> Value {
    let mut out = common(target, measured, &Work { records, bytes, ..Work::default() });
    put(&mut out, "pid", json!(pid));
    put(&mut out, "ready_ms", round(ready_ms));
    put(&mut out, "served_ms", round(served_ms));
    Value::Object(out)
}

fn common(target: &Target, measured: &Measured, work: &Work) -> Map<String, Value> {
    let client = &measured.client;
    let wall = client.wall_s;
    let mut out = Map::new();
    put(&mut out, "server", json!(target.server));
    put(&mut out, "cell", json!(target.cell));
    put(&mut out, "window_s", round(wall));
    put(&mut out, "records", json!(work.records));
    put(&mut out, "requests", json!(work.requests));
    put(&mut out, "bytes", json!(work.bytes));
    put(&mut out, "records_per_s", round(work.records as f64 / wall));
    put(&mut out, "requests_per_s", round(work.requests as f64 / wall));
    put(&mut out, "mb_per_s", round(work.bytes as f64 / 1e6 / wall));
    if let Some(server) = &measured.server {
        put_server(&mut out, server, client, work);
    }
    if let Some(memory) = measured.memory {
        put(&mut out, "rss_mib", round(memory.rss));
        put(&mut out, "peak_rss_mib", round(memory.peak));
    }
    put(&mut out, "client_cpu_s", round(client.cpu_s));
    put(&mut out, "stolen_cpu_s", round(client.machine_stolen_s));
    out
}

fn put_server(out: &mut Map<String, Value>, server: &Usage, client: &Usage, work: &Work) {
    let per = |count: f64, scale: f64| if count > 0.0 { round(server.cpu_s * scale / count) } else { Value::Null };
    put(out, "server_cpu_s", round(server.cpu_s));
    put(out, "server_cores", round(server.cpu_s / server.wall_s));
    put(out, "us_per_record", per(work.records as f64, 1e6));
    put(out, "us_per_request", per(work.requests as f64, 1e6));
    put(out, "cpu_s_per_gb", per(work.bytes as f64, 1e9));
    let switches = if work.requests > 0 { round(server.switches as f64 / work.requests as f64) } else { Value::Null };
    put(out, "switches_per_request", switches);
    let threads: Map<_, _> = server.by_name.iter().take(6).map(|(name, cpu)| (name.clone(), round(*cpu))).collect();
    put(out, "server_cpu_s_by_thread", Value::Object(threads));
    // Kernel threads that write pages back are in here, and every other program of the machine.
    put(out, "other_cpu_s", round((client.machine_busy_s - client.cpu_s - server.cpu_s).max(0.0)));
}

fn reader(counters: &ReaderStats, measured: &Measured) -> Value {
    json!({
        "requests": counters.requests,
        "empty_replies": counters.empty,
        "records": counters.records,
        "mb_per_s": round(counters.bytes as f64 / 1e6 / measured.client.wall_s),
    })
}

/// When the stalls began since the run did, and how long each took, in ms.
fn stalls(stalls: &Stalls) -> Value {
    let ms = |ns: u64| round(ns as f64 / 1e6);
    stalls.longest().map(|stall| json!({"at_ms": ms(stall.begin), "ms": ms(stall.end - stall.begin)})).collect()
}

/// Percentiles in µs.
fn latency(latency: &Latency) -> Value {
    let us = |ns: u64| round(ns as f64 / 1e3);
    let at = |q| us(latency.0.value_at_quantile(q));
    json!({
        "count": latency.0.len(),
        "mean": round(latency.0.mean() / 1e3),
        "p50": at(0.5),
        "p90": at(0.9),
        "p99": at(0.99),
        "p99_9": at(0.999),
        "p99_99": at(0.9999),
        "max": us(latency.0.max()),
    })
}

/// Four significant digits are more than any of these figures is worth.
fn round(value: f64) -> Value {
    if value == 0.0 || !value.is_finite() {
        return json!(0.0);
    }
    let scale = 10f64.powi(3 - value.abs().log10().floor() as i32);
    json!((value * scale).round() / scale)
}

fn put(out: &mut Map<String, Value>, key: &str, value: Value) {
    out.insert(key.to_owned(), value);
}
