//! The settings of a consumer.

use std::time::Duration;

use super::Consumer;
use super::group::GroupConfig;
use super::partitions::Reset;
use crate::client::Client;
use crate::error::Error;
use crate::settings::{boolean, millis, number, set_by_name};

/// Where a consumer begins in a partition that has no committed offset, or whose committed offset is not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetReset {
    /// At the first record.
    Earliest,
    /// After the last record.
    Latest,
    /// At the first record that is not older than this.
    ByDuration(Duration),
    /// Nowhere: it is an error.
    None,
}

impl OffsetReset {
    /// The offset to ask for, seen from `now_ms`; `None` where it is an error.
    pub(super) fn reset(self, now_ms: i64) -> Option<Reset> {
        match self {
            Self::Earliest => Some(Reset::Earliest),
            Self::Latest => Some(Reset::Latest),
            Self::ByDuration(age) => {
                let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
                Some(Reset::Time(now_ms.saturating_sub(age).max(0)))
            }
            Self::None => None,
        }
    }
}

/// Which records of transactions a consumer gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationLevel {
    /// All.
    ReadUncommitted,
    /// Those of committed transactions, and all that are of none, up to the first transaction that has no end yet.
    ReadCommitted,
}

impl IsolationLevel {
    pub(super) fn code(self) -> i8 {
        match self {
            Self::ReadUncommitted => 0,
            Self::ReadCommitted => 1,
        }
    }
}

/// What a consumer was built with.
#[derive(Debug, Clone)]
pub(super) struct ConsumerConfig {
    pub(super) group: Option<String>,
    pub(super) auto_commit: bool,
    pub(super) auto_commit_interval: Duration,
    pub(super) offset_reset: OffsetReset,
    pub(super) isolation: IsolationLevel,
    pub(super) min_bytes: i32,
    pub(super) max_bytes: i32,
    pub(super) max_wait: Duration,
    pub(super) partition_bytes: i32,
    pub(super) max_records: usize,
    pub(super) prefetch_bytes: usize,
    pub(super) decompressed_bytes: usize,
    pub(super) check_crcs: bool,
    pub(super) rack: String,
    pub(super) create_topics: bool,
    pub(super) membership: GroupConfig,
}

/// Builds a [`Consumer`]. Each common setting has a method; all have Kafka's name for [`set`](Self::set) and
/// [`properties`](Self::properties), and Kafka's default where Kafka has the setting.
///
/// | setting | default | meaning |
/// |---|---|---|
/// | `group.id` | | the group that offsets are committed for |
/// | `enable.auto.commit` | `true` | whether what was received is committed by itself, if there is a group |
/// | `auto.commit.interval.ms` | 5000 | how often |
/// | `auto.offset.reset` | `latest` | where to begin without a committed offset: `earliest`, `latest`, `by_duration:PT1H`, `none` |
/// | `group.protocol` | `classic` | or `consumer` (KIP-848): how members of the group agree on who reads what |
/// | `partition.assignment.strategy` | `range,cooperative-sticky` | of a classic group, with `roundrobin` and `sticky` |
/// | `group.remote.assignor` | | the coordinator's assignor, such as `range`, with `group.protocol=consumer` |
/// | `group.instance.id` | | a name that a member keeps over restarts, so that it keeps its partitions too |
/// | `session.timeout.ms`, `heartbeat.interval.ms` | 45000, 3000 | of a classic group: when a silent member is given up |
/// | `max.poll.interval.ms` | 300000 | when a member that receives nothing any more is given up |
/// | `exclude.internal.topics` | `true` | whether a pattern does not match the servers' own topics |
/// | `isolation.level` | `read_uncommitted` | or `read_committed`: no records of transactions that are open or aborted |
/// | `fetch.min.bytes` | 1 | bytes that a broker waits for |
/// | `fetch.max.wait.ms` | 500 | how long it waits |
/// | `fetch.max.bytes` | 52428800 | the largest response, if a batch is not larger |
/// | `max.partition.fetch.bytes` | 1048576 | the same for a partition |
/// | `max.poll.records` | 2147483647 | records that are received at once |
/// | `check.crcs` | `true` | whether the checksum of each batch is compared |
/// | `client.rack` | | where the consumer is, for fetching from a close replica |
/// | `allow.auto.create.topics` | `true` | whether topics are created by being read, where the cluster allows that |
/// | `milena.prefetch.max.bytes` | 8388608 | bytes that wait to be received, beyond which nothing more is fetched |
/// | `milena.decompressed.max.bytes` | 268435456 | the largest batch, decompressed |
#[derive(Debug, Clone)]
pub struct ConsumerBuilder {
    client: Client,
    config: ConsumerConfig,
    auto_commit_set: bool,
}

