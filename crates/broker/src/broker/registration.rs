//! How a node registers: its roles, its addresses, its directories.

use std::net::SocketAddr;
use std::sync::Arc;

use milena_config::BrokerConfig;
use milena_config::broker::{Listener, SecurityProtocol};
use milena_metadata::Endpoint;
use milena_protocol::Uuid;
use milena_quorum::BrokerRegistration;

use super::BrokerError;
use crate::storage::Storage;

/// What a quorum of one without a controller listener says of itself; nobody connects to it.
const CLOSED_CONTROLLER: (&str, &str, u16) = ("CONTROLLER", "localhost", 9093);

/// Settings that decide what a node lets through, or where its records are: nobody is served in their absence. An empty
/// value and `false` ask for nothing.
const NOT_TO_BE_IGNORED: [&str; 4] = [
    "authorizer.class.name",
    "alter.config.policy.class.name",
    "create.topic.policy.class.name",
    "remote.log.storage.system.enable",
];

/// Refuses a configuration that asks for what is not served. A start does so before anything else.
///
/// # Errors
/// [`BrokerError::Roles`], [`BrokerError::Voters`], [`BrokerError::Protocol`], [`BrokerError::NotServed`].
pub fn check_supported(config: &BrokerConfig) -> Result<(), BrokerError> {
    if !config.is_broker() || !config.is_controller() {
        return Err(BrokerError::Roles);
    }
    let voters = config.quorum_voters().iter().map(|voter| voter.id.to_string()).collect::<Vec<_>>();
    if voters.len() > 1 {
        return Err(BrokerError::Voters { voters: voters.join(", ") });
    }
    if let Some(listener) = config.broker_listeners().find(|listener| listener.protocol != SecurityProtocol::Plaintext)
    {
        return Err(BrokerError::Protocol { listener: listener.name.clone() });
    }
    let asked_for = |name: &&str| !matches!(config.text(name).as_deref(), None | Some("" | "false"));
    match NOT_TO_BE_IGNORED.into_iter().find(asked_for) {
        Some(name) => Err(BrokerError::NotServed { name }),
        None => Ok(()),
    }
}

/// The broker's registration. A listener on a port that the system chose is advertised with the real one.
pub(super) fn broker(
    config: &BrokerConfig,
    incarnation_id: Uuid,
    bound: &[(Arc<str>, SocketAddr)],
    storage: &Storage,
) -> BrokerRegistration {
    let real_port = |name: &str| bound.iter().find(|(bound, _)| **bound == *name).map(|(_, address)| address.port());
    let listeners = config.advertised_listeners().iter().map(|listener| {
        let mut endpoint = endpoint(listener);
        if endpoint.port == 0 {
            endpoint.port = real_port(&listener.name).unwrap_or(0);
        }
        endpoint
    });
    BrokerRegistration {
        id: config.node_id(),
        incarnation_id,
        listeners: listeners.collect(),
        rack: config.str("broker.rack").map(str::to_owned),
        directories: storage.online().map(|directory| directory.id).collect(),
        previous_epoch: storage.previous_broker_epoch(),
    }
}

/// The controller's listeners as others are told of them.
pub(super) fn controller_endpoints(config: &BrokerConfig) -> Vec<Endpoint> {
    let listeners: Vec<Endpoint> = config.controller_listeners().map(endpoint).collect();
    if listeners.is_empty() { vec![controller_listener(config)] } else { listeners }
}

/// The first controller listener, by which a voter is known.
pub fn controller_listener(config: &BrokerConfig) -> Endpoint {
    let (name, host, port) = CLOSED_CONTROLLER;
    let closed = Endpoint { name: name.into(), host: host.into(), port, security_protocol: 0 };
    config.controller_listeners().next().map_or(closed, endpoint)
}

fn endpoint(listener: &Listener) -> Endpoint {
    Endpoint {
        name: listener.name.clone(),
        host: if listener.host.is_empty() { host_name() } else { listener.host.clone() },
        port: listener.port,
        security_protocol: listener.protocol.id(),
    }
}

/// This machine's name, for listeners on all interfaces.
fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}
