//! AlterConfigs and IncrementalAlterConfigs as pure functions: overrides and edits in, changes out. Whether the
//! outcome is allowed is asked of the resource's own module.

use std::collections::{HashMap, HashSet};

use crate::Overrides;
use crate::definition::{self, ConfigType, Definition};
use crate::error::AlterError;

/// What kind of resource is altered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// A topic.
    Topic,
    /// One broker, or the default of all.
    Broker,
    /// A group.
    Group,
    /// A client metrics subscription.
    ClientMetrics,
}

impl Resource {
    /// The resource type's code in requests and ConfigRecords.
    pub fn code(self) -> i8 {
        match self {
            Self::Topic => 2,
            Self::Broker => 4,
            Self::ClientMetrics => 16,
            Self::Group => 32,
        }
    }

    /// The resource with that code.
    pub fn from_code(code: i8) -> Option<Self> {
        [Self::Topic, Self::Broker, Self::ClientMetrics, Self::Group].into_iter().find(|r| r.code() == code)
    }

    /// The list that APPEND and SUBTRACT may edit. Kafka's controller knows types of topics and brokers only.
    fn list(self, name: &str) -> Option<&'static Definition> {
        let definition = match self {
            Self::Broker => definition::broker().get(name),
            Self::Topic => definition::topic().get(name),
            Self::Group | Self::ClientMetrics => None,
        };
        definition.filter(|d| d.kind == ConfigType::List)
    }
}

/// What an edit does with its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Sets the value.
    Set,
    /// Goes back to the default.
    Delete,
    /// Adds entries to a list.
    Append,
    /// Takes entries from a list.
    Subtract,
}

impl Operation {
    /// The operation with the code of IncrementalAlterConfigs.
    pub fn from_code(code: i8) -> Option<Self> {
        match code {
            0 => Some(Self::Set),
            1 => Some(Self::Delete),
            2 => Some(Self::Append),
            3 => Some(Self::Subtract),
            _ => None,
        }
    }

    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Set => "SET",
            Self::Delete => "DELETE",
            Self::Append => "APPEND",
            Self::Subtract => "SUBTRACT",
        }
    }
}

/// One edit of a resource's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edit<'a> {
    /// The key.
    pub name: &'a str,
    /// What to do.
    pub operation: Operation,
    /// With what; not looked at by DELETE.
    pub value: Option<&'a str>,
}

/// What becomes one ConfigRecord.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub name: String,
    /// The new value; `None` removes the override.
    pub value: Option<String>,
}

