//! UpdateFeatures: the levels of features go up or down, of all that a request names or of none.

use std::borrow::Cow;
use std::collections::BTreeMap;

use milena_metadata::{
    ConfigResource, ConfigResourceType, ELR_VERSION, FeatureError, KRAFT_VERSION, METADATA_VERSION, MetadataVersion,
    VersionRange, feature,
};
use milena_protocol::ErrorCode;
use milena_protocol::messages::update_features_response::UpdatableFeatureResult;
use milena_protocol::messages::{ConfigRecord, FeatureLevelRecord, UpdateFeaturesRequest, UpdateFeaturesResponse};

use crate::config_records::MIN_INSYNC_REPLICAS;
use crate::error::ApiError;
use crate::name::shown;
use crate::view::{Records, View};

/// What `UpgradeType` allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Upgrade,
    SafeDowngrade,
    UnsafeDowngrade,
}

/// The levels that are asked for, and which way they may go; `None` for a way that does not exist.
type Updates<'a> = BTreeMap<&'a str, (i16, Option<Kind>)>;

/// Decides an UpdateFeatures request of `version`. A record for `kraft.version` is none of the metadata log: it stands for the
/// quorum's own control records.
pub fn update_features<'a>(
    view: View<'_>,
    request: &UpdateFeaturesRequest<'a>,
    version: i16,
) -> (Records, UpdateFeaturesResponse<'a>) {
    // Of a name that comes twice the last one counts.
    let updates = request.feature_updates.iter().map(|update| {
        let kind = match update.upgrade_type {
            1 => Some(Kind::Upgrade),
            2 => Some(Kind::SafeDowngrade),
            3 => Some(Kind::UnsafeDowngrade),
            _ => None,
        };
        (&*update.feature, (update.max_version_level, kind))
    });
    match decide(view, &updates.collect()) {
        Err(error) => (Records::new(), refuse_features(error)),
        Ok(records) => {
            let records = if request.validate_only { Records::new() } else { records };
            let told = request.feature_updates.iter().filter(|_| version <= 1);
            let results = told.map(|update| UpdatableFeatureResult {
                feature: update.feature.clone(),
                error_message: Some("NONE".into()),
                ..Default::default()
            });
            let results = results.collect();
            (records, UpdateFeaturesResponse { results, error_message: None, ..Default::default() })
        }
    }
}

/// The answer that has this error.
pub fn refuse_features(error: ApiError) -> UpdateFeaturesResponse<'static> {
    let why = error.message.as_deref().unwrap_or(error.code.text());
    let message = format!("The update failed for all features since the following feature had an error: {why}");
    let ApiError { code, message } = ApiError::new(error.code, message);
    UpdateFeaturesResponse { error_code: code.0, error_message: message, ..Default::default() }
}

fn decide(view: View<'_>, updates: &Updates<'_>) -> Result<Records, ApiError> {
    let keeps_eligible = updates.get(ELR_VERSION).is_some_and(|(level, _)| *level > 0);
    let mut records = if keeps_eligible { min_insync_replicas(view) } else { Records::new() };
    for (name, (level, kind)) in updates {
        records.extend(update(view, updates, name, *level, *kind)?);
    }
    Ok(records)
}

/// The record of one feature's new level, if there has to be one.
fn update(
    view: View<'_>,
    updates: &Updates<'_>,
    name: &str,
    level: i16,
    kind: Option<Kind>,
) -> Result<Option<milena_protocol::MetadataRecord<'static>>, ApiError> {
    let invalid = |why: &str| {
        let message = format!("Invalid update version {level} for feature {}. {why}", shown(name));
        Err(ApiError::new(ErrorCode::INVALID_UPDATE_VERSION, message))
    };
    let Some(kind) = kind else { return invalid("The controller does not support the given upgrade type.") };
    if level < 0 {
        return invalid("A feature version cannot be less than 0.");
    }
    if let Some(why) = not_supported(view, name, level) {
        return invalid(&why);
    }
    let is_kraft = name == KRAFT_VERSION;
    let current = if is_kraft { view.kraft_version } else { view.image.features().level(name) };
    if level < current && kind == Kind::Upgrade && !is_kraft {
        return invalid(
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.",
        );
    }
    if level > current && kind != Kind::Upgrade {
        return invalid("Can't downgrade to a newer version.");
    }
    match name {
        METADATA_VERSION => check_metadata_version(view, level, kind)?,
        KRAFT_VERSION if level < current => return invalid("Can't downgrade the version of this feature."),
        KRAFT_VERSION if level == current => return Ok(None),
        KRAFT_VERSION => {}
        _ => {
            // Level 0 of what nobody knows is within what everybody has.
            let Some(found) = feature(name) else { return invalid(&format!("Feature {} not found.", shown(name))) };
            let version = updates.get(METADATA_VERSION).map(|(level, _)| *level);
            let version = version.unwrap_or(view.image.features().level(METADATA_VERSION));
            if let Some(needed) = found.dependency(level).filter(|needed| needed.level() > version) {
                let name = name.to_owned();
                return invalid(&FeatureError::Dependency { name, level, needed: needed.level() }.to_string());
            }
        }
    }
    Ok(Some(FeatureLevelRecord { name: Cow::Owned(name.to_owned()), feature_level: level }.into()))
}

