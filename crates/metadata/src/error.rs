//! Why a record cannot be applied to an image.

use milena_protocol::Uuid;

use crate::version::MetadataVersionError;

/// A record that contradicts the image it is applied to, or that this software cannot understand. Always fatal for the
/// node: skipping it would make the node's view differ from the quorum's.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// The bytes are no known metadata record.
    #[error("cannot decode the metadata record at offset {offset}: {reason}")]
    Decode {
        /// Offset of the record in the metadata log, or its index in a snapshot.
        offset: i64,
        /// What the decoder said.
        reason: String,
    },
    /// A change or removal names a broker that is not registered.
    #[error("the record names broker {id}, which is not registered")]
    UnknownBroker {
        /// The broker's id.
        id: i32,
    },
    /// A change or removal carries another broker epoch than the registration.
    #[error("the record names epoch {found} of broker {id}, which is registered with epoch {expected}")]
    BrokerEpoch {
        /// The broker's id.
        id: i32,
        /// The registered epoch.
        expected: i64,
        /// The record's epoch.
        found: i64,
    },
    /// A removal names a controller that is not registered.
    #[error("the record names controller {id}, which is not registered")]
    UnknownController {
        /// The controller's id.
        id: i32,
    },
    /// A partition record or a removal names a topic id that does not exist.
    #[error("the record names topic id {id}, which does not exist")]
    UnknownTopicId {
        /// The topic's id.
        id: Uuid,
    },
    /// A record names a topic that does not exist.
    #[error("the record names topic {name:?}, which does not exist")]
    UnknownTopic {
        /// The topic's name.
        name: String,
    },
    /// A change names a partition that does not exist.
    #[error("the record names partition {partition} of topic id {topic_id}, which does not exist")]
    UnknownPartition {
        /// The topic's id.
        topic_id: Uuid,
        /// The partition's index.
        partition: i32,
    },
    /// The partitions of a topic are not 0, 1, 2, … without a gap.
    #[error("topic id {topic_id} has partition {partition} but not all partitions below it")]
    PartitionGap {
        /// The topic's id.
        topic_id: Uuid,
        /// The partition above the gap.
        partition: i32,
    },
    /// A partition has a different number of directories than replicas.
    #[error("partition {partition} of topic id {topic_id} has {directories} directories for {replicas} replicas")]
    DirectoryCount {
        /// The topic's id.
        topic_id: Uuid,
        /// The partition's index.
        partition: i32,
        /// How many replicas it has.
        replicas: usize,
        /// How many directories the record gives.
        directories: usize,
    },
    /// A field holds a number that stands for nothing.
    #[error("the record's {field} is {value}, which has no meaning")]
    Value {
        /// The field's name.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// The metadata version is outside the range this software supports.
    #[error(transparent)]
    MetadataVersion(#[from] MetadataVersionError),
    /// A removal names an access control entry that does not exist.
    #[error("the record removes access control entry {id}, which does not exist")]
    UnknownAcl {
        /// The entry's id.
        id: Uuid,
    },
    /// Begin inside a transaction, or end or abort outside one.
    #[error("{found} at offset {offset}, but {expected}")]
    Transaction {
        /// Offset of the record.
        offset: i64,
        /// The record's name.
        found: &'static str,
        /// What the log says instead.
        expected: &'static str,
    },
}
