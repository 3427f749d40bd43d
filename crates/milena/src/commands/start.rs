//! `milena start`.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use milena_broker::broker::{Broker, Fatal, check_supported};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::settings;

/// Arguments of `milena start`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    settings: settings::Arguments,
}

/// Runs a broker until a signal stops it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let began = Instant::now();
    let filter = filter(std::env::var("MILENA_LOG").ok().as_deref())?;
    tracing_subscriber::fmt().with_env_filter(filter).with_target(false).log_internal_errors(false).init();
    let (settings, config) = arguments.settings.load()?;
    check_supported(&config)?;
    let without_effect = settings.without_effect().map(|warning| warning.message);
    let unreachable = config.unreachable_replicas(1).into_iter().map(|setting| format!("{setting}; set it to 1"));
    without_effect.into_iter().chain(unreachable).for_each(|warning| settings::warn(&warning));
    let signals = Signals::listen()?;
    let data_dirs = config.log_dirs().join(", ");
    take_open_files();
    let broker = Broker::start(config, !settings.has_file())?;
    tell(&broker, &data_dirs, began);
    let signal = match signals.wait(broker.failed()) {
        Ended::Signal(signal) => signal,
        // Not stopped in order: the next start checks what was open.
        Ended::Fatal(fatal) => return Err(fatal.into()),
    };
    say(format_args!("milena: {signal} received, stopping"));
    broker.stop()?;
    say(format_args!("milena: stopped in order; the next start has nothing to recover"));
    Ok(ExitCode::SUCCESS)
}

/// What is logged: what `MILENA_LOG` says, or all but details.
fn filter(directives: Option<&str>) -> Result<EnvFilter> {
    let directives = directives.filter(|directives| !directives.is_empty()).unwrap_or("info");
    EnvFilter::try_new(directives).with_context(|| {
        format!("MILENA_LOG={directives}: expected a level, or module=level, separated by commas, such as milena_net=debug,info")
    })
}

/// Each partition and each connection holds a file open: raises the limit to what the system allows, as a JVM does.
fn take_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some() && limit.current != limit.maximum {
        let all = Rlimit { current: limit.maximum, ..limit };
        if let Err(error) = setrlimit(Resource::Nofile, all) {
            say(format_args!("milena: the limit of open files can't be raised: {error}"));
        }
    }
}

/// Says what the start found, and that it is over.
fn tell(broker: &Broker, data_dirs: &str, began: Instant) {
    let report = broker.report();
    if let Some(line) = report.formatted.last() {
        say(format_args!("milena: {line}"));
    }
    let found = report.found;
    if found.partitions > 0 {
        let how = if report.clean { "stopped in order" } else { "not stopped in order" };
        say(format_args!(
            "milena: {} partitions, {how} last time; {} checked, {} bytes cut",
            found.partitions, found.recovered, found.bytes_cut
        ));
    }
    for (name, address) in broker.addresses() {
        say(format_args!("milena: {name} listens on {address}"));
    }
    say(format_args!("milena: ready after {} ms, data in {data_dirs}", began.elapsed().as_millis()));
    // Tools and test containers wait for these lines, as Kafka has them.
    let id = broker.node_id();
    say(format_args!(
        "[BrokerLifecycleManager id={id}] The broker has been unfenced. Transitioning from RECOVERY to RUNNING."
    ));
    say(format_args!("[KafkaRaftServer nodeId={}] Kafka Server started", id));
}

/// A line on standard output. Where nobody reads it any more, or its disk is full, the broker goes on without.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Why a broker ends.
enum Ended {
    Signal(&'static str),
    Fatal(Fatal),
}

/// Ctrl-C, SIGTERM and SIGHUP.
struct Signals {
    runtime: tokio::runtime::Runtime,
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listen = |kind| {
            let _inside = runtime.enter();
            signal(kind).context("listening for signals")
        };
        let (interrupt, terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        let hang_up = listen(SignalKind::hangup())?;
        Ok(Self { runtime, interrupt, terminate, hang_up })
    }

    fn wait(mut self, failed: impl Future<Output = Fatal>) -> Ended {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.interrupt.recv() => Ended::Signal("SIGINT"),
                _ = self.terminate.recv() => Ended::Signal("SIGTERM"),
                _ = self.hang_up.recv() => Ended::Signal("SIGHUP"),
                fatal = failed => Ended::Fatal(fatal),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_filter_of_log_lines_is_refused() {
        for good in [None, Some(""), Some("debug"), Some("milena_net=debug,info")] {
            assert!(filter(good).is_ok(), "{good:?}");
        }
        for bad in ["foo=bar=x", "milena_net=loud"] {
            let error = crate::failure::message(&filter(Some(bad)).unwrap_err());
            assert!(error.starts_with(&format!("MILENA_LOG={bad}: expected a level")), "{error}");
        }
    }
}
