//! What the kernel says of a process: CPU time by thread, context switches, memory.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};

/// One look at a process.
pub(crate) struct Sample {
    taken: Instant,
    /// By thread id: name, run time in ns, context switches.
    threads: BTreeMap<u32, Thread>,
    /// Time that all CPUs spent on anything but idling, in clock ticks of 10 ms.
    machine_busy: u64,
    /// Time that the hypervisor kept the CPUs, in clock ticks of 10 ms.
    machine_stolen: u64,
}

struct Thread {
    name: String,
    run_ns: u64,
    switches: u64,
}

/// What a process used between two looks.
pub(crate) struct Usage {
    /// Length of the window, in s.
    pub wall_s: f64,
    /// CPU time of all threads, in s.
    pub cpu_s: f64,
    /// Context switches of all threads.
    pub switches: u64,
    /// CPU time by thread name without trailing numbers, in s, largest first.
    pub by_name: Vec<(String, f64)>,
    /// Time that both CPUs were busy with anything, in s.
    pub machine_busy_s: f64,
    /// Time that the hypervisor kept the CPUs, in s.
    pub machine_stolen_s: f64,
}

/// A process's memory, in MiB.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Resident now.
    pub rss: f64,
    /// Resident at most so far.
    pub peak: f64,
}

/// The kernel counts `/proc/stat` in ticks of this many seconds.
const TICK_S: f64 = 0.01;

impl Sample {
    /// Looks at a process now.
    pub(crate) fn take(pid: u32) -> Result<Self> {
        let mut threads = BTreeMap::new();
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("no process {pid}"))?;
        for task in tasks {
            let path = task?.path();
            // A thread may end between the listing and the look: it's left out.
            if let (Some(id), Some(thread)) =
                (path.file_name().and_then(|name| name.to_str()?.parse().ok()), Thread::read(&path))
            {
                threads.insert(id, thread);
            }
        }
        let (machine_busy, machine_stolen) = machine_ticks()?;
        Ok(Self { taken: Instant::now(), threads, machine_busy, machine_stolen })
    }

    /// CPU time of the threads alive now since each began, in s.
    pub(crate) fn cpu_s(&self) -> f64 {
        self.threads.values().map(|thread| thread.run_ns as f64 / 1e9).sum()
    }

    /// What the process used from `earlier` to this look. A thread that began in between counts
    /// whole; the last bit of one that ended in between is lost.
    pub(crate) fn since(&self, earlier: &Sample) -> Usage {
        let (mut cpu_ns, mut switches) = (0, 0);
        let mut by_name: BTreeMap<&str, f64> = BTreeMap::new();
        for (id, thread) in &self.threads {
            let (run_before, switches_before) =
                earlier.threads.get(id).map_or((0, 0), |before| (before.run_ns, before.switches));
            let run = thread.run_ns.saturating_sub(run_before);
            cpu_ns += run;
            switches += thread.switches.saturating_sub(switches_before);
            *by_name.entry(family(&thread.name)).or_default() += run as f64 / 1e9;
        }
        let mut by_name: Vec<_> = by_name.into_iter().map(|(name, cpu)| (name.to_owned(), cpu)).collect();
        by_name.sort_by(|a, b| b.1.total_cmp(&a.1));
        Usage {
            wall_s: (self.taken - earlier.taken).as_secs_f64(),
            cpu_s: cpu_ns as f64 / 1e9,
            switches,
            by_name,
            machine_busy_s: (self.machine_busy - earlier.machine_busy) as f64 * TICK_S,
            machine_stolen_s: (self.machine_stolen - earlier.machine_stolen) as f64 * TICK_S,
        }
    }
}

impl Thread {
    fn read(task: &std::path::Path) -> Option<Self> {
        let schedstat = fs::read_to_string(task.join("schedstat")).ok()?;
        let status = fs::read_to_string(task.join("status")).ok()?;
        Some(Self {
            name: status_field(&status, "Name:")?.to_owned(),
            run_ns: schedstat.split(' ').next()?.parse().ok()?,
            switches: ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"]
                .iter()
                .filter_map(|key| status_field(&status, key)?.parse::<u64>().ok())
                .sum(),
        })
    }
}

/// A thread's name without the number that tells it from its siblings.
fn family(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit() || "-#_ ".contains(c))
}

fn status_field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    Some(status.lines().find_map(|line| line.strip_prefix(key))?.trim())
}

/// Ticks that all CPUs together were busy, and stolen.
fn machine_ticks() -> Result<(u64, u64)> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let busy = [0, 1, 2, 5, 6].iter().map(|&at| ticks.get(at).copied().unwrap_or(0)).sum();
    Ok((busy, ticks.get(7).copied().unwrap_or(0)))
}

/// CPU time of a process since it began, in s: that of threads that have ended too, to the clock tick.
pub(crate) fn process_cpu_s(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("no process {pid}"))?;
    // Behind the name, which may hold spaces and parentheses, the state comes first.
    let (_, fields) = stat.rsplit_once(')').context("/proc/PID/stat has no name")?;
    let ticks = |at| fields.split_whitespace().nth(at).and_then(|field| field.parse::<u64>().ok());
    let (user, system) = ticks(11).zip(ticks(12)).context("/proc/PID/stat is short")?;
    Ok((user + system) as f64 * TICK_S)
}

/// A process's memory now.
pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mib = |key| {
        let kib = status_field(&status, key).and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
        kib.unwrap_or(0.0) / 1024.0
    };
    Ok(Memory { rss: mib("VmRSS:"), peak: mib("VmHWM:") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_work_shows_up() {
        let before = Sample::take(std::process::id()).unwrap();
        let until = Instant::now() + std::time::Duration::from_millis(60);
        while Instant::now() < until {}
        let used = Sample::take(std::process::id()).unwrap().since(&before);
        assert!(used.cpu_s > 0.01, "{} s", used.cpu_s);
        assert!(process_cpu_s(std::process::id()).unwrap() >= 0.01);
        assert!(memory(std::process::id()).unwrap().rss > 0.1);
    }

    #[test]
    fn siblings_share_a_name() {
        assert_eq!(family("kafka-network-thread-1"), family("kafka-network-thread-12"));
    }
}
