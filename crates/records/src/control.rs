//! Control records: what kind of record a control batch holds is in its key. The values are messages of the protocol, except the
//! transaction marker's, which is here.

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
    fn a_marker_value_carries_the_coordinator_epoch() {
        assert_eq!(end_transaction_marker(5), [0, 0, 0, 0, 0, 5]);
        assert_eq!(coordinator_epoch(&end_transaction_marker(-7)), Some(-7));
        assert_eq!(coordinator_epoch(&[0; 5]), None);
    }
}
