//! Which log is cleaned next: the one with the largest dirty part, among those that a setting makes due. As Kafka's `LogCleanerManager`.

use std::collections::HashSet;
use std::sync::Arc;

use milena_log::{Cleanable, CleaningLimits, Log, LogError};
use milena_protocol::Uuid;
use parking_lot::Mutex;

use crate::partition::Partition;
use crate::replicas::Replicas;

/// A log that is to be cleaned.
pub(super) struct Chosen {
    pub(super) partition: Arc<Partition>,
    pub(super) cleanable: Cleanable,
}

/// Which logs are being cleaned, and which never will be. Both by topic id and partition.
#[derive(Default)]
pub(super) struct Choices(Mutex<Known>);

#[derive(Default)]
struct Known {
    taken: HashSet<(Uuid, i32)>,
    uncleanable: HashSet<(Uuid, i32)>,
}

fn id(partition: &Partition) -> (Uuid, i32) {
    (partition.topic.id, partition.index)
}

impl Choices {
    /// The filthiest log, which is then nobody else's until it is [released](Self::release).
    pub(super) fn choose(&self, replicas: &Replicas, now_ms: i64) -> Option<Chosen> {
        let topics = replicas.topics();
        let mut known = self.0.lock();
        known
            .uncleanable
            .retain(|(topic, index)| topics.by_id(*topic).is_some_and(|it| it.partition(*index).is_some()));
        let mut filthiest: Option<Chosen> = None;
        for partition in topics.partitions().filter(|partition| partition.settings().log.compact) {
            let id = id(partition);
            let kept = partition.directory().is_offline() || partition.is_moving();
            if kept || known.taken.contains(&id) || known.uncleanable.contains(&id) {
                continue;
            }
            match due(partition, now_ms) {
                Ok(Some(cleanable)) => {
                    if filthiest.as_ref().is_none_or(|it| cleanable.ratio() > it.cleanable.ratio()) {
                        filthiest = Some(Chosen { partition: Arc::clone(partition), cleanable });
                    }
                }
                Ok(None) => {}
                Err(error) if error.is_disk_failure() => partition.note_error(&error),
                Err(error) => {
                    tracing::warn!(%partition, %error, "the log can't be looked at for cleaning; it is left as it is until the next start");
                    known.uncleanable.insert(id);
                }
            }
        }
        known.taken.extend(filthiest.as_ref().map(|it| id(&it.partition)));
        filthiest
    }

    /// Makes a log nobody else's until it is [released](Self::release); false when it is somebody's.
    pub(super) fn take(&self, partition: &Partition) -> bool {
        self.0.lock().taken.insert(id(partition))
    }

    /// The log is anybody's again.
    pub(super) fn release(&self, partition: &Partition) {
        self.0.lock().taken.remove(&id(partition));
    }

    /// The log is not chosen again.
    pub(super) fn set_aside(&self, partition: &Partition) {
        self.0.lock().uncleanable.insert(id(partition));
    }
}

/// What can be cleaned of a log, if it is time for that.
fn due(partition: &Partition, now_ms: i64) -> Result<Option<Cleanable>, LogError> {
    let settings = partition.settings();
    let rules = &settings.compaction;
    let limits = CleaningLimits {
        last_stable_offset: partition.last_stable_offset(),
        min_lag_ms: rules.min_lag_ms,
        max_lag_ms: rules.max_lag_ms,
        now_ms,
    };
    let cleaned_to = partition.cleaned_to();
    let cleanable = partition.look(Log::view_of_all, |view| view.cleanable(cleaned_to, &limits)).0?;
    if cleanable.reset {
        // Nothing to tell of where retention takes the beginning of the log away.
        if !settings.log.delete || cleaned_to > Some(cleanable.first_dirty) {
            let checkpoint = cleaned_to.unwrap_or(-1);
            tracing::warn!(%partition, checkpoint, log_start = cleanable.first_dirty, "what is clean lies outside of the log; all of it counts as dirty");
        }
        partition.set_cleaned_to(Some(cleanable.first_dirty));
    }
    let must = cleanable.delay_ms > 0 && cleanable.cleanable_bytes > 0;
    let dirty = cleanable.ratio() > rules.min_dirty_ratio;
    Ok((must || dirty).then_some(cleanable))
}
