//! Writing the checkpoints of all directories, and keeping deleted topics out of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use milena_log::{Checkpoint, LogError, Offsets};
use milena_protocol::Uuid;

use super::open::Job;
use super::{Directory, Storage};
use crate::replicas::Replicas;

/// The topics that each file, in the order of [`Checkpoint::ALL`], has lines of; `None` while that is not known.
#[derive(Default)]
pub(super) struct Checkpointed([Option<HashSet<Uuid>>; Checkpoint::ALL.len()]);

/// What a directory's checkpoints said at the start, in the same order; `None` for one that can't be read.
pub(super) struct Lines([Option<Offsets>; Checkpoint::ALL.len()]);

impl Lines {
    /// Those of a directory; without content when it does not work.
    pub(super) fn read(directory: &Directory) -> Self {
        if directory.is_offline() {
            return Self(Checkpoint::ALL.map(|_| Some(Offsets::default())));
        }
        Self(Checkpoint::ALL.map(|which| {
            let read = directory.files.read_checkpoint(which);
            read.inspect_err(|error| {
                tracing::warn!(%error, "a checkpoint can't be read; it counts as empty and is written anew");
            })
            .ok()
        }))
    }

    /// The offset of a partition.
    pub(super) fn get(&self, which: Checkpoint, topic: &str, index: i32) -> Option<i64> {
        let at = Checkpoint::ALL.iter().position(|&known| known == which)?;
        self.0[at].as_ref()?.get(topic, index)
    }
}

impl Storage {
    /// Takes note of which topics the checkpoints of each directory have lines of, after the partitions that are wanted
    /// have been found. A file with a line for something else, or that can't be read, counts as not known.
    pub(super) fn learn_checkpointed(&self, lines: &[Lines], jobs: &[Job]) {
        let mut here: HashMap<(usize, &str, i32), Uuid> = HashMap::new();
        for Job { wanted, place, .. } in jobs {
            if let Some(place) = place {
                here.insert((place.directory, &wanted.topic.name, wanted.index), wanted.topic.id);
            }
        }
        let mut checkpointed = self.checkpointed.lock();
        for (which, known) in checkpointed.0.iter_mut().enumerate() {
            let ids = lines.iter().enumerate().map(|(at, lines)| {
                let lines = lines.0[which].as_ref()?.iter();
                lines.map(|(topic, index, _)| here.get(&(at, topic, index)).copied()).collect::<Option<Vec<_>>>()
            });
            *known = ids.collect::<Option<Vec<_>>>().map(|ids| ids.into_iter().flatten().collect());
        }
    }

    /// Writes one kind of checkpoint in every directory, from the partitions as they are when it begins.
    ///
    /// # Errors
    /// The first failure; the other directories are written all the same.
    pub fn checkpoint(&self, replicas: &Replicas, which: Checkpoint) -> Result<(), LogError> {
        // Held to the end: a writer that looked at the partitions earlier must not write later.
        let mut checkpointed = self.checkpointed.lock();
        let mut ids = HashSet::new();
        let mut offsets: Vec<Offsets> = self.directories.iter().map(|_| Offsets::default()).collect();
        for partition in replicas.topics().partitions() {
            for (directory, offset) in partition.checkpointed(which).into_iter().flatten() {
                offsets[directory.index()].insert(&partition.topic.name, partition.index, offset);
                ids.insert(partition.topic.id);
            }
        }
        let online = self.directories.iter().zip(&offsets).filter(|(directory, _)| !directory.is_offline());
        let write = |(directory, offsets): (&Arc<Directory>, &Offsets)| {
            let written = directory.files.write_checkpoint(which, offsets);
            written.inspect_err(|error| directory.note_error(error))
        };
        let results: Vec<_> = online.map(write).collect();
        let result: Result<(), LogError> = results.into_iter().collect();
        if let Some(at) = Checkpoint::ALL.iter().position(|&known| known == which) {
            checkpointed.0[at] = result.is_ok().then_some(ids);
        }
        result
    }

    /// Takes the lines of topics that are not here any more out of the checkpoints. Nothing is written where there are
    /// none; a file whose content is not known is written anew. What fails is tried again by the next call.
    pub fn forget_deleted(&self, replicas: &Replicas) {
        for (at, which) in Checkpoint::ALL.into_iter().enumerate() {
            let stale = {
                let (checkpointed, topics) = (self.checkpointed.lock(), replicas.topics());
                let mut ids = checkpointed.0[at].iter().flatten();
                checkpointed.0[at].is_none() || ids.any(|id| topics.by_id(*id).is_none())
            };
            if stale && let Err(error) = self.checkpoint(replicas, which) {
                tracing::error!(file = which.file_name(), %error, "a checkpoint can't be written");
            }
        }
    }
}
