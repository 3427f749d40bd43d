//! The image itself: what the metadata log says up to one offset.

use std::sync::Arc;

use milena_protocol::MetadataRecord;

use crate::cluster::Cluster;
use crate::configs::Configs;
use crate::delta::Delta;
use crate::error::ReplayError;
use crate::features::Features;
use crate::quotas::ClientQuotas;
use crate::replay::ImageBuilder;
use crate::security::{Acls, DelegationTokens, ScramCredentials};
use crate::topics::Topics;

/// How far into the metadata log an image goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// Offset of the last record contained, -1 for none.
    pub last_contained_offset: i64,
    /// Leader epoch of that record.
    pub last_contained_epoch: i32,
    /// Timestamp of the batch with that record, milliseconds since 1970; -1 for none.
    pub last_contained_timestamp: i64,
}

impl Default for Provenance {
    fn default() -> Self {
        Self { last_contained_offset: -1, last_contained_epoch: 0, last_contained_timestamp: -1 }
    }
}

/// The cluster's metadata at one offset. Never changes; a clone is a handful of reference counts, and an image made from
/// another one shares with it all that did not change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image {
    pub(crate) provenance: Provenance,
    pub(crate) features: Arc<Features>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) topics: Topics,
    pub(crate) configs: Configs,
    pub(crate) client_quotas: ClientQuotas,
    pub(crate) next_producer_id: i64,
    pub(crate) acls: Acls,
    pub(crate) scram: ScramCredentials,
    pub(crate) delegation_tokens: DelegationTokens,
}

impl Image {
    /// How far into the log this image goes.
    pub fn provenance(&self) -> Provenance {
        self.provenance
    }

    /// Finalized feature levels.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Registered brokers and controllers.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Topics and partitions.
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// Dynamic configuration.
    pub fn configs(&self) -> &Configs {
        &self.configs
    }

    /// Client quotas.
    pub fn client_quotas(&self) -> &ClientQuotas {
        &self.client_quotas
    }

    /// First producer id that no block contains yet.
    pub fn next_producer_id(&self) -> i64 {
        self.next_producer_id
    }

    /// Access control entries.
    pub fn acls(&self) -> &Acls {
        &self.acls
    }

    /// SCRAM credentials.
    pub fn scram(&self) -> &ScramCredentials {
        &self.scram
    }

    /// Delegation tokens.
    pub fn delegation_tokens(&self) -> &DelegationTokens {
        &self.delegation_tokens
    }

    /// The image after these records and what changed, as if they were committed together. The provenance stays; records
    /// that begin, end or abort a transaction have no effect here (see [`crate::Loader`]).
    ///
    /// # Errors
    /// [`ReplayError`] for the first record that contradicts the image.
    pub fn apply<'a, 'r: 'a>(
        &self,
        records: impl IntoIterator<Item = &'a MetadataRecord<'r>>,
    ) -> Result<(Image, Delta), ReplayError> {
        let mut builder = ImageBuilder::new(self);
        for record in records {
            builder.replay(record)?;
        }
        builder.finish(self.provenance)
    }
}
