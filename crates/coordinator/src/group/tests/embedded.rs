//! What consumers of the classic protocol say to each other about the topic `t`: in version 1, which knows what they own.

use std::collections::BTreeSet;

use milena_protocol::messages::consumer_protocol_assignment::{self, ConsumerProtocolAssignment};
use milena_protocol::messages::consumer_protocol_subscription::{self, ConsumerProtocolSubscription};
use milena_protocol::{Message, Reader, Writer};

pub(super) fn list(partitions: &BTreeSet<i32>) -> Vec<i32> {
    partitions.iter().copied().collect()
}

fn versioned<'m>(message: &impl Message<'m>) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.i16(1);
    message.encode(&mut writer, 1).unwrap();
    writer.into_bytes()
}

fn read<'b, M: Message<'b>>(bytes: &'b [u8]) -> M {
    M::decode(&mut Reader::new(&bytes[2..]), 1).unwrap()
}

pub(super) fn subscription(owned: &BTreeSet<i32>) -> Vec<u8> {
    let owned = consumer_protocol_subscription::TopicPartition { topic: "t".into(), partitions: list(owned).into() };
    versioned(&ConsumerProtocolSubscription {
        topics: vec!["t".into()],
        owned_partitions: vec![owned],
        ..Default::default()
    })
}

pub(super) fn owned_in(subscription: &[u8]) -> BTreeSet<i32> {
    let subscription: ConsumerProtocolSubscription<'_> = read(subscription);
    subscription.owned_partitions.iter().flat_map(|topic| topic.partitions.iter().copied()).collect()
}

pub(super) fn assignment(partitions: &BTreeSet<i32>) -> Vec<u8> {
    let topic = consumer_protocol_assignment::TopicPartition { topic: "t".into(), partitions: list(partitions).into() };
    versioned(&ConsumerProtocolAssignment { assigned_partitions: vec![topic], user_data: None })
}

pub(super) fn assigned_in(assignment: &[u8]) -> BTreeSet<i32> {
    if assignment.is_empty() {
        return BTreeSet::new();
    }
    let assignment: ConsumerProtocolAssignment<'_> = read(assignment);
    assignment.assigned_partitions.iter().flat_map(|topic| topic.partitions.iter().copied()).collect()
}
