//! A node of this machine, whether it runs or not: its settings, its directories, and the limits that the system sets it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use milena_broker::broker::check_supported;
use milena_config::BrokerConfig;
use milena_io::{Disk, RealDisk};
use rustix::fs::{Access, access, statvfs};
use rustix::process::{Resource, getrlimit};

use super::{Findings, Level, fullness, names};
use crate::holder::holder;
use crate::settings;

/// Files that a node may have open; each partition needs some.
const ENOUGH_FILES: u64 = 65_536;
/// What Apache Kafka's own documentation asks for.
const ENOUGH_MAPS: u64 = 262_144;

/// Looks at everything.
///
/// # Errors
/// When the file can't be read.
pub(super) fn look(config: Option<PathBuf>, data_dir: Option<String>, findings: &mut Findings) -> Result<()> {
    // Without a file nobody asks for the settings, only for the directory.
    let has_file = config.is_some();
    let arguments = settings::Arguments { config, overrides: Vec::new(), data_dir, listen: None };
    let settings = arguments.settings()?;
    for warning in settings.warnings().into_iter().chain(settings.without_effect()) {
        let advice = "The node starts all the same. `docs/configuration.md` says which settings do something.";
        findings.add(Level::Warning, "settings", warning.message, advice);
    }
    match BrokerConfig::load(&settings) {
        Err(errors) => {
            for error in errors {
                findings.add(Level::Wrong, "settings", error.to_string(), "The node does not start with that.");
            }
        }
        Ok(config) => {
            match check_supported(&config) {
                Err(error) => {
                    findings.add(Level::Wrong, "settings", error.to_string(), "The node does not start with that.");
                }
                Ok(()) if has_file => findings.good("settings", "the node can start with them"),
                Ok(()) => {}
            }
            for setting in config.unreachable_replicas(1) {
                let advice = "The node starts all the same. Set it to 1: no node can have others.";
                findings.add(Level::Warning, "settings", setting.to_string(), advice);
            }
            directories(&config.all_dirs(), findings);
        }
    }
    limits(findings);
    Ok(())
}

fn directories(dirs: &[PathBuf], findings: &mut Findings) {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    let info = milena_quorum::info(&disk, dirs);
    for problem in info.problems {
        let advice =
            "`milena storage format` prepares directories; those that were in use must not be formatted again.";
        findings.add(Level::Wrong, "directories", problem, advice);
    }
    for dir in info.dirs {
        let place = dir.display().to_string();
        if access(&dir, Access::WRITE_OK).is_err() {
            let advice = "Give it to the user that the node runs as.";
            findings.add(Level::Wrong, "directories", format!("{place} can't be written to by this user"), advice);
        }
        match statvfs(&dir) {
            Err(error) => findings.failed("disk space", &format!("{place}: {error}")),
            Ok(found) => fullness(findings, &place, found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize),
        }
        last_stop(&dir, &place, findings);
        let cut = cut_files(&dir);
        if !cut.is_empty() {
            let what = format!("{} files with what a start has cut off logs: {}", cut.len(), names(cut));
            let advice = "They may hold the only copy of records. `milena log verify` looks at a partition; delete them when \
                          nothing is missed.";
            findings.add(Level::Warning, "recovery", what, advice);
        }
    }
}

/// Whether a broker runs on the directory, and how the last one has left it.
fn last_stop(dir: &Path, place: &str, findings: &mut Findings) {
    match holder(dir) {
        Some(pid) if pid > 0 => findings.good("running", format!("process {pid} has {place}")),
        Some(_) => findings.good("running", format!("a process has {place}")),
        None if dir.join(".kafka_cleanshutdown").exists() => {
            findings.good("last stop", format!("{place} was left in order"));
        }
        // Formatted, and never used: a broker makes checkpoints and a lock.
        None if !dir.join(".lock").exists() => findings.good("last stop", format!("{place} has never been used")),
        None => {
            let advice = "Its broker was killed, or the machine was: the next start checks what was open.";
            findings.add(Level::Note, "last stop", format!("{place} was not left in order"), advice);
        }
    }
}

/// What recovery has set aside in the partitions of a log directory.
fn cut_files(dir: &Path) -> Vec<String> {
    let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let partitions = entries(dir).filter(|path| path.is_dir());
    let mut cut: Vec<String> = partitions
        .flat_map(|partition| entries(&partition).collect::<Vec<_>>())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cut"))
        .map(|path| path.display().to_string())
        .collect();
    cut.sort();
    cut
}

