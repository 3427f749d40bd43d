//! Feature levels: which features exist, what each level needs, and the levels a fresh cluster starts with.

use std::collections::BTreeMap;

use crate::version::{MetadataVersion, MetadataVersionError};

/// Name of the feature whose level is the metadata version.
pub const METADATA_VERSION: &str = "metadata.version";
/// Name of the feature that is written as control records of the quorum, never as a feature level record.
pub const KRAFT_VERSION: &str = "kraft.version";
/// Name of the feature whose level 1 has eligible leader replicas kept.
pub const ELR_VERSION: &str = "eligible.leader.replicas.version";
const GROUP_VERSION: &str = "group.version";
const SHARE_VERSION: &str = "share.version";
const STREAMS_VERSION: &str = "streams.version";
const TRANSACTION_VERSION: &str = "transaction.version";

/// What this software knows about one feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The feature's name.
    pub name: &'static str,
    /// Lowest supported level.
    pub min: i16,
    /// Highest supported level.
    pub max: i16,
    /// Levels with the metadata version from which on they are a new cluster's default, ascending.
    defaults: &'static [(i16, i16)],
    /// Levels with the metadata version they cannot do without.
    needs: &'static [(i16, i16)],
}

impl Feature {
    /// The level a new cluster of this metadata version starts with.
    pub fn default_level(&self, version: MetadataVersion) -> i16 {
        self.defaults.iter().rfind(|(_, from)| *from <= version.level()).map_or(0, |(level, _)| *level)
    }

    /// The metadata version a level depends on, if any.
    pub fn dependency(&self, level: i16) -> Option<MetadataVersion> {
        let (_, needed) = self.needs.iter().rfind(|(l, _)| *l <= level)?;
        MetadataVersion::from_level(*needed).ok()
    }
}

const fn plain(name: &'static str, max: i16, defaults: &'static [(i16, i16)]) -> Feature {
    Feature { name, min: 0, max, defaults, needs: &[] }
}

/// All features, ascending by name. A node announces these ranges when it registers.
static FEATURES: [Feature; 7] = [
    Feature { name: ELR_VERSION, min: 0, max: 1, defaults: &[(1, 26)], needs: &[(1, 23)] },
    plain(GROUP_VERSION, 1, &[(1, 22)]),
    plain(KRAFT_VERSION, 1, &[(1, 21)]),
    Feature {
        name: METADATA_VERSION,
        min: MetadataVersion::MINIMUM.level(),
        max: MetadataVersion::LATEST_PRODUCTION.level(),
        defaults: &[],
        needs: &[],
    },
    plain(SHARE_VERSION, 2, &[(1, 28), (2, 31)]),
    plain(STREAMS_VERSION, 1, &[(1, 29)]),
    plain(TRANSACTION_VERSION, 2, &[(2, 24)]),
];

/// All features this software supports, ascending by name.
pub fn features() -> &'static [Feature] {
    &FEATURES
}

/// One feature by name.
pub fn feature(name: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|f| f.name == name)
}

/// A combination of feature levels that no cluster can start with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureError {
    /// No such feature.
    #[error("Unsupported feature: {name}. Supported features are: {}", supported_names())]
    Unsupported {
        /// The name as given.
        name: String,
    },
    /// The feature has no such level.
    #[error("No feature:{name} with feature level {level}")]
    Level {
        /// The feature.
        name: String,
        /// The level as given.
        level: i16,
    },
    /// The level depends on a newer metadata version.
    #[error("{name} could not be set to {level} because it depends on metadata.version level {needed}")]
    Dependency {
        /// The feature.
        name: String,
        /// The level as given.
        level: i16,
        /// The metadata version it depends on.
        needed: i16,
    },
    /// `metadata.version` given both as a release and as a feature.
    #[error("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")]
    Ambiguous,
    /// The metadata version does not exist.
    #[error(transparent)]
    MetadataVersion(#[from] MetadataVersionError),
    /// The metadata version exists, but may still change.
    #[error("metadata.version {0} is not yet stable.")]
    NotStable(MetadataVersion),
}

fn supported_names() -> String {
    let names = FEATURES.iter().map(|f| f.name).filter(|n| *n != METADATA_VERSION);
    names.collect::<Vec<_>>().join(", ")
}

