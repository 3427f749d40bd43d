//! Control records: what kind of record a control batch holds is in its key. The values are messages of the protocol, except the
//! transaction marker's, which is here.

use crate::{Batch, BatchBuilder, Compression};

/// Kind of a control record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ControlType {
    /// The transaction was aborted.
    Abort,
    /// The transaction was committed.
    Commit,
    /// A quorum has a new leader.
    LeaderChange,
    /// First record of a metadata snapshot.
    SnapshotHeader,
    /// Last record of a metadata snapshot.
    SnapshotFooter,
    /// Level of the quorum's own feature.
    KRaftVersion,
    /// The quorum's voters.
    KRaftVoters,
}

impl ControlType {
    const ALL: [ControlType; 7] = [
        ControlType::Abort,
        ControlType::Commit,
        ControlType::LeaderChange,
        ControlType::SnapshotHeader,
        ControlType::SnapshotFooter,
        ControlType::KRaftVersion,
        ControlType::KRaftVoters,
    ];

    /// The key's second field.
    pub fn id(self) -> i16 {
        self as i16
    }

    /// The key: version 0 and the id, both int16.
    pub fn key(self) -> [u8; 4] {
        let id = self.id().to_be_bytes();
        [0, 0, id[0], id[1]]
    }

    /// The kind of a control record's key, in whatever version; `None` for kinds that are not known and for other keys.
    pub fn from_key(key: &[u8]) -> Option<ControlType> {
        let &[version_high, version_low, id_high, id_low, ..] = key else { return None };
        if i16::from_be_bytes([version_high, version_low]) < 0 {
            return None;
        }
        let id = usize::try_from(i16::from_be_bytes([id_high, id_low])).ok()?;
        Self::ALL.get(id).copied()
    }
}

/// The end of a transaction, as the control record that marks it in each partition says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EndTransaction {
    /// Committed; otherwise aborted.
    pub committed: bool,
    /// Epoch of the coordinator that decided it.
    pub coordinator_epoch: i32,
}

impl EndTransaction {
    /// What a control batch says; `None` when it is no transaction marker, or compaction has taken its record.
    pub fn of(batch: &Batch<'_>) -> Option<EndTransaction> {
        if !batch.is_control() || batch.compression() != Some(Compression::None) {
            return None;
        }
        let record = batch.plain_records().ok()?.next()?.ok()?;
        let committed = match ControlType::from_key(record.key?)? {
            ControlType::Commit => true,
            ControlType::Abort => false,
            _ => return None,
        };
        Some(EndTransaction { committed, coordinator_epoch: coordinator_epoch(record.value?)? })
    }

    /// Kind of the record.
    pub fn kind(self) -> ControlType {
        if self.committed { ControlType::Commit } else { ControlType::Abort }
    }

    /// A builder that holds the marker of a producer's transaction; `timestamp` in ms since 1970.
    pub fn marker(self, producer_id: i64, producer_epoch: i16, timestamp: i64) -> BatchBuilder {
        let mut builder =
            BatchBuilder::new().producer(producer_id, producer_epoch, -1).transactional(true).control(true);
        builder.push_control(timestamp, self.kind(), &end_transaction_marker(self.coordinator_epoch));
        builder
    }
}

/// Value of a transaction marker: version 0 (int16) and the coordinator's epoch (int32).
pub fn end_transaction_marker(coordinator_epoch: i32) -> [u8; 6] {
    let epoch = coordinator_epoch.to_be_bytes();
    [0, 0, epoch[0], epoch[1], epoch[2], epoch[3]]
}

/// The coordinator's epoch in a transaction marker's value; `None` when it is no such value.
pub fn coordinator_epoch(value: &[u8]) -> Option<i32> {
    let &[version_high, version_low, a, b, c, d, ..] = value else { return None };
    (i16::from_be_bytes([version_high, version_low]) >= 0).then(|| i32::from_be_bytes([a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_key_is_its_version_and_its_kind() {
        assert_eq!(ControlType::LeaderChange.key(), [0, 0, 0, 2]);
        assert_eq!(ControlType::KRaftVoters.key(), [0, 0, 0, 6]);
        for kind in ControlType::ALL {
            assert_eq!(ControlType::from_key(&kind.key()), Some(kind));
        }
        assert_eq!(ControlType::from_key(&[0, 0, 0, 7]), None);
        assert_eq!(ControlType::from_key(&[0, 0, 0]), None);
        assert_eq!(ControlType::from_key(&[0, 1, 0, 1, 9]), Some(ControlType::Commit));
    }

    #[test]
    fn a_marker_comes_back_as_it_was_and_is_as_long_as_kafkas() {
        for committed in [false, true] {
            let end = EndTransaction { committed, coordinator_epoch: -7 };
            let bytes = end.marker(5, 3, 1000).build().unwrap();
            let batch = Batch::parse(&bytes).unwrap();
            assert_eq!((bytes.len(), EndTransaction::of(&batch)), (78, Some(end)));
            assert_eq!((batch.is_transactional(), batch.producer_epoch(), batch.base_sequence()), (true, 3, -1));
        }
    }

    #[test]
    fn other_control_batches_and_emptied_ones_end_no_transaction() {
        let built = |fill: fn(&mut BatchBuilder)| {
            let mut builder = BatchBuilder::new().producer(5, 3, -1).control(true);
            fill(&mut builder);
            let bytes = builder.build().unwrap();
            EndTransaction::of(&Batch::parse(&bytes).unwrap())
        };
        assert_eq!(built(|builder| _ = builder.push_control(0, ControlType::LeaderChange, &[0; 6])), None);
        assert_eq!(built(|builder| _ = builder.push_control(0, ControlType::Commit, &[0; 5])), None);
        assert_eq!(built(|builder| _ = builder.push(0, None, None, &[])), None);
        assert_eq!(built(|builder| builder.set_last_offset_delta(0)), None);
    }
}
