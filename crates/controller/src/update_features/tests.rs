use milena_protocol::messages::update_features_request::FeatureUpdateKey;

use super::*;
use crate::testing::{Node, broker, image};

/// A node of metadata version 21, before eligible leader replicas.
fn older() -> Node {
    let mut node = Node::new();
    let level = |name: &'static str, feature_level| FeatureLevelRecord { name: name.into(), feature_level }.into();
    node.commit(&[level(METADATA_VERSION, 21), level(ELR_VERSION, 0)]);
    node
}

fn request(updates: &[(&'static str, i16, i8)]) -> UpdateFeaturesRequest<'static> {
    let update = |(feature, max_version_level, upgrade_type): &(&'static str, i16, i8)| FeatureUpdateKey {
        feature: (*feature).into(),
        max_version_level: *max_version_level,
        upgrade_type: *upgrade_type,
        ..Default::default()
    };
    UpdateFeaturesRequest { feature_updates: updates.iter().map(update).collect(), ..Default::default() }
}

/// The message without what all have in front, and the code.
fn refusal(node: &Node, updates: &[(&'static str, i16, i8)]) -> (i16, String) {
    let (records, answer) = update_features(node.view(), &request(updates), 2);
    assert_eq!(records, [], "{updates:?}");
    let message = answer.error_message.unwrap().into_owned();
    let front = "The update failed for all features since the following feature had an error: ";
    (answer.error_code, message.strip_prefix(front).unwrap().to_owned())
}

fn levels(records: &Records) -> String {
    let text = |record: &milena_protocol::MetadataRecord<'static>| match record {
        milena_protocol::MetadataRecord::FeatureLevel(it) => format!("{}={}", it.name, it.feature_level),
        milena_protocol::MetadataRecord::Config(it) => {
            format!("{}:{}={}", it.resource_name, it.name, it.value.as_deref().unwrap_or("gone"))
        }
        other => other.name().to_owned(),
    };
    records.iter().map(text).collect::<Vec<_>>().join(" ")
}

#[test]
fn levels_go_up_and_with_eligible_leaders_comes_the_minimum_of_replicas() {
    let mut node = older();
    let of_broker = ConfigRecord {
        resource_type: ConfigResourceType::BROKER.0,
        resource_name: "1".into(),
        name: MIN_INSYNC_REPLICAS.into(),
        value: Some("2".into()),
    };
    node.commit(&[of_broker.into()]);
    let all = [(METADATA_VERSION, 33, 1), (ELR_VERSION, 1, 1), (KRAFT_VERSION, 1, 1), ("group.version", 1, 1)];
    let (records, answer) = update_features(node.view(), &request(&all), 1);
    assert_eq!(
        levels(&records),
        ":min.insync.replicas=1 1:min.insync.replicas=gone eligible.leader.replicas.version=1 group.version=1 \
         kraft.version=1 metadata.version=33"
    );
    assert_eq!((answer.error_code, answer.error_message, answer.results.len()), (0, None, 4));
    let (_, answer) = update_features(node.view(), &request(&all), 2);
    assert_eq!(answer.results, []);
}

#[test]
fn a_dry_run_writes_nothing() {
    let request = UpdateFeaturesRequest { validate_only: true, ..request(&[(METADATA_VERSION, 33, 1)]) };
    let (records, answer) = update_features(older().view(), &request, 2);
    assert_eq!((records, answer.error_code), (vec![], 0));
}

#[test]
fn what_nobody_can_is_refused_for_all() {
    let node = older();
    let code = ErrorCode::INVALID_UPDATE_VERSION.0;
    let invalid =
        |name: &str, level, why: &str| (code, format!("Invalid update version {level} for feature {name}. {why}"));
    let group = |level, kind| refusal(&node, &[("group.version", level, kind), (METADATA_VERSION, 33, 1)]);
    let no_kind = "The controller does not support the given upgrade type.";
    assert_eq!(group(1, 0), invalid("group.version", 1, no_kind));
    assert_eq!(group(-1, 1), invalid("group.version", -1, "A feature version cannot be less than 0."));
    assert_eq!(group(2, 1), invalid("group.version", 2, "Local controller 1 only supports versions 0-1"));
    assert_eq!(group(1, 2), invalid("group.version", 1, "Can't downgrade to a newer version."));
    let unknown = "Local controller 1 does not support this feature.";
    assert_eq!(refusal(&node, &[("none", 1, 1)]), invalid("none", 1, unknown));
    assert_eq!(refusal(&node, &[("none", 0, 2)]), invalid("none", 0, "Feature none not found."));
    let needs =
        "eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23";
    assert_eq!(refusal(&node, &[(ELR_VERSION, 1, 1)]), invalid(ELR_VERSION, 1, needs));
    let lower = "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe \
        downgrade.";
    assert_eq!(refusal(&node, &[(METADATA_VERSION, 20, 1)]), invalid(METADATA_VERSION, 20, lower));
}

#[test]
fn the_metadata_version_goes_down_only_as_far_as_nothing_is_lost() {
    let mut node = older();
    let down = |node: &Node, level, kind| refusal(node, &[(METADATA_VERSION, level, kind)]).1;
    let (records, _) = update_features(node.view(), &request(&[(METADATA_VERSION, 17, 2)]), 2);
    assert_eq!(levels(&records), "metadata.version=17");
    assert_eq!(
        down(&node, 16, 2),
        "Unsupported metadata.version downgrade from 21 to 16. Refusing to perform the requested downgrade because it might \
         delete metadata information."
    );
    assert_eq!(
        down(&node, 16, 3),
        "Unsupported metadata.version downgrade from 21 to 16. Unsafe metadata downgrade is not supported in this version."
    );
    node.kraft_version = 1;
    let kraft = refusal(&node, &[(KRAFT_VERSION, 0, 2)]).1;
    assert_eq!(
        kraft,
        "Invalid update version 0 for feature kraft.version. Can't downgrade the version of this feature."
    );
    let (records, answer) = update_features(node.view(), &request(&[(KRAFT_VERSION, 1, 1)]), 2);
    assert_eq!((records, answer.error_code), (vec![], 0));
}

#[test]
fn every_node_that_is_registered_must_have_the_level() {
    let mut node = Node::new();
    let old = milena_metadata::Broker { features: Default::default(), ..broker(7) };
    node.image = image([broker(1), old]);
    let why = "Invalid update version 1 for feature group.version. Broker 7 does not support this feature.";
    assert_eq!(refusal(&node, &[("group.version", 1, 1)]).1, why);
}