impl ConsumerBuilder {
    pub(crate) fn new(client: Client) -> Self {
        let config = ConsumerConfig {
            group: None,
            auto_commit: true,
            auto_commit_interval: Duration::from_secs(5),
            offset_reset: OffsetReset::Latest,
            isolation: IsolationLevel::ReadUncommitted,
            min_bytes: 1,
            max_bytes: 50 << 20,
            max_wait: Duration::from_millis(500),
            partition_bytes: 1 << 20,
            max_records: i32::MAX as usize,
            prefetch_bytes: 8 << 20,
            decompressed_bytes: 256 << 20,
            check_crcs: true,
            rack: String::new(),
            create_topics: true,
            membership: GroupConfig::default(),
        };
        Self { client, config, auto_commit_set: false }
    }

    /// The group that offsets are committed for.
    #[must_use]
    pub fn group_id(mut self, group: impl Into<String>) -> Self {
        self.config.group = Some(group.into());
        self
    }

    /// Whether what was received is committed by itself.
    #[must_use]
    pub fn auto_commit(mut self, enabled: bool) -> Self {
        (self.config.auto_commit, self.auto_commit_set) = (enabled, true);
        self
    }

    /// Where to begin without a committed offset.
    #[must_use]
    pub fn offset_reset(mut self, reset: OffsetReset) -> Self {
        self.config.offset_reset = reset;
        self
    }

    /// Which records of transactions are wanted.
    #[must_use]
    pub fn isolation_level(mut self, level: IsolationLevel) -> Self {
        self.config.isolation = level;
        self
    }

    /// Where the consumer is, for fetching from a close replica.
    #[must_use]
    pub fn rack(mut self, rack: impl Into<String>) -> Self {
        self.config.rack = rack.into();
        self
    }

    /// How long a broker waits for records that are not there.
    #[must_use]
    pub fn max_wait(mut self, time: Duration) -> Self {
        self.config.max_wait = time;
        self
    }

    set_by_name!("consumer", "the client's");

    /// The consumer. It reads nothing before partitions are assigned.
    ///
    /// # Errors
    /// [`Error::Config`] for settings that exclude each other.
    pub fn build(mut self) -> Result<Consumer, Error> {
        if self.config.group.is_none() {
            if self.config.auto_commit && self.auto_commit_set {
                return Err(Error::config("enable.auto.commit", "needs a group.id to commit for"));
            }
            self.config.auto_commit = false;
        }
        if self.config.group.as_deref() == Some("") {
            return Err(Error::config("group.id", "is empty"));
        }
        let config = &mut self.config;
        config.membership.check()?;
        config.membership.group = config.group.clone().unwrap_or_default();
        config.membership.rack = Some(config.rack.clone()).filter(|rack| !rack.is_empty());
        config.membership.create_topics = config.create_topics;
        Ok(Consumer::new(self.client, self.config))
    }

    /// Sets one property by Kafka's name, if it is a consumer's; says whether it is.
    ///
    /// # Errors
    /// [`Error::Config`] for a value that the property can't have.
    pub fn property(&mut self, key: &str, value: &str) -> Result<bool, Error> {
        let config = &mut self.config;
        match key {
            "group.id" => config.group = Some(value.to_owned()),
            "enable.auto.commit" => {
                config.auto_commit = boolean(key, value)?;
                self.auto_commit_set = true;
            }
            "auto.commit.interval.ms" => config.auto_commit_interval = millis(key, value)?,
            "auto.offset.reset" => config.offset_reset = offset_reset(key, value)?,
            "isolation.level" => config.isolation = isolation(key, value)?,
            "fetch.min.bytes" => config.min_bytes = number(key, value, 0..=i32::MAX)?,
            "fetch.max.wait.ms" => config.max_wait = Duration::from_millis(number(key, value, 0..=i32::MAX as u64)?),
            "fetch.max.bytes" => config.max_bytes = number(key, value, 0..=i32::MAX)?,
            "max.partition.fetch.bytes" => config.partition_bytes = number(key, value, 0..=i32::MAX)?,
            "max.poll.records" => config.max_records = number(key, value, 1..=i32::MAX as usize)?,
            "check.crcs" => config.check_crcs = boolean(key, value)?,
            "client.rack" => value.clone_into(&mut config.rack),
            "allow.auto.create.topics" => config.create_topics = boolean(key, value)?,
            "milena.prefetch.max.bytes" => config.prefetch_bytes = number(key, value, 1..=usize::MAX >> 1)?,
            "milena.decompressed.max.bytes" => {
                config.decompressed_bytes = number(key, value, 1..=i32::MAX as usize)?;
            }
            _ => return config.membership.set(key, value),
        }
        Ok(true)
    }
}

