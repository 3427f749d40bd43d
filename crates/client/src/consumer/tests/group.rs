//! The consumer as a member of a group whose coordinator does what the test says.

use std::sync::Arc;
use std::time::Duration;

use milena_protocol::ErrorCode;
use tokio::time::{Instant, timeout};

use super::at;
use super::fake::{Fake, TOPIC};
use crate::consumer::{Consumer, ConsumerBuilder, OffsetReset};
use crate::error::Error;
use crate::test_peer::quick;

const SECOND: Duration = Duration::from_secs(1);

/// A member, which commits by itself only when it gives something up.
fn member(fake: &Fake, protocol: &str, topics: &[&str]) -> Consumer {
    member_with(fake.client().consumer(), protocol, topics)
}

fn member_with(builder: ConsumerBuilder, protocol: &str, topics: &[&str]) -> Consumer {
    let builder = builder.group_id("g").offset_reset(OffsetReset::Earliest);
    let settings = [("group.protocol", protocol), ("auto.commit.interval.ms", "3600000")];
    let mut consumer = builder.properties(settings).unwrap().build().unwrap();
    consumer.subscribe(topics.iter().copied()).unwrap();
    consumer
}

/// Receives all records of so many partitions.
async fn receive_all(fake: &Fake, consumer: &mut Consumer, partitions: usize) {
    let mut missing: i64 = fake.0.lock().logs[..partitions].iter().map(super::fake::Log::end).sum();
    while missing > 0 {
        missing -= consumer.recv().await.unwrap().len() as i64;
    }
}

