//! The records of the coordinators' topics as JSON, found by the type that their key begins with. For tools that print what
//! they find; a coordinator uses the messages themselves.

use serde_json::Value;

use crate::error::DecodeError;
use crate::json::ToJson;
use crate::message::Message;
use crate::messages;
use crate::reader::Reader;

/// Whose topic a record is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coordinator {
    /// `__consumer_offsets`.
    Group,
    /// `__transaction_state`.
    Transaction,
    /// `__share_group_state`.
    Share,
}

/// One kind of record: how its key and its value are read.
#[derive(Debug, Clone, Copy)]
pub struct CoordinatorRecord {
    /// Whose it is.
    pub coordinator: Coordinator,
    /// What the key begins with, an int16.
    pub record_type: i16,
    /// The newest version of the value.
    pub max_value_version: i16,
    /// The JSON of a key, from the bytes behind its type.
    pub key: fn(&[u8]) -> Result<Value, DecodeError>,
    /// The JSON of a value, from the bytes behind its version.
    pub value: fn(&[u8], i16) -> Result<Value, DecodeError>,
}

macro_rules! coordinator_records {
    ($($coordinator:ident $type:literal $key:ident $value:ident;)*) => {
        static RECORDS: &[CoordinatorRecord] = &[$(CoordinatorRecord {
            coordinator: Coordinator::$coordinator,
            record_type: $type,
            max_value_version: messages::$value::MAX_VERSION,
            key: |bytes| Ok(messages::$key::decode(&mut Reader::new(bytes), 0)?.to_json(0)),
            value: |bytes, version| Ok(messages::$value::decode(&mut Reader::new(bytes), version)?.to_json(version)),
        }),*];
    };
}

include!(concat!(env!("OUT_DIR"), "/coordinator_record.rs"));

/// The kind of record of this type in a coordinator's topic.
pub fn find(coordinator: Coordinator, record_type: i16) -> Option<&'static CoordinatorRecord> {
    RECORDS.iter().find(|record| record.coordinator == coordinator && record.record_type == record_type)
}

#[cfg(test)]
mod tests {
    use super::{Coordinator, find};

    #[test]
    fn a_record_type_means_another_record_in_each_topic() {
        let key = |coordinator| {
            let record = find(coordinator, 0).expect("every coordinator has a record of type 0");
            (record.key)(&[0, 1, b'x', 0, 0, 0, 0, 0, 0]).ok().map(|json| json.to_string())
        };
        assert_eq!(key(Coordinator::Transaction).as_deref(), Some(r#"{"transactionalId":"x"}"#));
        assert_eq!(key(Coordinator::Group).as_deref(), Some(r#"{"group":"x","topic":"","partition":0}"#));
        assert!(find(Coordinator::Share, 2).is_none());
    }
}
