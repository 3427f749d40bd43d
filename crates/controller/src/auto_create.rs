//! Topics that come into being because somebody uses them.

use std::borrow::Cow;

use milena_io::Rng;
use milena_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};

use crate::create_topics::creator;
use crate::error::ApiError;
use crate::limits::MAX_RECORDS;
use crate::view::{Records, View};

/// A coordinator's topic: where its size is configured, and what it is created with.
struct Internal {
    name: &'static str,
    partitions: &'static str,
    replication_factor: &'static str,
    configs: &'static [(&'static str, Value)],
}

/// Value of an internal topic's configuration.
enum Value {
    Is(&'static str),
    /// The broker's value of a key.
    Of(&'static str),
}

/// The coordinators' topics, with their configurations in the order of Kafka's records.
const INTERNAL: [Internal; 3] = [
    Internal {
        name: "__consumer_offsets",
        partitions: "offsets.topic.num.partitions",
        replication_factor: "offsets.topic.replication.factor",
        configs: &[
            ("compression.type", Value::Is("producer")),
            ("cleanup.policy", Value::Is("compact")),
            ("segment.bytes", Value::Of("offsets.topic.segment.bytes")),
        ],
    },
    Internal {
        name: "__transaction_state",
        partitions: "transaction.state.log.num.partitions",
        replication_factor: "transaction.state.log.replication.factor",
        configs: &[
            ("compression.type", Value::Is("uncompressed")),
            ("cleanup.policy", Value::Is("compact")),
            ("min.insync.replicas", Value::Of("transaction.state.log.min.isr")),
            ("segment.bytes", Value::Of("transaction.state.log.segment.bytes")),
            ("unclean.leader.election.enable", Value::Is("false")),
        ],
    },
    Internal {
        name: "__share_group_state",
        partitions: "share.coordinator.state.topic.num.partitions",
        replication_factor: "share.coordinator.state.topic.replication.factor",
        configs: &[
            ("compression.type", Value::Is("producer")),
            ("cleanup.policy", Value::Is("delete")),
            ("min.insync.replicas", Value::Of("share.coordinator.state.topic.min.isr")),
            ("segment.bytes", Value::Of("share.coordinator.state.topic.segment.bytes")),
            ("retention.ms", Value::Is("-1")),
        ],
    },
];

/// Whether a topic belongs to a coordinator.
pub fn is_internal(name: &str) -> bool {
    INTERNAL.iter().any(|topic| topic.name == name)
}

/// The records of topics that are made on first use: internal topics get their coordinator's settings, others the
/// broker's defaults. Those come first that are named first, as many as are committed together. Also what CreateTopics would
/// answer for those that may not be made, TOPIC_ALREADY_EXISTS among it.
pub fn create_topics_automatically<'n>(
    view: View<'_>,
    names: impl IntoIterator<Item = &'n str>,
    rng: &mut dyn Rng,
) -> (Records, Vec<(&'n str, ApiError)>) {
    let topic = |name: &'n str| match INTERNAL.iter().find(|topic| topic.name == name) {
        Some(internal) => internal_topic(view, internal),
        None => CreatableTopic { name: name.into(), num_partitions: -1, replication_factor: -1, ..Default::default() },
    };
    let (names, topics): (Vec<&str>, Vec<_>) = names.into_iter().map(|name| (name, topic(name))).unzip();
    let (mut records, mut refused) = (Records::new(), Vec::new());
    let create = creator(view, &topics);
    for (name, topic) in names.into_iter().zip(&topics) {
        match create(topic, rng) {
            Ok(made) if records.len() + made.len() > MAX_RECORDS => break,
            Ok(made) => records.extend(made),
            Err(refusal) => refused.push((name, refusal)),
        }
    }
    (records, refused)
}

fn internal_topic(view: View<'_>, internal: &Internal) -> CreatableTopic<'static> {
    // The keys are numbers with a default; 0 would be refused like any other value below 1.
    let number = |key: &str| view.config.integer(key).unwrap_or(0);
    let config = |(name, value): &(&'static str, Value)| CreatableTopicConfig {
        name: Cow::Borrowed(*name),
        value: Some(match value {
            Value::Is(text) => Cow::Borrowed(*text),
            Value::Of(key) => Cow::Owned(number(key).to_string()),
        }),
    };
    CreatableTopic {
        name: Cow::Borrowed(internal.name),
        num_partitions: i32::try_from(number(internal.partitions)).unwrap_or(i32::MAX),
        replication_factor: i16::try_from(number(internal.replication_factor)).unwrap_or(i16::MAX),
        assignments: Vec::new(),
        configs: internal.configs.iter().map(config).collect(),
    }
}

#[cfg(test)]
mod tests {
    use milena_io::SimRng;
    use milena_protocol::{ErrorCode, MetadataRecord};

    use super::*;
    use crate::testing::Node;

    fn describe(records: &[MetadataRecord<'_>]) -> (usize, Vec<String>) {
        let partitions = records.iter().filter(|r| matches!(r, MetadataRecord::Partition(_))).count();
        let config = |record: &MetadataRecord<'_>| match record {
            MetadataRecord::Config(c) => Some(format!("{}={}", c.name, c.value.as_deref().unwrap_or("null"))),
            MetadataRecord::ClearElr(c) => Some(format!("clear {}", c.topic_name)),
            _ => None,
        };
        (partitions, records.iter().filter_map(config).collect())
    }

    #[test]
    fn a_coordinators_topic_has_its_settings() {
        let node = Node::new();
        let create = |name| describe(&create_topics_automatically(node.view(), [name], &mut SimRng::new(1)).0);
        assert_eq!(
            create("__consumer_offsets"),
            (
                50,
                ["compression.type=producer", "cleanup.policy=compact", "segment.bytes=104857600"]
                    .map(Into::into)
                    .into()
            )
        );
        assert_eq!(
            create("__transaction_state").1,
            [
                "compression.type=uncompressed",
                "cleanup.policy=compact",
                "min.insync.replicas=2",
                "segment.bytes=104857600",
                "unclean.leader.election.enable=false",
                "clear __transaction_state",
            ]
        );
        assert_eq!(
            create("__share_group_state").1,
            [
                "compression.type=producer",
                "cleanup.policy=delete",
                "min.insync.replicas=2",
                "segment.bytes=104857600",
                "retention.ms=-1",
                "clear __share_group_state",
            ]
        );
    }

    #[test]
    fn another_topic_has_the_brokers_defaults() {
        let config = crate::testing::config("num.partitions=4");
        let node = Node { config, ..Node::new() };
        let (records, refused) = create_topics_automatically(node.view(), ["t"], &mut SimRng::new(1));
        assert_eq!((describe(&records), refused), ((4, Vec::new()), Vec::new()));
    }

    #[test]
    fn a_topic_that_exists_or_has_a_bad_name_is_refused() {
        let mut node = Node::new();
        let (records, _) = create_topics_automatically(node.view(), ["t", "a.b"], &mut SimRng::new(1));
        node.commit(&records);
        let names = ["t", "a b", "__cluster_metadata", "a_b", "u"];
        let (records, refused) = create_topics_automatically(node.view(), names, &mut SimRng::new(1));
        assert_eq!(describe(&records), (1, Vec::new()));
        let refused: Vec<_> = refused.into_iter().map(|(name, refusal)| (name, refusal.code)).collect();
        let expected = [
            ("t", ErrorCode::TOPIC_ALREADY_EXISTS),
            ("a b", ErrorCode::INVALID_TOPIC_EXCEPTION),
            ("__cluster_metadata", ErrorCode::INVALID_REQUEST),
            ("a_b", ErrorCode::INVALID_TOPIC_EXCEPTION),
        ];
        assert_eq!(refused, expected);
    }
}