#[tokio::test(start_paused = true)]
async fn heartbeats_go_out_while_no_metadata_can_be_had() {
    let fake = Fake::new(1, 0, 1, 3);
    fake.0.lock().group.assigned = vec![0];
    // One topic is always looked for.
    let mut consumer = member(&fake, "consumer", &[TOPIC, "missing"]);
    receive_all(&fake, &mut consumer, 1).await;
    fake.0.lock().no_metadata = true;
    fake.0.lock().group.heartbeats.clear();
    assert!(consumer.poll(30 * SECOND).await.unwrap().is_none());
    let heartbeats = fake.0.lock().group.heartbeats.clone();
    assert!(heartbeats.len() >= 20 && heartbeats.iter().all(|epoch| *epoch == 1), "{heartbeats:?}");
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_may_not_be_read_is_told_once_and_read_when_it_may() {
    for protocol in ["classic", "consumer"] {
        for code in [ErrorCode::TOPIC_AUTHORIZATION_FAILED, ErrorCode::INVALID_TOPIC_EXCEPTION] {
            let fake = Fake::new(1, 0, 1, 3);
            fake.0.lock().topic_code = code;
            let mut consumer = member(&fake, protocol, &[TOPIC]);
            let error = consumer.poll(10 * SECOND).await.unwrap_err();
            assert_eq!((error.code(), error.is_retriable()), (Some(code), false));
            assert!(error.to_string().ends_with(": [t]"), "{error}");
            assert!(consumer.poll(10 * SECOND).await.unwrap().is_none());
            {
                let mut state = fake.0.lock();
                (state.topic_code, state.group.epoch, state.group.assigned) = (ErrorCode::NONE, 2, vec![0]);
            }
            timeout(10 * SECOND, receive_all(&fake, &mut consumer, 1)).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_may_not_be_a_member_hears_of_it_and_tries_again() {
    for protocol in ["classic", "consumer"] {
        let fake = Fake::new(1, 0, 1, 3);
        fake.0.lock().group.assigned = vec![0];
        fake.0.lock().group.codes = vec![ErrorCode::GROUP_AUTHORIZATION_FAILED; 2];
        let mut consumer = member(&fake, protocol, &[TOPIC]);
        for _ in 0..2 {
            let error = consumer.poll(10 * SECOND).await.unwrap_err();
            assert_eq!(error.code(), Some(ErrorCode::GROUP_AUTHORIZATION_FAILED));
        }
        timeout(10 * SECOND, receive_all(&fake, &mut consumer, 1)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_while_it_gives_up_a_part_commits_the_rest_too() {
    let fake = Fake::new(1, 0, 2, 3);
    fake.0.lock().group.assigned = vec![0, 1];
    let mut consumer = member(&fake, "consumer", &[TOPIC]);
    receive_all(&fake, &mut consumer, 2).await;
    {
        let mut state = fake.0.lock();
        (state.group.epoch, state.group.assigned, state.commit_delay) = (2, vec![1], 10 * SECOND);
    }
    // It has begun to commit what it gives up, and the answer takes long.
    assert!(consumer.poll(5 * SECOND).await.unwrap().is_none());
    consumer.close(60 * SECOND).await.unwrap();
    let state = fake.0.lock();
    let ends: Vec<i64> = state.logs.iter().map(super::fake::Log::end).collect();
    assert_eq!(state.commits, [(2, vec![(0, ends[0])]), (2, vec![(1, ends[1])])]);
    assert_eq!(state.group.heartbeats.last(), Some(&-1));
}

#[tokio::test(start_paused = true)]
async fn who_stops_waiting_for_the_end_of_its_subscription_reads_nothing_more() {
    let fake = Fake::new(1, 0, 1, 3);
    fake.0.lock().group.assigned = vec![0];
    let mut consumer = member(&fake, "consumer", &[TOPIC]);
    receive_all(&fake, &mut consumer, 1).await;
    fake.0.lock().commit_delay = 10 * SECOND;
    assert!(timeout(SECOND, consumer.unsubscribe()).await.is_err());
    assert!(consumer.assignment().is_empty() && consumer.subscription().is_empty());
    assert!(matches!(consumer.recv().await, Err(Error::NothingAssigned)));
    assert_eq!(consumer.group_metadata().unwrap().generation, -1);
    // The commit that was begun is carried out.
    tokio::time::sleep(20 * SECOND).await;
    let state = fake.0.lock();
    assert_eq!(state.commits, [(1, vec![(0, state.logs[0].end())])]);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_waits_is_sent_in_the_name_in_which_it_was_begun() {
    let fake = Fake::new(1, 0, 1, 3);
    fake.0.lock().group.assigned = vec![0];
    let mut consumer = member(&fake, "consumer", &[TOPIC]);
    receive_all(&fake, &mut consumer, 1).await;
    fake.0.lock().commit_delay = 10 * SECOND;
    let (first, second) = (consumer.commit_async().unwrap(), consumer.commit_async().unwrap());
    {
        let mut state = fake.0.lock();
        (state.group.epoch, state.group.codes) = (7, vec![ErrorCode::FENCED_MEMBER_EPOCH]);
    }
    // Meanwhile the member loses what it had, and joins again.
    while consumer.group_metadata().unwrap().generation != 7 {
        drop(consumer.poll(SECOND).await.unwrap());
    }
    assert!(fake.0.lock().commits.is_empty());
    first.await.unwrap();
    second.await.unwrap();
    let generations: Vec<i32> = fake.0.lock().commits.iter().map(|(generation, _)| *generation).collect();
    assert_eq!(generations, [1, 1]);
    assert_eq!(consumer.assignment(), [at(0)]);
}

#[tokio::test(start_paused = true)]
async fn a_commit_waits_while_the_group_is_divided_anew_and_the_member_keeps_what_it_has() {
    let fake = Fake::new(1, 0, 1, 3);
    let client = quick().retry_backoff(SECOND / 10, SECOND).build_over(Arc::new(fake.clone())).unwrap();
    let builder = client.consumer().set("partition.assignment.strategy", "cooperative-sticky").unwrap();
    let mut consumer = member_with(builder, "classic", &[TOPIC]);
    receive_all(&fake, &mut consumer, 1).await;
    {
        let mut state = fake.0.lock();
        (state.group.codes, state.group.join_delay) = (vec![ErrorCode::REBALANCE_IN_PROGRESS], 5 * SECOND);
        (state.group.epoch, state.least_generation) = (2, 2);
    }
    // It has heard that it is to join again, and did so.
    assert!(consumer.poll(4 * SECOND).await.unwrap().is_none());
    assert_eq!(consumer.group_metadata().unwrap().generation, 1);
    consumer.commit_sync().await.unwrap();
    let state = fake.0.lock();
    let end = state.logs[0].end();
    assert_eq!((state.commits.first(), state.commits.last()), (Some(&(1, vec![(0, end)])), Some(&(2, vec![(0, end)]))));
}

#[tokio::test(start_paused = true)]
async fn who_has_lost_its_place_in_the_group_commits_nothing_until_it_has_joined_again() {
    let fake = Fake::new(1, 0, 1, 3);
    let mut consumer = member(&fake, "classic", &[TOPIC]);
    receive_all(&fake, &mut consumer, 1).await;
    {
        let mut state = fake.0.lock();
        (state.group.codes, state.group.join_delay) = (vec![ErrorCode::ILLEGAL_GENERATION], 10 * SECOND);
        state.group.epoch = 2;
    }
    tokio::time::sleep(5 * SECOND).await;
    // It has not heard of it yet.
    assert_eq!(consumer.assignment(), [at(0)]);
    assert_eq!(consumer.commit_sync().await.unwrap_err().code(), Some(ErrorCode::UNKNOWN_MEMBER_ID));
    assert!(fake.0.lock().commits.is_empty());
    while consumer.group_metadata().unwrap().generation != 2 || consumer.assignment().is_empty() {
        drop(consumer.poll(SECOND).await.unwrap());
    }
    let offsets = [(at(0), crate::CommittedOffset::at(1))];
    consumer.commit_offsets(&offsets).await.unwrap();
    assert_eq!(fake.0.lock().commits, [(2, vec![(0, 1)])]);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_while_the_group_is_divided_anew_does_not_wait_for_the_others() {
    let fake = Fake::new(1, 0, 1, 3);
    let mut consumer = member(&fake, "classic", &[TOPIC]);
    receive_all(&fake, &mut consumer, 1).await;
    {
        let mut state = fake.0.lock();
        (state.group.codes, state.group.join_delay) = (vec![ErrorCode::REBALANCE_IN_PROGRESS], 3600 * SECOND);
    }
    // It has given up everything, and has asked to join.
    assert!(consumer.poll(10 * SECOND).await.unwrap().is_none());
    assert!(consumer.assignment().is_empty());
    let begun = Instant::now();
    consumer.close(60 * SECOND).await.unwrap();
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
    assert_eq!(fake.0.lock().group.left, ["me"]);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_before_it_knows_its_name_gives_back_the_place_that_is_kept_for_it() {
    let fake = Fake::new(1, 0, 1, 3);
    {
        let mut state = fake.0.lock();
        (state.group.codes, state.group.join_delay) = (vec![ErrorCode::MEMBER_ID_REQUIRED], 5 * SECOND);
    }
    let mut consumer = member(&fake, "classic", &[TOPIC]);
    assert!(consumer.poll(SECOND).await.unwrap().is_none());
    consumer.close(60 * SECOND).await.unwrap();
    assert_eq!(fake.0.lock().group.left, ["me"]);
}