/// The changes that `edits` make to a resource with the overrides `existing`.
///
/// An edit that changes nothing makes no change, except for brokers, which read files again at every record.
///
/// # Errors
/// INVALID_REQUEST for a repeated key or a missing value, INVALID_CONFIG for APPEND or SUBTRACT of a key that is no
/// list.
pub fn incremental(kind: Resource, existing: &Overrides, edits: &[Edit<'_>]) -> Result<Vec<Change>, AlterError> {
    check_shape(edits)?;
    let mut changes = Vec::new();
    for edit in edits {
        let current = existing.get(edit.name);
        let new = match edit.operation {
            Operation::Set => edit.value.map(str::to_owned),
            Operation::Delete => None,
            Operation::Append | Operation::Subtract => Some(edit_list(kind, edit, current)?),
        };
        if new.as_ref() != current || kind == Resource::Broker {
            changes.push(Change { name: edit.name.to_owned(), value: new });
        }
    }
    Ok(changes)
}

/// The changes that make `new` of `existing` (AlterConfigs): what is not named is removed.
pub fn replace(kind: Resource, existing: &Overrides, new: &Overrides) -> Vec<Change> {
    let set = new.iter().filter(|(name, value)| kind == Resource::Broker || existing.get(*name) != Some(value));
    let removed = existing.keys().filter(|name| !new.contains_key(*name));
    set.map(|(name, value)| Change { name: name.clone(), value: Some(value.clone()) })
        .chain(removed.map(|name| Change { name: name.clone(), value: None }))
        .collect()
}

/// `existing` after `changes`.
pub fn apply(existing: &Overrides, changes: &[Change]) -> Overrides {
    let mut result = existing.clone();
    for change in changes {
        match &change.value {
            Some(value) => result.insert(change.name.clone(), value.clone()),
            None => result.remove(&change.name),
        };
    }
    result
}

/// Refuses a repeated key and an edit without value, as Kafka does for every resource before anything else.
///
/// # Errors
/// INVALID_REQUEST with Kafka's message.
pub fn check_shape(edits: &[Edit<'_>]) -> Result<(), AlterError> {
    let mut seen = HashSet::new();
    if !edits.iter().all(|edit| seen.insert(edit.name)) {
        return Err(AlterError::InvalidRequest("Error due to duplicate config keys".to_owned()));
    }
    let null = |e: &&Edit<'_>| e.operation != Operation::Delete && e.value.is_none();
    let nulls: Vec<&str> = edits.iter().filter(null).map(|e| e.name).collect();
    if nulls.is_empty() {
        return Ok(());
    }
    Err(AlterError::InvalidRequest(format!("Null value not supported for : {}", nulls.join(", "))))
}

fn edit_list(kind: Resource, edit: &Edit<'_>, current: Option<&String>) -> Result<String, AlterError> {
    let Some(definition) = kind.list(edit.name) else {
        let operation = edit.operation.name();
        let message = format!("Can't {operation} to key {} because its type is not LIST.", edit.name);
        return Err(AlterError::InvalidConfig(message));
    };
    let base = current.cloned().or_else(|| definition.default_text()).unwrap_or_default();
    let mut entries: Vec<&str> = base.split(',').filter(|e| !e.is_empty()).collect();
    let edited = edit.value.unwrap_or_default().split(',');
    if edit.operation == Operation::Append {
        let mut known: HashSet<&str> = entries.iter().copied().collect();
        entries.extend(edited.filter(|entry| known.insert(entry)));
    } else {
        // Each entry goes once for each time that it is named, the first one first.
        let mut named: HashMap<&str, usize> = HashMap::new();
        edited.for_each(|entry| *named.entry(entry).or_default() += 1);
        entries.retain(|entry| match named.get_mut(entry) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            _ => true,
        });
    }
    Ok(entries.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overrides(pairs: &[(&str, &str)]) -> Overrides {
        pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    fn change(name: &str, value: Option<&str>) -> Change {
        Change { name: name.to_owned(), value: value.map(str::to_owned) }
    }

    #[test]
    fn a_replacement_removes_what_it_does_not_name() {
        let existing = overrides(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let new = overrides(&[("b", "2"), ("c", "4")]);
        let changes = replace(Resource::Topic, &existing, &new);
        assert_eq!(changes, [change("c", Some("4")), change("a", None)]);
        assert_eq!(apply(&existing, &changes), new);
    }

    #[test]
    fn an_edit_that_changes_nothing_is_recorded_for_brokers_only() {
        let existing = overrides(&[("retention.ms", "1"), ("log.retention.ms", "1")]);
        let set = |name| [Edit { name, operation: Operation::Set, value: Some("1") }];
        assert_eq!(incremental(Resource::Topic, &existing, &set("retention.ms")), Ok(vec![]));
        let expected = vec![change("log.retention.ms", Some("1"))];
        assert_eq!(incremental(Resource::Broker, &existing, &set("log.retention.ms")), Ok(expected));
    }

    #[test]
    fn lists_start_from_the_keys_default() {
        let edit = |operation, value| [Edit { name: "cleanup.policy", operation, value: Some(value) }];
        let alter = |edits: &[Edit<'_>]| incremental(Resource::Topic, &Overrides::new(), edits).unwrap();
        let appended = alter(&edit(Operation::Append, "compact,delete"));
        assert_eq!(appended, [change("cleanup.policy", Some("delete,compact"))]);
        let subtracted = alter(&edit(Operation::Subtract, "delete"));
        assert_eq!(subtracted, [change("cleanup.policy", Some(""))]);
    }

    #[test]
    fn an_entry_is_appended_once_and_taken_away_as_often_as_it_is_named() {
        let existing = overrides(&[("cleanup.policy", "a,b,a,c,a")]);
        let edit = |operation, value| {
            let edits = [Edit { name: "cleanup.policy", operation, value: Some(value) }];
            incremental(Resource::Topic, &existing, &edits).unwrap().pop().and_then(|change| change.value)
        };
        assert_eq!(edit(Operation::Append, "d,a,d").as_deref(), Some("a,b,a,c,a,d"));
        assert_eq!(edit(Operation::Subtract, "a,x,a,c").as_deref(), Some("b,a"));
    }

    #[test]
    fn repeated_keys_and_missing_values_are_refused() {
        let check = |pairs: &[(&str, Option<&str>)]| {
            let edit = |&(name, value): &_| Edit { name, operation: Operation::Set, value };
            check_shape(&pairs.iter().map(edit).collect::<Vec<_>>()).unwrap_err()
        };
        let error = check(&[("a", Some("1")), ("a", Some("2"))]);
        assert_eq!(error.to_string(), "Error due to duplicate config keys");
        let error = check(&[("a", None), ("b", Some("2")), ("c", None)]);
        assert_eq!((error.code(), error.to_string().as_str()), (42, "Null value not supported for : a, c"));
    }
}
