//! What members of a classic group say to each other inside of JoinGroup and SyncGroup: a version, and behind it a
//! subscription or an assignment; and what the sticky assignors keep in a subscription's user data.

use std::collections::BTreeMap;

use milena_protocol::messages::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, consumer_protocol_assignment,
    consumer_protocol_subscription,
};
use milena_protocol::{DecodeError, EncodeError, Message, Reader, Writer};

use super::assignor::Subscription;
use crate::admin::TopicPartition;

/// Highest version of both; what is newer is read as this one.
const HIGHEST_VERSION: i16 = 3;

/// A subscription's bytes. Topics and partitions are sorted, as Java's are.
pub(super) fn write_subscription(subscription: &Subscription) -> Result<Vec<u8>, EncodeError> {
    let mut topics: Vec<&str> = subscription.topics.iter().map(String::as_str).collect();
    topics.sort_unstable();
    let owned = |(topic, partitions): (&str, Vec<i32>)| consumer_protocol_subscription::TopicPartition {
        topic: topic.to_owned().into(),
        partitions: partitions.into(),
    };
    let value = ConsumerProtocolSubscription {
        topics: topics.into_iter().map(Into::into).collect(),
        user_data: subscription.user_data.as_deref().map(Into::into),
        owned_partitions: by_topic(&subscription.owned).into_iter().map(owned).collect(),
        generation_id: subscription.generation.unwrap_or(-1),
        rack_id: subscription.rack.as_deref().map(Into::into),
    };
    write(&value)
}

/// The subscription that these bytes are; `None` when they are none.
pub(super) fn read_subscription(bytes: &[u8]) -> Option<Subscription> {
    let value: ConsumerProtocolSubscription<'_> = read(bytes)?;
    let owned = value.owned_partitions.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| TopicPartition::new(topic.topic.as_ref(), *partition))
    });
    Some(Subscription {
        topics: value.topics.iter().map(ToString::to_string).collect(),
        user_data: value.user_data.as_deref().map(<[u8]>::to_vec),
        owned: owned.collect(),
        generation: (value.generation_id >= 0).then_some(value.generation_id),
        rack: value.rack_id.as_deref().map(str::to_owned),
    })
}

/// An assignment's bytes.
pub(super) fn write_assignment(partitions: &[TopicPartition]) -> Result<Vec<u8>, EncodeError> {
    let assigned = |(topic, partitions): (&str, Vec<i32>)| consumer_protocol_assignment::TopicPartition {
        topic: topic.to_owned().into(),
        partitions: partitions.into(),
    };
    let assigned_partitions = by_topic(partitions).into_iter().map(assigned).collect();
    write(&ConsumerProtocolAssignment { assigned_partitions, user_data: None })
}

/// The assignment that these bytes are; `None` when they are none. No bytes are an assignment of nothing.
pub(super) fn read_assignment(bytes: &[u8]) -> Option<Vec<TopicPartition>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let value: ConsumerProtocolAssignment<'_> = read(bytes)?;
    let assigned = value.assigned_partitions.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| TopicPartition::new(topic.topic.as_ref(), *partition))
    });
    Some(assigned.collect())
}

/// The sticky assignor's user data: what the member had, and since which generation.
pub(super) fn write_previous_assignment(
    partitions: &[TopicPartition],
    generation: i32,
) -> Result<Vec<u8>, EncodeError> {
    let mut writer = Writer::new();
    let topics = by_topic(partitions);
    writer.i32(count(topics.len()));
    for (topic, partitions) in topics {
        writer.string(false, topic)?;
        writer.i32(count(partitions.len()));
        partitions.into_iter().for_each(|partition| writer.i32(partition));
    }
    writer.i32(generation);
    Ok(writer.into_bytes())
}

/// What the sticky assignor's user data says; members of long ago do not tell their generation.
pub(super) fn previous_assignment(bytes: &[u8]) -> Option<(Vec<TopicPartition>, Option<i32>)> {
    let mut reader = Reader::new(bytes);
    let partitions = read_partitions(&mut reader).ok()?;
    Some((partitions, reader.i32().ok()))
}

/// The cooperative sticky assignor's user data.
pub(super) fn write_generation(generation: i32) -> Vec<u8> {
    generation.to_be_bytes().to_vec()
}