fn isolation(key: &str, value: &str) -> Result<IsolationLevel, Error> {
    match value.trim().to_ascii_lowercase().as_str() {
        "read_uncommitted" => Ok(IsolationLevel::ReadUncommitted),
        "read_committed" => Ok(IsolationLevel::ReadCommitted),
        _ => Err(Error::config(key, format!("`{value}` is neither read_uncommitted nor read_committed"))),
    }
}

fn offset_reset(key: &str, value: &str) -> Result<OffsetReset, Error> {
    let unknown = || Error::config(key, format!("`{value}` is none of earliest, latest, by_duration:PT1H and none"));
    match value.trim().to_ascii_lowercase().as_str() {
        "earliest" => Ok(OffsetReset::Earliest),
        "latest" => Ok(OffsetReset::Latest),
        "none" => Ok(OffsetReset::None),
        other => {
            let age = other.strip_prefix("by_duration:").and_then(duration).ok_or_else(unknown)?;
            Ok(OffsetReset::ByDuration(age))
        }
    }
}

/// A duration of ISO 8601 in days, hours, minutes and seconds, in lower case: `p1dt2h3m4.5s`.
fn duration(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('p')?;
    let (days, time) = match text.split_once('t') {
        Some((_, "")) => return None,
        Some((days, time)) => (days, time),
        None => (text, ""),
    };
    let mut seconds = 0.0;
    let mut any = false;
    for (part, units) in [(days, &[('d', 86_400.0)][..]), (time, &[('h', 3600.0), ('m', 60.0), ('s', 1.0)][..])] {
        let mut rest = part;
        for (unit, length) in units {
            if let Some((number, after)) = rest.split_once(*unit) {
                if number.is_empty()
                    || !number.bytes().all(|byte| byte.is_ascii_digit() || (*unit == 's' && byte == b'.'))
                {
                    return None;
                }
                seconds += number.parse::<f64>().ok()? * length;
                (rest, any) = (after, true);
            }
        }
        if !rest.is_empty() {
            return None;
        }
    }
    if any { Duration::try_from_secs_f64(seconds).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_may_be_by_duration() {
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(duration("pt1h"), ms(3_600_000));
        assert_eq!(duration("p1dt2h3m4.5s"), ms(93_784_500));
        assert_eq!(duration("p2d"), ms(172_800_000));
        for wrong in ["", "p", "pt", "1h", "p1h", "pt1s1h", "pt-1s", "pth", "p1dt", "pt1hx", "pt1e3s", "ptinfs"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
        let reset = offset_reset("auto.offset.reset", "by_duration:PT1S").unwrap();
        assert_eq!(reset.reset(5000), Some(Reset::Time(4000)));
        assert_eq!(reset.reset(500), Some(Reset::Time(0)));
        assert!(offset_reset("auto.offset.reset", "smallest").is_err());
    }

    #[tokio::test]
    async fn properties_have_bounds_and_those_of_others_are_left_alone() {
        let client = Client::builder().bootstrap_servers("a:1").build().unwrap();
        let builder = client.consumer().properties([("acks", "all"), ("fetch.min.bytes", "7")]).unwrap();
        assert_eq!(builder.config.min_bytes, 7);
        assert!(builder.clone().set("max.poll.records", "0").is_err());
        assert!(builder.clone().set("acks", "all").is_err());
        assert!(builder.clone().set("isolation.level", "snapshot").is_err());
        assert!(builder.clone().set("enable.auto.commit", "true").unwrap().build().is_err());
        assert!(builder.clone().group_id("").build().is_err());
        assert!(builder.build().is_ok());
    }
}
