//! Consuming what was produced, committed, deleted, compressed and aborted.

use std::time::Duration;

use milena::testing::Broker;
use milena_client::admin::{CommittedOffset, NewTopic};
use milena_client::protocol::ErrorCode;
use milena_client::{
    Client, Compression, Consumer, Error, IsolationLevel, OffsetReset, Producer, Record, SeekTo, TopicPartition,
};

use crate::common::{Cluster, create_topic, unique};

const PATIENCE: Duration = Duration::from_secs(30);
/// Keeps records that say that they are old.
const KEPT: (&str, &str) = ("retention.ms", "-1");

fn at(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(topic, partition)
}

/// Produces records whose values are these numbers to partition 0.
async fn produce(producer: &Producer, topic: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        producer.send(&Record::to(topic).partition(0).value(&number.to_string())).await.unwrap();
    }
    producer.flush().await;
}

/// A consumer of one topic's partition 0, from the beginning.
fn consumer(client: &Client, topic: &str) -> Consumer {
    let mut consumer = client.consumer().offset_reset(OffsetReset::Earliest).build().unwrap();
    consumer.assign([at(topic, 0)]);
    consumer
}

/// The values of the next records, as many as that.
async fn values(consumer: &mut Consumer, count: usize) -> Vec<usize> {
    let mut values = Vec::new();
    while values.len() < count {
        let records = consumer.recv().await.unwrap();
        assert!(records.len() > 0);
        let text = |value: &[u8]| std::str::from_utf8(value).unwrap().parse::<usize>().unwrap();
        values.extend(records.iter().map(|record| text(record.value.unwrap())));
    }
    values
}

#[tokio::test]
async fn a_record_is_received_as_it_was_sent() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[KEPT]).await;
    let producer = client.producer().build().unwrap();
    let headers = [("first", Some(&b"1"[..])), ("second", None)];
    let record = Record::to(&topic).key("k").value("v").timestamp(1_700_000_000_000).headers(&headers);
    producer.send(&record).await.unwrap().await.unwrap();
    producer.send(&Record::to(&topic).timestamp(1_700_000_000_001)).await.unwrap().await.unwrap();
    let mut consumer = consumer(&client, &topic);
    let mut received = 0;
    while received < 2 {
        let records = consumer.recv().await.unwrap();
        assert_eq!((records.topic(), records.partition()), (topic.as_str(), 0));
        for record in &records {
            let headers: Vec<_> = record.headers.iter().map(|header| (header.key, header.value)).collect();
            if record.offset == 0 {
                assert_eq!((record.key, record.value), (Some(&b"k"[..]), Some(&b"v"[..])));
                assert_eq!(record.timestamp, 1_700_000_000_000);
                assert_eq!(headers, [(&b"first"[..], Some(&b"1"[..])), (b"second", None)]);
            } else {
                assert_eq!((record.offset, record.timestamp), (1, 1_700_000_000_001));
                assert_eq!((record.key, record.value, headers.len()), (None, None, 0));
            }
        }
        received += records.len();
    }
    assert_eq!(consumer.position(&at(&topic, 0)).await.unwrap(), 2);
    consumer.close(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_topic_that_the_client_has_never_heard_of_is_learnt() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    produce(&client.producer().build().unwrap(), &topic, 0..1).await;
    let mut consumer = consumer(&cluster.client(), &topic);
    let received = tokio::time::timeout(PATIENCE, values(&mut consumer, 1)).await;
    assert_eq!(received.unwrap(), [0]);
}

#[tokio::test]
async fn many_records_are_received_in_order_with_every_codec() {
    let cluster = Cluster::start();
    let client = cluster.client();
    for codec in Compression::ALL {
        let topic = create_topic(&client, 1, &[]).await;
        let producer = client.producer().compression(codec).batch_size(1000).build().unwrap();
        produce(&producer, &topic, 0..3000).await;
        let received = values(&mut consumer(&client, &topic), 3000).await;
        assert_eq!(received, (0..3000).collect::<Vec<_>>(), "{}", codec.name());
    }
}

