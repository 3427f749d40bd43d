//! Transactions, and what readers of committed records see of them.

use std::task::Poll;
use std::time::Duration;

use milena::testing::Broker;
use milena_client::protocol::ErrorCode;
use milena_client::protocol::messages::OffsetFetchRequest;
use milena_client::protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use milena_client::{
    Client, CommittedOffset, CoordinatorKind, Error, GroupMetadata, Producer, Record, Target, TopicPartition,
    Transaction, check,
};

use crate::common::{Cluster, create_topic, unique};
use crate::read::{read_all, read_committed};

fn producer(client: &Client, id: &str) -> Producer {
    client.producer().transactional_id(id).build().unwrap()
}

async fn send(transaction: &Transaction, topic: &str, values: &[&str]) {
    for value in values {
        transaction.send(&Record::to(topic).partition(0).value(value)).await.unwrap();
    }
}

async fn committed(client: &Client, topic: &str) -> Vec<String> {
    let read = read_committed(client, topic, 0).await;
    read.into_iter().map(|record| record.value.unwrap()).collect()
}

#[tokio::test]
async fn what_is_committed_is_seen_and_what_is_aborted_is_not() {
    let cluster = Cluster::start();
    commit_and_abort(&cluster.client()).await;
}

#[tokio::test]
async fn transactions_of_version_1_are_the_same_to_their_users() {
    for version in [0, 1] {
        let broker = Broker::options().feature("transaction.version", version).start();
        let client = Client::builder().bootstrap_servers(&broker.bootstrap_servers()).build().unwrap();
        commit_and_abort(&client).await;
        offsets_of_transactions(&client).await;
        failed_record(&client).await;
    }
}

async fn commit_and_abort(client: &Client) {
    let topic = create_topic(client, 1, &[]).await;
    let producer = producer(client, &unique("id"));
    for (round, commit) in [(0, true), (1, false), (2, true)] {
        let transaction = producer.begin().await.unwrap();
        let values = [format!("{round}a"), format!("{round}b")];
        send(&transaction, &topic, &[&values[0], &values[1]]).await;
        if commit {
            transaction.commit().await.unwrap();
        } else {
            producer.flush().await;
            transaction.abort().await.unwrap();
        }
    }
    assert_eq!(committed(client, &topic).await, ["0a", "0b", "2a", "2b"]);
    assert_eq!(read_all(client, &topic, 0).await.len(), 6);
    producer.close(Duration::from_secs(30)).await;
}

#[tokio::test]
async fn a_transaction_that_is_dropped_is_aborted_and_the_next_can_begin() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    let producer = producer(&client, &unique("id"));
    let transaction = producer.begin().await.unwrap();
    send(&transaction, &topic, &["dropped"]).await;
    producer.flush().await;
    drop(transaction);
    let transaction = producer.begin().await.unwrap();
    send(&transaction, &topic, &["kept"]).await;
    transaction.commit().await.unwrap();
    assert_eq!(committed(&client, &topic).await, ["kept"]);
}

#[tokio::test]
async fn records_that_were_not_sent_fail_when_their_transaction_is_aborted() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    let builder = client.producer().transactional_id(unique("id"));
    let producer = builder.linger(Duration::from_secs(3600)).build().unwrap();
    let transaction = producer.begin().await.unwrap();
    let delivery = transaction.send(&Record::to(&topic).value("v")).await.unwrap();
    transaction.abort().await.unwrap();
    assert!(matches!(delivery.await, Err(Error::Aborted)));
    assert!(read_all(&client, &topic, 0).await.is_empty());
    // An empty transaction needs nobody.
    producer.begin().await.unwrap().commit().await.unwrap();
}

#[tokio::test]
async fn a_later_producer_with_the_same_id_ends_the_earlier_one() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    let id = unique("id");
    let (first, second) = (producer(&client, &id), producer(&client, &id));
    let old = first.begin().await.unwrap();
    send(&old, &topic, &["old"]).await;
    first.flush().await;
    let new = second.begin().await.unwrap();
    send(&new, &topic, &["new"]).await;
    new.commit().await.unwrap();
    let error = old.commit().await.unwrap_err();
    assert!(matches!(error, Error::Transaction { fatal: true, .. }), "{error}");
    assert!(matches!(first.begin().await, Err(Error::Transaction { fatal: true, .. })));
    assert_eq!(committed(&client, &topic).await, ["new"]);
}

