//! `storage version-mapping` and `storage feature-dependencies`: what the feature tables say, as Kafka prints it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use milena_metadata::{MetadataVersion, MetadataVersionError, feature};

/// The features of the mapping, in Kafka's order.
const ORDER: [&str; 6] = [
    "kraft.version",
    "transaction.version",
    "group.version",
    "eligible.leader.replicas.version",
    "share.version",
    "streams.version",
];

/// The levels that a release's features have by default, one a line. `None` is the newest stable release.
///
/// # Errors
/// [`MetadataVersionError::UnknownName`].
pub fn version_mapping(release: Option<&str>) -> Result<String, MetadataVersionError> {
    let name = release.unwrap_or(MetadataVersion::LATEST_PRODUCTION.name());
    let version = MetadataVersion::from_name(name)?;
    let mut text = format!("metadata.version={} ({name})\n", version.level());
    for feature in ORDER.iter().filter_map(|name| feature(name)) {
        let _ = writeln!(text, "{}={}", feature.name, feature.default_level(version));
    }
    Ok(text)
}

/// A feature level that does not exist. The texts are Kafka's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DependencyError {
    /// No such feature.
    #[error("Unknown feature: {0}")]
    Feature(String),
    /// No such metadata version.
    #[error("Unknown metadata.version {0}")]
    MetadataVersion(i16),
    /// The feature has no such level.
    #[error("Feature level {level} is not supported for feature {name}")]
    Level {
        /// The feature.
        name: String,
        /// The level as given.
        level: i16,
    },
}

/// What each feature level depends on, one or two lines each.
///
/// # Errors
/// [`DependencyError`] for the first level that does not exist.
pub fn feature_dependencies(levels: &[(String, i16)]) -> Result<String, DependencyError> {
    let mut text = String::new();
    for (name, level) in levels {
        let found = feature(name).ok_or_else(|| DependencyError::Feature(name.clone()))?;
        let shown = if name == "metadata.version" {
            let version = MetadataVersion::from_level(*level).map_err(|_| DependencyError::MetadataVersion(*level))?;
            format!("{name}={level} ({version})")
        } else if (found.min..=found.max).contains(level) {
            format!("{name}={level}")
        } else {
            return Err(DependencyError::Level { name: name.clone(), level: *level });
        };
        let _ = match found.dependency(*level) {
            Some(needed) => {
                writeln!(text, "{shown} requires:\n    metadata.version={} ({needed})", needed.level())
            }
            None => writeln!(text, "{shown} has no dependencies."),
        };
    }
    Ok(text)
}

/// Reads a `--feature` argument, `name=level`.
///
/// # Errors
/// Kafka's message for text without an equals sign or a level that is no number.
pub fn parse_feature(argument: &str) -> Result<(String, i16), String> {
    let argument = argument.trim();
    let Some((name, level)) = argument.split_once('=') else {
        return Err(format!("Can't parse feature=level string {argument}: equals sign not found."));
    };
    let parsed = level.trim().parse();
    let level = parsed
        .map_err(|_| format!("Can't parse feature=level string {argument}: unable to parse {level} as a short."))?;
    Ok((name.trim().to_owned(), level))
}

/// Reads all `--feature` arguments of `format`.
///
/// # Errors
/// As [`parse_feature`]; also for a feature that is named twice.
pub fn parse_features<S: AsRef<str>>(arguments: &[S]) -> Result<BTreeMap<String, i16>, String> {
    let mut levels = BTreeMap::new();
    for argument in arguments {
        let (name, level) = parse_feature(argument.as_ref())?;
        if levels.insert(name.clone(), level).is_some() {
            return Err(format!("Feature {name} was specified more than once."));
        }
    }
    Ok(levels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_maps_to_its_features_in_kafkas_order() {
        assert_eq!(
            version_mapping(Some("4.2")).unwrap(),
            "metadata.version=29 (4.2)\nkraft.version=1\ntransaction.version=2\ngroup.version=1\n\
             eligible.leader.replicas.version=1\nshare.version=1\nstreams.version=1\n"
        );
        assert!(version_mapping(None).unwrap().starts_with("metadata.version=33 (4.4-IV2)\n"));
        assert!(version_mapping(Some("3.8")).unwrap().contains("\nkraft.version=0\n"));
        assert!(version_mapping(Some("3.9")).unwrap().contains("\nkraft.version=1\n"));
        assert!(version_mapping(Some("9.9")).is_err());
    }

    fn dependencies(levels: &[(&str, i16)]) -> Result<String, String> {
        let levels: Vec<_> = levels.iter().map(|(n, l)| ((*n).to_owned(), *l)).collect();
        feature_dependencies(&levels).map_err(|e| e.to_string())
    }

    #[test]
    fn dependencies_are_told_as_kafka_tells_them() {
        assert_eq!(
            dependencies(&[("eligible.leader.replicas.version", 1), ("group.version", 1), ("metadata.version", 33)]),
            Ok("eligible.leader.replicas.version=1 requires:\n    metadata.version=23 (4.0-IV1)\n\
                group.version=1 has no dependencies.\nmetadata.version=33 (4.4-IV2) has no dependencies.\n"
                .to_owned())
        );
        assert_eq!(dependencies(&[("foo", 33)]), Err("Unknown feature: foo".to_owned()));
        assert_eq!(dependencies(&[("metadata.version", 77)]), Err("Unknown metadata.version 77".to_owned()));
        let message = "Feature level 7 is not supported for feature group.version";
        assert_eq!(dependencies(&[("group.version", 7)]), Err(message.to_owned()));
    }

    #[test]
    fn feature_arguments_are_name_and_level() {
        assert_eq!(parse_features(&["a=1", "b=2"]), Ok([("a".to_owned(), 1), ("b".to_owned(), 2)].into()));
        assert_eq!(
            parse_feature("group").unwrap_err(),
            "Can't parse feature=level string group: equals sign not found."
        );
        assert!(parse_features(&["a=1", "a=2"]).is_err());
        assert!(parse_feature("a=x").is_err());
    }
}