#[tokio::test]
async fn reading_goes_on_elsewhere_after_a_seek() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[KEPT]).await;
    let producer = client.producer().batch_size(200).build().unwrap();
    for number in 0..100 {
        let record = Record::to(&topic).partition(0).timestamp(1_700_000_000_000 + number * 10);
        producer.send(&record.value(&number.to_string())).await.unwrap();
    }
    producer.flush().await;
    let mut consumer = consumer(&client, &topic);
    let partition = at(&topic, 0);
    assert_eq!(values(&mut consumer, 1).await[0], 0);
    for (to, first) in [
        (SeekTo::Offset(50), 50),
        (SeekTo::Beginning, 0),
        (SeekTo::Time(1_700_000_000_495), 50),
        (SeekTo::Offset(99), 99),
        (SeekTo::Time(0), 0),
    ] {
        consumer.seek(&partition, to).unwrap();
        assert_eq!(values(&mut consumer, 1).await[0], first, "{to:?}");
    }
    for to in [SeekTo::End, SeekTo::Time(i64::MAX), SeekTo::Offset(100)] {
        consumer.seek(&partition, to).unwrap();
        assert_eq!(consumer.position(&partition).await.unwrap(), 100, "{to:?}");
    }
    produce(&producer, &topic, 100..101).await;
    assert_eq!(values(&mut consumer, 1).await, [100]);
    assert_eq!(consumer.lag(&partition), Some(0));
    assert!(consumer.seek(&at(&topic, 7), SeekTo::End).is_err());
    assert!(consumer.seek(&partition, SeekTo::Offset(-1)).is_err());
}

#[tokio::test]
async fn a_paused_partition_gives_nothing_and_loses_nothing() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 2, &[]).await;
    let producer = client.producer().batch_size(500).build().unwrap();
    for partition in [0, 1] {
        for number in 0..1000 {
            let record = Record::to(&topic).partition(partition);
            producer.send(&record.value(&number.to_string())).await.unwrap();
        }
    }
    producer.flush().await;
    let builder = client.consumer().offset_reset(OffsetReset::Earliest);
    let mut consumer = builder.set("max.poll.records", "100").unwrap().build().unwrap();
    consumer.assign([at(&topic, 0), at(&topic, 1)]);
    let mut counts = [0, 0];
    let mut paused = None;
    while counts != [1000, 1000] {
        let records = consumer.recv().await.unwrap();
        let partition = records.topic_partition().clone();
        assert_ne!(paused.as_ref(), Some(&partition));
        for record in &records {
            assert_eq!(record.offset, counts[partition.partition as usize]);
            counts[partition.partition as usize] += 1;
        }
        // One after the other.
        if let Some(paused) = paused.take() {
            consumer.resume([&paused]).unwrap();
            assert!(consumer.paused().is_empty());
        }
        if counts.iter().all(|count| *count < 1000) {
            consumer.pause([&partition]).unwrap();
            assert_eq!(consumer.paused(), std::slice::from_ref(&partition));
            paused = Some(partition);
        }
    }
}

#[tokio::test]
async fn a_group_goes_on_where_it_has_committed() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    let producer = client.producer().batch_size(200).build().unwrap();
    produce(&producer, &topic, 0..100).await;
    let group = unique("group");
    let partition = at(&topic, 0);
    let member = || {
        let builder = client.consumer().group_id(&group).auto_commit(false).offset_reset(OffsetReset::Earliest);
        let mut consumer = builder.build().unwrap();
        consumer.assign([at(&topic, 0)]);
        consumer
    };
    let mut first = member();
    assert_eq!(first.committed(std::slice::from_ref(&partition)).await.unwrap(), [(partition.clone(), None)]);
    values(&mut first, 100).await;
    let offset = CommittedOffset { offset: 40, leader_epoch: None, metadata: "note".to_owned() };
    first.commit_offsets(&[(partition.clone(), offset.clone())]).await.unwrap();
    assert_eq!(first.committed(std::slice::from_ref(&partition)).await.unwrap(), [(partition.clone(), Some(offset))]);
    // What was not committed is read again by the next.
    first.close(PATIENCE).await.unwrap();
    let mut second = member();
    assert_eq!(second.position(&partition).await.unwrap(), 40);
    assert_eq!(values(&mut second, 60).await, (40..100).collect::<Vec<_>>());
    second.commit_sync().await.unwrap();
    produce(&producer, &topic, 100..110).await;
    let mut third = member();
    assert_eq!(values(&mut third, 10).await, (100..110).collect::<Vec<_>>());
    third.commit_async().unwrap().await.unwrap();
    assert_eq!(member().position(&partition).await.unwrap(), 110);
}

#[tokio::test]
async fn what_was_received_is_committed_by_itself_when_the_consumer_is_closed_and_now_and_then() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    let producer = client.producer().build().unwrap();
    produce(&producer, &topic, 0..10).await;
    let group = unique("group");
    let partition = at(&topic, 0);
    let member = |interval: &str| {
        let builder = client.consumer().group_id(&group).offset_reset(OffsetReset::Earliest);
        let mut consumer = builder.set("auto.commit.interval.ms", interval).unwrap().build().unwrap();
        consumer.assign([at(&topic, 0)]);
        consumer
    };
    let mut first = member("3600000");
    values(&mut first, 10).await;
    first.close(PATIENCE).await.unwrap();
    let mut second = member("1");
    assert_eq!(second.position(&partition).await.unwrap(), 10);
    produce(&producer, &topic, 10..20).await;
    assert_eq!(values(&mut second, 10).await, (10..20).collect::<Vec<_>>());
    let mut watcher = member("3600000");
    loop {
        // While it waits for more, what was received is committed.
        assert!(second.poll(Duration::from_millis(10)).await.unwrap().is_none());
        let committed = watcher.committed(std::slice::from_ref(&partition)).await.unwrap();
        if committed[0].1.as_ref().is_some_and(|committed| committed.offset == 20) {
            break;
        }
    }
}

