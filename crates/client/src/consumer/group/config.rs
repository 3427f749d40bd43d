//! The settings of a member.

use std::collections::BTreeSet;
use std::time::Duration;

use super::assignor::{self, Assignor};
use crate::error::Error;
use crate::settings::{boolean, millis};

/// How members of a group agree on who reads what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupProtocol {
    /// A member divides the partitions for all, and all stop meanwhile or take turns: JoinGroup and SyncGroup.
    Classic,
    /// The coordinator divides, and members follow one by one: ConsumerGroupHeartbeat (KIP-848).
    Consumer,
}

/// What a member was built with.
#[derive(Debug, Clone)]
pub(crate) struct GroupConfig {
    /// `group.id`.
    pub(crate) group: String,
    pub(crate) protocol: GroupProtocol,
    pub(crate) assignors: Vec<Assignor>,
    pub(crate) remote_assignor: Option<String>,
    pub(crate) instance: Option<String>,
    pub(crate) session_timeout: Duration,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) max_poll_interval: Duration,
    pub(crate) rack: Option<String>,
    pub(crate) exclude_internal: bool,
    pub(crate) create_topics: bool,
    /// What was set rather than left at its default.
    set: BTreeSet<String>,
}

impl Default for GroupConfig {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            group: String::new(),
            protocol: GroupProtocol::Classic,
            assignors: vec![Assignor::Range, Assignor::CooperativeSticky],
            remote_assignor: None,
            instance: None,
            session_timeout: ms(45_000),
            heartbeat_interval: ms(3_000),
            max_poll_interval: ms(300_000),
            rack: None,
            exclude_internal: true,
            create_topics: true,
            set: BTreeSet::new(),
        }
    }
}

impl GroupConfig {
    /// Sets one property by Kafka's name; whether there is such a property.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<bool, Error> {
        let text = || (!value.is_empty()).then(|| value.to_owned());
        match key {
            "group.protocol" => self.protocol = protocol(key, value)?,
            "partition.assignment.strategy" => self.assignors = assignor::parse(key, value)?,
            "group.remote.assignor" => self.remote_assignor = text(),
            "group.instance.id" => {
                let none = || Error::config(key, "must not be empty");
                self.instance = Some(text().ok_or_else(none)?);
            }
            "session.timeout.ms" => self.session_timeout = millis(key, value)?,
            "heartbeat.interval.ms" => self.heartbeat_interval = millis(key, value)?,
            "max.poll.interval.ms" => self.max_poll_interval = millis(key, value)?,
            "exclude.internal.topics" => self.exclude_internal = boolean(key, value)?,
            _ => return Ok(false),
        }
        self.set.insert(key.to_owned());
        Ok(true)
    }

    /// Refuses settings that contradict each other, as Kafka's consumer does.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let (excluded, reason): (&[&str], _) = match self.protocol {
            GroupProtocol::Classic => (&["group.remote.assignor"], "has no meaning with group.protocol=classic"),
            GroupProtocol::Consumer => (
                &["partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"],
                "is the server's to decide with group.protocol=consumer",
            ),
        };
        if let Some(key) = excluded.iter().find(|key| self.set.contains(**key)) {
            return Err(Error::config(key, reason));
        }
        if self.protocol == GroupProtocol::Classic && self.heartbeat_interval >= self.session_timeout {
            return Err(Error::config("heartbeat.interval.ms", "must be less than session.timeout.ms"));
        }
        Ok(())
    }
}

fn protocol(key: &str, value: &str) -> Result<GroupProtocol, Error> {
    match value.trim().to_ascii_lowercase().as_str() {
        "classic" => Ok(GroupProtocol::Classic),
        "consumer" => Ok(GroupProtocol::Consumer),
        _ => Err(Error::config(key, format!("`{value}` is neither classic nor consumer"))),
    }
}

/// Milliseconds as requests have them.
pub(super) fn wire_millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(properties: &[(&str, &str)]) -> Result<(), Error> {
        let mut config = GroupConfig::default();
        for (key, value) in properties {
            assert!(config.set(key, value)?, "{key}");
        }
        config.check()
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        assert!(set(&[("group.protocol", "CONSUMER"), ("group.remote.assignor", "range")]).is_ok());
        assert!(set(&[("group.protocol", "consumer"), ("session.timeout.ms", "9000")]).is_err());
        assert!(set(&[("group.remote.assignor", "range")]).is_err());
        assert!(set(&[("session.timeout.ms", "3000")]).is_err());
        assert!(set(&[("partition.assignment.strategy", "sticky"), ("group.instance.id", "a")]).is_ok());
        assert!(set(&[("group.protocol", "share")]).is_err());
        assert!(!GroupConfig::default().set("acks", "all").unwrap());
    }
}
