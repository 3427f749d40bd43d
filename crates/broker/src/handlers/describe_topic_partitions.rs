//! DescribeTopicPartitions. v0: topics page by page; a cursor says where the next page begins.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use milena_controller::is_internal;
use milena_metadata::{Image, Partition, Topic};
use milena_net::Outgoing;
use milena_protocol::messages::describe_topic_partitions_request::{
    Cursor as AskedCursor, DescribeTopicPartitionsRequest, TopicRequest,
};
use milena_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponse, DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
};
use milena_protocol::{ApiKey, ErrorCode};

use super::metadata::missing;
use crate::authorized_operations;
use crate::cluster_view::ClusterView;
use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::DESCRIBE_TOPIC_PARTITIONS, 0..=0, Handler::Now(handle));

fn handle(call: &Call<'_>, services: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: DescribeTopicPartitionsRequest<'_> = call.request()?;
    let image = services.image();
    let most = services.config().max_request_partition_size_limit();
    call.answer(out, &response(&request, &image, &call.peer.listener, most))
}

/// `most` is the broker's own limit of partitions in an answer.
fn response<'r>(
    request: &'r DescribeTopicPartitionsRequest<'r>,
    image: &'r Image,
    listener: &str,
    most: i32,
) -> DescribeTopicPartitionsResponse<'r> {
    if let Some(cursor) = &request.cursor
        && !is_within(cursor, &request.topics)
    {
        return refused(&request.topics);
    }
    let mut page = Page {
        view: ClusterView::new(image.cluster(), listener),
        cursor: request.cursor.as_ref(),
        left: usize::try_from(request.response_partition_limit.min(most)).unwrap_or(0).max(1),
        topics: Vec::new(),
        next: None,
    };
    let from = page.cursor.map_or("", |cursor| &*cursor.topic_name);
    if request.topics.is_empty() {
        let _ = image.topics().iter_from(from).try_for_each(|topic| page.add(&topic.name, Some(topic)));
    } else {
        let names: BTreeSet<&str> =
            request.topics.iter().map(|topic| &*topic.name).filter(|&name| name >= from).collect();
        let _ = names.into_iter().try_for_each(|name| page.add(name, image.topics().get(name).map(|topic| &**topic)));
    }
    DescribeTopicPartitionsResponse { topics: page.topics, next_cursor: page.next, ..Default::default() }
}

/// Whether a cursor points into what is asked for.
fn is_within(cursor: &AskedCursor<'_>, topics: &[TopicRequest<'_>]) -> bool {
    let is_named = topics.is_empty() || topics.iter().any(|topic| topic.name == cursor.topic_name);
    is_named && cursor.partition_index >= 0
}

fn refused<'r>(topics: &'r [TopicRequest<'r>]) -> DescribeTopicPartitionsResponse<'r> {
    let topic = |topic: &'r TopicRequest<'r>| DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::INVALID_REQUEST.0,
        name: Some(Cow::Borrowed(&topic.name)),
        topic_authorized_operations: authorized_operations::NOT_ASKED,
        ..Default::default()
    };
    DescribeTopicPartitionsResponse { topics: topics.iter().map(topic).collect(), ..Default::default() }
}

/// An answer that fills up.
struct Page<'r> {
    view: ClusterView<'r>,
    cursor: Option<&'r AskedCursor<'r>>,
    left: usize,
    topics: Vec<DescribeTopicPartitionsResponseTopic<'r>>,
    next: Option<Cursor<'r>>,
}

impl<'r> Page<'r> {
    /// Adds a topic, as far as there is room; breaks off when the next page has to go on.
    fn add(&mut self, name: &'r str, topic: Option<&'r Topic>) -> ControlFlow<()> {
        if self.left == 0 {
            return self.go_on_with(name, 0);
        }
        let mut answer = DescribeTopicPartitionsResponseTopic {
            name: Some(Cow::Borrowed(name)),
            is_internal: is_internal(name),
            topic_authorized_operations: authorized_operations::topic(true),
            ..Default::default()
        };
        let Some(topic) = topic else {
            answer.error_code = missing(name).0;
            self.topics.push(answer);
            return ControlFlow::Continue(());
        };
        let first = self.cursor.filter(|cursor| cursor.topic_name == name).map_or(0, |cursor| cursor.partition_index);
        let partitions = (0..).zip(&topic.partitions).skip(first as usize).take(self.left);
        answer.topic_id = topic.id;
        answer.partitions = partitions.map(|(index, partition)| describe(index, partition, &self.view)).collect();
        self.left -= answer.partitions.len();
        let next = answer.partitions.last().map(|last| last.partition_index + 1);
        self.topics.push(answer);
        match next {
            Some(next) if (next as usize) < topic.partitions.len() => self.go_on_with(name, next),
            _ => ControlFlow::Continue(()),
        }
    }

    fn go_on_with(&mut self, name: &'r str, partition_index: i32) -> ControlFlow<()> {
        self.next = Some(Cursor { topic_name: Cow::Borrowed(name), partition_index });
        ControlFlow::Break(())
    }
}

fn describe<'r>(
    index: i32,
    partition: &'r Partition,
    view: &ClusterView<'r>,
) -> DescribeTopicPartitionsResponsePartition<'r> {
    let leader = view.leader(partition);
    DescribeTopicPartitionsResponsePartition {
        error_code: leader.err().map_or(0, |error| error.0),
        partition_index: index,
        leader_id: leader.unwrap_or(-1),
        leader_epoch: partition.leader_epoch,
        replica_nodes: Cow::Borrowed(&partition.replicas),
        isr_nodes: Cow::Borrowed(&partition.isr),
        eligible_leader_replicas: Some(Cow::Borrowed(&partition.eligible_leader_replicas)),
        last_known_elr: Some(Cow::Borrowed(&partition.last_known_elr)),
        offline_replicas: Cow::Owned(view.offline_replicas(partition)),
    }
}

#[cfg(test)]
mod tests;
