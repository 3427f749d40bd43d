//! Every future of the client can be spawned, on a runtime with many threads too. That it compiles is the test.

#![allow(unreachable_pub)] // Nothing of a test is reachable.

use std::time::Duration;

use milena_client::{
    Client, CommittedOffset, Consumer, Error, GroupMetadata, Producer, Record, TopicPartition, Transaction,
};

fn can_be_spawned<T>(future: impl Future<Output = Result<T, Error>> + Send) {
    drop(future);
}

fn futures_of_a_producer(producer: &Producer, transaction: Transaction, record: &Record<'_>) {
    let (offsets, group) = ([(TopicPartition::new("t", 0), CommittedOffset::at(0))], GroupMetadata::of("g"));
    can_be_spawned(async { producer.send(record).await?.await });
    can_be_spawned(producer.begin());
    can_be_spawned(transaction.send(record));
    can_be_spawned(transaction.send_offsets(&offsets, &group));
    can_be_spawned(transaction.commit());
}

fn futures_of_a_consumer(mut consumer: Consumer) {
    can_be_spawned(consumer.recv());
    can_be_spawned(consumer.poll(Duration::ZERO));
    can_be_spawned(consumer.position(&TopicPartition::new("t", 0)));
    can_be_spawned(consumer.commit_sync());
    can_be_spawned(consumer.commit_offsets(&[]));
    can_be_spawned(consumer.committed(&[]));
    can_be_spawned(async { Ok(consumer.beginning_offsets(&[]).await) });
    can_be_spawned(async { Ok(consumer.end_offsets(&[]).await) });
    can_be_spawned(async { Ok(consumer.offsets_for_times(&[]).await) });
    can_be_spawned(consumer.unsubscribe());
    can_be_spawned(consumer.close(Duration::ZERO));
}

fn futures_of_an_administrator(client: &Client) {
    let admin = client.admin();
    can_be_spawned(admin.list_groups(&[], &[]));
    can_be_spawned(admin.describe_groups(&[]));
    can_be_spawned(admin.create_topics(Vec::new(), false));
    can_be_spawned(client.all_topics());
}

#[test]
fn futures_can_be_spawned() {
    let _ = (futures_of_a_producer, futures_of_a_consumer, futures_of_an_administrator);
}
