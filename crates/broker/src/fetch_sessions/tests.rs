use super::*;

fn slot(index: i32) -> Slot {
    let topic = Arc::new(TopicIdentity { name: "t".into(), id: Uuid::ZERO });
    Slot::new(topic, index, Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))
}

fn key() -> TopicKey {
    TopicKey::Name("t".into())
}

fn partitions(count: i32) -> FetchPartitions {
    let mut partitions = FetchPartitions::default();
    for index in 0..count {
        partitions.topic(key()).entry(index, || slot(index));
    }
    partitions
}

fn order(partitions: &mut FetchPartitions) -> Vec<i32> {
    partitions.slots().iter().map(|slot| slot.index).collect()
}

#[test]
fn served_partitions_go_behind_the_others_and_are_still_found() {
    let mut partitions = partitions(5);
    partitions.rotate(|at| at == 0 || at == 3);
    assert_eq!(order(&mut partitions), [1, 2, 4, 0, 3]);
    for index in 0..5 {
        assert_eq!(partitions.topic(key()).entry(index, || unreachable!()).index, index);
    }
}

#[test]
fn a_forgotten_partition_is_gone_and_the_others_are_still_found() {
    let mut partitions = partitions(4);
    partitions.forget([(key(), [1, 7])]);
    assert_eq!(order(&mut partitions), [0, 2, 3]);
    for index in [0, 2, 3] {
        assert_eq!(partitions.topic(key()).entry(index, || unreachable!()).index, index);
    }
    assert_eq!(partitions.topic(key()).entry(1, || slot(1)).index, 1);
    assert_eq!(order(&mut partitions), [0, 2, 3, 1]);
}

#[test]
fn the_first_partition_can_be_forgotten_and_come_back() {
    let mut partitions = partitions(3);
    partitions.forget([(key(), [0])]);
    assert_eq!(partitions.topic(key()).entry(0, || slot(0)).index, 0);
    assert_eq!(order(&mut partitions), [1, 2, 0]);
    partitions.rotate(|at| at == 0);
    for index in 0..3 {
        assert_eq!(partitions.topic(key()).entry(index, || unreachable!()).index, index);
    }
}

#[test]
fn nothing_is_kept_of_a_topic_without_partitions() {
    let mut partitions = partitions(2);
    partitions.forget([(key(), [0, 1]), (TopicKey::Id(Uuid::ZERO), [0, 1])]);
    assert!(partitions.is_empty() && partitions.places.is_empty());
}

#[test]
fn a_session_goes_on_only_with_its_next_epoch_and_its_way_of_naming_topics() {
    let sessions = FetchSessions::new(1, Duration::from_secs(120));
    let now = Instant::now();
    let id = sessions.begin(&Arc::default(), true, now);
    assert_ne!(id, 0);
    assert_eq!(sessions.resume(id, 2, true, now).err(), Some(ErrorCode::INVALID_FETCH_SESSION_EPOCH));
    assert_eq!(sessions.resume(id, 1, false, now).err(), Some(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR));
    assert!(sessions.resume(id, 1, true, now).is_ok());
    assert!(sessions.resume(id, 2, true, now).is_ok());
    sessions.end(id);
    assert_eq!(sessions.resume(id, 3, true, now).err(), Some(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
}

#[test]
fn the_epoch_wraps_to_one() {
    let sessions = FetchSessions::new(1, Duration::from_secs(120));
    let now = Instant::now();
    let id = sessions.begin(&Arc::default(), true, now);
    sessions.sessions.lock().get_mut(&id).unwrap().epoch = i32::MAX;
    assert!(sessions.resume(id, i32::MAX, true, now).is_ok());
    assert!(sessions.resume(id, 1, true, now).is_ok());
}

#[test]
fn a_full_cache_gives_up_only_what_was_not_used_for_long() {
    let sessions = FetchSessions::new(1, Duration::from_secs(120));
    let now = Instant::now();
    let first = sessions.begin(&Arc::default(), true, now);
    assert_eq!(sessions.begin(&Arc::default(), true, now + Duration::from_secs(120)), 0);
    let second = sessions.begin(&Arc::default(), true, now + Duration::from_secs(121));
    assert_ne!(second, 0);
    assert_eq!(sessions.resume(first, 1, true, now).err(), Some(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    assert_eq!(sessions.len(), 1);
}
