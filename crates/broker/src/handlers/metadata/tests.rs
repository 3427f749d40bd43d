use super::*;
use crate::test_image::{INSIDE, LISTENER, broker, id, image, topic, without_broker};

fn cluster() -> Image {
    let topics = [topic("b", 2, &[&[1], &[1, 2]]), topic("a", 1, &[&[2]]), topic("__consumer_offsets", 3, &[&[1]])];
    image([broker(1, false), broker(2, false)].into_iter().chain(topics.into_iter().flatten()))
}

fn node() -> Node {
    Node { id: 1, cluster_id: "c".into() }
}

/// The whole answer, nothing of it encoded before.
fn respond<'r>(
    request: &MetadataRequest<'_>,
    asked: &Asked<'r>,
    image: &'r Image,
    version: i16,
    node: &'r Node,
) -> MetadataResponse<'r> {
    let view = ClusterView::new(image.cluster(), LISTENER);
    response(request, asked, &view, |topic| Ok(partitions(topic, &view, version)), node).unwrap()
}

fn named(names: &[&'static str]) -> MetadataRequest<'static> {
    let topic = |&name: &&'static str| MetadataRequestTopic { name: Some(name.into()), ..Default::default() };
    MetadataRequest { topics: Some(names.iter().map(topic).collect()), ..Default::default() }
}

/// The topics of an answer: error, name, how many partitions.
fn ask(request: &MetadataRequest<'_>, version: i16) -> Vec<(i16, String, usize)> {
    let (image, node) = (cluster(), node());
    let asked = Asked::of(request, version, &image);
    let response = respond(request, &asked, &image, version, &node);
    let topic = |topic: &MetadataResponseTopic<'_>| {
        (topic.error_code, topic.name.as_deref().unwrap_or("null").to_owned(), topic.partitions.len())
    };
    response.topics.iter().map(topic).collect()
}

fn names(topics: &[(i16, String, usize)]) -> Vec<&str> {
    topics.iter().map(|(_, name, _)| name.as_str()).collect()
}

#[test]
fn null_and_in_version_0_an_empty_list_ask_for_all_topics() {
    let all = ["__consumer_offsets", "a", "b"];
    let null = MetadataRequest { topics: None, ..Default::default() };
    assert_eq!(names(&ask(&named(&[]), 0)), all);
    assert_eq!(names(&ask(&null, 1)), all);
    assert!(ask(&named(&[]), 1).is_empty());
}

#[test]
fn each_topic_is_answered_once_and_those_that_exist_first() {
    let answer = ask(&named(&["no", "b", "a", "no", "b", "x y"]), 12);
    let expected = [(0, "b", 2), (0, "a", 1), (3, "no", 0), (17, "x y", 0)];
    assert_eq!(answer, expected.map(|(error, name, partitions)| (error, name.to_owned(), partitions)));
}

#[test]
fn ids_win_over_names_and_unknown_ids_come_first() {
    let by_id = |last| MetadataRequestTopic { topic_id: id(last), name: None };
    let mut request = named(&["b"]);
    request.topics.as_mut().unwrap().extend([by_id(1), by_id(9), by_id(1)]);
    let answer = ask(&request, 12);
    assert_eq!(answer, [(100, "null".to_owned(), 0), (0, "a".to_owned(), 1)]);
}

#[test]
fn topics_are_addressed_by_name_before_version_12_and_by_one_of_both_from_then_on() {
    let by_id = MetadataRequestTopic { topic_id: id(1), name: Some("a".into()) };
    let by_nothing = MetadataRequestTopic::default();
    let nameless = MetadataRequestTopic { name: None, ..by_nothing };
    let are_unaddressed = |topics: &[&MetadataRequestTopic<'static>], version| {
        are_unaddressed(&topics.iter().copied().cloned().collect::<Vec<_>>(), version)
    };
    assert!(are_unaddressed(&[&by_id], 11) && !are_unaddressed(&[&by_id], 12));
    assert!(are_unaddressed(&[&nameless], 10) && are_unaddressed(&[&nameless], 12));
    assert!(!are_unaddressed(&[&nameless, &by_id], 12), "the one without anything is passed over");
}

#[test]
fn only_names_that_are_legal_and_unknown_are_created() {
    let (request, image) = (named(&["new", "a", "x y", "new"]), cluster());
    assert_eq!(Asked::of(&request, 4, &image).creatable().collect::<Vec<_>>(), ["new"]);
}

#[test]
fn a_missing_broker_and_a_missing_listener_are_told_apart_from_version_6_on() {
    let image = image(
        [broker(1, false), broker(2, false), broker(3, false)]
            .into_iter()
            .chain(topic("t", 1, &[&[1, 2], &[2], &[3]]))
            .chain([without_broker(3)]),
    );
    let view = ClusterView::new(image.cluster(), INSIDE);
    let topic = image.topics().get("t").unwrap();
    let errors = |version| partitions(topic, &view, version).iter().map(|p| p.error_code).collect::<Vec<_>>();
    let missing = ErrorCode::LEADER_NOT_AVAILABLE.0;
    assert_eq!(errors(5), [0, missing, missing]);
    assert_eq!(errors(6), [0, ErrorCode::LISTENER_NOT_FOUND.0, missing]);
    assert_eq!(errors(0), [ErrorCode::REPLICA_NOT_AVAILABLE.0, missing, missing]);
    let first = &partitions(topic, &view, 6)[0];
    assert_eq!((first.leader_id, &*first.replica_nodes, &*first.offline_replicas), (1, &[1, 2][..], &[2][..]));
    assert_eq!(&*partitions(topic, &view, 0)[0].replica_nodes, [1]);
}

#[test]
fn a_fenced_broker_is_not_told_and_its_replicas_are_offline() {
    let image = image([broker(1, false), broker(2, true)].into_iter().chain(topic("t", 1, &[&[1, 2]])));
    let view = ClusterView::new(image.cluster(), LISTENER);
    assert_eq!(brokers(&view).iter().map(|broker| broker.node_id).collect::<Vec<_>>(), [1]);
    assert_eq!(&*partitions(image.topics().get("t").unwrap(), &view, 12)[0].offline_replicas, [2]);
    assert_eq!((view.controller_id(2), view.controller_id(1)), (1, 1));
}

#[test]
fn authorized_operations_are_told_to_those_who_ask() {
    let (image, node) = (cluster(), node());
    let told = |asks| {
        let request = MetadataRequest {
            include_topic_authorized_operations: asks,
            include_cluster_authorized_operations: asks,
            ..named(&["a"])
        };
        let asked = Asked::of(&request, 10, &image);
        let response = respond(&request, &asked, &image, 10, &node);
        (response.topics[0].topic_authorized_operations, response.cluster_authorized_operations)
    };
    assert_eq!(told(true), (3576, 8096));
    assert_eq!(told(false), (i32::MIN, i32::MIN));
}

fn encoded(response: &MetadataResponse<'_>, version: i16) -> Vec<u8> {
    let mut writer = milena_protocol::Writer::new();
    milena_protocol::Message::encode(response, &mut writer, version).unwrap();
    writer.into_bytes()
}

#[test]
fn every_version_can_say_every_answer_and_says_the_same_with_encoded_partitions() {
    let (image, node) = (Published::from(cluster()), node());
    let view = ClusterView::new(image.cluster(), LISTENER);
    for version in API.versions.clone() {
        let request = named(&["a", "b", "no", "__consumer_offsets"]);
        let asked = Asked::of(&request, version, &image);
        let plain = encoded(&respond(&request, &asked, &image, version, &node), version);
        for _first_then_again in 0..2 {
            let partitions = |topic: &Arc<Topic>| encoded_partitions(topic, &image, &view, &LISTENER.into(), version);
            let response = response(&request, &asked, &view, partitions, &node).unwrap();
            assert_eq!(encoded(&response, version), plain, "version {version}");
        }
    }
}

#[test]
fn encoded_partitions_are_those_of_their_listener_and_go_with_the_image() {
    let at = |image: &Published, listener: &str| {
        let view = ClusterView::new(image.cluster(), listener);
        let topic = image.topics().get("t").unwrap();
        match encoded_partitions(topic, image, &view, &listener.into(), 12).unwrap() {
            Structs::Encoded(bytes) => bytes,
            Structs::Items(_) => panic!("they are encoded"),
        }
    };
    let both = image([broker(1, false), broker(2, false)].into_iter().chain(topic("t", 1, &[&[1, 2], &[2]])));
    let one_fenced = image([broker(1, false), broker(2, true)].into_iter().chain(topic("t", 1, &[&[1, 2], &[2]])));
    let (both, one_fenced) = (Published::from(both), Published::from(one_fenced));
    assert_ne!(at(&both, LISTENER), at(&both, INSIDE));
    assert_ne!(at(&both, LISTENER), at(&one_fenced, LISTENER));
    assert!(Arc::ptr_eq(&at(&both, LISTENER), &at(&both, LISTENER)));
}
