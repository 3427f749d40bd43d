//! The replicas of new partitions: whether a manual assignment is allowed, and the record that begins a partition.

use std::borrow::Cow;

use milena_metadata::{Image, directory_migrating, directory_unassigned};
use milena_protocol::messages::PartitionRecord;
use milena_protocol::{ErrorCode, MetadataRecord, Uuid};

use crate::error::ApiError;
use crate::placement::has_uncordoned_directory;

/// Checks one partition of a manual assignment; `replication_factor` is that of the partitions before it.
///
/// # Errors
/// INVALID_REPLICA_ASSIGNMENT with Kafka's message.
pub(crate) fn check_manual(image: &Image, replicas: &[i32], replication_factor: Option<usize>) -> Result<(), ApiError> {
    let refuse = |rest: String| {
        let message = format!("The manual partition assignment includes {rest}");
        Err(ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message))
    };
    if replicas.is_empty() {
        return refuse("an empty replica list.".to_owned());
    }
    let mut sorted = replicas.to_vec();
    sorted.sort_unstable();
    let mut previous = None;
    for id in sorted {
        match image.cluster().broker(id) {
            None => return refuse(format!("broker {id}, but no such broker is registered.")),
            Some(broker) if !has_uncordoned_directory(broker) => {
                return refuse(format!("broker {id}, but all its log directories are cordoned."));
            }
            Some(_) if previous == Some(id) => return refuse(format!("the broker {id} more than once.")),
            Some(_) => previous = Some(id),
        }
    }
    match replication_factor {
        Some(factor) if factor != replicas.len() => refuse(format!(
            "a partition with {} replica(s), but this is not consistent with previous partitions, which have {factor} \
             replica(s).",
            replicas.len()
        )),
        _ => Ok(()),
    }
}

/// The replicas of one new partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replicas {
    /// All of them; the first one is the preferred leader.
    pub(crate) assigned: Vec<i32>,
    /// Those that are in sync from the beginning: neither fenced nor shutting down.
    pub(crate) in_sync: Vec<i32>,
}

impl Replicas {
    /// The replicas on these brokers.
    pub(crate) fn new(image: &Image, assigned: Vec<i32>) -> Self {
        let in_sync = assigned.iter().copied().filter(|id| image.cluster().is_active(*id)).collect();
        Self { assigned, in_sync }
    }

    /// Whether somebody can lead.
    pub(crate) fn has_leader(&self) -> bool {
        !self.in_sync.is_empty()
    }
}

/// The refusal of a manual assignment that nobody could lead.
pub(crate) fn nobody_leads(partition: i32) -> ApiError {
    let message = format!(
        "All brokers specified in the manual partition assignment for partition {partition} are fenced or in controlled \
         shutdown."
    );
    ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message)
}

/// The record of a new partition, led by the first in-sync replica. There is one.
pub(crate) fn partition_record(
    image: &Image,
    topic_id: Uuid,
    partition_id: i32,
    replicas: Replicas,
) -> MetadataRecord<'static> {
    let supported = image.features().metadata_version().supports_directories();
    let directories: Vec<Uuid> =
        replicas.assigned.iter().filter(|_| supported).map(|id| directory(image, *id)).collect();
    let record = PartitionRecord {
        partition_id,
        topic_id,
        leader: replicas.in_sync[0],
        replicas: Cow::Owned(replicas.assigned),
        isr: Cow::Owned(replicas.in_sync),
        leader_epoch: 0,
        partition_epoch: 0,
        directories: Cow::Owned(directories),
        ..PartitionRecord::default()
    };
    record.into()
}

/// Where a broker puts a new replica: the only directory it has, or the broker decides.
fn directory(image: &Image, broker: i32) -> Uuid {
    match image.cluster().broker(broker).map(|b| &*b.directories) {
        Some([]) => directory_migrating(),
        Some([only]) => *only,
        _ => directory_unassigned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{broker, image};
    use milena_metadata::Broker;

    fn refusal(replicas: &[i32], factor: Option<usize>) -> String {
        let cordoned = Broker { cordoned_directories: Some(broker(3).directories), ..broker(3) };
        let image = image([broker(1), broker(2), cordoned]);
        check_manual(&image, replicas, factor).map_or_else(|e| e.message.unwrap().into_owned(), |()| String::new())
    }

    #[test]
    fn registered_distinct_brokers_with_room_are_a_legal_assignment() {
        assert_eq!(refusal(&[2, 1], Some(2)), "");
    }

    #[test]
    fn other_assignments_are_refused_with_kafkas_message() {
        let start = "The manual partition assignment includes";
        assert_eq!(refusal(&[], None), format!("{start} an empty replica list."));
        assert_eq!(refusal(&[1, 9], None), format!("{start} broker 9, but no such broker is registered."));
        assert_eq!(refusal(&[3], None), format!("{start} broker 3, but all its log directories are cordoned."));
        assert_eq!(refusal(&[1, 2, 1], None), format!("{start} the broker 1 more than once."));
        assert_eq!(
            refusal(&[1, 2], Some(1)),
            format!(
                "{start} a partition with 2 replica(s), but this is not consistent with previous partitions, which have \
                 1 replica(s)."
            )
        );
    }

    #[test]
    fn a_replica_goes_to_the_only_directory_or_is_left_unassigned() {
        let two = Broker { directories: vec![Uuid::from_bytes([7; 16]), Uuid::from_bytes([8; 16])], ..broker(2) };
        let none = Broker { directories: Vec::new(), ..broker(3) };
        let image = image([broker(1), two, none]);
        let replicas = Replicas { assigned: vec![1, 2, 3], in_sync: vec![2] };
        let MetadataRecord::Partition(record) = partition_record(&image, Uuid::ONE, 0, replicas) else {
            panic!("not a partition")
        };
        assert_eq!(&*record.directories, [broker(1).directories[0], directory_unassigned(), directory_migrating()]);
        assert_eq!((record.leader, record.leader_epoch, record.partition_epoch), (2, 0, 0));
    }
}
