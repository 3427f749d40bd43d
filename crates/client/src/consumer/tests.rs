//! The consumer against brokers that lose connections, forget sessions and move leaders by a seed.

mod fake;
mod group;

use std::time::Duration;

use fastrand::Rng;
use milena_protocol::ErrorCode;
use tokio::time::timeout;

use super::{Consumer, OffsetReset, SeekTo};
use crate::admin::CommittedOffset;
use crate::error::Error;
use crate::metrics::seen::Seen;
use crate::topic_partition::TopicPartition;
use fake::{Fake, TOPIC};

fn at(partition: i32) -> TopicPartition {
    TopicPartition::new(TOPIC, partition)
}

/// A consumer of all partitions, from their beginnings.
fn consumer(fake: &Fake) -> Consumer {
    let mut consumer = fake.client().consumer().offset_reset(OffsetReset::Earliest).build().unwrap();
    consumer.assign(fake.partitions());
    consumer
}

/// The offsets that are received next, which the values are too.
async fn offsets(consumer: &mut Consumer, count: usize) -> Vec<i64> {
    let mut offsets = Vec::new();
    while offsets.len() < count {
        let records = consumer.recv().await.unwrap();
        offsets.extend(records.iter().map(|record| {
            assert_eq!(record.value.unwrap(), record.offset.to_string().as_bytes());
            record.offset
        }));
    }
    offsets
}

