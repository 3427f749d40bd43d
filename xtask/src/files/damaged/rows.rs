//! The table of damages, `data/damage.tsv`: a file, what is done to it, how the server before ended, and what either server makes of it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Bytes that a file of zeros has at least.
const LEAST: usize = 20;
/// Begins a damage: the file is there, with the bytes of the one beside it that is named.
const LIKE: &str = "like ";
/// The directory of a partition in the column of files.
const PARTITION: &str = "T/";
/// The directory of the metadata log.
const METADATA: (&str, &str) = ("M/", "__cluster_metadata-0/");
/// Stands for the newest snapshot of the metadata.
const NEWEST: &str = "newest.checkpoint";

/// How the server before ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// In order.
    Stop,
    /// Without the mark of a clean stop.
    Kill,
    /// Without that and without recovery points: every log is read from its beginning.
    Scan,
}

impl After {
    pub(super) const ALL: [(Self, &str); 3] = [(Self::Stop, "stop"), (Self::Kill, "kill"), (Self::Scan, "scan")];
}

/// A row without its outcomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// `T/` stands for a partition's directory, `M/` for that of the metadata log.
    pub(super) file: String,
    pub(super) damage: String,
    pub(super) after: After,
}

/// What is known of a row.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) row: Row,
    pub(super) kafka: String,
    pub(super) milena: String,
    /// Why they differ.
    pub(super) reason: String,
}

/// The table's rows in their order.
pub(super) fn all(table: &str) -> Result<Vec<Known>> {
    let rows = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|line| known(line).with_context(|| line.to_owned())).collect()
}

fn known(line: &str) -> Result<Known> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [file, damage, after, kafka, milena, reason] = columns[..] else { bail!("{} columns", columns.len()) };
    let after = After::ALL.iter().find(|(_, name)| *name == after).context("how the server ended")?.0;
    let row = Row { file: file.to_owned(), damage: damage.to_owned(), after };
    let milena = if milena == "=" { kafka } else { milena };
    Ok(Known { row, kafka: kafka.to_owned(), milena: milena.to_owned(), reason: reason.to_owned() })
}

impl Known {
    /// The row as the table has it.
    pub(super) fn line(&self) -> String {
        let Row { file, damage, after } = &self.row;
        let after = After::ALL.iter().find(|(known, _)| known == after).map_or("", |(_, name)| name);
        let milena = if self.milena == self.kafka { "=" } else { &self.milena };
        [file, damage, after, &self.kafka, milena, &self.reason].join("\t")
    }
}

impl Row {
    /// The damage is in one partition, so that others beside it have theirs.
    pub(super) fn is_of_a_partition(&self) -> bool {
        self.file.starts_with(PARTITION)
    }

    /// The file's name.
    pub(super) fn name(&self) -> &str {
        self.file.rsplit('/').next().unwrap_or(&self.file)
    }

    /// Damages the file, that of the partition `topic`-0 if it is a partition's.
    pub(super) fn apply(&self, data: &Path, topic: &str) -> Result<()> {
        let path = self.path(data, topic)?;
        let sound = fs::read(&path).unwrap_or_default();
        if path.exists() {
            fs::remove_file(&path)?;
        }
        let dir = path.parent().context("a directory")?;
        let bytes = match self.damage.strip_prefix(LIKE) {
            Some(other) => Some(fs::read(dir.join(other)).with_context(|| other.to_owned())?),
            None => damaged(&self.damage, sound)?,
        };
        if let Some(bytes) = bytes {
            // What one process leaves to the next one may be a directory of its own.
            fs::create_dir_all(dir)?;
            fs::write(&path, bytes)?;
        }
        Ok(())
    }

    fn path(&self, data: &Path, topic: &str) -> Result<PathBuf> {
        if let Some(name) = self.file.strip_prefix(PARTITION) {
            return Ok(data.join(format!("{topic}-0")).join(name));
        }
        let Some(name) = self.file.strip_prefix(METADATA.0) else { return Ok(data.join(&self.file)) };
        let dir = data.join(METADATA.1);
        if name != NEWEST {
            return Ok(dir.join(name));
        }
        let snapshots = super::super::listed(&dir)?;
        snapshots.into_iter().rfind(|file| super::super::has_suffix(file, "checkpoint")).context("a snapshot")
    }
}

/// What is left of a file; `None` for nothing at all.
fn damaged(damage: &str, mut bytes: Vec<u8>) -> Result<Option<Vec<u8>>> {
    match damage {
        "missing" => return Ok(None),
        "empty" => bytes.clear(),
        "zeros" => bytes = vec![0; bytes.len().max(LEAST)],
        "half" => bytes.truncate(bytes.len() / 2),
        "tail" => bytes.extend([0x55; 100]),
        _ => match damage.split_once(' ').map(|(what, at)| (what, at.parse::<usize>())) {
            Some(("cut", Ok(at))) => bytes.truncate(at),
            Some(("flip", Ok(at))) => {
                let last = bytes.len().saturating_sub(1);
                if let Some(byte) = bytes.get_mut(at.min(last)) {
                    *byte ^= 1;
                }
            }
            _ => bail!("no damage is called {damage}"),
        },
    }
    Ok(Some(bytes))
}
