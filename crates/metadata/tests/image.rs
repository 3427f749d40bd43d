//! Replay of metadata records: what each one does to the image, what the delta names, and that an image's own records make
//! it again.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use milena_metadata::{
    ConfigResource, Delta, Image, ImageBuilder, LeaderRecoveryState, MetadataVersion, Provenance, ReplayError,
    VersionedRecord,
};
use milena_protocol::messages::*;
use milena_protocol::{MetadataRecord, Uuid, Writer};

fn id(n: u8) -> Uuid {
    Uuid::from_bytes([n; 16])
}

fn topic(name: &'static str, n: u8) -> MetadataRecord<'static> {
    TopicRecord { name: name.into(), topic_id: id(n) }.into()
}

fn partition(n: u8, partition_id: i32) -> MetadataRecord<'static> {
    let record = PartitionRecord {
        partition_id,
        topic_id: id(n),
        replicas: vec![1, 2].into(),
        isr: vec![1, 2].into(),
        leader: 1,
        leader_epoch: 0,
        partition_epoch: 0,
        directories: vec![id(101), id(102)].into(),
        ..PartitionRecord::default()
    };
    record.into()
}

fn change(n: u8, partition_id: i32) -> PartitionChangeRecord<'static> {
    PartitionChangeRecord { partition_id, topic_id: id(n), ..PartitionChangeRecord::default() }
}

fn feature(name: &'static str, feature_level: i16) -> MetadataRecord<'static> {
    FeatureLevelRecord { name: name.into(), feature_level }.into()
}

fn config(
    kind: i8,
    resource: &'static str,
    name: &'static str,
    value: Option<&'static str>,
) -> MetadataRecord<'static> {
    ConfigRecord {
        resource_type: kind,
        resource_name: resource.into(),
        name: name.into(),
        value: value.map(Cow::Borrowed),
    }
    .into()
}

fn register(broker_epoch: i64) -> MetadataRecord<'static> {
    let end_point = register_broker_record::BrokerEndpoint {
        name: "PLAINTEXT".into(),
        host: "localhost".into(),
        port: 9092,
        security_protocol: 0,
    };
    let feature = register_broker_record::BrokerFeature {
        name: "metadata.version".into(),
        min_supported_version: 7,
        max_supported_version: 33,
    };
    RegisterBrokerRecord {
        broker_id: 1,
        incarnation_id: id(50),
        broker_epoch,
        end_points: vec![end_point],
        features: vec![feature],
        rack: Some("r".into()),
        log_dirs: vec![id(102), id(101)].into(),
        ..RegisterBrokerRecord::default()
    }
    .into()
}

fn registration_change(broker_epoch: i64) -> BrokerRegistrationChangeRecord<'static> {
    BrokerRegistrationChangeRecord { broker_id: 1, broker_epoch, ..BrokerRegistrationChangeRecord::default() }
}

fn quota(user: Option<&'static str>, value: f64, remove: bool) -> MetadataRecord<'static> {
    let entity = client_quota_record::EntityData { entity_type: "user".into(), entity_name: user.map(Cow::Borrowed) };
    ClientQuotaRecord { entity: vec![entity], key: "producer_byte_rate".into(), value, remove }.into()
}

fn acl(n: u8) -> MetadataRecord<'static> {
    AccessControlEntryRecord {
        id: id(n),
        resource_type: 2,
        resource_name: "t".into(),
        pattern_type: 3,
        principal: "User:a".into(),
        host: "*".into(),
        operation: 3,
        permission_type: 3,
    }
    .into()
}

