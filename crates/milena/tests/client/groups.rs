//! Members of groups that come, go, hang and come back, with both protocols and every assignor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use milena::testing::Broker;
use milena_client::{
    Client, CommittedOffset, Consumer, ConsumerBuilder, IsolationLevel, OffsetReset, Producer, RebalanceListener,
    Record, SeekTo, TopicPartition,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::common::{Cluster, create_topic, unique};

const PATIENCE: Duration = Duration::from_secs(30);
/// Settings of each way in which a group can agree.
const WAYS: [&[(&str, &str)]; 5] = [
    &[("partition.assignment.strategy", "range")],
    &[("partition.assignment.strategy", "roundrobin")],
    &[("partition.assignment.strategy", "sticky")],
    &[("partition.assignment.strategy", "cooperative-sticky")],
    &[("group.protocol", "consumer")],
];

/// What a member has seen.
#[derive(Debug, Default)]
struct Seen {
    owned: BTreeSet<i32>,
    revoked: Vec<i32>,
    lost: Vec<i32>,
    values: Vec<u64>,
}

/// Notes what comes and goes.
struct Notes(Arc<Mutex<Seen>>);

impl RebalanceListener for Notes {
    fn assigned(&mut self, partitions: &[TopicPartition]) -> Vec<(TopicPartition, SeekTo)> {
        self.0.lock().unwrap().owned.extend(partitions.iter().map(|partition| partition.partition));
        Vec::new()
    }

    fn revoked(&mut self, partitions: &[TopicPartition]) -> Vec<(TopicPartition, CommittedOffset)> {
        let mut seen = self.0.lock().unwrap();
        for partition in partitions {
            assert!(seen.owned.remove(&partition.partition), "{partition} was not owned");
            seen.revoked.push(partition.partition);
        }
        Vec::new()
    }

    fn lost(&mut self, partitions: &[TopicPartition]) {
        let mut seen = self.0.lock().unwrap();
        for partition in partitions {
            assert!(seen.owned.remove(&partition.partition), "{partition} was not owned");
            seen.lost.push(partition.partition);
        }
    }
}

/// A member that reads until it is stopped.
struct Running {
    seen: Arc<Mutex<Seen>>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Consumer>,
}

impl Running {
    fn start(consumer: Consumer) -> Self {
        Self::go_on(consumer, Arc::default())
    }

    fn go_on(consumer: Consumer, seen: Arc<Mutex<Seen>>) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let noted = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut consumer = consumer;
            consumer.on_rebalance(Notes(Arc::clone(&noted)));
            loop {
                tokio::select! {
                    records = consumer.recv() => {
                        let records = records.unwrap();
                        let value = |value: &[u8]| std::str::from_utf8(value).unwrap().parse::<u64>().unwrap();
                        noted.lock().unwrap().values.extend(records.iter().map(|record| value(record.value.unwrap())));
                    }
                    _ = &mut stopped => return consumer,
                }
            }
        });
        Self { seen, stop: Some(stop), task }
    }

    fn owned(&self) -> BTreeSet<i32> {
        self.seen.lock().unwrap().owned.clone()
    }

    /// Stops reading, without leaving the group.
    async fn stop(mut self) -> Consumer {
        drop(self.stop.take());
        self.task.await.unwrap()
    }

    async fn leave(self) {
        self.stop().await.close(PATIENCE).await.unwrap();
    }
}

fn builder(client: &Client, group: &str, settings: &[(&str, &str)]) -> ConsumerBuilder {
    let builder = client.consumer().group_id(group).offset_reset(OffsetReset::Earliest);
    builder.properties(settings.iter().copied()).unwrap()
}

fn join(client: &Client, group: &str, topic: &str, settings: &[(&str, &str)]) -> Running {
    let mut consumer = builder(client, group, settings).build().unwrap();
    consumer.subscribe([topic]).unwrap();
    Running::start(consumer)
}

