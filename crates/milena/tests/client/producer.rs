//! Producing, and reading back what was produced.

use std::time::Duration;

use milena::testing::Broker;
use milena_client::protocol::ErrorCode;
use milena_client::{Acks, Client, Compression, Delivery, Error, Producer, Record};

use crate::common::{Cluster, create_topic, unique};
use crate::read::{Read, read_all};

const PATIENCE: Duration = Duration::from_secs(30);

/// Sends records whose values are `0`, `1`, … to partition 0.
async fn send_numbers(producer: &Producer, topic: &str, numbers: std::ops::Range<usize>) -> Vec<Delivery> {
    let mut sent = Vec::new();
    for number in numbers {
        let value = number.to_string();
        sent.push(producer.send(&Record::to(topic).partition(0).value(&value)).await.unwrap());
    }
    sent
}

async fn assert_numbers(client: &Client, topic: &str, count: usize) {
    let read = read_all(client, topic, 0).await;
    let values: Vec<_> = read.iter().map(|record| record.value.clone().unwrap()).collect();
    assert_eq!(values, (0..count).map(|number| number.to_string()).collect::<Vec<_>>());
    assert!((0..).zip(&read).all(|(offset, record)| record.offset == offset));
}

#[tokio::test]
async fn a_record_is_read_back_as_it_was_sent() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    let producer = client.producer().build().unwrap();
    let record = Record::to(&topic).key("k").value("v").timestamp(1_700_000_000_000);
    let headers = [("first", Some(&b"1"[..])), ("second", None)];
    let first = producer.send(&record.headers(&headers)).await.unwrap().await.unwrap();
    let second = producer.send(&Record::to(&topic).timestamp(1_700_000_000_001)).await.unwrap().await.unwrap();
    assert_eq!((&*first.topic, first.partition, first.offset), (topic.as_str(), 0, Some(0)));
    assert_eq!((second.offset, second.timestamp), (Some(1), 1_700_000_000_001));
    let read = read_all(&client, &topic, 0).await;
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        read,
        [
            Read {
                offset: 0,
                timestamp: 1_700_000_000_000,
                key: text("k"),
                value: text("v"),
                headers: vec![("first".to_owned(), text("1")), ("second".to_owned(), None)],
            },
            Read { offset: 1, timestamp: 1_700_000_000_001, key: None, value: None, headers: Vec::new() },
        ]
    );
    producer.close(PATIENCE).await;
}

#[tokio::test]
async fn many_records_arrive_in_order_with_every_codec() {
    let cluster = Cluster::start();
    let client = cluster.client();
    for codec in Compression::ALL {
        let topic = create_topic(&client, 1, &[]).await;
        let producer = client.producer().compression(codec).batch_size(1000).build().unwrap();
        let sent = send_numbers(&producer, &topic, 0..2000).await;
        producer.flush().await;
        for (offset, delivery) in (0..).zip(sent) {
            assert_eq!(delivery.await.unwrap().offset, Some(offset), "{}", codec.name());
        }
        assert_numbers(&client, &topic, 2000).await;
    }
}

#[tokio::test]
async fn every_kind_of_acks_gets_records_written() {
    let cluster = Cluster::start();
    let client = cluster.client();
    for acks in [Acks::None, Acks::Leader, Acks::All] {
        let topic = create_topic(&client, 1, &[]).await;
        let producer = client.producer().acks(acks).build().unwrap();
        let sent = send_numbers(&producer, &topic, 0..100).await;
        producer.close(PATIENCE).await;
        for (offset, delivery) in (0..).zip(sent) {
            let told = delivery.await.unwrap().offset;
            assert_eq!(told, if acks == Acks::None { None } else { Some(offset) });
        }
        // Without acks, nobody says when the broker has them.
        while read_all(&client, &topic, 0).await.len() < 100 {
            tokio::task::yield_now().await;
        }
        assert_numbers(&client, &topic, 100).await;
    }
}

#[tokio::test]
async fn the_key_decides_the_partition_as_in_kafkas_client() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 6, &[]).await;
    let producer = client.producer().build().unwrap();
    // murmur2 of these keys, positive, modulo 6.
    for (key, hash) in [("21", -973_932_308_i32), ("foobar", -790_332_482), ("abc", 479_470_107)] {
        let written = producer.send(&Record::to(&topic).key(key)).await.unwrap().await.unwrap();
        assert_eq!(written.partition, (hash & i32::MAX) % 6, "{key}");
    }
}

