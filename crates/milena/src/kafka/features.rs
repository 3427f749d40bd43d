//! kafka-features.

use std::collections::BTreeMap;
use std::process::ExitCode;

use milena_client::Admin;
use milena_client::admin::{FeatureUpdate, UpgradeType};
use milena_metadata::{FeatureError, METADATA_VERSION, MetadataVersion, features};
use milena_quorum::DependencyError;

use super::argparse::{self, Command};
use super::options::{Flag, Options};
use super::{Ended, Thrown, ask, java};
use crate::output::{print, print_error};

const COMMON: &[Flag] = &[
    Flag::value("bootstrap-server", "A comma-separated list of host:port pairs to connect to."),
    Flag::value("bootstrap-controller", "A comma-separated list of host:port pairs of the KRaft controllers."),
    Flag::value("command-config", "Property file containing configs to be passed to Admin Client."),
    Flag::switch("help", "show this help message and exit").short("h"),
];

const HELP: Flag = Flag::switch("help", "show this help message and exit").short("h");
const NODE: Flag = Flag::value("node-id", "The node id to which the requests should be sent.");
const METADATA: Flag = Flag::value("metadata", "DEPRECATED -- The level of the metadata. For example, 3.3-IV3.");
const RELEASE: Flag = Flag::value("release-version", "The release version to set all features to.");
const FEATURE: Flag = Flag::value("feature", "A feature, in feature=level format. For example: `metadata.version=5`.");
const DRY_RUN: Flag = Flag::switch("dry-run", "Validate this, but do not perform it.");
const UNSAFE: Flag = Flag::switch("unsafe", "Perform this even if it may irreversibly destroy metadata.");

const COMMANDS: &[Command] = &[
    Command {
        name: "describe",
        help: "Describes the current active feature flags.",
        flags: &[HELP, NODE],
        required: &[],
    },
    Command {
        name: "upgrade",
        help: "Upgrade one or more feature flags.",
        flags: &[HELP, METADATA, RELEASE, FEATURE, DRY_RUN],
        required: &[],
    },
    Command {
        name: "downgrade",
        help: "Downgrade one or more feature flags.",
        flags: &[HELP, METADATA, RELEASE, FEATURE, UNSAFE, DRY_RUN],
        required: &[],
    },
    Command {
        name: "disable",
        help: "Disable one or more feature flags. This is the same as downgrading the version to zero.",
        flags: &[HELP, FEATURE, UNSAFE, DRY_RUN],
        required: &[],
    },
    Command {
        name: "version-mapping",
        help: "Look up the corresponding features for a given metadata version.",
        flags: &[HELP, RELEASE],
        required: &[],
    },
    Command {
        name: "feature-dependencies",
        help: "Look up dependencies for a given feature version.",
        flags: &[HELP, FEATURE],
        required: &["feature"],
    },
];

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    argparse::run("kafka-features", COMMON, COMMANDS, arguments, execute, |thrown| {
        print_error(&format!("{}\n", thrown.caught().0));
    })
}

/// What ends the tool with nothing but its message.
fn terse(message: impl ToString) -> Ended {
    Thrown::argument(message.to_string()).into()
}

fn execute(command: &str, options: &Options) -> Result<(), Ended> {
    let misuse = |what: &str| terse(format!("Command line error: {what}. Type --help for help."));
    if !options.has("bootstrap-server") && !options.has("bootstrap-controller") {
        return Err(misuse("You must specify either --bootstrap-controller or --bootstrap-server."));
    }
    let names = ["--bootstrap-server", "--bootstrap-controller"];
    argparse::check_bootstrap(options, names).map_err(|message| misuse(&message))?;
    let down = if options.has("unsafe") { UpgradeType::UnsafeDowngrade } else { UpgradeType::SafeDowngrade };
    let updates = match command {
        "version-mapping" => {
            print(&milena_quorum::version_mapping(options.value("release-version")?).map_err(terse)?);
            return Ok(());
        }
        "feature-dependencies" => {
            let levels = options.values("feature").into_iter().map(milena_quorum::parse_feature);
            let levels = levels.collect::<Result<Vec<_>, _>>().map_err(terse)?;
            let told = milena_quorum::feature_dependencies(&levels).map_err(|error| match error {
                DependencyError::Level { name, level } => terse(FeatureError::Level { name, level }),
                other => terse(other),
            });
            print(&told?);
            return Ok(());
        }
        "describe" => return ask(options, async |admin| describe(admin, options).await),
        "disable" => named(options.values("feature").into_iter().map(|name| Ok((name.to_owned(), 0))))?,
        "upgrade" => levels(options, UpgradeType::Upgrade)?,
        _ => levels(options, down)?,
    };
    let kind = if command == "upgrade" { UpgradeType::Upgrade } else { down };
    if updates.is_empty() {
        return Err(terse(format!("You must specify at least one feature to {command}")));
    }
    let update = |(name, level): (String, i16)| FeatureUpdate { name, level, kind };
    let updates: Vec<FeatureUpdate> = updates.into_iter().map(update).collect();
    ask(options, async |admin| change(admin, command, &updates, options.has("dry-run")).await)
}