#[tokio::test]
async fn a_commit_whose_future_is_dropped_goes_on_to_its_end() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 1, &[]).await;
    let producer = producer(&client, &unique("id"));
    let transaction = producer.begin().await.unwrap();
    send(&transaction, &topic, &["kept"]).await;
    let mut commit = Box::pin(transaction.commit());
    let is_waiting = std::future::poll_fn(|cx| Poll::Ready(commit.as_mut().poll(cx).is_pending())).await;
    assert!(is_waiting);
    drop(commit);
    producer.begin().await.unwrap().abort().await.unwrap();
    assert_eq!(committed(&client, &topic).await, ["kept"]);
}

#[tokio::test]
async fn a_transaction_goes_on_when_the_broker_goes_and_comes_back() {
    let mut broker = Broker::start();
    let client = Client::builder().bootstrap_servers(&broker.bootstrap_servers()).build().unwrap();
    let topic = create_topic(&client, 1, &[]).await;
    let producer = producer(&client, &unique("id"));
    let transaction = producer.begin().await.unwrap();
    send(&transaction, &topic, &["before"]).await;
    producer.flush().await;
    broker.stop();
    send(&transaction, &topic, &["without"]).await;
    broker.start_again();
    send(&transaction, &topic, &["after"]).await;
    transaction.commit().await.unwrap();
    assert_eq!(committed(&client, &topic).await, ["before", "without", "after"]);
}

#[tokio::test]
async fn a_record_that_fails_takes_its_transaction_with_it_and_the_next_is_sound() {
    let cluster = Cluster::start();
    failed_record(&cluster.client()).await;
}

async fn failed_record(client: &Client) {
    let topic = create_topic(client, 1, &[("max.message.bytes", "1000")]).await;
    let producer = producer(client, &unique("id"));
    let transaction = producer.begin().await.unwrap();
    send(&transaction, &topic, &["small"]).await;
    let large = "x".repeat(2000);
    let refused = transaction.send(&Record::to(&topic).partition(0).value(&large)).await.unwrap();
    producer.flush().await;
    assert_eq!(refused.await.unwrap_err().code(), Some(ErrorCode::MESSAGE_TOO_LARGE));
    let record = Record::to(&topic).value("late");
    assert!(matches!(transaction.send(&record).await, Err(Error::Transaction { fatal: false, .. })));
    assert!(matches!(transaction.commit().await, Err(Error::Transaction { fatal: false, .. })));
    let transaction = producer.begin().await.unwrap();
    send(&transaction, &topic, &["sound"]).await;
    transaction.commit().await.unwrap();
    assert_eq!(committed(client, &topic).await, ["sound"]);
}

#[tokio::test]
async fn offsets_are_committed_with_the_transaction_only() {
    let cluster = Cluster::start();
    offsets_of_transactions(&cluster.client()).await;
}

async fn offsets_of_transactions(client: &Client) {
    let topic = create_topic(client, 1, &[]).await;
    let (group, producer) = (unique("group"), producer(client, &unique("id")));
    let partition = TopicPartition::new(topic.as_str(), 0);
    let offset =
        |offset| (partition.clone(), CommittedOffset { metadata: "note".to_owned(), ..CommittedOffset::at(offset) });
    for (number, commit, seen) in [(5, true, 5), (9, false, 5)] {
        let transaction = producer.begin().await.unwrap();
        transaction.send_offsets(&[offset(number)], &GroupMetadata::of(&group)).await.unwrap();
        if commit {
            transaction.commit().await.unwrap();
        } else {
            transaction.abort().await.unwrap();
        }
        assert_eq!(fetch_offset(client, &group, &topic).await, seen);
    }
}

/// What is committed for partition 0; while a transaction is about to end, it is asked again.
async fn fetch_offset(client: &Client, group: &str, topic: &str) -> i64 {
    let topics = vec![OffsetFetchRequestTopic { name: topic.into(), partition_indexes: vec![0].into() }];
    let request =
        OffsetFetchRequest { group_id: group.into(), topics: Some(topics), require_stable: true, ..Default::default() };
    let target = Target::Coordinator(CoordinatorKind::Group, group);
    let fetch = client.call(target, &request).versions(7..=7).read(|response| {
        check(response.error_code, None)?;
        let partition = &response.topics[0].partitions[0];
        check(partition.error_code, None)?;
        Ok(partition.committed_offset)
    });
    fetch.await.unwrap()
}
