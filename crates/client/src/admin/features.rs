//! Features of the cluster: which levels there are, which hold, and how they change.

use milena_protocol::messages::api_versions_response::SupportedFeatureKey;
use milena_protocol::messages::update_features_request::{FeatureUpdateKey, UpdateFeaturesRequest};

use super::cluster::introduction;
use super::{Admin, Outcomes};
use crate::call::Target;
use crate::error::{Error, check};

/// How long the controller may take, milliseconds.
const TIMEOUT: i32 = 60_000;

/// Features of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features {
    /// The position in the metadata log of their last change; `None` while unknown.
    pub epoch: Option<i64>,
    /// By name.
    pub features: Vec<Feature>,
}

/// A feature: what a broker could do and what the cluster does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// The lowest level that the broker can.
    pub supported_min: i16,
    /// The highest level that the broker can.
    pub supported_max: i16,
    /// The level that holds; 0 when it is off.
    pub finalized: i16,
}

/// Which way a level may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeType {
    /// Up.
    Upgrade,
    /// Down, as long as nothing that the metadata says is lost.
    SafeDowngrade,
    /// Down, whatever is lost.
    UnsafeDowngrade,
}

/// The level that a feature shall have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureUpdate {
    /// The feature's name.
    pub name: String,
    /// The level; 0 turns the feature off.
    pub level: i16,
    /// Which way it may go.
    pub kind: UpgradeType,
}

impl Admin {
    /// The features that a broker knows, and the levels that hold.
    ///
    /// # Errors
    /// When no broker answers.
    pub async fn describe_features(&self) -> Result<Features, Error> {
        self.describe_features_of(None).await
    }

    /// The same, of a certain broker if one is given.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn describe_features_of(&self, broker: Option<i32>) -> Result<Features, Error> {
        let request = introduction();
        let read = self.client.call(broker.map_or(Target::Any, Target::Broker), &request).read(|response| {
            check(response.error_code, None)?;
            let finalized = |name: &str| {
                let mut levels = response.finalized_features.iter();
                levels.find(|feature| feature.name == name).map_or(0, |feature| feature.max_version_level)
            };
            let feature = |feature: &SupportedFeatureKey<'_>| Feature {
                name: feature.name.to_string(),
                supported_min: feature.min_version,
                supported_max: feature.max_version,
                finalized: finalized(&feature.name),
            };
            let mut features: Vec<Feature> = response.supported_features.iter().map(feature).collect();
            features.sort_by(|one, other| one.name.cmp(&other.name));
            let epoch = response.finalized_features_epoch;
            Ok(Features { epoch: (epoch >= 0).then_some(epoch), features })
        });
        read.await
    }

    /// Changes the levels of features, all or none of them, or only says whether they could be changed.
    ///
    /// # Errors
    /// When the controller does not answer.
    pub async fn update_features(
        &self,
        updates: &[FeatureUpdate],
        validate_only: bool,
    ) -> Result<Outcomes<String, ()>, Error> {
        let update = |update: &FeatureUpdate| FeatureUpdateKey {
            feature: update.name.clone().into(),
            max_version_level: update.level,
            allow_downgrade: false,
            upgrade_type: match update.kind {
                UpgradeType::Upgrade => 1,
                UpgradeType::SafeDowngrade => 2,
                UpgradeType::UnsafeDowngrade => 3,
            },
        };
        let request = UpdateFeaturesRequest {
            timeout_ms: TIMEOUT,
            feature_updates: updates.iter().map(update).collect(),
            validate_only,
        };
        let read = self.client.call(Target::Controller, &request).versions(1..).read(|response| {
            let whole = check(response.error_code, response.error_message.as_deref());
            match whole {
                Err(error) if error.is_retriable() => return Err(error),
                _ => {}
            }
            let outcome = |update: &FeatureUpdate| {
                let mut own = response.results.iter();
                let own = own.find(|result| result.feature == update.name);
                let own = own.map_or(Ok(()), |result| check(result.error_code, result.error_message.as_deref()));
                (update.name.clone(), whole.clone().and(own))
            };
            Ok(updates.iter().map(outcome).collect())
        });
        read.await
    }
}