async fn describe(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let node: Option<i32> = options.number("node-id")?;
    if let Some(node) = node.filter(|node| *node < 0) {
        return Err(terse(format!("Invalid node id {node}: must be non-negative.")));
    }
    let found = admin.describe_features_of(node).await?;
    let epoch = found.epoch.map_or_else(|| "-".to_owned(), |epoch| epoch.to_string());
    for feature in found.features {
        let level = |level: i16| match MetadataVersion::from_level(level) {
            _ if feature.name != METADATA_VERSION => level.to_string(),
            Ok(version) => version.name().to_owned(),
            Err(_) => format!("UNKNOWN {level}"),
        };
        print(&format!(
            "Feature: {:<40}  SupportedMinVersion: {:<15}  SupportedMaxVersion: {:<15}  FinalizedVersionLevel: {:<15}  \
             Epoch: {epoch}\n",
            feature.name,
            level(feature.supported_min),
            level(feature.supported_max),
            level(feature.finalized)
        ));
    }
    Ok(())
}

/// The levels that `--release-version`, or `--metadata` and `--feature`, stand for.
fn levels(options: &Options, kind: UpgradeType) -> Result<BTreeMap<String, i16>, Ended> {
    let (metadata, release) = (options.value("metadata")?, options.value("release-version")?);
    if release.is_some() && (metadata.is_some() || options.has("feature")) {
        return Err(terse("Can not specify `release-version` with other feature flags."));
    }
    let metadata_version = |level: MetadataVersion| (METADATA_VERSION.to_owned(), level.level());
    if let Some(release) = release {
        let version = MetadataVersion::from_name(release).map_err(terse)?;
        let others = features().iter().filter(|feature| feature.name != METADATA_VERSION);
        let others = others.map(|feature| (feature.name.to_owned(), feature.default_level(version)));
        // What a release does not have is not raised to nothing.
        let others = others.filter(|(_, level)| kind != UpgradeType::Upgrade || *level > 0);
        return Ok(others.chain([metadata_version(version)]).collect());
    }
    let mut given = Vec::new();
    if let Some(metadata) = metadata {
        print(" `metadata` flag is deprecated and may be removed in a future release.\n");
        given.push(Ok(metadata_version(MetadataVersion::from_name(metadata).map_err(terse)?)));
    }
    given.extend(options.values("feature").into_iter().map(milena_quorum::parse_feature));
    named(given.into_iter())
}

/// Each feature once.
fn named(given: impl Iterator<Item = Result<(String, i16), String>>) -> Result<BTreeMap<String, i16>, Ended> {
    let mut levels = BTreeMap::new();
    for level in given {
        let (name, level) = level.map_err(terse)?;
        if levels.insert(name.clone(), level).is_some() {
            return Err(terse(format!("Feature {name} was specified more than once.")));
        }
    }
    Ok(levels)
}

/// Asks for the change and tells what became of it, feature by feature.
async fn change(admin: &Admin, command: &str, updates: &[FeatureUpdate], dry_run: bool) -> Result<(), Ended> {
    let outcomes = match admin.update_features(updates, dry_run).await {
        Ok(outcomes) => outcomes,
        Err(error) => updates.iter().map(|update| (update.name.clone(), Err(error.clone()))).collect(),
    };
    let mut failed = 0;
    for (update, (name, outcome)) in updates.iter().zip(&outcomes) {
        let level = update.level;
        match outcome {
            Ok(()) => {
                let verb = if dry_run { "can be" } else { "was" };
                let done =
                    if command == "disable" { "disabled.".to_owned() } else { format!("{command}d to {level}.") };
                print(&format!("{name} {verb} {done}\n"));
            }
            Err(error) => {
                let verb = if dry_run { "Can not" } else { "Could not" };
                let rest = if command == "disable" { String::new() } else { format!(" to {level}") };
                print(&format!("{verb} {command} {name}{rest}. {}\n", java::thrown(error).message));
                failed += 1;
            }
        }
    }
    if failed > 0 {
        return Err(terse(format!("{failed} out of {} operation(s) failed.", updates.len())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str, kind: UpgradeType) -> Result<String, String> {
        const FLAGS: &[Flag] = &[METADATA, RELEASE, FEATURE];
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let options = Options::parse(FLAGS, &words).map_err(|misuse| misuse.message)?;
        match levels(&options, kind) {
            Ok(levels) => {
                Ok(levels.iter().map(|(name, level)| format!("{name}={level}")).collect::<Vec<_>>().join(" "))
            }
            Err(Ended::Thrown(thrown)) => Err(thrown.message),
            Err(_) => Err(String::new()),
        }
    }

    #[test]
    fn a_release_stands_for_the_levels_of_all_its_features() {
        let up = read("--release-version 3.9", UpgradeType::Upgrade).unwrap();
        assert_eq!(up, "kraft.version=1 metadata.version=21");
        let down = read("--release-version 3.9", UpgradeType::SafeDowngrade).unwrap();
        assert!(down.contains("group.version=0") && down.contains("metadata.version=21"), "{down}");
    }

    #[test]
    fn a_feature_is_named_once_and_not_beside_a_release() {
        let up = |line| read(line, UpgradeType::Upgrade);
        assert_eq!(up("--feature a=1 --feature b=2"), Ok("a=1 b=2".to_owned()));
        assert_eq!(up("--feature a=1 --feature a=2"), Err("Feature a was specified more than once.".to_owned()));
        assert_eq!(
            up("--feature a=1 --release-version 4.0"),
            Err("Can not specify `release-version` with other feature flags.".to_owned())
        );
        assert!(up("--release-version 9.9").unwrap_err().starts_with("Unknown metadata.version '9.9'."));
    }
}