/// The levels a cluster is formatted with: `metadata.version` first, then every other feature of a level above 0 by
/// name, `kraft.version` left out. `overrides` are the `--feature` arguments.
///
/// # Errors
/// [`FeatureError`] for an unknown feature or level, an unmet dependency, or an unstable metadata version.
pub fn bootstrap_features(
    release: Option<MetadataVersion>,
    overrides: &BTreeMap<String, i16>,
) -> Result<Vec<(String, i16)>, FeatureError> {
    let version = match (overrides.get(METADATA_VERSION), release) {
        (Some(_), Some(_)) => return Err(FeatureError::Ambiguous),
        (Some(level), None) => MetadataVersion::from_level(*level)?,
        (None, release) => release.unwrap_or(MetadataVersion::LATEST_PRODUCTION),
    };
    if version > MetadataVersion::LATEST_PRODUCTION {
        return Err(FeatureError::NotStable(version));
    }
    if let Some(name) = overrides.keys().find(|name| feature(name).is_none()) {
        return Err(FeatureError::Unsupported { name: name.clone() });
    }
    let mut levels = vec![(METADATA_VERSION.to_owned(), version.level())];
    for feature in features().iter().filter(|f| f.name != METADATA_VERSION) {
        let level = overrides.get(feature.name).copied().unwrap_or_else(|| feature.default_level(version));
        let name = || feature.name.to_owned();
        if !(feature.min..=feature.max).contains(&level) {
            return Err(FeatureError::Level { name: name(), level });
        }
        if let Some(needed) = feature.dependency(level).filter(|needed| *needed > version) {
            return Err(FeatureError::Dependency { name: name(), level, needed: needed.level() });
        }
        if level > 0 && feature.name != KRAFT_VERSION {
            levels.push((name(), level));
        }
    }
    Ok(levels)
}

/// The finalized levels of a cluster. A feature that is absent has level 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    metadata_version: Option<MetadataVersion>,
    levels: BTreeMap<String, i16>,
}

impl Features {
    /// The metadata version. A log that has not set one yet counts as the oldest.
    pub fn metadata_version(&self) -> MetadataVersion {
        self.metadata_version.unwrap_or(MetadataVersion::MINIMUM)
    }

    /// Whether the log has set a metadata version.
    pub fn has_metadata_version(&self) -> bool {
        self.metadata_version.is_some()
    }

    /// The finalized level of a feature, 0 when it has none.
    pub fn level(&self, name: &str) -> i16 {
        if name == METADATA_VERSION {
            return self.metadata_version.map_or(0, MetadataVersion::level);
        }
        self.levels.get(name).copied().unwrap_or(0)
    }

    /// All finalized features of a level above 0: `metadata.version` first, then by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i16)> {
        let first = self.metadata_version.map(|v| (METADATA_VERSION, v.level()));
        first.into_iter().chain(self.levels.iter().map(|(name, level)| (name.as_str(), *level)))
    }

    /// Whether eligible leader replicas are kept.
    pub fn elr_enabled(&self) -> bool {
        self.level(ELR_VERSION) > 0 && self.metadata_version().supports_elr()
    }

    pub(crate) fn set(&mut self, name: &str, level: i16) -> Result<(), MetadataVersionError> {
        if name == METADATA_VERSION {
            self.metadata_version = Some(MetadataVersion::from_level(level)?);
        } else if level == 0 {
            self.levels.remove(name);
        } else {
            self.levels.insert(name.to_owned(), level);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bootstrap(release: &str, overrides: &[(&str, i16)]) -> Result<String, FeatureError> {
        let release = (!release.is_empty()).then(|| MetadataVersion::from_name(release).unwrap());
        let overrides = overrides.iter().map(|(n, l)| ((*n).to_owned(), *l)).collect();
        let levels = bootstrap_features(release, &overrides)?;
        Ok(levels.iter().map(|(n, l)| format!("{n}={l}")).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn defaults_follow_the_release() {
        assert_eq!(
            bootstrap("", &[]).unwrap(),
            "metadata.version=33 eligible.leader.replicas.version=1 group.version=1 share.version=2 streams.version=1 \
             transaction.version=2"
        );
        assert_eq!(bootstrap("3.5", &[]).unwrap(), "metadata.version=11");
        assert_eq!(bootstrap("3.9", &[]).unwrap(), "metadata.version=21");
        assert_eq!(bootstrap("4.0", &[]).unwrap(), "metadata.version=25 group.version=1 transaction.version=2");
        assert_eq!(
            bootstrap("4.3", &[]).unwrap(),
            "metadata.version=30 eligible.leader.replicas.version=1 group.version=1 share.version=1 streams.version=1 \
             transaction.version=2"
        );
    }

    #[test]
    fn overrides_win_over_defaults_and_level_0_leaves_a_feature_out() {
        assert_eq!(bootstrap("3.5", &[("group.version", 1)]).unwrap(), "metadata.version=11 group.version=1");
        assert_eq!(bootstrap("4.0", &[("group.version", 0)]).unwrap(), "metadata.version=25 transaction.version=2");
        assert_eq!(bootstrap("", &[("metadata.version", 20)]).unwrap(), "metadata.version=20");
    }

    #[test]
    fn impossible_levels_are_refused_with_kafkas_messages() {
        let message = |release, overrides: &[(&str, i16)]| bootstrap(release, overrides).unwrap_err().to_string();
        assert_eq!(
            message("", &[("foo", 1)]),
            "Unsupported feature: foo. Supported features are: eligible.leader.replicas.version, group.version, \
             kraft.version, share.version, streams.version, transaction.version"
        );
        assert_eq!(message("", &[("group.version", 9)]), "No feature:group.version with feature level 9");
        assert_eq!(
            message("3.9", &[("eligible.leader.replicas.version", 1)]),
            "eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23"
        );
        assert_eq!(
            message("4.4", &[("metadata.version", 20)]),
            "Use --release-version instead of --feature metadata.version=X to avoid ambiguity."
        );
    }
}
