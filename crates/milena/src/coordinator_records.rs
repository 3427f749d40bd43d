//! The records of the coordinators' topics as JSON, for whatever prints them.

use milena_protocol::coordinator_record::{self, Coordinator};
use serde_json::Value;

/// Names of the states of a transaction, by id.
const TRANSACTION_STATES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];
/// A record as JSON.
#[derive(Debug, PartialEq)]
pub struct Decoded {
    /// What kind of record it is.
    pub record_type: i16,
    /// Its key.
    pub key: Value,
    /// Version and content of its value; a tombstone has none.
    pub value: Option<(i16, Value)>,
}

/// Why a record has no JSON, in Kafka's words.
#[derive(Debug, PartialEq, Eq)]
pub enum Undecodable {
    /// There is no such kind.
    Type(i16),
    /// The key can't be read.
    Key(String),
    /// The value can't be read.
    Value(String),
}

/// Reads a record of a coordinator's topic.
///
/// # Errors
/// [`Undecodable`] where the key or the value is not what it should be.
pub fn decode(coordinator: Coordinator, key: &[u8], value: Option<&[u8]>) -> Result<Decoded, Undecodable> {
    let cut = |field| format!("Could not read version from {field}'s buffer.");
    let unreadable = |version, field, why| {
        format!("Could not read record with version {version} from {field}'s buffer due to: {why}.")
    };
    let (record_type, key) = prefixed(key).ok_or_else(|| Undecodable::Key(cut("key")))?;
    let record = coordinator_record::find(coordinator, record_type).ok_or(Undecodable::Type(record_type))?;
    let key = (record.key)(key).map_err(|why| Undecodable::Key(unreadable(record_type, "key", why)))?;
    let read = |value| {
        let (version, value) = prefixed(value).ok_or_else(|| Undecodable::Value(cut("value")))?;
        let data = (record.value)(value, version);
        let mut data = data.map_err(|why| Undecodable::Value(unreadable(version, "value", why)))?;
        if coordinator == Coordinator::Transaction {
            name_state(&mut data);
        }
        Ok((version, data))
    };
    Ok(Decoded { record_type, key, value: value.map(read).transpose()? })
}

/// The int16 in front, and what follows it.
fn prefixed(bytes: &[u8]) -> Option<(i16, &[u8])> {
    let (version, rest) = bytes.split_first_chunk()?;
    Some((i16::from_be_bytes(*version), rest))
}

/// Shows a transaction's state by its name; one that has none as text all the same.
fn name_state(data: &mut Value) {
    let state = &mut data["transactionStatus"];
    let name = state.as_u64().and_then(|id| TRANSACTION_STATES.get(usize::try_from(id).ok()?));
    *state = name.map_or_else(|| state.to_string(), |name| (*name).to_owned()).into();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_has_its_kind_and_what_cannot_be_read_is_told() {
        let read = |key: &[u8], value| decode(Coordinator::Group, key, value);
        let group = [0, 2, 0, 1, b'g'];
        let deleted = Decoded { record_type: 2, key: json!({ "group": "g" }), value: None };
        assert_eq!(read(&group, None), Ok(deleted));
        assert_eq!(read(&[0, 99], None), Err(Undecodable::Type(99)));
        let cut = |field: &str| format!("Could not read version from {field}'s buffer.");
        assert_eq!(read(&[0], None), Err(Undecodable::Key(cut("key"))));
        assert_eq!(read(&group, Some(&[3])), Err(Undecodable::Value(cut("value"))));
        let Err(Undecodable::Value(why)) = read(&group, Some(&[0, 3, 0])) else { panic!("it is cut") };
        assert!(why.starts_with("Could not read record with version 3 from value's buffer due to: "), "{why}");
    }
}
