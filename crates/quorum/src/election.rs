//! Which leader and which in-sync set a partition gets when a broker goes or comes. Pure: partition in, change record out.

use milena_metadata::{LeaderRecoveryState, MetadataVersion, NO_LEADER, NO_LEADER_CHANGE, Partition};
use milena_protocol::Uuid;
use milena_protocol::messages::PartitionChangeRecord;

/// What an election knows about the cluster and the topic.
pub(crate) struct Election<'a> {
    pub(crate) version: MetadataVersion,
    pub(crate) elr_enabled: bool,
    /// The topic's `min.insync.replicas`, at most its replication factor.
    pub(crate) min_isr: usize,
    /// The topic's `unclean.leader.election.enable`.
    pub(crate) unclean_allowed: bool,
    /// Whether a broker may lead.
    pub(crate) acceptable: &'a dyn Fn(i32) -> bool,
    /// A broker that leaves the in-sync set but keeps its data.
    pub(crate) leaving: Option<i32>,
    /// A broker that may have lost data: it also leaves the eligible leader replicas.
    pub(crate) unclean: Option<i32>,
}

struct Target {
    isr: Vec<i32>,
    elr: Vec<i32>,
    leader: i32,
    /// The leader may lack acknowledged records.
    leader_is_unclean: bool,
}

impl Election<'_> {
    /// The change a partition needs; `None` when it stays as it is.
    pub(crate) fn change(
        &self,
        topic_id: Uuid,
        partition_id: i32,
        partition: &Partition,
    ) -> Option<PartitionChangeRecord<'static>> {
        let target = self.target(partition);
        let mut record = PartitionChangeRecord { partition_id, topic_id, ..Default::default() };
        if target.leader != partition.leader {
            record.leader = target.leader;
        }
        if target.leader_is_unclean && partition.leader_recovery_state != LeaderRecoveryState::Recovering {
            record.leader_recovery_state = LeaderRecoveryState::Recovering.value();
        }
        // Without eligible leader replicas the last member of an in-sync set stays in it.
        if target.isr != partition.isr && (self.elr_enabled || !target.isr.is_empty()) {
            let shrinks = partition.isr.iter().any(|id| !target.isr.contains(id));
            if shrinks && self.version.bumps_leader_epoch_on_isr_shrink() && record.leader == NO_LEADER_CHANGE {
                record.leader = partition.leader;
            }
            record.isr = Some(target.isr.into());
        }
        if target.elr != partition.eligible_leader_replicas {
            record.eligible_leader_replicas = Some(target.elr.into());
        }
        self.set_last_known_leader(partition, &mut record);
        let unchanged = PartitionChangeRecord { partition_id, topic_id, ..Default::default() };
        (record != unchanged).then_some(record)
    }

    fn target(&self, partition: &Partition) -> Target {
        let gone = |id: &i32| Some(*id) == self.leaving || Some(*id) == self.unclean;
        let isr: Vec<i32> = partition.isr.iter().copied().filter(|id| !gone(id)).collect();
        let mut elr = Vec::new();
        if self.elr_enabled && isr.len() < self.min_isr {
            let before = partition.eligible_leader_replicas.iter().chain(&partition.isr).copied();
            elr = before.filter(|id| !isr.contains(id) && Some(*id) != self.unclean).collect();
            elr.sort_unstable();
            elr.dedup();
        }
        let valid = |id: i32| {
            let in_sync = isr.contains(&id) || (isr.is_empty() && elr.contains(&id));
            in_sync && (self.acceptable)(id)
        };
        let mut target = Target { isr: Vec::new(), elr: Vec::new(), leader: NO_LEADER, leader_is_unclean: false };
        let mut candidates = std::iter::once(partition.leader).chain(partition.replicas.iter().copied());
        if let Some(leader) = candidates.find(|id| valid(*id)) {
            target.leader = leader;
        } else if let Some(leader) = self.unclean_leader(partition, &isr, &elr) {
            return Target { isr: vec![leader], elr: Vec::new(), leader, leader_is_unclean: true };
        }
        // A leader from the eligible replicas is the first member of the new in-sync set.
        if target.leader != partition.leader && elr.contains(&target.leader) {
            target.isr = vec![target.leader];
            target.elr = elr.into_iter().filter(|id| *id != target.leader).collect();
        } else {
            (target.isr, target.elr) = (isr, elr);
        }
        target
    }

    /// A leader that may lack acknowledged records: the last known one if nobody else is known to have them, or any replica
    /// if the topic allows it.
    fn unclean_leader(&self, partition: &Partition, isr: &[i32], elr: &[i32]) -> Option<i32> {
        let acceptable = |id: &i32| (self.acceptable)(*id);
        if let [last] = partition.last_known_elr[..]
            && self.elr_enabled
            && isr.is_empty()
            && elr.is_empty()
            && acceptable(&last)
        {
            return Some(last);
        }
        partition.replicas.iter().copied().find(acceptable).filter(|_| self.unclean_allowed)
    }

    /// Remembers the leader when the in-sync set becomes empty, and forgets it when there is a leader again.
    fn set_last_known_leader(&self, partition: &Partition, record: &mut PartitionChangeRecord<'static>) {
        let known = &partition.last_known_elr;
        if !self.elr_enabled {
            if !known.is_empty() {
                record.last_known_elr = Some(Vec::new().into());
            }
            return;
        }
        let emptied = record.isr.as_deref().is_some_and(<[i32]>::is_empty);
        let leads = record.leader >= 0 || (partition.leader != NO_LEADER && record.leader != NO_LEADER);
        if emptied && known[..] != [partition.leader] {
            record.last_known_elr = Some(vec![partition.leader].into());
        } else if leads && !known.is_empty() {
            record.last_known_elr = Some(Vec::new().into());
        }
    }
}
