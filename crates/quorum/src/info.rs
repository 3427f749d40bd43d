//! `storage info`: what is in the log directories.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use milena_io::Disk;
use milena_log::{LogDirectory, MetaProperties};

use crate::directories::FILE_NAME;

/// What was found. Its text is what Kafka prints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// The directories that exist, ascending.
    pub dirs: Vec<PathBuf>,
    /// The first file found.
    pub metadata: Option<MetaProperties>,
    /// What is wrong; the command fails if there is anything.
    pub problems: Vec<String>,
}

/// Looks into the log directories. Changes nothing.
pub fn info(disk: &Arc<dyn Disk>, dirs: &[PathBuf]) -> Info {
    let mut sorted = dirs.to_vec();
    sorted.sort();
    let mut info = Info::default();
    for dir in sorted {
        let shown = dir.display().to_string();
        match disk.metadata(&dir) {
            Ok(None) => info.problems.push(format!("{shown} does not exist")),
            Ok(Some(metadata)) if !metadata.is_dir => info.problems.push(format!("{shown} is not a directory")),
            Err(error) => info.problems.push(format!("{shown} cannot be read: {error}")),
            Ok(Some(_)) => {
                match LogDirectory::unlocked(disk.clone(), &dir).meta_properties() {
                    Ok(None) => info.problems.push(format!("{shown} is not formatted.")),
                    Ok(Some(properties)) => info.add(properties),
                    Err(error) => info.problems.push(format!("Error loading {shown}/{FILE_NAME}: {error}")),
                }
                info.dirs.push(dir);
            }
        }
    }
    if info.metadata.as_ref().is_some_and(|m| m.version == 0) {
        let problem = "The kafka configuration file appears to be for a cluster in KRaft mode, but the directories are \
                       formatted for legacy mode.";
        info.problems.push(problem.to_owned());
    }
    info
}

impl Info {
    fn add(&mut self, properties: MetaProperties) {
        let Some(first) = &self.metadata else {
            self.metadata = Some(properties);
            return;
        };
        if first.cluster_id != properties.cluster_id {
            self.problems.push("Mismatched cluster IDs between storage directories.".to_owned());
        } else if first.node_id != properties.node_id {
            self.problems.push("Mismatched node IDs between storage directories.".to_owned());
        }
    }
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dirs.is_empty() && self.problems.is_empty() {
            return writeln!(f, "No directories specified.");
        }
        if !self.dirs.is_empty() {
            writeln!(f, "Found log director{}:", if self.dirs.len() == 1 { "y" } else { "ies" })?;
            self.dirs.iter().try_for_each(|dir| writeln!(f, "  {}", dir.display()))?;
            writeln!(f)?;
        }
        if let Some(metadata) = &self.metadata {
            let mut entries = BTreeMap::from([("version", metadata.version.to_string())]);
            entries.extend(metadata.cluster_id.clone().map(|id| ("cluster.id", id)));
            let id_name = if metadata.version == 0 { "broker.id" } else { "node.id" };
            entries.extend(metadata.node_id.map(|id| (id_name, id.to_string())));
            entries.extend(metadata.directory_id.clone().map(|id| ("directory.id", id)));
            let entries: Vec<String> = entries.iter().map(|(name, value)| format!("{name}={value}")).collect();
            writeln!(f, "Found metadata: {{{}}}\n", entries.join(", "))?;
        }
        if !self.problems.is_empty() {
            writeln!(f, "Found problem{}:", if self.problems.len() == 1 { "" } else { "s" })?;
            self.problems.iter().try_for_each(|problem| writeln!(f, "  {problem}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}