/// Which node has not got this level of a feature.
fn not_supported(view: View<'_>, name: &str, level: i16) -> Option<String> {
    const DISABLED: VersionRange = VersionRange { min: 0, max: 0 };
    let check = |who: String, range: Option<VersionRange>| {
        let VersionRange { min, max } = range.unwrap_or(DISABLED);
        let why = match (min, max) {
            _ if (min..=max).contains(&level) => return None,
            (_, 0) => "does not support this feature.".to_owned(),
            (min, max) if min == max => format!("only supports versions {min}"),
            (min, max) => format!("only supports versions {min}-{max}"),
        };
        Some(format!("{who} {why}"))
    };
    let own = view.config.node_id();
    let local = feature(name).map(|feature| VersionRange { min: feature.min, max: feature.max });
    if let Some(why) = check(format!("Local controller {own}"), local) {
        return Some(why);
    }
    let cluster = view.image.cluster();
    let mut brokers = cluster.brokers();
    if let Some(why) = brokers.find_map(|it| check(format!("Broker {}", it.id), it.features.get(name).copied())) {
        return Some(why);
    }
    let registered = view.image.features().metadata_version().supports_controller_registration();
    let mut others = cluster.controllers().filter(|controller| registered && controller.id != own);
    others.find_map(|it| check(format!("Controller {}", it.id), it.features.get(name).copied()))
}

fn check_metadata_version(view: View<'_>, level: i16, kind: Kind) -> Result<(), ApiError> {
    let invalid = |message: String| Err(ApiError::new(ErrorCode::INVALID_UPDATE_VERSION, message));
    let Ok(wanted) = MetadataVersion::from_level(level) else {
        let (min, max) = (MetadataVersion::MINIMUM.level(), MetadataVersion::LATEST.level());
        return invalid(format!("Invalid metadata.version {level}. Valid versions are from {min} to {max}."));
    };
    let current = view.image.features().metadata_version();
    if !current.has_more_records_than(wanted) {
        return Ok(());
    }
    let why = match kind {
        Kind::UnsafeDowngrade => "Unsafe metadata downgrade is not supported in this version.",
        _ => "Refusing to perform the requested downgrade because it might delete metadata information.",
    };
    invalid(format!("Unsupported metadata.version downgrade from {} to {level}. {why}", current.level()))
}

/// With eligible leader replicas the minimum of in-sync replicas is the cluster's, not each broker's.
fn min_insync_replicas(view: View<'_>) -> Records {
    let configs = view.image.configs();
    let record = |broker: String, value: Option<String>| {
        let record = ConfigRecord {
            resource_type: ConfigResourceType::BROKER.0,
            resource_name: broker.into(),
            name: MIN_INSYNC_REPLICAS.into(),
            value: value.map(Into::into),
        };
        record.into()
    };
    let cluster = configs.value(&ConfigResource::default_broker(), MIN_INSYNC_REPLICAS).is_none();
    let cluster = cluster.then(|| record(String::new(), Some(view.config.min_insync_replicas().to_string())));
    let brokers = configs.iter().filter(|(resource, values)| {
        resource.kind == ConfigResourceType::BROKER
            && !resource.name.is_empty()
            && values.contains_key(MIN_INSYNC_REPLICAS)
    });
    cluster.into_iter().chain(brokers.map(|(resource, _)| record(resource.name.clone(), None))).collect()
}

#[cfg(test)]
mod tests;