fn scram(user: &'static str) -> MetadataRecord<'static> {
    UserScramCredentialRecord {
        name: user.into(),
        mechanism: 1,
        salt: vec![1].into(),
        stored_key: vec![2].into(),
        server_key: vec![3].into(),
        iterations: 4096,
    }
    .into()
}

fn token(token_id: &'static str) -> MetadataRecord<'static> {
    DelegationTokenRecord {
        owner: "User:a".into(),
        requester: "User:b".into(),
        renewers: vec!["User:c".into()],
        issue_timestamp: 1,
        max_timestamp: 3,
        expiration_timestamp: 2,
        token_id: token_id.into(),
    }
    .into()
}

fn controller() -> MetadataRecord<'static> {
    RegisterControllerRecord { controller_id: 1, incarnation_id: id(51), ..Default::default() }.into()
}

fn apply(image: &Image, records: &[MetadataRecord<'_>]) -> (Image, Delta) {
    image.apply(records).unwrap()
}

fn after(records: &[MetadataRecord<'_>]) -> Image {
    apply(&Image::default(), records).0
}

fn refused(image: &Image, record: MetadataRecord<'_>) -> ReplayError {
    image.apply([&record]).unwrap_err()
}

/// An image with something of everything.
fn full() -> Image {
    after(&[
        feature("metadata.version", 33),
        feature("group.version", 1),
        register(5),
        controller(),
        topic("b", 2),
        partition(2, 0),
        topic("a", 1),
        partition(1, 0),
        partition(1, 1),
        config(2, "a", "retention.ms", Some("1")),
        config(4, "", "min.insync.replicas", Some("1")),
        quota(Some("u"), 10.5, false),
        quota(None, 20.0, false),
        ProducerIdsRecord { broker_id: 1, broker_epoch: 5, next_producer_id: 3000 }.into(),
        acl(70),
        scram("u"),
        token("t"),
    ])
}

/// An image made from the bytes of an image's own records.
fn through_bytes(image: &Image) -> Image {
    let mut builder = ImageBuilder::new(&Image::default());
    for VersionedRecord { record, version } in image.records() {
        let mut w = Writer::new();
        record.encode_framed(&mut w, version).unwrap();
        let bytes = w.into_bytes();
        let (decoded, decoded_version) = MetadataRecord::decode_framed(&bytes).unwrap();
        assert_eq!(decoded_version, version);
        builder.replay(&decoded).unwrap();
    }
    builder.finish(image.provenance()).unwrap().0
}

#[test]
fn an_images_own_records_make_it_again() {
    let image = full();
    assert_eq!(through_bytes(&image), image);
    let names: Vec<&str> = image.records().map(|r| r.record.name()).collect();
    assert_eq!(
        names,
        [
            "FeatureLevelRecord",
            "FeatureLevelRecord",
            "RegisterBrokerRecord",
            "RegisterControllerRecord",
            "TopicRecord",
            "PartitionRecord",
            "PartitionRecord",
            "TopicRecord",
            "PartitionRecord",
            "ConfigRecord",
            "ConfigRecord",
            "ClientQuotaRecord",
            "ClientQuotaRecord",
            "ProducerIdsRecord",
            "AccessControlEntryRecord",
            "UserScramCredentialRecord",
            "DelegationTokenRecord",
        ]
    );
}

#[test]
fn record_versions_follow_the_metadata_version() {
    let versions = |level| {
        let (image, _) = apply(&full(), &[feature("metadata.version", level)]);
        let version = |name| image.records().find(|r| r.record.name() == name).unwrap().version;
        assert_eq!(through_bytes(&image).topics().len(), 2);
        (version("RegisterBrokerRecord"), version("PartitionRecord"))
    };
    assert_eq!(versions(33), (4, 2));
    assert_eq!(versions(25), (3, 2));
    assert_eq!(versions(17), (3, 1));
    assert_eq!(versions(16), (2, 0));
    assert_eq!(versions(7), (1, 0));
    let at = |record: MetadataRecord<'static>| VersionedRecord::at(record, MetadataVersion::LATEST_PRODUCTION).version;
    assert_eq!(at(partition(1, 0)), 2);
    assert_eq!(at(BrokerRegistrationChangeRecord { fenced: 1, ..registration_change(1) }.into()), 0);
    assert_eq!(at(BrokerRegistrationChangeRecord { in_controlled_shutdown: 1, ..registration_change(1) }.into()), 1);
    let cordoned_log_dirs = Some(Vec::new().into());
    assert_eq!(at(BrokerRegistrationChangeRecord { cordoned_log_dirs, ..registration_change(1) }.into()), 3);
}

#[test]
fn every_change_bumps_the_partition_epoch_and_every_named_leader_the_leader_epoch() {
    let image = after(&[topic("t", 1), partition(1, 0)]);
    let epochs = |record: PartitionChangeRecord<'static>| {
        let (image, _) = apply(&image, &[record.into()]);
        let p = image.topics().get("t").unwrap().partition(0).unwrap().clone();
        (p.leader, p.leader_epoch, p.partition_epoch)
    };
    assert_eq!(epochs(change(1, 0)), (1, 0, 1));
    assert_eq!(epochs(PartitionChangeRecord { isr: Some(vec![1].into()), ..change(1, 0) }), (1, 0, 1));
    assert_eq!(epochs(PartitionChangeRecord { leader: 2, ..change(1, 0) }), (2, 1, 1));
    assert_eq!(epochs(PartitionChangeRecord { leader: 1, ..change(1, 0) }), (1, 1, 1));
    assert_eq!(epochs(PartitionChangeRecord { leader: -1, ..change(1, 0) }), (-1, 1, 1));
}

#[test]
fn a_change_replaces_only_the_lists_it_names() {
    let image = after(&[topic("t", 1), partition(1, 0)]);
    let record = PartitionChangeRecord {
        isr: Some(vec![].into()),
        leader: -1,
        leader_recovery_state: 1,
        eligible_leader_replicas: Some(vec![1].into()),
        last_known_elr: Some(vec![1].into()),
        ..change(1, 0)
    };
    let (image, delta) = apply(&image, &[record.into()]);
    let p = image.topics().get_by_id(id(1)).unwrap().partition(0).unwrap();
    assert_eq!((&p.replicas[..], &p.isr[..], &p.eligible_leader_replicas[..]), (&[1, 2][..], &[][..], &[1][..]));
    assert_eq!((p.leader_recovery_state, p.directory(2)), (LeaderRecoveryState::Recovering, Some(id(102))));
    assert_eq!(delta.topics.changed, BTreeMap::from([(id(1), [0].into())]));
    assert!(delta.topics.created.is_empty());
    let (image, delta) = apply(&image, &[ClearElrRecord { topic_name: "".into() }.into()]);
    let p = image.topics().get("t").unwrap().partition(0).unwrap();
    assert!(p.eligible_leader_replicas.is_empty() && p.last_known_elr.is_empty());
    assert_eq!((p.partition_epoch, delta.topics.changed.len()), (2, 1));
    let (_, delta) = apply(&image, &[ClearElrRecord { topic_name: "t".into() }.into()]);
    assert!(delta.is_empty(), "there was nothing left to clear");
}

#[test]
fn a_partition_without_directories_gets_the_migrating_one() {
    let MetadataRecord::Partition(mut record) = partition(1, 0) else { unreachable!() };
    record.directories = Vec::new().into();
    let image = after(&[topic("t", 1), record.into()]);
    let p = image.topics().get("t").unwrap().partition(0).unwrap();
    assert_eq!(p.directories, [milena_metadata::directory_migrating(); 2]);
}

#[test]
fn a_deleted_topic_takes_its_configuration_along_and_can_be_made_again() {
    let image = full();
    let gone = RemoveTopicRecord { topic_id: id(1) };
    let (without, delta) = apply(&image, &[gone.clone().into()]);
    assert_eq!((without.topics().len(), without.topics().get_by_id(id(1))), (1, None));
    assert_eq!(without.configs().topic("a"), None);
    assert_eq!(delta.topics.deleted.get(&id(1)), image.topics().get("a"));
    assert!(delta.configs.contains(&ConfigResource::topic("a")));
    // In one batch: gone and made again, and one that never was visible.
    let records =
        [gone.into(), topic("a", 9), partition(9, 0), topic("x", 8), RemoveTopicRecord { topic_id: id(8) }.into()];
    let (again, delta) = apply(&image, &records);
    assert_eq!(again.topics().get("a").unwrap().id, id(9));
    assert_eq!(again.topics().get("x"), None);
    assert_eq!(delta.topics.created, [id(9)].into());
    assert_eq!(delta.topics.deleted.len(), 1);
    assert_eq!(image.topics().get("a").unwrap().id, id(1), "the old image is as it was");
}

#[test]
fn partitions_may_come_in_any_order_but_without_a_gap() {
    let image = after(&[topic("t", 1), partition(1, 2), partition(1, 0), partition(1, 1)]);
    assert_eq!(image.topics().get("t").unwrap().partitions.len(), 3);
    let gap = Image::default().apply(&[topic("t", 1), partition(1, 0), partition(1, 2)]).unwrap_err();
    assert_eq!(gap, ReplayError::PartitionGap { topic_id: id(1), partition: 2 });
}

#[test]
fn brokers_are_fenced_unfenced_changed_and_unregistered() {
    let image = after(&[feature("metadata.version", 33), register(5)]);
    let broker = |image: &Image| image.cluster().broker(1).unwrap().clone();
    assert!(broker(&image).fenced);
    assert_eq!(broker(&image).directories, [id(101), id(102)], "sorted");
    let (image, delta) =
        apply(&image, &[BrokerRegistrationChangeRecord { fenced: -1, ..registration_change(5) }.into()]);
    assert!(!broker(&image).fenced && image.cluster().is_active(1));
    assert_eq!(delta.brokers, [1].into());
    let stopping = BrokerRegistrationChangeRecord { in_controlled_shutdown: 1, ..registration_change(5) };
    let (image, _) = apply(&image, &[stopping.into()]);
    assert!(!image.cluster().is_active(1));
    let (image, _) = apply(&image, &[FenceBrokerRecord { id: 1, epoch: 5 }.into()]);
    assert!(broker(&image).fenced);
    let (image, _) = apply(&image, &[UnfenceBrokerRecord { id: 1, epoch: 5 }.into()]);
    assert!(!broker(&image).fenced);
    let dirs = BrokerRegistrationChangeRecord { log_dirs: vec![id(9)].into(), ..registration_change(5) };
    let (image, _) = apply(&image, &[dirs.into()]);
    assert_eq!(broker(&image).directories, [id(9)]);
    let (image, _) = apply(&image, &[UnregisterBrokerRecord { broker_id: 1, broker_epoch: 5 }.into()]);
    assert!(image.cluster().broker(1).is_none());
}

#[test]
fn what_was_set_can_be_removed() {
    let (image, delta) = apply(
        &full(),
        &[
            feature("group.version", 0),
            config(2, "a", "retention.ms", None),
            quota(Some("u"), 0.0, true),
            RemoveAccessControlEntryRecord { id: id(70) }.into(),
            RemoveUserScramCredentialRecord { name: "u".into(), mechanism: 1 }.into(),
            RemoveDelegationTokenRecord { token_id: "t".into() }.into(),
            UnregisterControllerRecord { controller_id: 1 }.into(),
        ],
    );
    assert_eq!(image.features().level("group.version"), 0);
    assert_eq!(image.configs().topic("a"), None);
    assert_eq!(image.client_quotas().iter().count(), 1);
    assert!(image.acls().is_empty());
    assert_eq!(image.scram().iter().count(), 0);
    assert_eq!(image.delegation_tokens().iter().count(), 0);
    assert_eq!(image.cluster().controllers().count(), 0);
    assert_eq!(
        (delta.acls.len(), delta.scram.len(), delta.delegation_tokens.len(), delta.controllers.len()),
        (1, 1, 1, 1)
    );
}

#[test]
fn records_that_contradict_the_image_are_refused() {
    let image = full();
    assert_eq!(
        refused(&image, registration_change(4).into()),
        ReplayError::BrokerEpoch { id: 1, expected: 5, found: 4 }
    );
    let unknown = UnregisterBrokerRecord { broker_id: 2, broker_epoch: 5 };
    assert_eq!(refused(&image, unknown.into()), ReplayError::UnknownBroker { id: 2 });
    assert_eq!(refused(&image, partition(9, 0)), ReplayError::UnknownTopicId { id: id(9) });
    let unknown = ReplayError::UnknownPartition { topic_id: id(1), partition: 7 };
    assert_eq!(refused(&image, change(1, 7).into()), unknown);
    assert!(matches!(refused(&image, change(1, -1).into()), ReplayError::UnknownPartition { .. }));
    assert_eq!(
        refused(&image, RemoveTopicRecord { topic_id: id(9) }.into()),
        ReplayError::UnknownTopicId { id: id(9) }
    );
    let clear = ClearElrRecord { topic_name: "zz".into() };
    assert_eq!(refused(&image, clear.into()), ReplayError::UnknownTopic { name: "zz".to_owned() });
    assert!(matches!(refused(&image, feature("metadata.version", 35)), ReplayError::MetadataVersion(_)));
    assert!(matches!(
        refused(&image, RemoveAccessControlEntryRecord { id: id(1) }.into()),
        ReplayError::UnknownAcl { .. }
    ));
    let controller = UnregisterControllerRecord { controller_id: 3 };
    assert_eq!(refused(&image, controller.into()), ReplayError::UnknownController { id: 3 });
    let recovery = PartitionChangeRecord { leader_recovery_state: 7, ..change(1, 0) };
    assert!(matches!(refused(&image, recovery.into()), ReplayError::Value { field: "leaderRecoveryState", value: 7 }));
    let fenced = BrokerRegistrationChangeRecord { fenced: 3, ..registration_change(5) };
    assert!(matches!(refused(&image, fenced.into()), ReplayError::Value { field: "fenced", value: 3 }));
    let directories = PartitionChangeRecord { directories: Some(vec![id(1)].into()), ..change(1, 0) };
    assert!(matches!(
        refused(&image, directories.into()),
        ReplayError::DirectoryCount { replicas: 2, directories: 1, .. }
    ));
}

#[test]
fn records_without_a_meaning_change_nothing() {
    let image = full();
    let (same, delta) = apply(&image, &[NoOpRecord {}.into(), ZkMigrationStateRecord { zk_migration_state: 2 }.into()]);
    assert_eq!(same, image);
    assert!(delta.is_empty());
}

#[test]
fn unchanged_topics_are_shared_between_images() {
    let image = full();
    let (changed, _) = apply(&image, &[PartitionChangeRecord { leader: 2, ..change(1, 0) }.into()]);
    let same = |name, index| {
        let of = |image: &Image| image.topics().get(name).unwrap().partition(index).unwrap().clone();
        Arc::ptr_eq(&of(&image), &of(&changed))
    };
    assert_eq!((same("a", 0), same("a", 1), same("b", 0)), (false, true, true));
    assert!(Arc::ptr_eq(image.topics().get("b").unwrap(), changed.topics().get("b").unwrap()));
}

#[test]
fn topics_are_listed_by_name_from_any_point() {
    let image = full();
    let from = |name| image.topics().iter_from(name).map(|t| t.name.to_string()).collect::<Vec<_>>();
    assert_eq!(from(""), ["a", "b"]);
    assert_eq!(from("aa"), ["b"]);
    assert!(from("c").is_empty());
    assert_eq!(image.topics().iter().map(|topic| topic.partitions.len()).sum::<usize>(), 3);
    assert_eq!(image.provenance(), Provenance::default());
}
