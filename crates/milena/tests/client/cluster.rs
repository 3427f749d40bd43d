//! Connections, metadata and calls.

use std::time::Duration;

use milena::testing::Broker;
use milena_client::admin::{FeatureUpdate, UpgradeType};
use milena_client::protocol::ErrorCode;
use milena_client::protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use milena_client::protocol::messages::{DescribeGroupsRequest, ListGroupsRequest, ListOffsetsRequest};
use milena_client::{Admin, Client, CoordinatorKind, Error, Target, check};

use crate::common::{Cluster, create_topic, unique};

/// The log end offset of a partition that is empty.
async fn ask_leader(client: &Client, topic: &str, partition: i32) -> Result<i64, Error> {
    let partitions = vec![ListOffsetsPartition { partition_index: partition, timestamp: -1, ..Default::default() }];
    let topics = vec![ListOffsetsTopic { name: topic.into(), partitions }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    let ask = client.call(Target::Leader(topic, partition), &request).versions(1..).read(|response| {
        let partition = &response.topics[0].partitions[0];
        check(partition.error_code, None)?;
        Ok(partition.offset)
    });
    ask.await
}

#[tokio::test]
async fn the_leader_of_each_partition_of_a_new_topic_answers() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let topic = create_topic(&client, 3, &[]).await;
    for partition in 0..3 {
        assert_eq!(ask_leader(&client, &topic, partition).await.unwrap(), 0);
    }
    let known = client.topic(&topic, false).await.unwrap();
    assert_eq!((&*known.name, known.partitions.len()), (topic.as_str(), 3));
    assert!(client.all_topics().await.unwrap().topic(&topic).is_some());
    client.close(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_topic_that_does_not_exist_is_no_topic() {
    let cluster = Cluster::start();
    let error = cluster.client().topic(&unique("missing"), false).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
}

#[tokio::test]
async fn the_coordinator_of_a_group_answers_for_it() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let group = unique("group");
    let request = DescribeGroupsRequest { groups: vec![group.as_str().into()], ..Default::default() };
    let target = Target::Coordinator(CoordinatorKind::Group, &group);
    let described = client.call(target, &request).versions(..=5).read(|response| {
        let group = &response.groups[0];
        check(group.error_code, None)?;
        Ok(group.group_state.to_string())
    });
    assert_eq!(described.await.unwrap(), "Dead");
}

#[tokio::test]
async fn a_version_that_nobody_has_is_an_error_that_names_both_sides() {
    let cluster = Cluster::start();
    let request = ListGroupsRequest::default();
    let error = cluster.client().call(Target::Any, &request).versions(99..).reply().await.unwrap_err();
    assert!(matches!(error, Error::UnsupportedVersion { served: Some(_), .. }), "{error}");
}

fn raise(name: &str, level: i16) -> FeatureUpdate {
    FeatureUpdate { name: name.to_owned(), level, kind: UpgradeType::Upgrade }
}

async fn level(admin: &Admin, name: &str) -> i16 {
    let found = admin.describe_features().await.unwrap().features;
    found.iter().find(|feature| feature.name == name).unwrap().finalized
}

/// Older than registrations of controllers, log directories and eligible leaders.
#[tokio::test]
async fn a_cluster_of_an_older_release_is_raised_while_it_runs() {
    let mut broker = Broker::options().feature("metadata.version", 14).start();
    let client = Client::builder().bootstrap_servers(&broker.bootstrap_servers()).build().unwrap();
    let admin = client.admin();
    let before = create_topic(&client, 1, &[]).await;
    let updates = [raise("metadata.version", 33), raise("eligible.leader.replicas.version", 1)];
    for (name, outcome) in admin.update_features(&updates, true).await.unwrap() {
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert_eq!(level(&admin, "metadata.version").await, 14);
    for (name, outcome) in admin.update_features(&updates, false).await.unwrap() {
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let after = create_topic(&client, 1, &[]).await;
    for restart in [false, true] {
        if restart {
            broker.start_again();
        }
        assert_eq!(level(&admin, "metadata.version").await, 33);
        assert_eq!(level(&admin, "eligible.leader.replicas.version").await, 1);
        assert_eq!(level(&admin, "kraft.version").await, 1);
        for topic in [&before, &after] {
            assert_eq!(ask_leader(&client, topic, 0).await.unwrap(), 0);
        }
    }
}

#[tokio::test]
async fn one_feature_that_is_refused_is_the_refusal_of_all() {
    let cluster = Cluster::start();
    let admin = cluster.client().admin();
    let outcomes = admin.update_features(&[raise("group.version", 1), raise("none", 1)], true).await.unwrap();
    for (name, outcome) in outcomes {
        assert_eq!(outcome.unwrap_err().code(), Some(ErrorCode::INVALID_UPDATE_VERSION), "{name}");
    }
}

#[tokio::test]
async fn a_client_goes_on_when_the_broker_comes_back() {
    let mut broker = Broker::start();
    let client = Client::builder().bootstrap_servers(&broker.bootstrap_servers()).build().unwrap();
    let topic = create_topic(&client, 1, &[]).await;
    assert_eq!(ask_leader(&client, &topic, 0).await.unwrap(), 0);
    let before = broker.bootstrap_servers();
    broker.stop();
    broker.start_again();
    assert_eq!(broker.bootstrap_servers(), before);
    assert_eq!(ask_leader(&client, &topic, 0).await.unwrap(), 0);
}

#[tokio::test]
async fn a_topic_that_is_created_by_being_asked_for_does_not_bring_back_others() {
    let cluster = Cluster::start();
    let client = cluster.builder().metadata_max_age(Duration::from_millis(1)).build().unwrap();
    let gone = create_topic(&client, 1, &[]).await;
    while client.topic(&gone, false).await.is_err() {}
    client.admin().delete_topics(std::slice::from_ref(&gone)).await.unwrap();
    let new = unique("new");
    while client.topic(&new, true).await.is_err() {}
    let names: Vec<String> = client.admin().list_topics().await.unwrap().into_iter().map(|topic| topic.name).collect();
    assert!(names.contains(&new) && !names.contains(&gone), "{names:?}");
}
