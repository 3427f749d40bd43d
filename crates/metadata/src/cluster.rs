//! Registrations of brokers and controllers.

use std::collections::BTreeMap;
use std::sync::Arc;

use milena_protocol::Uuid;

use crate::partition::{directory_lost, directory_migrating, directory_unassigned};

/// One address a node can be reached at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The listener's name, such as `PLAINTEXT`.
    pub name: String,
    /// Host name or address as advertised.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Kafka's id of the security protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
}

/// The levels of one feature that a node supports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    /// Lowest level.
    pub min: i16,
    /// Highest level.
    pub max: i16,
}

/// A registered broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// The node id.
    pub id: i32,
    /// Offset of the registration that gave the broker its epoch.
    pub epoch: i64,
    /// Random id of the broker's process.
    pub incarnation_id: Uuid,
    /// Advertised listeners, in the order of the registration.
    pub listeners: Vec<Endpoint>,
    /// Supported feature levels by name.
    pub features: BTreeMap<String, VersionRange>,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// A fenced broker leads nothing and gets no clients.
    pub fenced: bool,
    /// Whether the broker is moving its leaderships away before it stops.
    pub in_controlled_shutdown: bool,
    /// Whether this is a ZooKeeper broker in migration.
    pub is_migrating_zk_broker: bool,
    /// Ids of its log directories, ascending.
    pub directories: Vec<Uuid>,
    /// Ids of the directories that take no new replicas; `None` when never reported.
    pub cordoned_directories: Option<Vec<Uuid>>,
}

impl Broker {
    /// The advertised address of a listener.
    pub fn listener(&self, name: &str) -> Option<&Endpoint> {
        self.listeners.iter().find(|e| e.name == name)
    }

    /// Whether a replica in this directory can be used: it is among those the broker has. A replica without a directory counts as well placed,
    /// and so does every replica of a broker that named no directories, which is older than they are.
    pub fn has_online(&self, directory: Uuid) -> bool {
        if directory == directory_unassigned() || directory == directory_migrating() || self.directories.is_empty() {
            return true;
        }
        directory != directory_lost() && self.directories.contains(&directory)
    }

    /// Whether the broker may lead partitions: neither fenced nor shutting down.
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }
}

/// A registered controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// The node id.
    pub id: i32,
    /// Random id of the controller's process.
    pub incarnation_id: Uuid,
    /// Whether it was ready for a ZooKeeper migration.
    pub zk_migration_ready: bool,
    /// Controller listeners, in the order of the registration.
    pub listeners: Vec<Endpoint>,
    /// Supported feature levels by name.
    pub features: BTreeMap<String, VersionRange>,
}

/// Everything that registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    pub(crate) brokers: BTreeMap<i32, Arc<Broker>>,
    pub(crate) controllers: BTreeMap<i32, Arc<Controller>>,
}

impl Cluster {
    /// One broker, fenced or not.
    pub fn broker(&self, id: i32) -> Option<&Arc<Broker>> {
        self.brokers.get(&id)
    }

    /// All brokers, ascending by id.
    pub fn brokers(&self) -> impl Iterator<Item = &Arc<Broker>> {
        self.brokers.values()
    }

    /// One controller.
    pub fn controller(&self, id: i32) -> Option<&Arc<Controller>> {
        self.controllers.get(&id)
    }

    /// All controllers, ascending by id.
    pub fn controllers(&self) -> impl Iterator<Item = &Arc<Controller>> {
        self.controllers.values()
    }

    /// Whether a broker is registered and neither fenced nor shutting down.
    pub fn is_active(&self, id: i32) -> bool {
        self.brokers.get(&id).is_some_and(|b| b.is_active())
    }
}