/// What the cooperative sticky assignor's user data says.
pub(super) fn generation(bytes: &[u8]) -> Option<i32> {
    Reader::new(bytes).i32().ok()
}

fn read_partitions(reader: &mut Reader<'_>) -> Result<Vec<TopicPartition>, DecodeError> {
    let mut partitions = Vec::new();
    for _ in 0..reader.i32()? {
        let topic = reader.string(false)?;
        for _ in 0..reader.i32()? {
            partitions.push(TopicPartition::new(topic.as_ref(), reader.i32()?));
        }
    }
    Ok(partitions)
}

fn by_topic(partitions: &[TopicPartition]) -> BTreeMap<&str, Vec<i32>> {
    let mut topics = BTreeMap::<&str, Vec<i32>>::new();
    for partition in partitions {
        topics.entry(&partition.topic).or_default().push(partition.partition);
    }
    topics.values_mut().for_each(|partitions| partitions.sort_unstable());
    topics
}

fn count(length: usize) -> i32 {
    i32::try_from(length).expect("there are fewer partitions than i32 has numbers")
}

fn write<'a>(value: &impl Message<'a>) -> Result<Vec<u8>, EncodeError> {
    let mut writer = Writer::new();
    writer.i16(HIGHEST_VERSION);
    value.encode(&mut writer, HIGHEST_VERSION)?;
    Ok(writer.into_bytes())
}

fn read<'b, M: Message<'b>>(bytes: &'b [u8]) -> Option<M> {
    let mut reader = Reader::new(bytes);
    let version = reader.i16().ok().filter(|version| *version >= 0)?;
    M::decode(&mut reader, version.min(HIGHEST_VERSION)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription() -> Subscription {
        Subscription {
            topics: vec!["b".to_owned(), "a".to_owned()],
            user_data: Some(vec![7]),
            owned: vec![TopicPartition::new("a", 1), TopicPartition::new("a", 0)],
            generation: Some(5),
            rack: Some("r".to_owned()),
        }
    }

    #[test]
    fn a_subscription_has_the_bytes_that_java_writes() {
        let bytes = write_subscription(&subscription()).unwrap();
        let expected = b"\0\x03\0\0\0\x02\0\x01a\0\x01b\0\0\0\x01\x07\0\0\0\x01\0\x01a\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\x05\0\x01r";
        assert_eq!(bytes, expected);
        let read = read_subscription(&bytes).unwrap();
        assert_eq!(read.topics, ["a", "b"]);
        assert_eq!(Subscription { topics: subscription().topics, owned: subscription().owned, ..read }, subscription());
        for cut in 0..bytes.len() {
            assert_eq!(read_subscription(&bytes[..cut]), None, "{cut} bytes");
        }
    }

    #[test]
    fn a_subscription_of_any_version_is_read() {
        let old = b"\0\0\0\0\0\x01\0\x01a\xff\xff\xff\xff";
        let read = read_subscription(old).unwrap();
        assert_eq!(read, Subscription { topics: vec!["a".to_owned()], ..Default::default() });
        let mut new = write_subscription(&subscription()).unwrap();
        new[1] = 9;
        new.extend([1, 2, 3]);
        assert_eq!(read_subscription(&new).unwrap().generation, Some(5));
    }

    #[test]
    fn an_assignment_is_read_as_it_was_written() {
        let partitions = [TopicPartition::new("a", 0), TopicPartition::new("b", 3)];
        assert_eq!(read_assignment(&write_assignment(&partitions).unwrap()).unwrap(), partitions);
        assert_eq!(read_assignment(&[]), Some(Vec::new()));
        assert_eq!(read_assignment(&[0]), None);
    }

    #[test]
    fn what_a_sticky_member_had_is_read_with_and_without_generation() {
        let partitions = [TopicPartition::new("a", 0), TopicPartition::new("a", 3)];
        let bytes = write_previous_assignment(&partitions, 4).unwrap();
        assert_eq!(previous_assignment(&bytes), Some((partitions.to_vec(), Some(4))));
        assert_eq!(previous_assignment(&bytes[..bytes.len() - 4]), Some((partitions.to_vec(), None)));
        assert_eq!(previous_assignment(&[1]), None);
    }
}
