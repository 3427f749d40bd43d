//! A small cluster for unit tests: what its metadata log would hold.

use milena_metadata::Image;
use milena_protocol::messages::register_broker_record::BrokerEndpoint;
use milena_protocol::messages::{
    ConfigRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord, UnregisterBrokerRecord,
};
use milena_protocol::{MetadataRecord, Uuid};

/// The listener that all brokers have.
pub(crate) const LISTENER: &str = "PLAINTEXT";
/// A listener that only broker 1 has.
pub(crate) const INSIDE: &str = "INSIDE";

/// An id that ends with `last`.
pub(crate) fn id(last: u8) -> Uuid {
    let mut bytes = [0xA; 16];
    bytes[15] = last;
    Uuid::from_bytes(bytes)
}

/// An image with these records.
pub(crate) fn image(records: impl IntoIterator<Item = MetadataRecord<'static>>) -> Image {
    let records: Vec<_> = records.into_iter().collect();
    Image::default().apply(&records).expect("the records of a test fit together").0
}

/// A broker in the directory `id(100 + its id)`, reachable at `broker<id>:9092`.
pub(crate) fn broker(broker_id: i32, fenced: bool) -> MetadataRecord<'static> {
    let endpoint = |name: &'static str, port| BrokerEndpoint {
        name: name.into(),
        host: format!("broker{broker_id}").into(),
        port,
        security_protocol: 0,
    };
    let mut end_points = vec![endpoint(LISTENER, 9092)];
    if broker_id == 1 {
        end_points.push(endpoint(INSIDE, 9093));
    }
    RegisterBrokerRecord {
        broker_id,
        broker_epoch: 5,
        end_points,
        fenced,
        log_dirs: vec![id(100 + broker_id as u8)].into(),
        ..Default::default()
    }
    .into()
}

/// A broker leaves.
pub(crate) fn without_broker(broker_id: i32) -> MetadataRecord<'static> {
    UnregisterBrokerRecord { broker_id, broker_epoch: 5 }.into()
}

/// A topic with an id that ends with `last`; each partition is led by its first replica, and all replicas are in sync.
pub(crate) fn topic(name: &'static str, last: u8, partitions: &[&[i32]]) -> Vec<MetadataRecord<'static>> {
    let mut records = vec![TopicRecord { name: name.into(), topic_id: id(last) }.into()];
    for (partition_id, replicas) in (0..).zip(partitions) {
        let record = PartitionRecord {
            partition_id,
            topic_id: id(last),
            replicas: replicas.to_vec().into(),
            isr: replicas.to_vec().into(),
            leader: replicas[0],
            directories: replicas.iter().map(|&broker| id(100 + broker as u8)).collect(),
            ..Default::default()
        };
        records.push(record.into());
    }
    records
}

/// A configuration of a topic.
pub(crate) fn topic_config(topic: &'static str, name: &'static str, value: &'static str) -> MetadataRecord<'static> {
    ConfigRecord { resource_type: 2, resource_name: topic.into(), name: name.into(), value: Some(value.into()) }.into()
}
