//! What handlers may ask for. Each handler takes from here the one or two things it uses.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use milena_config::BrokerConfig;
use milena_io::Clock;
use milena_protocol::ErrorCode;
use milena_quorum::MetadataLog;
use milena_raft::VoterSet;

use crate::auto_topics::AutoTopics;
use crate::controller::ControllerHandle;
use crate::coordinators::Coordinators;
use crate::disk_threads::DiskThreads;
use crate::fetch_sessions::FetchSessions;
use crate::maintenance::MaintenanceHandle;
use crate::producer_ids::ProducerIds;
use crate::published::Published;
use crate::replicas::Replicas;
use crate::storage::Storage;

/// Everything that handlers use.
pub struct Services {
    /// The partitions hosted here.
    pub replicas: Arc<Replicas>,
    /// The cluster's metadata and the broker's settings, as of now.
    pub live: Arc<Live>,
    /// Where changes of metadata are made.
    pub controller: ControllerHandle,
    /// Topics that are made because somebody asks for them.
    pub auto_topics: AutoTopics,
    /// What the maintenance thread does on demand.
    pub maintenance: MaintenanceHandle,
    /// Groups and what else lives on internal topics.
    pub coordinators: Arc<Coordinators>,
    /// Fetch sessions of consumers.
    pub fetch_sessions: FetchSessions,
    /// Ids for producers.
    pub producer_ids: ProducerIds,
    /// What reads from the disk without a reactor's waiting for it.
    pub readers: DiskThreads,
    /// Wall clock.
    pub clock: Arc<dyn Clock>,
    /// The log directories.
    pub storage: Arc<Storage>,
    /// Who this is.
    pub node: Node,
}

impl Services {
    /// The broker's settings, dynamic ones included.
    pub fn config(&self) -> Guard<Arc<BrokerConfig>> {
        self.live.config.load()
    }

    /// An id that no producer ever had.
    ///
    /// # Errors
    /// COORDINATOR_LOAD_IN_PROGRESS when it may be had later.
    pub async fn next_producer_id(&self) -> Result<i64, ErrorCode> {
        self.producer_ids.next(self.node.id, &self.controller).await
    }

    /// The cluster's metadata.
    pub fn image(&self) -> Guard<Arc<Published>> {
        self.live.image.load()
    }
}

/// What changes under running requests: each request takes one state of it.
pub struct Live {
    /// The cluster's metadata.
    pub image: ArcSwap<Published>,
    /// The broker's settings.
    pub config: ArcSwap<BrokerConfig>,
    /// What the quorum's own log says.
    pub voting: ArcSwap<Voting>,
}

/// What the quorum's own log says, and the metadata image has no word of.
#[derive(Debug, Clone, Default)]
pub struct Voting {
    /// Level of `kraft.version`.
    pub kraft_version: i16,
    /// Who votes.
    pub voters: VoterSet,
}

impl Voting {
    /// What a metadata log says now.
    pub fn of(log: &MetadataLog) -> Self {
        Self { kraft_version: log.kraft_version(), voters: log.voters().clone() }
    }
}

/// Identity of this node.
pub struct Node {
    /// `node.id`.
    pub id: i32,
    /// The cluster's id.
    pub cluster_id: String,
}
