//! Metadata. v1: null asks for all topics, an empty list for none; controller, rack, internal topics. v2: cluster id.
//! v3: throttle time. v4: whether topics may be created. v5: offline replicas. v6: a listener that the leader lacks is
//! its own error. v7: leader epochs. v8: authorized operations. v9: flexible. v10: topic ids in answers. v11: without
//! the cluster's operations. v12: topics by id. v13: an error of the whole answer.
//!
//! The partitions of a topic are encoded once for each image, version and listener; the rest is borrowed from the image.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use milena_controller::{is_internal, validate_topic_name};
use milena_metadata::{Image, Partition, Topic};
use milena_net::Outgoing;
use milena_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use milena_protocol::messages::metadata_response::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use milena_protocol::{ApiKey, EncodeError, ErrorCode, Structs, Uuid};

use crate::authorized_operations;
use crate::cluster_view::ClusterView;
use crate::published::Published;
use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};
use crate::services::{Node, Services};

/// The registry's line.
pub const API: Api = Api::new(ApiKey::METADATA, 0..=13, Handler::Now(handle));

/// First version in which an empty list asks for nothing.
const FIRST_NULL_IS_ALL_VERSION: i16 = 1;
/// First version that tells a missing listener from a missing leader.
const FIRST_LISTENER_ERROR_VERSION: i16 = 6;
/// First version that may name topics by id.
const FIRST_TOPIC_ID_VERSION: i16 = 12;

fn handle(call: &Call<'_>, services: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: MetadataRequest<'_> = call.request()?;
    let version = call.header.version;
    let topics = request.topics.as_deref().unwrap_or_default();
    if are_unaddressed(topics, version) {
        return call.answer(out, &refused(topics));
    }
    let image = services.image();
    let asked = Asked::of(&request, version, &image);
    let view = ClusterView::new(image.cluster(), &call.peer.listener);
    let partitions = |topic: &Arc<Topic>| encoded_partitions(topic, &image, &view, &call.peer.listener, version);
    let response = response(&request, &asked, &view, partitions, &services.node)?;
    call.answer(out, &response)?;
    if request.allow_auto_topic_creation && services.config().auto_create_topics_enable() {
        services.auto_topics.create(asked.creatable(), &services.controller);
    }
    Ok(())
}

/// Whether topics are addressed in a way that their version does not have. Where one is named by its id, the others need no name.
fn are_unaddressed(topics: &[MetadataRequestTopic<'_>], version: i16) -> bool {
    let (has_id, nameless) = (has_id(topics), topics.iter().any(|topic| topic.name.is_none()));
    if version < FIRST_TOPIC_ID_VERSION { has_id || nameless } else { !has_id && nameless }
}

fn has_id(topics: &[MetadataRequestTopic<'_>]) -> bool {
    topics.iter().any(|topic| topic.topic_id != Uuid::ZERO)
}

/// The answer to a request that can't be understood: its topics, with an error each, and nothing of the cluster.
fn refused<'r>(topics: &'r [MetadataRequestTopic<'r>]) -> MetadataResponse<'r> {
    let topic = |topic: &'r MetadataRequestTopic<'r>| MetadataResponseTopic {
        error_code: ErrorCode::INVALID_REQUEST.0,
        name: Some(Cow::Borrowed(topic.name.as_deref().unwrap_or_default())),
        topic_id: topic.topic_id,
        ..Default::default()
    };
    MetadataResponse { topics: topics.iter().map(topic).collect(), controller_id: -1, ..Default::default() }
}

/// The topics asked for, each of them once.
#[derive(Default)]
struct Asked<'r> {
    /// Ids that no topic has.
    unknown_ids: Vec<Uuid>,
    /// Topics that exist.
    topics: Vec<&'r Arc<Topic>>,
    /// Names that no topic has.
    unknown_names: Vec<&'r str>,
}

impl<'r> Asked<'r> {
    fn of(request: &'r MetadataRequest<'r>, version: i16, image: &'r Image) -> Self {
        match request.topics.as_deref() {
            None => Self::all(image),
            Some([]) if version < FIRST_NULL_IS_ALL_VERSION => Self::all(image),
            Some(topics) if has_id(topics) => Self::by_id(topics, image),
            Some(topics) => Self::by_name(topics, image),
        }
    }

    fn all(image: &'r Image) -> Self {
        Self { topics: image.topics().iter().collect(), ..Default::default() }
    }

    /// Where one topic is named by its id, those named otherwise are passed over.
    fn by_id(topics: &[MetadataRequestTopic<'_>], image: &'r Image) -> Self {
        let mut asked = Self::default();
        let mut seen = HashSet::new();
        let ids = topics.iter().map(|topic| topic.topic_id).filter(|&id| id != Uuid::ZERO);
        for id in ids.filter(|&id| seen.insert(id)) {
            match image.topics().get_by_id(id) {
                Some(topic) => asked.topics.push(topic),
                None => asked.unknown_ids.push(id),
            }
        }
        asked
    }

    fn by_name(topics: &'r [MetadataRequestTopic<'r>], image: &'r Image) -> Self {
        let mut asked = Self::default();
        let mut seen = HashSet::new();
        let names = topics.iter().filter_map(|topic| topic.name.as_deref());
        for name in names.filter(|&name| seen.insert(name)) {
            match image.topics().get(name) {
                Some(topic) => asked.topics.push(topic),
                None => asked.unknown_names.push(name),
            }
        }
        asked
    }

    /// Names that topics could be created with.
    fn creatable(&self) -> impl Iterator<Item = &'r str> {
        self.unknown_names.iter().copied().filter(|name| validate_topic_name(name).is_ok())
    }
}

fn response<'r>(
    request: &MetadataRequest<'_>,
    asked: &Asked<'r>,
    view: &ClusterView<'r>,
    partitions: impl Fn(&'r Arc<Topic>) -> Result<Structs<MetadataResponsePartition<'r>>, EncodeError>,
    node: &'r Node,
) -> Result<MetadataResponse<'r>, EncodeError> {
    let operations = authorized_operations::topic(request.include_topic_authorized_operations);
    let unknown_ids = asked.unknown_ids.iter().map(|&topic_id| MetadataResponseTopic {
        error_code: ErrorCode::UNKNOWN_TOPIC_ID.0,
        name: None,
        topic_id,
        ..Default::default()
    });
    let known = asked.topics.iter().map(|&topic| {
        Ok(MetadataResponseTopic {
            name: Some(Cow::Borrowed(&topic.name)),
            topic_id: topic.id,
            is_internal: is_internal(&topic.name),
            partitions: partitions(topic)?,
            topic_authorized_operations: operations,
            ..Default::default()
        })
    });
    let unknown_names = asked.unknown_names.iter().map(|&name| MetadataResponseTopic {
        error_code: missing(name).0,
        name: Some(Cow::Borrowed(name)),
        is_internal: is_internal(name),
        topic_authorized_operations: operations,
        ..Default::default()
    });
    Ok(MetadataResponse {
        brokers: brokers(view),
        cluster_id: Some(Cow::Borrowed(&node.cluster_id)),
        controller_id: view.controller_id(node.id),
        topics: unknown_ids.map(Ok).chain(known).chain(unknown_names.map(Ok)).collect::<Result<_, _>>()?,
        cluster_authorized_operations: authorized_operations::cluster(request.include_cluster_authorized_operations),
        ..Default::default()
    })
}