/// Waits until the members have all partitions, none of them twice, and as many each as they should.
async fn settle(members: &[&Running], partitions: usize) {
    let until = Instant::now() + PATIENCE;
    loop {
        let owned: Vec<BTreeSet<i32>> = members.iter().map(|member| member.owned()).collect();
        let counts = || owned.iter().map(BTreeSet::len);
        let all: BTreeSet<i32> = owned.iter().flatten().copied().collect();
        let even = counts().max().unwrap_or(0) - counts().min().unwrap_or(0) <= 1;
        if all.len() == partitions && counts().sum::<usize>() == partitions && even {
            return;
        }
        assert!(Instant::now() < until, "{owned:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn produce(client: &Client, topic: &str, partitions: i32, numbers: std::ops::Range<u64>) {
    let producer = client.producer().build().unwrap();
    for number in numbers {
        let partition = (number % u64::try_from(partitions).unwrap()) as i32;
        producer.send(&Record::to(topic).partition(partition).value(&number.to_string())).await.unwrap();
    }
    producer.flush().await;
}

/// Waits until the members together have received these many different numbers.
async fn received(members: &[&Running], count: usize) {
    let until = Instant::now() + PATIENCE;
    loop {
        let all: BTreeSet<u64> = members.iter().flat_map(|member| member.seen.lock().unwrap().values.clone()).collect();
        if all.len() == count {
            return;
        }
        assert!(Instant::now() < until, "{} of {count}", all.len());
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn members_share_the_partitions_and_no_record_is_missed_while_they_come_and_go() {
    let cluster = Cluster::start();
    let client = cluster.client();
    for way in WAYS {
        let (topic, group) = (create_topic(&client, 7, &[]).await, unique("group"));
        produce(&client, &topic, 7, 0..700).await;
        let first = join(&client, &group, &topic, way);
        settle(&[&first], 7).await;
        received(&[&first], 700).await;
        let second = join(&client, &group, &topic, way);
        let third = join(&client, &group, &topic, way);
        settle(&[&first, &second, &third], 7).await;
        produce(&client, &topic, 7, 700..1400).await;
        received(&[&first, &second, &third], 1400).await;
        // What was committed by itself before is not received again.
        for other in [&second, &third] {
            assert!(other.seen.lock().unwrap().values.iter().all(|value| *value >= 700), "{way:?}");
        }
        second.leave().await;
        settle(&[&first, &third], 7).await;
        first.leave().await;
        settle(&[&third], 7).await;
        produce(&client, &topic, 7, 1400..2100).await;
        let until = Instant::now() + PATIENCE;
        let of_last =
            || third.seen.lock().unwrap().values.iter().filter(|value| **value >= 1400).collect::<BTreeSet<_>>().len();
        while of_last() < 700 {
            assert!(Instant::now() < until, "{way:?}: {}", of_last());
            sleep(Duration::from_millis(20)).await;
        }
        third.leave().await;
    }
}

#[tokio::test]
async fn five_members_join_at_once() {
    let cluster = Cluster::start();
    let client = cluster.client();
    for way in WAYS {
        let (topic, group) = (create_topic(&client, 12, &[]).await, unique("group"));
        let members: Vec<Running> = (0..5).map(|_| join(&client, &group, &topic, way)).collect();
        settle(&members.iter().collect::<Vec<_>>(), 12).await;
        for member in members {
            member.leave().await;
        }
    }
}

#[tokio::test]
async fn cooperating_members_keep_what_others_do_not_get() {
    let cluster = Cluster::start();
    let client = cluster.client();
    for way in [WAYS[3], WAYS[4]] {
        let (topic, group) = (create_topic(&client, 6, &[]).await, unique("group"));
        let first = join(&client, &group, &topic, way);
        settle(&[&first], 6).await;
        let second = join(&client, &group, &topic, way);
        settle(&[&first, &second], 6).await;
        {
            let seen = first.seen.lock().unwrap();
            assert_eq!((seen.revoked.len(), seen.lost.len()), (3, 0), "{way:?}: {seen:?}");
        }
        second.leave().await;
        settle(&[&first], 6).await;
        assert_eq!(first.seen.lock().unwrap().revoked.len(), 3);
        first.leave().await;
    }
}

#[tokio::test]
async fn a_killed_member_is_replaced_when_its_session_ends() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let (topic, group) = (create_topic(&client, 4, &[]).await, unique("group"));
    let quick = [("session.timeout.ms", "6000"), ("heartbeat.interval.ms", "500")];
    let first = join(&client, &group, &topic, &quick);
    let second = join(&client, &group, &topic, &quick);
    settle(&[&first, &second], 4).await;
    drop(second.stop().await);
    settle(&[&first], 4).await;
    first.leave().await;
}

#[tokio::test]
async fn a_static_member_comes_back_without_anybody_noticing() {
    let cluster = Cluster::start();
    let client = cluster.client();
    for way in [WAYS[0], WAYS[3], WAYS[4]] {
        let (topic, group) = (create_topic(&client, 4, &[]).await, unique("group"));
        let named = |name: &'static str| [way, &[("group.instance.id", name)]].concat();
        let first = join(&client, &group, &topic, &named("a"));
        let second = join(&client, &group, &topic, &named("b"));
        settle(&[&first, &second], 4).await;
        let (had, revoked) = (second.owned(), first.seen.lock().unwrap().revoked.len());
        second.leave().await;
        let second = join(&client, &group, &topic, &named("b"));
        settle(&[&first, &second], 4).await;
        assert_eq!(second.owned(), had, "{way:?}");
        assert_eq!(first.seen.lock().unwrap().revoked.len(), revoked, "{way:?}");
        first.leave().await;
        second.leave().await;
    }
}

#[tokio::test]
async fn a_member_that_hangs_is_expelled_and_hears_of_it_when_it_goes_on() {
    let cluster = Cluster::start();
    let client = cluster.client();
    for way in [WAYS[0], WAYS[3], WAYS[4]] {
        let (topic, group) = (create_topic(&client, 4, &[]).await, unique("group"));
        let first = join(&client, &group, &topic, way);
        let hanging = join(&client, &group, &topic, &[way, &[("max.poll.interval.ms", "2000")]].concat());
        settle(&[&first, &hanging], 4).await;
        let seen = Arc::clone(&hanging.seen);
        let hanging = hanging.stop().await;
        settle(&[&first], 4).await;
        assert_eq!(seen.lock().unwrap().owned.len(), 2);
        let again = Running::go_on(hanging, seen);
        let until = Instant::now() + PATIENCE;
        while again.seen.lock().unwrap().lost.len() != 2 {
            assert!(Instant::now() < until, "{way:?}");
            sleep(Duration::from_millis(20)).await;
        }
        settle(&[&first, &again], 4).await;
        first.leave().await;
        again.leave().await;
    }
}

#[tokio::test]
async fn members_survive_a_restart_of_their_coordinator() {
    let mut broker = Broker::start();
    let client = Client::builder().bootstrap_servers(&broker.bootstrap_servers()).build().unwrap();
    for way in [WAYS[0], WAYS[3], WAYS[4]] {
        let (topic, group) = (create_topic(&client, 4, &[]).await, unique("group"));
        let quick: &[_] = if way == WAYS[4] { &[] } else { &[("heartbeat.interval.ms", "500")] };
        let first = join(&client, &group, &topic, &[way, quick].concat());
        let second = join(&client, &group, &topic, &[way, quick].concat());
        settle(&[&first, &second], 4).await;
        produce(&client, &topic, 4, 0..40).await;
        received(&[&first, &second], 40).await;
        broker = tokio::task::spawn_blocking(move || {
            broker.stop();
            broker.start_again();
            broker
        })
        .await
        .unwrap();
        produce(&client, &topic, 4, 40..80).await;
        received(&[&first, &second], 80).await;
        settle(&[&first, &second], 4).await;
        let third = join(&client, &group, &topic, &[way, quick].concat());
        settle(&[&first, &second, &third], 4).await;
        for member in [first, second, third] {
            member.leave().await;
        }
    }
}

#[tokio::test]
async fn a_pattern_finds_topics_of_now_and_of_later() {
    let cluster = Cluster::start();
    let age = Duration::from_millis(500);
    let client = cluster.builder().metadata_max_age(age).build().unwrap();
    for way in [WAYS[0], WAYS[4]] {
        let prefix = unique("pattern");
        let create = async |name: String| {
            let topic =
                milena_client::admin::NewTopic { partitions: Some(1), ..milena_client::admin::NewTopic::named(&name) };
            client.admin().create_topics(vec![topic], false).await.unwrap().remove(0).1.unwrap();
            produce(&client, &name, 1, 0..1).await;
        };
        create(format!("{prefix}-1")).await;
        create(format!("not-{prefix}-1")).await;
        let mut consumer = builder(&client, &unique("group"), way).build().unwrap();
        consumer.subscribe_pattern(&format!("{prefix}-[0-9]")).unwrap();
        let records = timeout(PATIENCE, consumer.recv()).await.unwrap().unwrap();
        assert_eq!(records.topic(), format!("{prefix}-1"), "{way:?}");
        create(format!("{prefix}-2")).await;
        let records = timeout(PATIENCE, consumer.recv()).await.unwrap().unwrap();
        assert_eq!(records.topic(), format!("{prefix}-2"), "{way:?}");
        consumer.close(PATIENCE).await.unwrap();
    }
}

#[tokio::test]
async fn a_subscription_changes_and_ends() {
    let cluster = Cluster::start();
    let client = cluster.client();
    for way in WAYS {
        let (one, two) = (create_topic(&client, 1, &[]).await, create_topic(&client, 1, &[]).await);
        produce(&client, &one, 1, 0..3).await;
        produce(&client, &two, 1, 0..3).await;
        let mut consumer = builder(&client, &unique("group"), way).build().unwrap();
        consumer.subscribe([one.as_str()]).unwrap();
        assert_eq!(timeout(PATIENCE, consumer.recv()).await.unwrap().unwrap().topic(), one);
        consumer.subscribe([two.as_str()]).unwrap();
        assert_eq!(timeout(PATIENCE, consumer.recv()).await.unwrap().unwrap().topic(), two, "{way:?}");
        assert_eq!(consumer.assignment(), [TopicPartition::new(two.as_str(), 0)]);
        consumer.unsubscribe().await.unwrap();
        assert!(consumer.recv().await.is_err());
        let committed = consumer.committed(&[TopicPartition::new(one.as_str(), 0)]).await.unwrap();
        assert_eq!(committed[0].1.as_ref().map(|offset| offset.offset), Some(3), "{way:?}");
        consumer.subscribe([one.as_str()]).unwrap();
        produce(&client, &one, 1, 3..4).await;
        let records = timeout(PATIENCE, consumer.recv()).await.unwrap().unwrap();
        assert_eq!(records.iter().map(|record| record.offset).collect::<Vec<_>>(), [3], "{way:?}");
        consumer.close(PATIENCE).await.unwrap();
    }
}

/// Reads numbers, and writes each once, with the offsets in the same transaction, until it is stopped.
async fn copy(mut consumer: Consumer, producer: Producer, to: String, mut stopped: oneshot::Receiver<()>) {
    loop {
        let records = tokio::select! {
            records = consumer.recv() => records.unwrap(),
            _ = &mut stopped => break,
        };
        let transaction = producer.begin().await.unwrap();
        for record in &records {
            let value = std::str::from_utf8(record.value.unwrap()).unwrap().to_owned();
            transaction.send(&Record::to(&to).partition(0).value(&value)).await.unwrap();
        }
        let group = consumer.group_metadata().unwrap();
        let sent = transaction.send_offsets(&consumer.positions(), &group).await;
        if sent.is_ok() {
            transaction.commit().await.unwrap();
            continue;
        }
        // The group has gone on without this member: what it has read is read again by whom it belongs to now.
        transaction.abort().await.unwrap();
        for partition in consumer.assignment() {
            consumer.seek(&partition, SeekTo::Committed).unwrap();
        }
    }
    consumer.close(PATIENCE).await.unwrap();
    producer.close(PATIENCE).await;
}

#[tokio::test]
async fn what_is_read_and_written_in_transactions_is_written_once_while_members_come_and_go() {
    let cluster = Cluster::start();
    let client = cluster.client();
    for way in [WAYS[0], WAYS[3], WAYS[4]] {
        let (from, to) = (create_topic(&client, 5, &[]).await, create_topic(&client, 1, &[]).await);
        let group = unique("group");
        let start = || {
            let builder =
                builder(&client, &group, way).isolation_level(IsolationLevel::ReadCommitted).auto_commit(false);
            let mut consumer = builder.set("max.poll.records", "50").unwrap().build().unwrap();
            consumer.subscribe([from.as_str()]).unwrap();
            let producer = client.producer().transactional_id(unique("copy")).build().unwrap();
            let (stop, stopped) = oneshot::channel();
            (stop, tokio::spawn(copy(consumer, producer, to.clone(), stopped)))
        };
        let mut running = vec![start()];
        for round in 0..6 {
            produce(&client, &from, 5, round * 500..(round + 1) * 500).await;
            running.push(start());
            if round % 2 == 1 {
                let (stop, task) = running.remove(0);
                drop(stop);
                task.await.unwrap();
            }
        }
        let mut reader = client.consumer().isolation_level(IsolationLevel::ReadCommitted);
        reader = reader.offset_reset(OffsetReset::Earliest);
        let mut reader = reader.build().unwrap();
        reader.assign([TopicPartition::new(to.as_str(), 0)]);
        let mut counts = BTreeMap::<u64, usize>::new();
        while counts.len() < 3000 {
            let records = timeout(PATIENCE, reader.recv()).await.unwrap().unwrap();
            for record in &records {
                *counts.entry(std::str::from_utf8(record.value.unwrap()).unwrap().parse().unwrap()).or_default() += 1;
            }
        }
        for (stop, task) in running {
            drop(stop);
            task.await.unwrap();
        }
        assert!(counts.values().all(|count| *count == 1), "{way:?}");
        assert_eq!(counts.keys().sum::<u64>(), 2999 * 3000 / 2);
        assert!(reader.poll(Duration::from_millis(500)).await.unwrap().is_none(), "{way:?}");
    }
}