#[tokio::test]
async fn records_without_a_key_reach_every_partition() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 4, &[]).await;
    let producer = client.producer().batch_size(200).build().unwrap();
    for number in 0..2000 {
        producer.send(&Record::to(&topic).value(&number.to_string())).await.unwrap();
    }
    producer.flush().await;
    let mut values = Vec::new();
    for partition in 0..4 {
        let read = read_all(&client, &topic, partition).await;
        assert!(!read.is_empty(), "partition {partition}");
        values.extend(read.into_iter().map(|record| record.value.unwrap().parse::<u32>().unwrap()));
    }
    values.sort_unstable();
    assert_eq!(values, (0..2000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_batch_that_is_too_large_for_its_topic_is_split() {
    let cluster = Cluster::start();
    let client = cluster.client();
    for codec in [Compression::None, Compression::Zstd] {
        let topic = create_topic(&client, 1, &[("max.message.bytes", "500")]).await;
        let producer = client.producer().compression(codec).batch_size(100_000).build().unwrap();
        let sent = send_numbers(&producer, &topic, 0..3000).await;
        producer.flush().await;
        for (offset, delivery) in (0..).zip(sent) {
            assert_eq!(delivery.await.unwrap().offset, Some(offset), "{}", codec.name());
        }
        assert_numbers(&client, &topic, 3000).await;
    }
}

#[tokio::test]
async fn a_record_that_is_too_large_fails_alone() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[("max.message.bytes", "1000")]).await;
    let producer = client.producer().build().unwrap();
    let large = "x".repeat(2000);
    let refused = producer.send(&Record::to(&topic).partition(0).value(&large)).await.unwrap();
    let error = refused.await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::MESSAGE_TOO_LARGE), "{error}");
    let sent = send_numbers(&producer, &topic, 0..10).await;
    for (offset, delivery) in (0..).zip(sent) {
        assert_eq!(delivery.await.unwrap().offset, Some(offset));
    }
    let huge = "x".repeat(2 << 20);
    let error = producer.send(&Record::to(&topic).value(&huge)).await.unwrap_err();
    assert!(matches!(error, Error::RecordTooLarge { key: "max.request.size", .. }), "{error}");
}

#[tokio::test]
async fn records_of_a_refused_batch_have_reasons_of_their_own() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[("cleanup.policy", "compact")]).await;
    let producer = client.producer().linger(Duration::from_secs(3600)).build().unwrap();
    let sound = producer.send(&Record::to(&topic).key("k")).await.unwrap();
    let bad = producer.send(&Record::to(&topic).partition(0).value("no key")).await.unwrap();
    producer.flush().await;
    let (sound, bad) = (sound.await.unwrap_err(), bad.await.unwrap_err());
    for error in [&sound, &bad] {
        assert_eq!(error.code(), Some(ErrorCode::INVALID_RECORD), "{error}");
    }
    assert!(sound.to_string().contains("other records of the batch"), "{sound}");
    assert!(!bad.to_string().contains("other records of the batch"), "{bad}");
}

#[tokio::test]
async fn the_brokers_time_is_told_where_the_topic_wants_that() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[("message.timestamp.type", "LogAppendTime")]).await;
    let producer = client.producer().build().unwrap();
    let written = producer.send(&Record::to(&topic).timestamp(7)).await.unwrap().await.unwrap();
    assert!(written.timestamp > 1_700_000_000_000);
    assert_eq!(read_all(&client, &topic, 0).await[0].timestamp, written.timestamp);
}

#[tokio::test]
async fn senders_wait_for_memory_and_then_go_on() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    let builder = client.producer().buffer_memory(2000).batch_size(500);
    let producer =
        builder.linger(Duration::from_secs(3600)).delivery_timeout(Duration::from_secs(7200)).build().unwrap();
    send_numbers(&producer, &topic, 0..1000).await;
    producer.flush().await;
    assert_numbers(&client, &topic, 1000).await;
}

#[tokio::test]
async fn a_topic_or_partition_that_does_not_exist_is_told_in_time() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    let producer = client.producer().max_block(Duration::from_millis(300)).build().unwrap();
    let error = producer.send(&Record::to(&topic).partition(1)).await.unwrap_err();
    assert!(matches!(&error, Error::Timeout { last: Some(_), .. }), "{error}");
    let error = producer.send(&Record::to("not a topic")).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::INVALID_TOPIC_EXCEPTION), "{error}");
}

#[tokio::test]
async fn a_new_topic_is_created_by_producing_to_it() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = unique("automatic");
    let producer = client.producer().build().unwrap();
    let written = producer.send(&Record::to(&topic).value("v")).await.unwrap().await.unwrap();
    assert_eq!(written.offset, Some(0));
}

#[tokio::test]
async fn close_sends_what_is_there_and_takes_nothing_more() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    let producer = client.producer().linger(Duration::from_secs(60)).build().unwrap();
    send_numbers(&producer, &topic, 0..10).await;
    producer.close(PATIENCE).await;
    assert!(matches!(producer.send(&Record::to(&topic)).await, Err(Error::Closed)));
    assert_numbers(&client, &topic, 10).await;
    client.close(PATIENCE).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test]
async fn what_was_sent_goes_out_when_the_producer_is_dropped() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    let producer = client.producer().linger(Duration::from_secs(60)).build().unwrap();
    let sent = send_numbers(&producer, &topic, 0..10).await;
    drop(producer);
    for delivery in sent {
        delivery.await.unwrap();
    }
    assert_numbers(&client, &topic, 10).await;
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_when_the_broker_goes_and_comes_back() {
    let mut broker = Broker::start();
    let client = Client::builder().bootstrap_servers(&broker.bootstrap_servers()).build().unwrap();
    let topic = create_topic(&client, 1, &[]).await;
    let producer = client.producer().batch_size(300).build().unwrap();
    let mut sent = send_numbers(&producer, &topic, 0..1000).await;
    broker.stop();
    sent.extend(send_numbers(&producer, &topic, 1000..2000).await);
    broker.start_again();
    sent.extend(send_numbers(&producer, &topic, 2000..3000).await);
    for delivery in sent {
        delivery.await.unwrap();
    }
    assert_numbers(&client, &topic, 3000).await;
}
