//! What kafka-producer-perf-test counts, and how it says so.

use std::time::Duration;

use tokio::time::Instant;

use crate::kafka::java::fixed;
use crate::output::print;
use crate::perf::Latencies;

const MIB: f64 = 1024.0 * 1024.0;

/// Records that were written, all of them or those after the warmup.
pub struct Stats {
    start: Instant,
    steady: bool,
    interval: Duration,
    /// Whether there is a line for each interval.
    pub reports: bool,
    latencies: Latencies,
    total: Count,
    window: Count,
    window_start: Instant,
}

/// Records, their bytes and their latencies in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    records: u64,
    bytes: u64,
    latency: u64,
    max: u64,
}

impl Count {
    fn add(&mut self, latency: u64, bytes: u64) {
        self.records += 1;
        self.bytes += bytes;
        self.latency += latency;
        self.max = self.max.max(latency);
    }

    /// Records and MB a second.
    fn rates(&self, elapsed: Duration) -> (f64, f64) {
        let elapsed = elapsed.as_millis() as f64;
        (1000.0 * self.records as f64 / elapsed, 1000.0 * self.bytes as f64 / elapsed / MIB)
    }

    fn mean(&self) -> f64 {
        self.latency as f64 / self.records as f64
    }
}

impl Stats {
    /// From now on.
    pub fn new(interval: Duration, steady: bool) -> Self {
        let start = Instant::now();
        let (total, window) = (Count::default(), Count::default());
        let latencies = Latencies::new();
        Self { start, steady, interval, reports: true, latencies, total, window, window_start: start }
    }

    /// A record was written.
    pub fn add(&mut self, sent: Instant, bytes: u64) {
        let now = Instant::now();
        let latency = now - sent;
        let millis = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        self.latencies.add(latency);
        self.total.add(millis, bytes);
        self.window.add(millis, bytes);
        let window = now - self.window_start;
        if window >= self.interval {
            if self.reports {
                self.report(window);
            }
            (self.window, self.window_start) = (Count::default(), now);
        }
    }

    fn report(&self, elapsed: Duration) {
        let (records, megabytes) = self.window.rates(elapsed);
        if self.steady && self.total.records == self.window.records {
            print("In steady state.\n");
        }
        print(&format!(
            "{} records sent, {} records/sec ({} MB/sec), {} ms avg latency, {} ms max latency.\n",
            self.window.records,
            fixed(records, 1),
            fixed(megabytes, 2),
            fixed(self.window.mean(), 1),
            fixed(self.window.max as f64, 1),
        ));
    }

    /// Prints what became of all.
    pub fn print_total(&self) {
        let (records, megabytes) = self.total.rates(self.start.elapsed());
        let [p50, p95, p99, p999] = [50.0, 95.0, 99.0, 99.9].map(|percent| self.latencies.percentile(percent) as u64);
        print(&format!(
            "{}{} records sent, {} records/sec ({} MB/sec), {} ms avg latency, {} ms max latency, {p50} ms 50th, \
             {p95} ms 95th, {p99} ms 99th, {p999} ms 99.9th.\n",
            self.total.records,
            if self.steady { " steady state" } else { "" },
            fixed(records, 6),
            fixed(megabytes, 2),
            fixed(self.total.mean(), 2),
            fixed(self.total.max as f64, 2),
        ));
    }

    /// How many records were written.
    pub fn records(&self) -> u64 {
        self.total.records
    }
}
