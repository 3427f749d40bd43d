//! Listeners, advertised listeners and quorum voters: parsed from their texts, with the rules among endpoints.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::BrokerConfig;
use crate::error::ConfigError;
use crate::value::Value;

/// How a listener speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecurityProtocol {
    /// Neither encrypted nor authenticated.
    Plaintext,
    /// TLS.
    Ssl,
    /// SASL without encryption.
    SaslPlaintext,
    /// SASL over TLS.
    SaslSsl,
}

impl SecurityProtocol {
    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Ssl => "SSL",
            Self::SaslPlaintext => "SASL_PLAINTEXT",
            Self::SaslSsl => "SASL_SSL",
        }
    }

    /// Kafka's id, as it stands in broker registrations.
    pub fn id(self) -> i16 {
        match self {
            Self::Plaintext => 0,
            Self::Ssl => 1,
            Self::SaslPlaintext => 2,
            Self::SaslSsl => 3,
        }
    }

    /// The protocol of that name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Plaintext, Self::Ssl, Self::SaslPlaintext, Self::SaslSsl]
            .into_iter()
            .find(|p| p.name().eq_ignore_ascii_case(name))
    }
}

/// One endpoint of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Name in upper case.
    pub name: String,
    /// How it speaks.
    pub protocol: SecurityProtocol,
    /// Host or address, IPv6 without brackets; empty means all interfaces, or this machine's name when advertised.
    pub host: String,
    /// Port; 0 lets the system choose.
    pub port: u16,
}

/// One entry of `controller.quorum.voters`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voter {
    /// Node id.
    pub id: i32,
    /// Host or address, IPv6 without brackets.
    pub host: String,
    /// Port of its controller listener.
    pub port: u16,
}

/// Parses `listeners`.
pub(super) fn listeners(config: &BrokerConfig) -> Result<Vec<Listener>, ConfigError> {
    parse(config, "listeners", true)
}

/// Parses `advertised.listeners`, or takes `listeners`; controller listeners are left out.
pub(super) fn advertised(config: &BrokerConfig) -> Result<Vec<Listener>, ConfigError> {
    let all = match config.value("advertised.listeners") {
        Value::List(_) => parse(config, "advertised.listeners", false)?,
        _ => config.listeners.clone(),
    };
    Ok(all.into_iter().filter(|l| !config.is_controller_listener(&l.name)).collect())
}

/// Parses `controller.quorum.voters`; of a repeated id the last entry counts.
pub(super) fn voters(config: &BrokerConfig) -> Result<Vec<Voter>, ConfigError> {
    let name = "controller.quorum.voters";
    let mut voters: Vec<Voter> = Vec::new();
    for entry in config.list(name) {
        let voter = entry.split_once('@').and_then(|(id, address)| {
            let (host, port) = crate::validator::host_and_port(address)?;
            Some(Voter { id: id.parse().ok()?, host: host.to_owned(), port })
        });
        let voter = voter.ok_or_else(|| {
            ConfigError::rule(name, format!("Invalid value `{entry}` of {name}: expected {{id}}@{{host}}:{{port}}"))
        })?;
        voters.retain(|v| v.id != voter.id);
        voters.push(voter);
    }
    Ok(voters)
}

