//! The one table of APIs. ApiVersions, dispatch, and the README's table read it, so what is advertised is what is served.
//! What an API does lives in its own file under `handlers/`.

pub mod markdown;

use std::ops::RangeInclusive;
use std::sync::Arc;

use milena_net::{LocalBoxFuture, Outgoing, Replies, Reply};
use milena_protocol::ApiKey;

use crate::decided::{Decide, Refuse};
use crate::handlers;
use crate::request::{Call, OwnedRequest, Refusal};
use crate::services::Services;

/// One API: its key, the versions it serves, and who answers.
pub struct Api {
    /// Which API.
    pub key: ApiKey,
    /// Versions that are served.
    pub versions: RangeInclusive<i16>,
    /// The newest version, served only where versions that are not final are offered (`unstable.api.versions.enable`).
    pub unfinished: Option<i16>,
    /// Lowest version that ApiVersions names. Differs from the served one only for Produce, where a higher minimum
    /// makes old librdkafka versions switch compression off.
    pub advertised_min: i16,
    /// Who answers.
    pub handler: Handler,
}

/// How an API is served.
#[derive(Clone, Copy)]
pub enum Handler {
    /// Answers at once from memory, reading the frame where it was received.
    Now(fn(&Call<'_>, &Services, &mut Outgoing) -> Result<(), Refusal>),
    /// Decided by the controller, and answered when its records are durable; later requests of the connection wait.
    Decided(Decide, Refuse),
    /// Waits for something: owns a copy of the frame; later requests of the connection wait.
    Later(fn(OwnedRequest, Arc<Services>) -> LocalBoxFuture<'static, Result<Reply, Refusal>>),
    /// Consecutive Produce requests of one wake-up, taken together.
    Produce,
    /// Answers at once or later, as it turns out.
    Either(fn(&Call<'_>, &Arc<Services>, &mut Replies<'_>) -> Result<(), Refusal>),
}

impl Api {
    /// An API of which every version that is served is final, and advertised.
    pub const fn new(key: ApiKey, versions: RangeInclusive<i16>, handler: Handler) -> Self {
        Self { key, advertised_min: *versions.start(), versions, unfinished: None, handler }
    }

    /// The same API, with a newest version that is not final.
    pub const fn unfinished(mut self, version: i16) -> Self {
        self.unfinished = Some(version);
        self
    }

    /// The newest version that is served; `unstable` where versions that are not final are offered.
    pub fn newest(&self, unstable: bool) -> i16 {
        self.unfinished.filter(|_| unstable).unwrap_or(*self.versions.end())
    }

    /// The same API, advertised from `min` on.
    pub const fn advertised_from(mut self, min: i16) -> Self {
        self.advertised_min = min;
        self
    }
}

/// All APIs, by key.
pub static APIS: &[Api] = &[
    handlers::produce::API,
    handlers::fetch::API,
    handlers::list_offsets::API,
    handlers::metadata::API,
    handlers::offset_commit::API,
    handlers::offset_fetch::API,
    handlers::find_coordinator::API,
    handlers::join_group::API,
    handlers::heartbeat::API,
    handlers::leave_group::API,
    handlers::sync_group::API,
    handlers::describe_groups::API,
    handlers::list_groups::API,
    handlers::security::SASL_HANDSHAKE,
    handlers::api_versions::API,
    handlers::create_topics::API,
    handlers::delete_topics::API,
    handlers::delete_records::API,
    handlers::init_producer_id::API,
    handlers::offset_for_leader_epoch::API,
    handlers::add_partitions_to_txn::API,
    handlers::add_offsets_to_txn::API,
    handlers::end_txn::API,
    handlers::write_txn_markers::API,
    handlers::txn_offset_commit::API,
    handlers::security::DESCRIBE_ACLS,
    handlers::security::CREATE_ACLS,
    handlers::security::DELETE_ACLS,
    handlers::describe_configs::API,
    handlers::alter_configs::API,
    handlers::alter_replica_log_dirs::API,
    handlers::describe_log_dirs::API,
    handlers::security::SASL_AUTHENTICATE,
    handlers::create_partitions::API,
    handlers::security::CREATE_DELEGATION_TOKEN,
    handlers::security::RENEW_DELEGATION_TOKEN,
    handlers::security::EXPIRE_DELEGATION_TOKEN,
    handlers::security::DESCRIBE_DELEGATION_TOKEN,
    handlers::delete_groups::API,
    handlers::elect_leaders::API,
    handlers::incremental_alter_configs::API,
    handlers::alter_partition_reassignments::API,
    handlers::list_partition_reassignments::API,
    handlers::offset_delete::API,
    handlers::describe_quorum::API,
    handlers::update_features::API,
    handlers::describe_cluster::API,
    handlers::describe_producers::API,
    handlers::unregister_broker::API,
    handlers::describe_transactions::API,
    handlers::list_transactions::API,
    handlers::consumer_group_heartbeat::API,
    handlers::consumer_group_describe::API,
    handlers::list_config_resources::API,
    handlers::describe_topic_partitions::API,
    handlers::add_raft_voter::API,
    handlers::remove_raft_voter::API,
    handlers::unregister_controller::API,
];

/// Finds an API by its key.
pub fn find(key: ApiKey) -> Option<&'static Api> {
    const KEYS: usize = 128;
    static BY_KEY: std::sync::OnceLock<[Option<&'static Api>; KEYS]> = std::sync::OnceLock::new();
    let by_key = BY_KEY.get_or_init(|| {
        let mut table = [None; KEYS];
        for api in APIS {
            table[api.key.0 as usize] = Some(api);
        }
        table
    });
    by_key.get(usize::try_from(key.0).ok()?).copied().flatten()
}
