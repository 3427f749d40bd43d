//! What consumers of the classic protocol say to each other inside of JoinGroup and SyncGroup: a version, and behind it a
//! subscription or an assignment.

use std::collections::{BTreeMap, BTreeSet};

use milena_protocol::messages::consumer_group_heartbeat_request::TopicPartitions as OwnedPartitions;
use milena_protocol::messages::consumer_protocol_assignment::{ConsumerProtocolAssignment, TopicPartition};
use milena_protocol::messages::{ConsumerProtocolSubscription, consumer_protocol_subscription};
use milena_protocol::{Message, Reader, Uuid, Writer};

use super::assign::Partitions;
use super::metadata::Metadata;

/// Highest version of both; what is newer is read, and answered, as this one.
const HIGHEST_VERSION: i16 = 3;

/// What a consumer is subscribed to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::group) struct Subscription {
    pub(super) topics: BTreeSet<String>,
    pub(super) rack: Option<String>,
    /// What it says that it owns.
    owned: Vec<(String, Vec<i32>)>,
}

impl Subscription {
    /// The subscription that these bytes are; `None` when they are none.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let read: ConsumerProtocolSubscription<'_> = read(bytes)?;
        let owned = |topic: &consumer_protocol_subscription::TopicPartition<'_>| {
            (topic.topic.to_string(), topic.partitions.iter().copied().collect())
        };
        Some(Self {
            topics: read.topics.iter().map(ToString::to_string).collect(),
            rack: read.rack_id.map(Into::into),
            owned: read.owned_partitions.iter().map(owned).collect(),
        })
    }

    /// What the consumer says that it owns, of topics that exist.
    pub(super) fn owned(&self, metadata: &dyn Metadata) -> Vec<OwnedPartitions<'static>> {
        let owned = |(name, partitions): &(String, Vec<i32>)| {
            let topic_id = metadata.topic(name)?.id;
            Some(OwnedPartitions { topic_id, partitions: partitions.clone().into() })
        };
        self.owned.iter().filter_map(owned).collect()
    }
}

/// What a consumer was assigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Assigned {
    /// These partitions, of topics that exist.
    Partitions(Partitions),
    /// Something of the assignor's own beside, which would be lost.
    WithUserData,
}

/// The assignment that these bytes are; `None` when they are none. A member that has not got its assignment yet has no bytes.
pub(super) fn read_assignment(bytes: &[u8], metadata: &dyn Metadata) -> Option<Assigned> {
    if bytes.is_empty() {
        return Some(Assigned::Partitions(Partitions::new()));
    }
    let read: ConsumerProtocolAssignment<'_> = read(bytes)?;
    if read.user_data.is_some_and(|data| !data.is_empty()) {
        return Some(Assigned::WithUserData);
    }
    let mut partitions = Partitions::new();
    for topic in &read.assigned_partitions {
        if let Some(info) = metadata.topic(&topic.topic) {
            partitions.entry(info.id).or_default().extend(topic.partitions.iter().copied());
        }
    }
    Some(Assigned::Partitions(partitions))
}

/// An assignment in the version that the member's subscription is of.
pub(in crate::group) fn assignment<'p>(
    subscription: &[u8],
    partitions: impl Iterator<Item = (Uuid, Vec<i32>)> + 'p,
    metadata: &dyn Metadata,
) -> Vec<u8> {
    let version = version_of(subscription).unwrap_or(0);
    let named: BTreeMap<String, Vec<i32>> =
        partitions.filter_map(|(id, partitions)| Some((metadata.name(id)?, partitions))).collect();
    let topic =
        |(topic, partitions): (String, Vec<i32>)| TopicPartition { topic: topic.into(), partitions: partitions.into() };
    let value =
        ConsumerProtocolAssignment { assigned_partitions: named.into_iter().map(topic).collect(), user_data: None };
    let mut writer = Writer::new();
    writer.i16(version);
    value.encode(&mut writer, version).expect("names of topics are short");
    writer.into_bytes()
}

/// The version in front, if there is one.
fn version_of(bytes: &[u8]) -> Option<i16> {
    let version = Reader::new(bytes).i16().ok().filter(|version| *version >= 0)?;
    Some(version.min(HIGHEST_VERSION))
}

fn read<'b, M: Message<'b>>(bytes: &'b [u8]) -> Option<M> {
    let version = version_of(bytes)?;
    let mut reader = Reader::new(bytes);
    reader.i16().ok()?;
    M::decode(&mut reader, version).ok()
}