#[tokio::test]
async fn records_of_aborted_and_open_transactions_are_not_received_by_those_who_do_not_want_them() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    for (number, commit) in [(0, true), (10, false), (20, true), (30, false), (40, true)] {
        let producer = client.producer().transactional_id(unique("id")).build().unwrap();
        let transaction = producer.begin().await.unwrap();
        for number in number..number + 10 {
            transaction.send(&Record::to(&topic).partition(0).value(&number.to_string())).await.unwrap();
        }
        producer.flush().await;
        if commit {
            transaction.commit().await.unwrap();
        } else {
            transaction.abort().await.unwrap();
        }
    }
    let producer = client.producer().transactional_id(unique("id")).build().unwrap();
    let open = producer.begin().await.unwrap();
    open.send(&Record::to(&topic).partition(0).value("50")).await.unwrap().await.unwrap();
    let reader = |level| {
        let builder = client.consumer().offset_reset(OffsetReset::Earliest).isolation_level(level);
        let mut consumer = builder.build().unwrap();
        consumer.assign([at(&topic, 0)]);
        consumer
    };
    let mut committed = reader(IsolationLevel::ReadCommitted);
    let expected: Vec<usize> = (0..10).chain(20..30).chain(40..50).collect();
    assert_eq!(values(&mut committed, 30).await, expected);
    assert!(committed.poll(Duration::from_millis(100)).await.unwrap().is_none());
    let ends = committed.end_offsets(&[at(&topic, 0)]).await;
    assert_eq!(ends[0].1.as_ref().unwrap(), &55);
    let mut all = reader(IsolationLevel::ReadUncommitted);
    assert_eq!(values(&mut all, 51).await, (0..51).collect::<Vec<_>>());
    open.commit().await.unwrap();
    assert_eq!(values(&mut committed, 1).await, [50]);
}

#[tokio::test]
async fn a_reader_whose_records_were_deleted_goes_on_where_it_is_told_to() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    let producer = client.producer().build().unwrap();
    produce(&producer, &topic, 0..100).await;
    let partition = at(&topic, 0);
    client.admin().delete_records(vec![(partition.clone(), 60)]).await[0].1.as_ref().unwrap();
    let mut earliest = consumer(&client, &topic);
    earliest.seek(&partition, SeekTo::Offset(10)).unwrap();
    assert_eq!(values(&mut earliest, 40).await, (60..100).collect::<Vec<_>>());
    let mut strict = client.consumer().offset_reset(OffsetReset::None).build().unwrap();
    strict.assign([partition.clone()]);
    assert!(
        matches!(strict.recv().await, Err(Error::Partition { offset: None, cause, .. }) if matches!(*cause, Error::NoOffset))
    );
    strict.seek(&partition, SeekTo::Offset(10)).unwrap();
    let error = strict.recv().await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::OFFSET_OUT_OF_RANGE), "{error}");
    strict.seek(&partition, SeekTo::Offset(70)).unwrap();
    assert_eq!(values(&mut strict, 30).await, (70..100).collect::<Vec<_>>());
    let begins = strict.beginning_offsets(std::slice::from_ref(&partition)).await;
    assert_eq!(begins[0].1.as_ref().unwrap(), &60);
}

