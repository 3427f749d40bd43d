//! The log directories at start: which cluster and node they belong to, and whether they may be used together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_io::{Disk, Rng};
use milena_log::{LogDirectory, LogError, MetaProperties};
use milena_protocol::Uuid;

/// Name of the file that makes a directory formatted.
pub(crate) const FILE_NAME: &str = "meta.properties";

/// Formatted log directories of one node.
#[derive(Debug)]
pub struct Directories {
    /// Id of the cluster.
    pub cluster_id: String,
    /// Each directory that can be used with its id, in the order they were given.
    pub ids: Vec<(PathBuf, Uuid)>,
    /// Those that can't be used because their file can't be read, and why.
    pub failed: Vec<(PathBuf, LogError)>,
}

/// Directories a node must not start with. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// None is formatted.
    #[error(
        "No readable meta.properties files found in {} (have you run `milena storage format` to format the directory?)",
        dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoneFormatted {
        /// The directories.
        dirs: Vec<PathBuf>,
    },
    /// One of several is not formatted.
    #[error("No `{FILE_NAME}` found in {} (have you run `milena storage format` to format the directory?)", dir.display())]
    NotFormatted {
        /// The directory.
        dir: PathBuf,
    },
    /// A file cannot be read, written, or understood.
    #[error(transparent)]
    Unusable(#[from] LogError),
    /// A directory's id is none.
    #[error("Invalid directory.id {text} found in {}", dir.display())]
    DirectoryId {
        /// The directory.
        dir: PathBuf,
        /// What stands there.
        text: String,
    },
    /// A file of the format before KRaft, which names nothing that must be there; also what is left of a damaged one.
    #[error(
        "{} has no version 1: it is from a cluster before KRaft, or damaged; restore the file, or format an empty directory",
        dir.join(FILE_NAME).display()
    )]
    NotKRaft {
        /// The directory.
        dir: PathBuf,
    },
    /// Directories of different clusters.
    #[error("Invalid cluster.id in: {}. Expected {expected}, but read {found}", dir.join(FILE_NAME).display())]
    ClusterId {
        /// The directory.
        dir: PathBuf,
        /// The cluster id of the directories before it.
        expected: String,
        /// What it says.
        found: String,
    },
    /// The directory belongs to another node.
    #[error(
        "Stored node id {stored} doesn't match previous node id {configured} in {}. If you moved your data, make sure your \
         configured node id matches. If you intend to create a new node, you should remove all data in your data \
         directories.", dir.join(FILE_NAME).display()
    )]
    NodeId {
        /// The directory.
        dir: PathBuf,
        /// The node id it says.
        stored: i32,
        /// The configured node id.
        configured: i32,
    },
    /// Two directories have one id: one is a copy of the other.
    #[error("Found duplicate directory.id {id} in {} and {}", first.display(), second.display())]
    DuplicateId {
        /// The id.
        id: Uuid,
        /// One directory.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// The id stands for something else than a directory.
    #[error("Invalid reserved directory ID {id} found in {}", dir.display())]
    ReservedId {
        /// The directory.
        dir: PathBuf,
        /// The id.
        id: Uuid,
    },
    /// A directory is named twice.
    #[error("{} is named more than once in the configuration", dir.display())]
    NamedTwice {
        /// The directory.
        dir: PathBuf,
    },
}

