//! Metadata versions: the levels of the `metadata.version` feature, their names, and which record versions each one
//! allows. The other features live in [`crate::features`].

use std::fmt;

/// Names by level, the first one being [`MetadataVersion::MINIMUM`]. The part before the hyphen is the release.
const NAMES: [&str; 28] = [
    "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1",
    "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0",
    "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0", "4.4-IV0", "4.4-IV1", "4.4-IV2", "4.5-IV0",
];

/// A level of the feature `metadata.version`, between [`MetadataVersion::MINIMUM`] and [`MetadataVersion::LATEST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetadataVersion(i16);

/// A name that is no metadata version, or a level outside the known range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataVersionError {
    /// The text of `--release-version` names no release.
    #[error("Unknown metadata.version '{name}'. Supported metadata.version are: {}", NAMES.join(", "))]
    UnknownName {
        /// The text as given.
        name: String,
    },
    /// A feature level record carries a level this software does not know.
    #[error(
        "Unsupported metadata.version {level}: this node supports {} to {}",
        MetadataVersion::MINIMUM.level(),
        MetadataVersion::LATEST.level()
    )]
    UnknownLevel {
        /// The level as read.
        level: i16,
    },
}

impl MetadataVersion {
    /// 3.3-IV3, the oldest level a 4.x node starts with.
    pub const MINIMUM: Self = Self(7);
    /// 4.4-IV2, the newest level that is stable.
    pub const LATEST_PRODUCTION: Self = Self(33);
    /// 4.5-IV0, the newest level known at all.
    pub const LATEST: Self = Self(34);

    /// The version of a level.
    ///
    /// # Errors
    /// [`MetadataVersionError::UnknownLevel`] outside the known range.
    pub fn from_level(level: i16) -> Result<Self, MetadataVersionError> {
        if (Self::MINIMUM.0..=Self::LATEST.0).contains(&level) {
            Ok(Self(level))
        } else {
            Err(MetadataVersionError::UnknownLevel { level })
        }
    }

    /// The version a release name stands for: `4.4-IV1` is itself, `4.4` and `4.4.0` are the newest stable level of
    /// that release.
    ///
    /// # Errors
    /// [`MetadataVersionError::UnknownName`] for any other text.
    pub fn from_name(name: &str) -> Result<Self, MetadataVersionError> {
        let exact = NAMES.iter().position(|n| *n == name);
        let release = || {
            let release = name.split('.').take(2).collect::<Vec<_>>().join(".");
            NAMES.iter().rposition(|n| n.split('-').next() == Some(release.as_str()))
        };
        let index = exact.or_else(|| if name.contains('-') { None } else { release() });
        index
            .map(|i| Self(Self::MINIMUM.0 + i16::try_from(i).expect("the table has fewer than 100 names")))
            .ok_or_else(|| MetadataVersionError::UnknownName { name: name.to_owned() })
    }

    /// The number stored in `FeatureLevelRecord`.
    pub const fn level(self) -> i16 {
        self.0
    }

    /// The name with its internal version, such as `4.4-IV2`.
    pub fn name(self) -> &'static str {
        NAMES[usize::from((self.0 - Self::MINIMUM.0).unsigned_abs())]
    }

    /// Whether records of this version would be lost with an older one.
    pub fn has_more_records_than(self, older: Self) -> bool {
        /// Levels that brought records, or fields of records.
        const NEW_RECORDS: [i16; 11] = [7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33];
        NEW_RECORDS.iter().any(|level| (older.0 + 1..=self.0).contains(level))
    }

    /// Whether bootstrap records are written inside a metadata transaction.
    pub const fn supports_transactions(self) -> bool {
        self.0 >= 13
    }

    /// Whether controllers register themselves.
    pub const fn supports_controller_registration(self) -> bool {
        self.0 >= 15
    }

    /// Whether SCRAM credentials may be in the metadata log.
    pub const fn supports_scram(self) -> bool {
        self.0 >= 11
    }

    /// Whether replicas are assigned to log directories.
    pub const fn supports_directories(self) -> bool {
        self.0 >= 17
    }

    /// Whether eligible leader replicas may be recorded.
    pub const fn supports_elr(self) -> bool {
        self.0 >= 23
    }

    /// Whether log directories can be cordoned.
    pub const fn supports_cordoned_directories(self) -> bool {
        self.0 >= 30
    }

    /// Whether shrinking an in-sync set must bump the leader epoch.
    pub const fn bumps_leader_epoch_on_isr_shrink(self) -> bool {
        self.0 < 12
    }

    /// The version of `PartitionRecord` to write.
    pub const fn partition_record_version(self) -> i16 {
        if self.supports_elr() {
            2
        } else if self.supports_directories() {
            1
        } else {
            0
        }
    }

    /// The version of `PartitionChangeRecord` to write.
    pub const fn partition_change_record_version(self) -> i16 {
        self.partition_record_version()
    }

    /// The version of `RegisterBrokerRecord` to write.
    pub const fn register_broker_record_version(self) -> i16 {
        if self.supports_cordoned_directories() {
            4
        } else if self.supports_directories() {
            3
        } else if self.0 >= 8 {
            2
        } else {
            1
        }
    }
}

impl fmt::Display for MetadataVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_name_is_its_newest_level() {
        let level = |name| MetadataVersion::from_name(name).map(MetadataVersion::level);
        assert_eq!(level("3.5"), Ok(11));
        assert_eq!(level("3.9"), Ok(21));
        assert_eq!(level("3.9.1"), Ok(21));
        assert_eq!(level("4.0"), Ok(25));
        assert_eq!(level("4.4"), Ok(33));
        assert_eq!(level("4.4-IV1"), Ok(32));
        assert_eq!(level("3.3-IV3"), Ok(7));
        assert!(
            level("9.9").unwrap_err().to_string().starts_with(
                "Unknown metadata.version '9.9'. Supported metadata.version are: 3.3-IV3, 3.4-IV0, 3.5-IV0"
            )
        );
        assert!(level("4.4-IV9").is_err());
    }

    #[test]
    fn the_latest_production_level_is_named_4_4_iv2() {
        assert_eq!(MetadataVersion::LATEST_PRODUCTION.name(), "4.4-IV2");
        assert_eq!(MetadataVersion::LATEST.name(), "4.5-IV0");
        assert!(MetadataVersion::from_level(35).is_err());
        assert!(MetadataVersion::from_level(6).is_err());
    }
}