/// Listener name to protocol. Names of controller listeners are plaintext unless the map is set or a listener is
/// named after a secure protocol.
pub(super) fn protocol_map(config: &BrokerConfig) -> Result<Vec<(String, SecurityProtocol)>, ConfigError> {
    let key = "listener.security.protocol.map";
    let mut map: Vec<(String, SecurityProtocol)> = Vec::new();
    for entry in crate::value::parse_list(config.str(key).unwrap_or_default()) {
        let (name, protocol) = entry.rsplit_once(':').ok_or_else(|| {
            ConfigError::rule(
                key,
                format!("Error parsing configuration property '{key}': {entry} is not {{name}}:{{protocol}}"),
            )
        })?;
        let protocol = SecurityProtocol::from_name(protocol.trim()).ok_or_else(|| {
            ConfigError::rule(key, format!("Invalid security protocol `{}` defined in {key}", protocol.trim()))
        })?;
        let name = name.trim().to_uppercase();
        map.retain(|(n, _)| *n != name);
        map.push((name, protocol));
    }
    let controllers = config.list("controller.listener.names");
    let listener_names = config.list("listeners").iter().filter_map(|l| l.split_once("://")).map(|(name, _)| name);
    let secure = |name: &str| SecurityProtocol::from_name(name).is_some_and(|p| p != SecurityProtocol::Plaintext);
    let explicit = config.effective.contains_key(key);
    if !explicit && !controllers.iter().map(String::as_str).chain(listener_names).any(secure) {
        for name in controllers.iter().filter(|name| *name != "PLAINTEXT") {
            map.retain(|(n, _)| n != name);
            map.push((name.clone(), SecurityProtocol::Plaintext));
        }
    }
    Ok(map)
}

fn parse(config: &BrokerConfig, key: &str, distinct_ports: bool) -> Result<Vec<Listener>, ConfigError> {
    let entries = config.list(key);
    let shown = format!("[{}]", entries.join(", "));
    let refuse =
        |what: String| ConfigError::rule(key, format!("Error creating broker listeners from '{shown}': {what}"));
    let map = protocol_map(config)?;
    let mut listeners = Vec::with_capacity(entries.len());
    for entry in entries {
        let (name, host, port) =
            endpoint(entry).ok_or_else(|| refuse(format!("Unable to parse {entry} to a broker endpoint")))?;
        let name = name.to_uppercase();
        let protocol = map.iter().find(|(n, _)| *n == name).map(|(_, p)| *p);
        let protocol = protocol.ok_or_else(|| refuse(format!("No security protocol defined for listener {name}")))?;
        listeners.push(Listener { name, protocol, host: host.to_owned(), port });
    }
    let repeated = |i: usize| listeners[..i].iter().any(|l: &Listener| l.name == listeners[i].name);
    if (0..listeners.len()).any(repeated) {
        return Err(refuse(format!("Each listener must have a different name, listeners: {shown}")));
    }
    if distinct_ports {
        check_ports(&listeners, &shown).map_err(refuse)?;
    }
    Ok(listeners)
}

/// Name, host and port of `NAME://[host]:port`.
fn endpoint(text: &str) -> Option<(&str, &str, u16)> {
    let (name, address) = text.split_once("://")?;
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let host_chars = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
    (!name.is_empty() && host.chars().all(host_chars)).then_some(())?;
    Some((name, host, port.parse().ok()?))
}

/// A port may be shared by one IPv4 and one IPv6 address only.
fn check_ports(listeners: &[Listener], shown: &str) -> Result<(), String> {
    for listener in listeners.iter().filter(|l| l.port != 0) {
        let same: Vec<&Listener> = listeners.iter().filter(|l| l.port == listener.port).collect();
        if same.len() == 1 {
            continue;
        }
        let v4 = same.iter().filter(|l| l.host.parse::<Ipv4Addr>().is_ok()).count();
        let v6 = same.iter().filter(|l| l.host.parse::<Ipv6Addr>().is_ok()).count();
        let names = same.len() - v4 - v6;
        let port = listener.port;
        if names > 1 {
            return Err(format!("Each listener must have a different port, listeners: {shown}"));
        }
        if v4 + v6 > 2 {
            return Err(format!(
                "Each listener must have a different port unless exactly one listener has an IPv4 address and the \
                 other IPv6 address, listeners: {shown}, port: {port}"
            ));
        }
        if v4 + v6 == 2 && (v4 != 1 || names > 0) {
            return Err(format!(
                "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, listeners: \
                 {shown}, port: {port}"
            ));
        }
    }
    Ok(())
}