impl Directories {
    /// Reads `meta.properties` of every directory and checks them against each other and the configured node id. A
    /// directory without an id, from before directories had one, gets one. One whose file can't be read or understood is
    /// left out if it is not `metadata_dir`, as Kafka does; one without the file is not.
    ///
    /// # Errors
    /// [`DirectoryError`]; then nothing was changed, except that ids may have been given.
    pub fn load(
        disk: &Arc<dyn Disk>,
        dirs: &[PathBuf],
        metadata_dir: &Path,
        node_id: i32,
        rng: &mut dyn Rng,
        now_ms: i64,
    ) -> Result<Self, DirectoryError> {
        let mut found = Found::read(disk, dirs)?;
        if let Some(at) = found.failed.iter().position(|(dir, _)| dir == metadata_dir) {
            return Err(found.failed.swap_remove(at).1.into());
        }
        if found.formatted.is_empty() {
            return Err(DirectoryError::NoneFormatted { dirs: dirs.to_vec() });
        }
        if let Some(dir) = found.empty.first() {
            return Err(DirectoryError::NotFormatted { dir: dir.clone() });
        }
        if let Some((dir, _)) = found.formatted.iter().find(|(_, properties)| properties.version == 0) {
            return Err(DirectoryError::NotKRaft { dir: dir.clone() });
        }
        let cluster_id = found.verify(None, node_id)?.unwrap_or_default();
        let failed = std::mem::take(&mut found.failed);
        let mut ids: Vec<(PathBuf, Uuid)> = Vec::new();
        let mut unnamed = Vec::new();
        for (dir, properties) in found.formatted {
            match directory_id(&dir, &properties)? {
                Some(id) => ids.push((dir, id)),
                None => unnamed.push((dir, properties)),
            }
        }
        for (dir, properties) in unnamed {
            let id = Uuid::random(|bytes| rng.fill(bytes));
            let properties = MetaProperties { directory_id: Some(id.to_string()), ..properties };
            LogDirectory::unlocked(disk.clone(), &dir).write_meta_properties(&properties, now_ms)?;
            ids.push((dir, id));
        }
        ids.sort_by_key(|(dir, _)| dirs.iter().position(|d| d == dir));
        Ok(Self { cluster_id, ids, failed })
    }

    /// The id of a directory.
    pub fn id(&self, dir: &Path) -> Option<Uuid> {
        self.ids.iter().find(|(d, _)| d == dir).map(|(_, id)| *id)
    }
}

/// What was found in the directories.
pub(crate) struct Found {
    pub(crate) formatted: Vec<(PathBuf, MetaProperties)>,
    /// Missing directories, and those without the file.
    pub(crate) empty: Vec<PathBuf>,
    /// Directories whose file can't be read or understood.
    pub(crate) failed: Vec<(PathBuf, LogError)>,
}

impl Found {
    pub(crate) fn read(disk: &Arc<dyn Disk>, dirs: &[PathBuf]) -> Result<Self, DirectoryError> {
        let mut found = Self { formatted: Vec::new(), empty: Vec::new(), failed: Vec::new() };
        for (index, dir) in dirs.iter().enumerate() {
            if dirs[..index].contains(dir) {
                return Err(DirectoryError::NamedTwice { dir: dir.clone() });
            }
            match LogDirectory::unlocked(disk.clone(), dir).meta_properties() {
                Ok(None) => found.empty.push(dir.clone()),
                Ok(Some(properties)) => found.formatted.push((dir.clone(), properties)),
                Err(error) => found.failed.push((dir.clone(), error)),
            }
        }
        Ok(found)
    }

    /// Checks the formatted directories; returns their cluster id.
    pub(crate) fn verify(&self, cluster_id: Option<&str>, node_id: i32) -> Result<Option<String>, DirectoryError> {
        let mut expected = cluster_id.map(str::to_owned);
        for (index, (dir, properties)) in self.formatted.iter().enumerate() {
            if let Some(found) = &properties.cluster_id {
                let expected = expected.get_or_insert_with(|| found.clone());
                if expected != found {
                    let (expected, found) = (expected.clone(), found.clone());
                    return Err(DirectoryError::ClusterId { dir: dir.clone(), expected, found });
                }
            }
            if let Some(stored) = properties.node_id.filter(|stored| *stored != node_id) {
                return Err(DirectoryError::NodeId { dir: dir.clone(), stored, configured: node_id });
            }
            let Some(id) = directory_id(dir, properties)? else { continue };
            if id.is_reserved() {
                return Err(DirectoryError::ReservedId { dir: dir.clone(), id });
            }
            let text = Some(id.to_string());
            if let Some((first, _)) = self.formatted[..index].iter().find(|(_, p)| p.directory_id == text) {
                return Err(DirectoryError::DuplicateId { id, first: first.clone(), second: dir.clone() });
            }
        }
        Ok(expected)
    }
}

/// The id a directory's file gives it.
fn directory_id(dir: &Path, properties: &MetaProperties) -> Result<Option<Uuid>, DirectoryError> {
    let Some(text) = &properties.directory_id else { return Ok(None) };
    let bad = |_| DirectoryError::DirectoryId { dir: dir.to_owned(), text: text.clone() };
    text.parse().map(Some).map_err(bad)
}