fn limits(findings: &mut Findings) {
    match getrlimit(Resource::Nofile).maximum {
        Some(files) if files < ENOUGH_FILES => findings.add(
            Level::Warning,
            "open files",
            format!("{files} at most"),
            "Partitions and connections hold files open: raise the hard limit (ulimit -Hn, LimitNOFILE=) to 100000.",
        ),
        Some(files) => findings.good("open files", format!("{files} at most")),
        None => findings.good("open files", "no limit"),
    }
    let maps = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    let Some(maps) = maps.and_then(|text| text.trim().parse::<u64>().ok()) else { return };
    if maps < ENOUGH_MAPS {
        let advice = "Milena maps no files; Apache Kafka on the same directories wants vm.max_map_count=262144.";
        findings.add(Level::Note, "memory maps", format!("{maps} at most"), advice);
    } else {
        findings.good("memory maps", format!("{maps} at most"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(dir: &Path) -> Vec<(Level, &'static str, String)> {
        let mut findings = Findings::default();
        directories(&[dir.to_owned()], &mut findings);
        findings.all.into_iter().map(|finding| (finding.level, finding.check, finding.what)).collect()
    }

    #[test]
    fn a_directory_that_is_missing_or_not_formatted_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("none");
        assert_eq!(at(&missing), [(Level::Wrong, "directories", format!("{} does not exist", missing.display()))]);
        let what = format!("{} is not formatted.", dir.path().display());
        assert_eq!(at(dir.path())[0], (Level::Wrong, "directories", what));
    }

    #[test]
    fn the_last_stop_is_told_of_a_directory_that_was_used() {
        let dir = tempfile::tempdir().unwrap();
        let last = || {
            let found = at(dir.path()).into_iter().find(|(_, check, _)| *check == "last stop").unwrap();
            (found.0, found.2.rsplit_once(&format!("{} ", dir.path().display())).unwrap().1.to_owned())
        };
        assert_eq!(last(), (Level::Good, "has never been used".to_owned()));
        std::fs::write(dir.path().join(".lock"), "").unwrap();
        assert_eq!(last(), (Level::Note, "was not left in order".to_owned()));
        std::fs::write(dir.path().join(".kafka_cleanshutdown"), "").unwrap();
        assert_eq!(last(), (Level::Good, "was left in order".to_owned()));
    }

    #[test]
    fn a_node_can_start_only_with_what_a_start_takes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.properties");
        let node = "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n\
                    listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n\
                    controller.quorum.voters=1@localhost:9093\n";
        let one = "offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n";
        let seen = |text: &str| {
            std::fs::write(&file, format!("{node}{text}")).unwrap();
            let mut findings = Findings::default();
            look(Some(file.clone()), None, &mut findings).unwrap();
            let settings = findings.all.into_iter().filter(|finding| finding.check == "settings");
            settings.map(|finding| (finding.level, finding.what)).collect::<Vec<_>>()
        };
        assert_eq!(seen(one), [(Level::Good, "the node can start with them".to_owned())]);
        for refused in [
            "authorizer.class.name=a.B",
            "controller.quorum.voters=1@localhost:9093,2@localhost:9095",
            "listener.security.protocol.map=PLAINTEXT:SSL,CONTROLLER:PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT",
        ] {
            let found = seen(&format!("{one}{refused}"));
            assert!(found.iter().any(|(level, _)| *level == Level::Wrong), "{refused}: {found:?}");
            assert!(found.iter().all(|(level, _)| *level != Level::Good), "{refused}: {found:?}");
        }
        let warned = seen("default.replication.factor=2");
        let keys: Vec<_> = warned.iter().filter(|(level, _)| *level == Level::Warning).map(|(_, what)| what).collect();
        assert_eq!(keys.len(), 3, "{keys:?}");
        assert!(keys[0].starts_with("offsets.topic.replication.factor is 3, and there is 1 broker: "), "{keys:?}");
    }

    #[test]
    fn what_recovery_has_cut_off_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("t-0/00000000000000000000.log.1.cut");
        std::fs::create_dir(dir.path().join("t-0")).unwrap();
        std::fs::write(&file, "x").unwrap();
        let found = at(dir.path());
        let cut = found.iter().find(|(_, check, _)| *check == "recovery").unwrap();
        assert_eq!(cut.2, format!("1 files with what a start has cut off logs: {}", file.display()));
    }
}