/// Why a name stands for no topic.
pub(super) fn missing(name: &str) -> ErrorCode {
    validate_topic_name(name).err().map_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, |refusal| refusal.code)
}

fn brokers<'r>(view: &ClusterView<'r>) -> Vec<MetadataResponseBroker<'r>> {
    let broker =
        |(broker, endpoint): (&'r milena_metadata::Broker, &'r milena_metadata::Endpoint)| MetadataResponseBroker {
            node_id: broker.id,
            host: Cow::Borrowed(&endpoint.host),
            port: i32::from(endpoint.port),
            rack: broker.rack.as_deref().map(Cow::Borrowed),
        };
    view.alive().map(broker).collect()
}

fn encoded_partitions<'r>(
    topic: &Topic,
    image: &Published,
    view: &ClusterView<'_>,
    listener: &Arc<str>,
    version: i16,
) -> Result<Structs<MetadataResponsePartition<'r>>, EncodeError> {
    let encode = || partitions(topic, view, version).encode(version);
    image.encoded_partitions(topic, listener, version, encode).map(Structs::Encoded)
}

fn partitions<'r>(topic: &'r Topic, view: &ClusterView<'r>, version: i16) -> Structs<MetadataResponsePartition<'r>> {
    let numbered = (0..).zip(&topic.partitions);
    Structs::Items(numbered.map(|(index, partition)| partition_of(index, partition, view, version)).collect())
}

fn partition_of<'r>(
    index: i32,
    partition: &'r Partition,
    view: &ClusterView<'r>,
    version: i16,
) -> MetadataResponsePartition<'r> {
    let leader = view.leader(partition).map_err(|error| match error {
        ErrorCode::LISTENER_NOT_FOUND if version < FIRST_LISTENER_ERROR_VERSION => ErrorCode::LEADER_NOT_AVAILABLE,
        error => error,
    });
    let mut answer = MetadataResponsePartition {
        error_code: leader.err().map_or(0, |error| error.0),
        partition_index: index,
        leader_id: leader.unwrap_or(-1),
        leader_epoch: partition.leader_epoch,
        replica_nodes: Cow::Borrowed(&partition.replicas),
        isr_nodes: Cow::Borrowed(&partition.isr),
        offline_replicas: Cow::Owned(view.offline_replicas(partition)),
    };
    if version == 0 {
        leave_out_unreachable(&mut answer, view);
    }
    answer
}

/// The oldest clients fail over a replica without an address: it is left out, which is an error when the leader is
/// there.
fn leave_out_unreachable(partition: &mut MetadataResponsePartition<'_>, view: &ClusterView<'_>) {
    for list in [&mut partition.replica_nodes, &mut partition.isr_nodes] {
        if list.iter().any(|&id| !view.is_reachable(id)) {
            list.to_mut().retain(|&id| view.is_reachable(id));
            if partition.error_code == ErrorCode::NONE.0 {
                partition.error_code = ErrorCode::REPLICA_NOT_AVAILABLE.0;
            }
        }
    }
}

#[cfg(test)]
mod tests;
