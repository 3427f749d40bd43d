//! What a start of Milena makes of damage in the small files of a directory that was stopped in order, and in its metadata log: everything
//! is served, or the start says which file it is and changes none.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use milena_testkit::server::Options;

type Contents = BTreeMap<PathBuf, Vec<u8>>;

/// Damages tried on each file in one round; other kinds on the next file.
const DAMAGES: u64 = 2;

/// Damages every file that is no partition's log, one at a time; gives the number of starts.
pub(super) fn starts(options: &Options) -> Result<usize> {
    let mut server = options.clone().set("metadata.log.max.record.bytes.between.snapshots", "2000").start()?;
    super::fill(&server)?;
    server.stop()?;
    let sound = server.data_dir();
    let (mut tried, mut failures) = (0, Vec::new());
    let before = contents(&sound)?;
    for (file, at) in damageable(&sound)?.into_iter().zip(0..) {
        let relative = file.strip_prefix(&sound)?;
        let bytes = fs::read(&file)?;
        for number in (at * 2..).take((DAMAGES * super::rounds()) as usize) {
            let (what, damaged) = super::damage::damage(&bytes, number);
            if is_undetectable(relative, &bytes, &damaged) {
                continue;
            }
            start(options, &before, relative, Some(&damaged))
                .with_context(|| format!("{}, {what}", relative.display()))?;
            tried += 1;
        }
        if may_be_missing(relative) {
            if let Err(error) = start(options, &before, relative, None) {
                failures.push(format!("{} is missing: {error:#}", relative.display()));
            }
            tried += 1;
        }
    }
    if failures.is_empty() { Ok(tried) } else { bail!("{}", failures.join("\n")) }
}

/// Files of the directory, of the metadata log and of one partition; of the partition not the records.
fn damageable(data: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for dir in [data.to_owned(), data.join("__cluster_metadata-0"), data.join(format!("{}-0", super::TOPIC))] {
        files.extend(super::listed(&dir)?.into_iter().filter(|path| path.is_file()));
    }
    let is_log = |path: &Path| super::has_suffix(path, "log") && !path.to_string_lossy().contains("__cluster_metadata");
    files.retain(|path| !is_log(path) && !path.ends_with(".lock"));
    Ok(files)
}

/// A metadata log that ends early is what an interrupted write leaves, whatever ended there before; and a topic's id is as good as another.
fn is_undetectable(file: &Path, sound: &[u8], damaged: &[u8]) -> bool {
    if file.ends_with("partition.metadata") && !file.starts_with("__cluster_metadata-0") {
        let text = String::from_utf8_lossy(damaged);
        return text.len() == sound.len() && text.starts_with("version: 0\ntopic_id: ");
    }
    let first = sound.iter().zip(damaged).position(|(a, b)| a != b).unwrap_or(damaged.len().min(sound.len()));
    let is_same_behind =
        damaged.len() >= sound.len() && damaged[sound.len() / 2..sound.len()] == sound[sound.len() / 2..];
    super::has_suffix(file, "log") && first < sound.len() && !is_same_behind
}

/// Without its snapshots a log that was stopped in order has no producers; a directory is formatted or not; and a metadata log can't tell that
/// there was more.
fn may_be_missing(file: &Path) -> bool {
    let kinds = ["log", "snapshot", "checkpoint", "properties"];
    let is_kind = kinds.iter().any(|kind| super::has_suffix(file, kind));
    !is_kind || file.parent() == Some(Path::new("")) && super::has_suffix(file, "checkpoint")
}

/// Starts on these files, one of them changed or removed.
fn start(options: &Options, sound: &Contents, file: &Path, bytes: Option<&[u8]>) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("milena-broken-").tempdir()?;
    let data = dir.path().join("data");
    let mut files = sound.clone();
    match bytes {
        Some(bytes) => files.insert(file.to_owned(), bytes.to_owned()),
        None => files.remove(file),
    };
    for (path, bytes) in &files {
        let path = data.join(path);
        fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
        fs::write(path, bytes)?;
    }
    let outcome = match options.clone().dir(dir.path()).start() {
        Ok(server) => super::verify(&mut server.client()?).context("it serves"),
        Err(error) => refused(&format!("{error:#}"), file).and_then(|()| unchanged(file, &files, &contents(&data)?)),
    };
    if outcome.is_err() {
        eprintln!("the folder is {}", dir.keep().display());
    }
    outcome
}

/// The start ended with an error that names the file.
fn refused(error: &str, file: &Path) -> Result<()> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let is_told = error.contains("exit status: 1") && error.contains(&*name) && !error.contains("panicked");
    if is_told { Ok(()) } else { bail!("the start fails without naming the file: {error}") }
}

fn unchanged(file: &Path, before: &Contents, after: &Contents) -> Result<()> {
    // A start that has come to the partitions has registered its broker, and has taken the mark of the clean stop, so that the next one looks
    // closer. Indexes say nothing that the log does not say; each start makes those of the metadata log anew.
    let partition = format!("{}-0", super::TOPIC);
    let matters = |path: &&PathBuf| {
        let is_index = super::has_suffix(path, "index") || super::has_suffix(path, "timeindex");
        let is_beyond = file.starts_with(&partition) && !path.starts_with(&partition);
        !is_index && !is_beyond && !path.ends_with(".lock")
    };
    for path in before.keys().chain(after.keys()).filter(matters) {
        if before.get(path) != after.get(path) {
            bail!("the failed start has changed {}", path.display());
        }
    }
    Ok(())
}

/// Every file below a directory.
fn contents(dir: &Path) -> Result<Contents> {
    let (mut all, mut dirs) = (Contents::new(), vec![dir.to_owned()]);
    while let Some(next) = dirs.pop() {
        for path in super::listed(&next)? {
            if path.is_dir() {
                dirs.push(path);
            } else {
                all.insert(path.strip_prefix(dir)?.to_owned(), fs::read(&path)?);
            }
        }
    }
    Ok(all)
}
