//! The cluster as a client sees it that came in by one listener: the brokers it can reach by it, and what that makes of
//! a partition's leader and replicas.

use milena_metadata::{Broker, Cluster, Endpoint, Partition};
use milena_protocol::{ErrorCode, Uuid};

/// The brokers of one image, with their addresses at one listener.
pub struct ClusterView<'i> {
    /// Ascending by id.
    nodes: Vec<Node<'i>>,
}

/// A registered broker.
#[derive(Clone, Copy)]
pub struct Node<'i> {
    /// Its registration.
    pub broker: &'i Broker,
    /// Its address at the listener; `None` when it has no such listener.
    pub endpoint: Option<&'i Endpoint>,
}

impl<'i> ClusterView<'i> {
    /// The cluster seen from the listener of that name.
    pub fn new(cluster: &'i Cluster, listener: &str) -> Self {
        let node = |broker: &'i std::sync::Arc<Broker>| Node { broker, endpoint: broker.listener(listener) };
        Self { nodes: cluster.brokers().map(node).collect() }
    }

    /// Brokers that have the listener, fenced ones included, ascending by id.
    pub fn reachable(&self) -> impl Iterator<Item = (&'i Broker, &'i Endpoint)> {
        self.nodes.iter().filter_map(|node| Some((node.broker, node.endpoint?)))
    }

    /// Brokers that have the listener and are not fenced, ascending by id.
    pub fn alive(&self) -> impl Iterator<Item = (&'i Broker, &'i Endpoint)> {
        self.reachable().filter(|(broker, _)| !broker.fenced)
    }

    /// A broker that takes requests for the controller: `preferred` when it is alive, else the first one that is, else
    /// -1.
    pub fn controller_id(&self, preferred: i32) -> i32 {
        match self.node(preferred) {
            Some(node) if !node.broker.fenced => preferred,
            _ => self.alive().next().map_or(-1, |(broker, _)| broker.id),
        }
    }

    /// The leader of a partition.
    ///
    /// # Errors
    /// LEADER_NOT_AVAILABLE without one, LISTENER_NOT_FOUND when the client can't reach it by its listener.
    pub fn leader(&self, partition: &Partition) -> Result<i32, ErrorCode> {
        match self.node(partition.leader) {
            None => Err(ErrorCode::LEADER_NOT_AVAILABLE),
            Some(node) if node.endpoint.is_none() => Err(ErrorCode::LISTENER_NOT_FOUND),
            Some(_) => Ok(partition.leader),
        }
    }

    /// The replicas of a partition that are not available.
    pub fn offline_replicas(&self, partition: &Partition) -> Vec<i32> {
        let replicas = partition.replicas.iter().zip(&partition.directories);
        replicas.filter(|&(&id, &directory)| !self.holds(id, directory)).map(|(&id, _)| id).collect()
    }

    /// Whether a broker has the listener.
    pub fn is_reachable(&self, id: i32) -> bool {
        self.node(id).is_some_and(|node| node.endpoint.is_some())
    }

    fn holds(&self, id: i32, directory: Uuid) -> bool {
        self.node(id)
            .is_some_and(|node| !node.broker.fenced && node.endpoint.is_some() && node.broker.has_online(directory))
    }

    fn node(&self, id: i32) -> Option<&Node<'i>> {
        let at = self.nodes.binary_search_by_key(&id, |node| node.broker.id).ok()?;
        self.nodes.get(at)
    }
}
