//! The assignors against Kafka's classes: `data/assignments.txt` holds what those made of random groups. It is made by
//! `compat/assignors/Assignors.java`, which says how a line is to be read.

use super::*;

const RECORDED: &str = include_str!("../../../../data/assignments.txt");

fn there(text: &str) -> Option<String> {
    (text != "~").then(|| text.to_owned())
}

fn list(text: &str) -> Vec<String> {
    there(text).map_or_else(Vec::new, |text| text.split('+').map(str::to_owned).collect())
}

fn partitions(text: &str) -> Vec<TopicPartition> {
    let partition = |text: String| {
        let (topic, number) = text.rsplit_once('-').unwrap();
        TopicPartition::new(topic, number.parse().unwrap())
    };
    list(text).into_iter().map(partition).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn topic(text: &str) -> (String, Vec<BTreeSet<String>>) {
    let [name, count, racks] = text.split(':').collect::<Vec<_>>()[..] else { panic!("{text}") };
    let mut of: Vec<BTreeSet<String>> = racks.split('/').map(|racks| list(racks).into_iter().collect()).collect();
    of.truncate(count.parse().unwrap());
    (name.to_owned(), of)
}

fn member(text: &str) -> Participant {
    let [id, instance, rack, generation, topics, owned, data] = text.split(',').collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    let generation: i32 = generation.parse().unwrap();
    let subscription = Subscription {
        topics: list(topics),
        user_data: there(data).map(|hex| bytes(&hex)),
        owned: partitions(owned),
        generation: (generation >= 0).then_some(generation),
        rack: there(rack),
    };
    Participant { id: id.to_owned(), instance: there(instance), subscription }
}

#[test]
fn assignments_are_those_of_kafkas_classes() {
    let mut seen = BTreeMap::<&str, usize>::new();
    for line in RECORDED.lines() {
        let [name, topics, members, expected] = line.split(" | ").collect::<Vec<_>>()[..] else { panic!("{line}") };
        let assignor = Assignor::from_name(name).unwrap();
        let topics: Topics = topics.split(';').filter(|text| !text.is_empty()).map(topic).collect();
        let members: Vec<_> = members.split(';').map(member).collect();
        let expected = expected.split(';').map(|text| text.split_once('=').unwrap());
        let expected: Assignment = expected.map(|(member, text)| (member.to_owned(), partitions(text))).collect();
        assert_eq!(assign(assignor, &topics, &members), expected, "{line}");
        *seen.entry(assignor.name()).or_default() += 1;
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert!(seen.values().all(|cases| *cases >= 100), "{seen:?}");
}

#[test]
fn an_assignor_is_known_by_its_name_and_by_kafkas_class() {
    let all =
        parse("partition.assignment.strategy", "range, org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
    assert_eq!(all.unwrap(), [Assignor::Range, Assignor::CooperativeSticky]);
    assert!(parse("partition.assignment.strategy", "").is_err());
    assert!(parse("partition.assignment.strategy", "fair").is_err());
}

#[test]
fn what_a_member_had_of_a_topic_that_has_fewer_partitions_now_is_not_given_to_anybody() {
    let owned = vec![TopicPartition::new("a", 0), TopicPartition::new("a", 7)];
    let had = Subscription { topics: vec!["a".to_owned()], owned, generation: Some(3), ..Default::default() };
    let new = Subscription { topics: vec!["a".to_owned()], ..Default::default() };
    let member = |id: &str, subscription| Participant { id: id.to_owned(), instance: None, subscription };
    let topics = Topics::from([("a".to_owned(), vec![BTreeSet::new(); 2])]);
    let assignment = assign(Assignor::CooperativeSticky, &topics, &[member("x", had), member("y", new)]);
    let expected =
        [("x", 0), ("y", 1)].map(|(id, partition)| (id.to_owned(), vec![TopicPartition::new("a", partition)]));
    assert_eq!(assignment, Assignment::from(expected));
}

#[test]
fn members_of_a_group_without_topics_get_nothing() {
    let members = [Participant { id: "a".to_owned(), ..Default::default() }];
    for assignor in Assignor::ALL {
        assert_eq!(assign(assignor, &Topics::new(), &members), Assignment::from([("a".to_owned(), Vec::new())]));
        assert_eq!(assign(assignor, &Topics::new(), &[]), Assignment::new());
    }
}