#[tokio::test]
async fn a_topic_that_is_created_anew_is_read_from_its_beginning() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    let producer = client.producer().build().unwrap();
    produce(&producer, &topic, 0..10).await;
    let builder = client.consumer().offset_reset(OffsetReset::Earliest);
    let mut consumer = builder.set("allow.auto.create.topics", "false").unwrap().build().unwrap();
    consumer.assign([at(&topic, 0)]);
    assert_eq!(values(&mut consumer, 10).await.len(), 10);
    let admin = client.admin();
    admin.delete_topics(std::slice::from_ref(&topic)).await.unwrap()[0].1.as_ref().unwrap();
    assert!(consumer.poll(Duration::from_millis(50)).await.unwrap().is_none());
    let anew = NewTopic { partitions: Some(1), ..NewTopic::named(&topic) };
    // It is gone a moment after it was deleted.
    while admin.create_topics(vec![anew.clone()], false).await.unwrap()[0].1.is_err() {}
    let producer = client.producer().build().unwrap();
    produce(&producer, &topic, 100..105).await;
    assert_eq!(values(&mut consumer, 5).await, (100..105).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_record_larger_than_all_limits_is_received() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[("max.message.bytes", "8000000")]).await;
    let producer = client.producer().set("max.request.size", "8000000").unwrap().build().unwrap();
    let large = "x".repeat(3 << 20);
    producer.send(&Record::to(&topic).partition(0).value(&large)).await.unwrap().await.unwrap();
    producer.send(&Record::to(&topic).partition(0).value("small")).await.unwrap().await.unwrap();
    let builder = client.consumer().offset_reset(OffsetReset::Earliest);
    let limits = [("fetch.max.bytes", "1000"), ("max.partition.fetch.bytes", "1"), ("milena.prefetch.max.bytes", "1")];
    let mut consumer = builder.properties(limits).unwrap().build().unwrap();
    consumer.assign([at(&topic, 0)]);
    let first = consumer.recv().await.unwrap();
    assert_eq!(first.get(0).unwrap().value.unwrap().len(), 3 << 20);
    let mut rest = first.len() - 1;
    while rest < 1 {
        rest += consumer.recv().await.unwrap().len();
    }
}

#[tokio::test]
async fn a_batch_that_would_be_larger_than_allowed_when_decompressed_is_an_error_to_seek_past() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    let producer = client.producer().compression(Compression::Zstd).build().unwrap();
    let large = "x".repeat(500_000);
    producer.send(&Record::to(&topic).partition(0).value(&large)).await.unwrap().await.unwrap();
    producer.send(&Record::to(&topic).partition(0).value("7")).await.unwrap().await.unwrap();
    let builder = client.consumer().offset_reset(OffsetReset::Earliest);
    let mut consumer = builder.set("milena.decompressed.max.bytes", "100000").unwrap().build().unwrap();
    consumer.assign([at(&topic, 0)]);
    for _ in 0..2 {
        let error = consumer.recv().await.unwrap_err();
        let Error::Partition { offset: Some(0), cause, .. } = &error else { panic!("{error}") };
        assert!(matches!(**cause, Error::Corrupt(_)), "{error}");
    }
    consumer.seek(&at(&topic, 0), SeekTo::Offset(1)).unwrap();
    assert_eq!(values(&mut consumer, 1).await, [7]);
}

#[tokio::test]
async fn many_partitions_are_read_each_in_its_order() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 100, &[]).await;
    let producer = client.producer().build().unwrap();
    for number in 0..5000 {
        let record = Record::to(&topic).partition(number % 100);
        producer.send(&record.value(&(number / 100).to_string())).await.unwrap();
    }
    producer.flush().await;
    let builder = client.consumer().offset_reset(OffsetReset::Earliest);
    let mut consumer = builder.set("milena.prefetch.max.bytes", "1000").unwrap().build().unwrap();
    consumer.assign((0..100).map(|partition| at(&topic, partition)));
    let mut next = vec![0; 100];
    for _ in 0..2 {
        while next.iter().any(|next| *next < 50) {
            let records = consumer.recv().await.unwrap();
            for record in &records {
                assert_eq!(record.offset, next[records.partition() as usize]);
                next[records.partition() as usize] += 1;
            }
        }
        // Half of them once more.
        consumer.assign((50..100).map(|partition| at(&topic, partition)));
        for partition in 50..100 {
            consumer.seek(&at(&topic, partition), SeekTo::Beginning).unwrap();
            next[partition as usize] = 0;
        }
    }
    assert_eq!(consumer.assignment().len(), 50);
}

#[tokio::test]
async fn reading_goes_on_when_the_broker_goes_and_comes_back() {
    let mut broker = Broker::start();
    let client = Client::builder().bootstrap_servers(&broker.bootstrap_servers()).build().unwrap();
    let topic = create_topic(&client, 1, &[]).await;
    let producer = client.producer().build().unwrap();
    produce(&producer, &topic, 0..100).await;
    let mut consumer = consumer(&client, &topic);
    assert_eq!(values(&mut consumer, 100).await.len(), 100);
    broker.stop();
    assert!(consumer.poll(Duration::from_millis(50)).await.unwrap().is_none());
    broker.start_again();
    produce(&producer, &topic, 100..200).await;
    assert_eq!(values(&mut consumer, 100).await, (100..200).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_consumer_of_a_closed_client_says_so_and_one_without_partitions_too() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    let mut consumer = consumer(&client, &topic);
    consumer.assign([]);
    assert!(matches!(consumer.recv().await, Err(Error::NothingAssigned)));
    assert!(consumer.commit_sync().await.is_err());
    consumer.assign([at(&topic, 0)]);
    client.close(PATIENCE).await;
    assert!(matches!(consumer.recv().await, Err(Error::Closed)));
    consumer.close(PATIENCE).await.unwrap();
}