#[tokio::test(start_paused = true)]
async fn each_record_is_received_once_and_in_order_whatever_goes_wrong() {
    for seed in 0..60 * milena_testkit::rounds() {
        let fake = Fake::new(seed, 10 + seed as u32 % 40, 4, 60);
        let ends: Vec<i64> = fake.0.lock().logs.iter().map(fake::Log::end).collect();
        let mut consumer = consumer(&fake);
        let mut random = Rng::with_seed(seed);
        let mut next = vec![0; ends.len()];
        while next != ends {
            let partition = random.i32(0..4);
            match random.u32(..30) {
                0..3 => consumer.pause([&at(partition)]).unwrap(),
                3 => {
                    let back = random.i64(0..=next[partition as usize]);
                    consumer.seek(&at(partition), SeekTo::Offset(back)).unwrap();
                    next[partition as usize] = back;
                }
                _ => consumer.resume(consumer.paused().iter()).unwrap(),
            }
            // Futures that are dropped lose nothing.
            let Ok(records) = timeout(Duration::from_millis(random.u64(..30)), consumer.recv()).await else { continue };
            let records = records.unwrap();
            let next = &mut next[records.partition() as usize];
            for record in &records {
                assert_eq!(record.offset, *next, "seed {seed}");
                assert_eq!(record.value.unwrap(), record.offset.to_string().as_bytes());
                *next += 1;
            }
            assert_eq!(records.next_offset(), *next, "seed {seed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_is_told_only_what_has_changed_and_is_ended_when_the_consumer_is_closed() {
    let fake = Fake::new(1, 0, 50, 1);
    let mut consumer = consumer(&fake);
    let total = fake.0.lock().logs.iter().map(|log| log.end() as usize).sum();
    offsets(&mut consumer, total).await;
    assert!(consumer.poll(Duration::from_secs(1)).await.unwrap().is_none());
    fake.0.lock().fetches.clear();
    fake.0.lock().logs[7].append(3);
    offsets(&mut consumer, 3).await;
    assert!(consumer.poll(Duration::from_secs(1)).await.unwrap().is_none());
    let told: Vec<usize> = fake.0.lock().fetches.iter().map(|(_, told)| *told).filter(|told| *told > 0).collect();
    assert_eq!(told, [1]);
    consumer.close(Duration::from_secs(5)).await.unwrap();
    assert_eq!(fake.0.lock().ended, 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_more_is_fetched_while_enough_waits_to_be_received() {
    let fake = Fake::new(1, 0, 1, 1000);
    let builder = fake.client().consumer().offset_reset(OffsetReset::Earliest);
    let mut consumer = builder.set("milena.prefetch.max.bytes", "1").unwrap().build().unwrap();
    consumer.assign([at(0)]);
    consumer.recv().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(fake.0.lock().fetches.len() <= 3);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_wants_to_hear_nothing_for_a_while_is_not_fetched_from() {
    let fake = Fake::new(1, 0, 1, 100);
    fake.0.lock().throttle_time_ms = 3000;
    let mut consumer = consumer(&fake);
    let total = fake.0.lock().logs[0].end() as usize;
    offsets(&mut consumer, total).await;
    let at = fake.0.lock().fetched_at.clone();
    assert!(at.len() > 2 && at.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(3)), "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_consumer_does_is_counted() {
    let seen = Seen::default();
    let _guard = metrics::set_default_local_recorder(&seen);
    let fake = Fake::new(1, 0, 1, 100);
    fake.0.lock().throttle_time_ms = 20;
    let mut consumer = consumer(&fake);
    let total = fake.0.lock().logs[0].end();
    offsets(&mut consumer, total as usize).await;
    assert_eq!(seen.sum("kafka_consumer_records_consumed_total"), total as f64);
    let bytes = fake.0.lock().logs[0].batches.iter().map(Vec::len).sum::<usize>() as f64;
    assert_eq!(seen.sum("kafka_consumer_bytes_consumed_total"), bytes);
    let fetches = seen.sum("kafka_consumer_fetch_total") as usize;
    assert_eq!(seen.values("kafka_consumer_fetch_size").len(), fetches);
    assert_eq!(seen.values("kafka_consumer_fetch_throttle_time_ms"), vec![20.0; fetches]);
    let lag = seen.values("kafka_consumer_records_lag");
    assert!(lag.is_sorted_by(|before, after| before > after) && lag.last() == Some(&0.0), "{lag:?}");
}

#[tokio::test(start_paused = true)]
async fn a_truncated_log_is_noticed_when_another_leader_has_it() {
    let fake = Fake::new(1, 0, 1, 10);
    let mut reader = consumer(&fake);
    let mut strict = fake.client().consumer().offset_reset(OffsetReset::None).build().unwrap();
    strict.assign([at(0)]);
    strict.seek(&at(0), SeekTo::Offset(0)).unwrap();
    let before = fake.0.lock().logs[0].end();
    for consumer in [&mut reader, &mut strict] {
        offsets(consumer, before as usize).await;
    }
    let kept = {
        let log = &mut fake.0.lock().logs[0];
        log.batches.truncate(5);
        let kept = log.end();
        (log.leader, log.epoch) = (2, 1);
        while log.end() < before + 10 {
            log.append(1);
        }
        kept
    };
    // What replaced the lost records is received.
    assert_eq!(offsets(&mut reader, (before + 10 - kept) as usize).await[0], kept);
    let error = strict.recv().await.unwrap_err();
    let Error::Partition { cause, .. } = &error else { panic!("{error}") };
    assert!(matches!(**cause, Error::Truncated { to: Some(to) } if to == kept), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_close_replica_is_fetched_from_until_it_is_behind() {
    let fake = Fake::new(1, 0, 1, 10);
    let end = {
        let log = &mut fake.0.lock().logs[0];
        log.preferred = Some(2);
        log.end()
    };
    let mut consumer = consumer(&fake);
    offsets(&mut consumer, end as usize).await;
    assert!(consumer.poll(Duration::from_secs(1)).await.unwrap().is_none());
    assert_eq!(fake.0.lock().fetches.last().unwrap().0, 2);
    // It has nothing any more; the leader, which does, knows no replica that is better.
    {
        let mut state = fake.0.lock();
        state.empty.push(2);
        state.logs[0].append(4);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(consumer.poll(Duration::from_millis(25)).await.unwrap().is_none());
    fake.0.lock().logs[0].preferred = None;
    assert_eq!(offsets(&mut consumer, 4).await, (end..end + 4).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_checksum_is_wrong_is_an_error_unless_nobody_looks() {
    let fake = Fake::new(1, 0, 1, 3);
    let (bad, end) = {
        let log = &mut fake.0.lock().logs[0];
        let bad = milena_records::Batch::parse(&log.batches[1]).unwrap().base_offset();
        log.batches[1][30] ^= 1;
        (bad, log.end())
    };
    let mut strict = consumer(&fake);
    assert_eq!(offsets(&mut strict, bad as usize).await.len() as i64, bad);
    let error = strict.recv().await.unwrap_err();
    assert!(matches!(&error, Error::Partition { offset: Some(offset), .. } if *offset == bad), "{error}");
    let builder = fake.client().consumer().offset_reset(OffsetReset::Earliest);
    let mut careless = builder.set("check.crcs", "false").unwrap().build().unwrap();
    careless.assign([at(0)]);
    assert_eq!(offsets(&mut careless, end as usize).await.len() as i64, end);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_begins_by_time_and_at_the_end_where_no_record_is_that_young() {
    let fake = Fake::new(1, 0, 1, 10);
    let end = fake.0.lock().logs[0].end();
    let mut consumer = consumer(&fake);
    consumer.seek(&at(0), SeekTo::Time(1003)).unwrap();
    assert_eq!(consumer.position(&at(0)).await.unwrap(), 3);
    consumer.seek(&at(0), SeekTo::Time(1000 + end)).unwrap();
    assert_eq!(consumer.position(&at(0)).await.unwrap(), end);
    let builder = fake.client().consumer();
    let mut by_age = builder.set("auto.offset.reset", "by_duration:PT1H").unwrap().build().unwrap();
    by_age.assign([at(0)]);
    assert_eq!(by_age.position(&at(0)).await.unwrap(), end);
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_tried_again_while_that_can_help_and_an_asynchronous_one_is_not() {
    let fake = Fake::new(1, 0, 1, 10);
    let mut consumer = fake.client().consumer().group_id("g").auto_commit(false).build().unwrap();
    consumer.assign([at(0)]);
    let offset = |offset| [(at(0), CommittedOffset::at(offset))];
    fake.0.lock().commit_codes = vec![
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode::NOT_COORDINATOR,
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode::UNKNOWN_TOPIC_ID,
    ];
    consumer.commit_offsets(&offset(3)).await.unwrap();
    assert_eq!(fake.0.lock().committed[&0], 3);
    fake.0.lock().commit_codes = vec![ErrorCode::ILLEGAL_GENERATION];
    let error = consumer.commit_offsets(&offset(4)).await.unwrap_err();
    assert_eq!((error.code(), error.is_retriable()), (Some(ErrorCode::ILLEGAL_GENERATION), false));
    consumer.seek(&at(0), SeekTo::Offset(5)).unwrap();
    fake.0.lock().commit_codes = vec![ErrorCode::COORDINATOR_LOAD_IN_PROGRESS];
    assert!(consumer.commit_async().unwrap().await.unwrap_err().is_retriable());
    assert_eq!(fake.0.lock().committed[&0], 3);
    // They are carried out in their order, also when nobody waits.
    for offset in 6..20 {
        consumer.seek(&at(0), SeekTo::Offset(offset)).unwrap();
        drop(consumer.commit_async().unwrap());
    }
    consumer.commit_sync().await.unwrap();
    assert_eq!(fake.0.lock().committed[&0], 19);
}

#[tokio::test(start_paused = true)]
async fn what_went_wrong_with_a_partition_is_told_to_who_asks_for_its_position_while_it_is_paused() {
    let fake = Fake::new(1, 0, 1, 1);
    let mut consumer = fake.client().consumer().offset_reset(OffsetReset::None).build().unwrap();
    consumer.assign([at(0)]);
    consumer.pause([&at(0)]).unwrap();
    assert!(consumer.poll(Duration::from_secs(1)).await.unwrap().is_none());
    let error = consumer.position(&at(0)).await.unwrap_err();
    assert!(matches!(&error, Error::Partition { cause, .. } if matches!(**cause, Error::NoOffset)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_offset_that_is_not_in_the_log_is_not_committed() {
    let fake = Fake::new(1, 0, 2, 1);
    let mut consumer = fake.client().consumer().group_id("g").auto_commit(false).build().unwrap();
    consumer.assign(fake.partitions());
    consumer.seek(&at(0), SeekTo::Offset(1000)).unwrap();
    consumer.seek(&at(1), SeekTo::Offset(0)).unwrap();
    fake.0.lock().no_offsets = true;
    while consumer.poll(Duration::from_secs(1)).await.unwrap().is_some() {}
    consumer.commit_sync().await.unwrap();
    let end = fake.0.lock().logs[1].end();
    assert_eq!(fake.0.lock().committed, [(1, end)].into());
}

#[tokio::test(start_paused = true)]
async fn a_lag_is_none_whatever_a_broker_says_of_its_log() {
    let fake = Fake::new(1, 0, 1, 1);
    fake.0.lock().watermark = Some(i64::MIN);
    let mut consumer = consumer(&fake);
    consumer.recv().await.unwrap();
    assert_eq!(consumer.lag(&at(0)), Some(0));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_consumer_that_is_dropped() {
    let fake = Fake::new(1, 0, 2, 10);
    let client = fake.client();
    let mut consumer = client.consumer().group_id("g").offset_reset(OffsetReset::Earliest).build().unwrap();
    consumer.assign(fake.partitions());
    consumer.recv().await.unwrap();
    drop(consumer.commit_async().unwrap());
    drop(consumer);
    client.close(Duration::from_secs(5)).await;
    drop(client);
    // The tasks of the brokers end with the connections to them, and this test's own are all that is left.
    let tasks = tokio::runtime::Handle::current().metrics();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(tasks.num_alive_tasks(), 0);
}
