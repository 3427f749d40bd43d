//! Removal of the segments that are due. When it happens is `maintenance`'s business, which segments are due is the log's.

use std::sync::Arc;

use milena_log::{Due, Log, LogError, LogView};

use crate::partition::Partition;
use crate::storage::Storage;

/// Takes the oldest segments that are due out of a partition's log; their files go after `file.delete.delay.ms`.
///
/// The lock is held to begin and to rename; files are looked into, and what must be durable before is synced, without it.
///
/// # Errors
/// When the disk fails. What was removed until then stays removed.
pub fn delete_old_segments(partition: &Arc<Partition>, storage: &Storage) -> Result<Due, LogError> {
    let now_ms = storage.now_ms();
    if partition.is_retired() || partition.log().is_poisoned() {
        return Ok(Due::default());
    }
    let due = |view: &LogView| view.due_segments(partition.high_watermark(), now_ms);
    let (due, mut log) = partition.look(Log::view_of_all, due);
    let due = due?;
    if due.count() == 0 || partition.is_retired() {
        return Ok(Due::default());
    }
    if due.count() == log.segment_base_offsets().count() {
        log.roll(now_ms)?;
    }
    let removal = log.begin_removal(due.count())?;
    drop(log);
    removal.sync()?;
    let mut deleted = Vec::new();
    let removed = partition.change_log_start(|log| log.remove_segments(removal, &mut deleted));
    partition.flush_finished_soon();
    storage.remove_later(deleted, partition.settings().file_delete_delay_ms);
    let (below_start, by_size, by_age, log_start) =
        (due.below_start, due.by_size, due.by_age, partition.log_start_offset());
    tracing::info!(%partition, below_start, by_size, by_age, log_start, "old segments are deleted");
    match removed {
        // Deleted meanwhile, as a whole.
        Err(_) if partition.is_retired() => Ok(Due::default()),
        removed => removed.map(|()| due),
    }
}

/// [`delete_old_segments`] for who can only tell of a failure.
pub fn delete_old_segments_or_tell(partition: &Arc<Partition>, storage: &Storage) {
    if let Err(error) = delete_old_segments(partition, storage) {
        tracing::error!(%partition, %error, "old segments can't be deleted");
        partition.note_error(&error);
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use milena_config::{BrokerConfig, Settings};
    use milena_io::{Disk, SimClock, SimDisk};
    use milena_metadata::Image;
    use milena_records::BatchBuilder;

    use super::*;
    use crate::partition::TopicIdentity;
    use crate::settings::PartitionSettings;
    use crate::storage::New;
    use crate::test_image::id;

    const DAY: Duration = Duration::from_hours(24);

    /// A log directory with the partition `t-0`, which has a record of the first day in each of three segments.
    struct World {
        disk: SimDisk,
        clock: Arc<SimClock>,
        storage: Storage,
        partition: Arc<Partition>,
    }

    impl World {
        fn new(overrides: &[(&str, &str)]) -> Self {
            let disk = SimDisk::new(1);
            let clock = Arc::new(SimClock::new(1000));
            let directories = vec![(PathBuf::from("/data"), Ok(id(9)))];
            let storage =
                Storage::lock(Arc::new(disk.clone()), clock.clone(), directories, Path::new("/data")).unwrap();
            let mut settings = Settings::new();
            for (name, value) in overrides {
                settings.override_flag(&format!("{name}={value}")).unwrap();
            }
            let config = BrokerConfig::load(&settings).unwrap();
            let settings = PartitionSettings::of_topic(&config, &Image::default(), "t");
            let topic = Arc::new(TopicIdentity { name: "t".into(), id: id(1) });
            let new = New { topic: &topic, index: 0, leader_epoch: 0, settings: &settings, directory: id(9) };
            let partition = Arc::new(storage.create(&new).unwrap());
            for _ in 0..3 {
                partition.log().roll(1000).unwrap();
                let mut builder = BatchBuilder::new();
                builder.push(1000, None, Some(b"value"), &[]);
                partition.append_as_leader(&mut [&mut builder.build().unwrap()], &[], 1000).unwrap();
            }
            Self { disk, clock, storage, partition }
        }

        fn deleted(&self) -> usize {
            let names = self.disk.list(Path::new("/data/t-0")).unwrap();
            names.iter().filter(|entry| entry.name.ends_with(".deleted")).count()
        }

        fn run(&self) -> Due {
            delete_old_segments(&self.partition, &self.storage).unwrap()
        }
    }

    #[test]
    fn the_last_segment_is_rolled_when_it_must_go_too_and_the_files_go_after_the_delay() {
        let world = World::new(&[("log.retention.ms", "60000"), ("log.segment.delete.delay.ms", "5000")]);
        assert_eq!(world.run().count(), 0);
        world.clock.advance(DAY);
        assert_eq!(world.run(), Due { by_age: 3, ..Due::default() });
        assert_eq!((world.partition.log_start_offset(), world.partition.high_watermark()), (3, 3));
        assert_eq!(world.partition.log().segment_base_offsets().collect::<Vec<_>>(), [3]);
        assert_eq!(world.deleted(), 3 * 3 + 2);
        world.clock.advance(Duration::from_millis(4999));
        world.storage.delete_due();
        assert_eq!(world.deleted(), 3 * 3 + 2);
        world.clock.advance(Duration::from_millis(1));
        world.storage.delete_due();
        assert_eq!(world.deleted(), 0);
    }

    #[test]
    fn the_limits_of_the_broker_are_those_of_its_topics_and_the_policy_decides() {
        let gone = |settings: &[(&str, &str)]| {
            let world = World::new(settings);
            world.clock.advance(DAY);
            world.run().count()
        };
        assert_eq!(gone(&[]), 0, "a week is the default");
        assert_eq!(gone(&[("log.retention.hours", "23")]), 3);
        assert_eq!(gone(&[("log.retention.hours", "23"), ("log.retention.minutes", "1441")]), 0);
        assert_eq!(gone(&[("log.retention.minutes", "1441"), ("log.retention.ms", "1")]), 3);
        assert_eq!(gone(&[("log.retention.ms", "-1")]), 0);
        assert_eq!(gone(&[("log.retention.bytes", "100")]), 1);
        for policy in ["compact", ""] {
            assert_eq!(gone(&[("log.retention.ms", "1"), ("log.cleanup.policy", policy)]), 0, "{policy:?}");
        }
        assert_eq!(gone(&[("log.retention.ms", "1"), ("log.cleanup.policy", "compact,delete")]), 3);
    }

    #[test]
    fn the_files_of_a_partition_that_is_deleted_meanwhile_go_with_it() {
        let world = World::new(&[("log.retention.ms", "60000")]);
        world.clock.advance(DAY);
        assert_eq!(world.run().count(), 3);
        world.partition.retire();
        world.storage.delete_later(&world.partition);
        assert_eq!(world.run().count(), 0);
        world.clock.advance(DAY);
        world.storage.delete_due();
        assert!(world.disk.list(Path::new("/data")).unwrap().iter().all(|entry| !entry.is_dir));
    }
}
