//! What groups see of the cluster's metadata, and Kafka's hash of it: a group whose hash has changed assigns anew.

use std::collections::BTreeSet;
use std::fmt::Debug;

use milena_protocol::Uuid;
use twox_hash::XxHash3_64;

/// The cluster's metadata as groups see it.
pub trait Metadata: Debug + Send + Sync {
    /// Changes with every change of what is below: how far into the metadata log this goes.
    fn version(&self) -> i64;

    /// The topic of a name.
    fn topic(&self, name: &str) -> Option<TopicInfo>;

    /// The name of a topic.
    fn name(&self, id: Uuid) -> Option<String>;

    /// The names of all topics.
    fn names(&self) -> Vec<String>;

    /// The names of the assignors that members may ask for; the first one is that of those who do not ask.
    fn assignors(&self) -> Vec<String>;

    /// The value of a group's configuration, of those that are numbers.
    fn group_config(&self, group: &str, name: &str) -> i64;
}

/// A topic as groups see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicInfo {
    /// Its id.
    pub id: Uuid,
    /// For each partition the racks of its replicas, as far as brokers have any.
    pub racks: Vec<Vec<String>>,
}

impl TopicInfo {
    /// How many partitions it has.
    pub fn partitions(&self) -> i32 {
        i32::try_from(self.racks.len()).unwrap_or(i32::MAX)
    }

    fn hash(&self, name: &str) -> i64 {
        let mut hashed = vec![0];
        // The halves of the id are numbers, which go in backwards like every number.
        let (most, least) = self.id.as_bytes().split_at(8);
        hashed.extend(most.iter().rev().chain(least.iter().rev()));
        put_text(name, &mut hashed);
        put_int(self.racks.len(), &mut hashed);
        for (partition, racks) in self.racks.iter().enumerate() {
            put_int(partition, &mut hashed);
            let mut racks = racks.clone();
            racks.sort();
            for rack in &racks {
                put_int(rack.encode_utf16().count(), &mut hashed);
                put_text(rack, &mut hashed);
            }
        }
        XxHash3_64::oneshot(&hashed).cast_signed()
    }
}

/// Kafka's hash of the topics of these names, as far as they exist: of their hashes by name; 0 when none does.
pub(super) fn hash_of<'n>(names: impl IntoIterator<Item = &'n String>, metadata: &dyn Metadata) -> i64 {
    let names: BTreeSet<_> = names.into_iter().collect();
    let mut hashed = Vec::new();
    for name in names {
        if let Some(topic) = metadata.topic(name) {
            hashed.extend(topic.hash(name).to_le_bytes());
        }
    }
    if hashed.is_empty() { 0 } else { XxHash3_64::oneshot(&hashed).cast_signed() }
}

/// A text goes in as UTF-16, its length behind it.
fn put_text(text: &str, hashed: &mut Vec<u8>) {
    hashed.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    put_int(text.encode_utf16().count(), hashed);
}

fn put_int(number: usize, hashed: &mut Vec<u8>) {
    hashed.extend(i32::try_from(number).unwrap_or(i32::MAX).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct One(TopicInfo);

    impl Metadata for One {
        fn version(&self) -> i64 {
            0
        }
        fn topic(&self, name: &str) -> Option<TopicInfo> {
            (name == "foo").then(|| self.0.clone())
        }
        fn name(&self, _: Uuid) -> Option<String> {
            None
        }
        fn names(&self) -> Vec<String> {
            Vec::new()
        }
        fn assignors(&self) -> Vec<String> {
            Vec::new()
        }
        fn group_config(&self, _: &str, _: &str) -> i64 {
            0
        }
    }

    #[test]
    fn hashes_are_kafkas() {
        let id = Uuid::from_bytes([1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
        let topic = TopicInfo { id, racks: vec![vec![], vec!["b".to_owned(), "a".to_owned()]] };
        // Asked of Apache Kafka 4.4.0's own Utils.
        assert_eq!(topic.hash("foo"), -1_822_430_442_748_016_056);
        let names = ["foo".to_owned(), "gone".to_owned()];
        assert_eq!(hash_of(&names, &One(topic.clone())), 7_146_553_049_621_818_925);
        assert_eq!(hash_of(&names[1..], &One(topic)), 0);
    }
}
