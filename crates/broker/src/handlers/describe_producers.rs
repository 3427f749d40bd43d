//! DescribeProducers. v0: flexible.

use std::borrow::Cow;

use milena_controller::validate_topic_name;
use milena_log::ProducerState;
use milena_net::Outgoing;
use milena_protocol::messages::DescribeProducersRequest;
use milena_protocol::messages::describe_producers_request::TopicRequest;
use milena_protocol::messages::describe_producers_response::{
    DescribeProducersResponse, PartitionResponse, ProducerState as DescribedProducer, TopicResponse,
};
use milena_protocol::{ApiKey, ErrorCode};

use crate::registry::{Api, Handler};
use crate::replicas::Topics;
use crate::request::{Call, Refusal, Room};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::DESCRIBE_PRODUCERS, 0..=0, Handler::Now(handle));

fn handle(call: &Call<'_>, services: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: DescribeProducersRequest<'_> = call.request()?;
    let topics = services.replicas.topics();
    let mut room = Room::default();
    let described = request.topics.iter().map(|asked| topic(asked, &topics, &mut room)).collect::<Result<_, _>>()?;
    call.answer(out, &DescribeProducersResponse { topics: described, ..Default::default() })
}

fn topic<'r>(asked: &'r TopicRequest<'r>, topics: &Topics, room: &mut Room) -> Result<TopicResponse<'r>, Refusal> {
    let hosted = topics.by_name(&asked.name);
    let unknown = match validate_topic_name(&asked.name) {
        Ok(()) => (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
        Err(error) => (error.code, "no topic can have this name"),
    };
    let partition = |&partition_index: &i32| {
        let mut answer = PartitionResponse { partition_index, ..Default::default() };
        match hosted.map(|topic| topic.served(partition_index)) {
            Some(Ok(partition)) => answer.active_producers = partition.log().producers().map(producer).collect(),
            Some(Err(error)) => answer.error_code = error.0,
            None => {
                let (error, message) = unknown;
                (answer.error_code, answer.error_message) = (error.0, Some(message.into()));
            }
        }
        room.take(size_of_val(&answer) + size_of_val(&*answer.active_producers))?;
        Ok(answer)
    };
    let partitions = asked.partition_indexes.iter().map(partition).collect::<Result<_, Refusal>>()?;
    Ok(TopicResponse { name: Cow::Borrowed(&asked.name), partitions })
}

fn producer(state: ProducerState) -> DescribedProducer {
    DescribedProducer {
        producer_id: state.producer_id,
        producer_epoch: i32::from(state.epoch),
        last_sequence: state.last_sequence,
        last_timestamp: state.timestamp,
        coordinator_epoch: state.coordinator_epoch,
        current_txn_start_offset: state.current_txn_first_offset,
    }
}

#[cfg(test)]
mod tests {
    use milena_records::BatchBuilder;

    use super::*;
    use crate::test_partitions;

    fn ask(topic_name: &'static str, partition: i32) -> PartitionResponse<'static> {
        let replicas = test_partitions::topic(&[&[]]);
        let topics = replicas.topics();
        let mut batch = BatchBuilder::new().producer(7, 2, 5).transactional(true);
        batch.push(1000, None, Some(b"v"), &[]);
        let hosted = topics.by_name("t").unwrap().served(0).unwrap();
        let start = milena_log::VerificationStart {
            producer_id: 7,
            epoch: 2,
            base_sequence: 5,
            epoch_bumps: false,
            now_ms: 1000,
        };
        let guard = hosted.log().begin_verification(&start).unwrap();
        let mut bytes = batch.build().unwrap();
        hosted.log().append(&mut [&mut bytes], &[guard], 0, 1000).unwrap();
        let asked = TopicRequest { name: topic_name.into(), partition_indexes: vec![partition].into() };
        let mut answer = topic(&asked, &topics, &mut Room::default()).unwrap();
        let answered = answer.partitions.remove(0);
        PartitionResponse { error_message: answered.error_message.map(|text| text.into_owned().into()), ..answered }
    }

    #[test]
    fn a_producer_is_told_with_its_open_transaction() {
        let told = ask("t", 0).active_producers.remove(0);
        let numbers = (told.producer_id, told.producer_epoch, told.last_sequence, told.coordinator_epoch);
        assert_eq!((numbers, told.last_timestamp, told.current_txn_start_offset), ((7, 2, 5, -1), 1000, 0));
    }

    #[test]
    fn what_does_not_exist_is_an_error() {
        for (topic, partition) in [("none", 0), ("t", 9)] {
            assert_eq!(ask(topic, partition).error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0);
        }
    }
}
