//! One partition's state in the metadata log, and how a change record is merged into it.

use milena_protocol::Uuid;
use milena_protocol::messages::{PartitionChangeRecord, PartitionRecord};

use crate::error::ReplayError;

/// The leader of a partition that has none.
pub const NO_LEADER: i32 = -1;
/// The leader in a change record that leaves leader and leader epoch as they are.
pub const NO_LEADER_CHANGE: i32 = -2;

/// Directory id of a replica that has no directory yet.
pub const fn directory_unassigned() -> Uuid {
    reserved(1)
}

/// Directory id of a replica whose directory failed.
pub const fn directory_lost() -> Uuid {
    reserved(2)
}

/// Directory id of a replica from before directories were recorded.
pub const fn directory_migrating() -> Uuid {
    reserved(0)
}

const fn reserved(last: u8) -> Uuid {
    Uuid::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
}

/// Whether a leader's log is known to hold everything that was acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaderRecoveryState {
    /// Elected from the in-sync replicas.
    #[default]
    Recovered,
    /// Elected uncleanly; the leader must recover first.
    Recovering,
}

impl LeaderRecoveryState {
    /// The number in records and requests.
    pub const fn value(self) -> i8 {
        match self {
            Self::Recovered => 0,
            Self::Recovering => 1,
        }
    }

    fn parse(value: i8) -> Result<Self, ReplayError> {
        match value {
            0 => Ok(Self::Recovered),
            1 => Ok(Self::Recovering),
            value => Err(ReplayError::Value { field: "leaderRecoveryState", value: i64::from(value) }),
        }
    }
}

/// One partition of a topic. Replica lists hold broker ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// Assigned brokers; the first one is the preferred leader.
    pub replicas: Vec<i32>,
    /// The log directory of each replica, in the order of `replicas`.
    pub directories: Vec<Uuid>,
    /// In-sync replicas.
    pub isr: Vec<i32>,
    /// Replicas a reassignment is taking away.
    pub removing_replicas: Vec<i32>,
    /// Replicas a reassignment is adding.
    pub adding_replicas: Vec<i32>,
    /// Replicas outside the in-sync set that are known to hold everything acknowledged.
    pub eligible_leader_replicas: Vec<i32>,
    /// The last leaders before both sets became empty.
    pub last_known_elr: Vec<i32>,
    /// Broker id of the leader, or [`NO_LEADER`].
    pub leader: i32,
    /// Whether the leader has to recover.
    pub leader_recovery_state: LeaderRecoveryState,
    /// Goes up with every leader a record names, the same one included.
    pub leader_epoch: i32,
    /// Goes up with every change.
    pub partition_epoch: i32,
}

impl Partition {
    /// The state a partition record describes.
    ///
    /// # Errors
    /// [`ReplayError::DirectoryCount`], or [`ReplayError::Value`] for an unknown recovery state.
    pub(crate) fn from_record(record: &PartitionRecord<'_>) -> Result<Self, ReplayError> {
        let partition = Self {
            replicas: record.replicas.to_vec(),
            directories: or_migrating(&record.directories, record.replicas.len()),
            isr: record.isr.to_vec(),
            removing_replicas: record.removing_replicas.to_vec(),
            adding_replicas: record.adding_replicas.to_vec(),
            eligible_leader_replicas: record.eligible_leader_replicas.as_deref().unwrap_or_default().to_vec(),
            last_known_elr: record.last_known_elr.as_deref().unwrap_or_default().to_vec(),
            leader: record.leader,
            leader_recovery_state: LeaderRecoveryState::parse(record.leader_recovery_state)?,
            leader_epoch: record.leader_epoch,
            partition_epoch: record.partition_epoch,
        };
        partition.check(record.topic_id, record.partition_id)?;
        Ok(partition)
    }

    /// The directory of a broker's replica; `None` when it has none.
    pub fn directory_of(&self, broker: i32) -> Option<Uuid> {
        let at = self.replicas.iter().position(|id| *id == broker)?;
        self.directories.get(at).copied()
    }

    /// The directories with another one for a broker's replica.
    pub fn directories_with(&self, broker: i32, directory: Uuid) -> Vec<Uuid> {
        let pairs = self.replicas.iter().zip(&self.directories);
        pairs.map(|(id, before)| if *id == broker { directory } else { *before }).collect()
    }

    /// Applies a change: absent lists stay, the partition epoch goes up by one, the leader epoch by one if a leader is
    /// named.
    pub(crate) fn merge(&mut self, change: &PartitionChangeRecord<'_>) -> Result<(), ReplayError> {
        fn set(list: &mut Vec<i32>, new: Option<&[i32]>) {
            if let Some(new) = new {
                new.clone_into(list);
            }
        }
        set(&mut self.replicas, change.replicas.as_deref());
        set(&mut self.isr, change.isr.as_deref());
        set(&mut self.removing_replicas, change.removing_replicas.as_deref());
        set(&mut self.adding_replicas, change.adding_replicas.as_deref());
        set(&mut self.eligible_leader_replicas, change.eligible_leader_replicas.as_deref());
        set(&mut self.last_known_elr, change.last_known_elr.as_deref());
        if let Some(directories) = change.directories.as_deref() {
            self.directories = or_migrating(directories, self.replicas.len());
        }
        if change.leader != NO_LEADER_CHANGE {
            self.leader = change.leader;
            self.leader_epoch = self.leader_epoch.wrapping_add(1);
        }
        if change.leader_recovery_state != -1 {
            self.leader_recovery_state = LeaderRecoveryState::parse(change.leader_recovery_state)?;
        }
        self.partition_epoch = self.partition_epoch.wrapping_add(1);
        self.check(change.topic_id, change.partition_id)
    }

    /// Forgets the eligible leader replicas; `false` when there were none and nothing changed.
    pub(crate) fn clear_elr(&mut self) -> bool {
        if self.eligible_leader_replicas.is_empty() && self.last_known_elr.is_empty() {
            return false;
        }
        self.eligible_leader_replicas.clear();
        self.last_known_elr.clear();
        self.partition_epoch = self.partition_epoch.wrapping_add(1);
        true
    }

    fn check(&self, topic_id: Uuid, partition: i32) -> Result<(), ReplayError> {
        if self.directories.len() == self.replicas.len() {
            return Ok(());
        }
        let (replicas, directories) = (self.replicas.len(), self.directories.len());
        Err(ReplayError::DirectoryCount { topic_id, partition, replicas, directories })
    }

    /// The log directory of a replica; `None` when the broker is no replica.
    pub fn directory(&self, broker_id: i32) -> Option<Uuid> {
        let index = self.replicas.iter().position(|r| *r == broker_id)?;
        self.directories.get(index).copied()
    }
}

fn or_migrating(directories: &[Uuid], replicas: usize) -> Vec<Uuid> {
    if directories.is_empty() { vec![directory_migrating(); replicas] } else { directories.to_vec() }
}
