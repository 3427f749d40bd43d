//! Which log directories a broker has, and in which of them its replicas are.

use milena_metadata::{Loaded, NO_LEADER, Partition, VersionedRecord};
use milena_protocol::messages::PartitionChangeRecord;
use milena_protocol::{MetadataRecord, Uuid};

use super::{Elections, Records, TopicDefaults, change_record};
use crate::error::QuorumError;
use crate::metadata_log::MetadataLog;

/// In which directory a replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// Id of the topic.
    pub topic_id: Uuid,
    /// The partition.
    pub partition_id: i32,
    /// Id of the directory.
    pub directory: Uuid,
    /// The replica was not made just now: if the partition has no leader, it may be one.
    pub may_lead: bool,
}

impl MetadataLog {
    /// Log directories of a broker have failed: what is in them has no leader any more, and neither has what the broker has lost with them, by topic
    /// id and partition, wherever the metadata has it. Nothing happens when the broker does not have them.
    ///
    /// # Errors
    /// As [`MetadataLog::append`].
    pub fn fail_directories(
        &mut self,
        id: i32,
        failed: &[Uuid],
        lost: &[(Uuid, i32)],
        defaults: TopicDefaults,
        now_ms: i64,
    ) -> Result<Vec<Loaded>, QuorumError> {
        let image = self.image().clone();
        let Some(broker) = image.cluster().broker(id) else { return Ok(Vec::new()) };
        let (gone, left): (Vec<Uuid>, Vec<Uuid>) = broker.directories.iter().partition(|dir| failed.contains(dir));
        if gone.is_empty() {
            return Ok(Vec::new());
        }
        let mut records = Records::new();
        let elections = Elections { image: &image, defaults, coming: None, leaving: Some(id), unclean: None };
        let is_gone = |p: &Partition| p.directory_of(id).is_some_and(|dir| gone.contains(&dir));
        elections.run(|p| p.isr.contains(&id) && is_gone(p), &mut records);
        for &(topic_id, index) in lost {
            let Some(topic) = image.topics().get_by_id(topic_id) else { continue };
            let Some(partition) = topic.partition(index).filter(|p| p.isr.contains(&id) && !is_gone(p)) else {
                continue;
            };
            if let Some(record) = elections.change(topic, index, partition) {
                let version = image.features().metadata_version().partition_change_record_version();
                records.push(VersionedRecord::new(MetadataRecord::PartitionChange(record), version));
            }
        }
        records.push(change_record(broker, 2, |record| record.log_dirs = left.into()));
        Ok(self.append_split(&records, now_ms)?.loaded)
    }

    /// These directories of a broker take no new replicas. Nothing happens when that is known.
    ///
    /// # Errors
    /// As [`MetadataLog::append`].
    pub fn cordon_directories(&mut self, id: i32, cordoned: &[Uuid], now_ms: i64) -> Result<Vec<Loaded>, QuorumError> {
        let image = self.image().clone();
        let Some(broker) = image.cluster().broker(id) else { return Ok(Vec::new()) };
        let known = broker.cordoned_directories.as_deref() == Some(cordoned);
        if known || !image.features().metadata_version().supports_cordoned_directories() {
            return Ok(Vec::new());
        }
        let record = change_record(broker, 3, |record| record.cordoned_log_dirs = Some(cordoned.to_vec().into()));
        Ok(self.append(&[record], now_ms)?.loaded)
    }

    /// A broker tells in which directory replicas are. One that it has found where the metadata did not have it may lead.
    ///
    /// # Errors
    /// As [`MetadataLog::append`].
    pub fn assign_directories(
        &mut self,
        id: i32,
        assigned: &[Assignment],
        defaults: TopicDefaults,
        now_ms: i64,
    ) -> Result<Vec<Loaded>, QuorumError> {
        let image = self.image().clone();
        let version = image.features().metadata_version();
        if !version.supports_directories() {
            return Ok(Vec::new());
        }
        let elections = Elections { image: &image, defaults, coming: None, leaving: None, unclean: None };
        let mut records = Records::new();
        for &Assignment { topic_id, partition_id, directory, may_lead } in assigned {
            let Some(topic) = image.topics().get_by_id(topic_id) else { continue };
            let Some(partition) = topic.partition(partition_id) else { continue };
            if partition.directory_of(id).is_none_or(|now| now == directory) {
                continue;
            }
            let directories = partition.directories_with(id, directory);
            let placed = Partition { directories: directories.clone(), ..Partition::clone(partition) };
            let elected = match placed.leader {
                NO_LEADER if may_lead => elections.change(topic, partition_id, &placed),
                _ => None,
            };
            let unchanged = || PartitionChangeRecord { topic_id, partition_id, ..Default::default() };
            let record =
                PartitionChangeRecord { directories: Some(directories.into()), ..elected.unwrap_or_else(unchanged) };
            let record = MetadataRecord::PartitionChange(record);
            records.push(VersionedRecord::new(record, version.partition_change_record_version()));
        }
        if records.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.append_split(&records, now_ms)?.loaded)
    }
}
