//! The settings that all parts of a client share: where the cluster is, and how patient to be with it.

use std::sync::Arc;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::client::Client;
use crate::error::Error;
use crate::settings::{millis, number, set_by_name};
use crate::transport::{self, Transports};

/// Default port of an address without one.
const PORT: u16 = 9092;

/// What a client was built with.
#[derive(Debug, Clone)]
pub(crate) struct ClientConfig {
    pub(crate) bootstrap: Vec<(String, u16)>,
    /// Whether these are controllers, and all that is asked is asked of them.
    pub(crate) controllers: bool,
    pub(crate) client_id: String,
    pub(crate) request_timeout: Duration,
    pub(crate) api_timeout: Duration,
    pub(crate) retry_backoff: Backoff,
    pub(crate) reconnect_backoff: Backoff,
    pub(crate) connect_timeout: Duration,
    pub(crate) metadata_max_age: Duration,
    pub(crate) connections_max_idle: Duration,
    pub(crate) max_response: usize,
    pub(crate) send_buffer: Option<u32>,
    pub(crate) receive_buffer: Option<u32>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            bootstrap: Vec::new(),
            controllers: false,
            client_id: "milena".to_owned(),
            request_timeout: ms(30_000),
            api_timeout: ms(60_000),
            retry_backoff: Backoff { first: ms(100), max: ms(1000) },
            reconnect_backoff: Backoff { first: ms(50), max: ms(1000) },
            connect_timeout: ms(10_000),
            metadata_max_age: ms(300_000),
            connections_max_idle: ms(540_000),
            max_response: 100_000_000,
            send_buffer: None,
            receive_buffer: None,
        }
    }
}

/// Builds a [`Client`]. Each setting has a method, and Kafka's name for [`set`](Self::set) and
/// [`properties`](Self::properties).
///
/// | setting | default | meaning |
/// |---|---|---|
/// | `bootstrap.servers` | | where to begin: `host:port`, several with commas |
/// | `bootstrap.controllers` | | the same for a client that asks the controllers themselves; then there are no brokers, and no topics |
/// | `client.id` | `milena` | who asks, in the server's logs and quotas |
/// | `request.timeout.ms` | 30000 | how long one request may take before its connection is given up |
/// | `default.api.timeout.ms` | 60000 | how long a call may take with all its tries |
/// | `retry.backoff.ms`, `retry.backoff.max.ms` | 100, 1000 | wait between two tries, doubled each time |
/// | `reconnect.backoff.ms`, `reconnect.backoff.max.ms` | 50, 1000 | the same between two connections to a broker |
/// | `socket.connection.setup.timeout.ms` | 10000 | how long a connection may take to come about |
/// | `metadata.max.age.ms` | 300000 | how old what is known of the cluster may be |
/// | `connections.max.idle.ms` | 540000 | when an unused connection is closed |
/// | `receive.message.max.bytes` | 100000000 | the largest response that is taken |
/// | `send.buffer.bytes`, `receive.buffer.bytes` | -1 | the socket's buffers; -1 leaves them to the system |
/// | `security.protocol` | `PLAINTEXT` | how connections are protected |
#[derive(Debug, Clone, Default)]
pub struct ClientBuilder {
    servers: String,
    config: ClientConfig,
}

impl ClientBuilder {
    /// Where to begin: `host:port`, several with commas. The port may be left out when it is 9092.
    #[must_use]
    pub fn bootstrap_servers(mut self, servers: &str) -> Self {
        servers.clone_into(&mut self.servers);
        self.config.controllers = false;
        self
    }

    /// Who asks, in the server's logs and quotas.
    #[must_use]
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.config.client_id = id.into();
        self
    }

    /// How long one request may take before its connection is given up.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.config.request_timeout = timeout;
        self
    }

    /// How long a call may take with all its tries.
    #[must_use]
    pub fn default_api_timeout(mut self, timeout: Duration) -> Self {
        self.config.api_timeout = timeout;
        self
    }

    /// The first and the longest wait between two tries.
    #[must_use]
    pub fn retry_backoff(mut self, first: Duration, max: Duration) -> Self {
        self.config.retry_backoff = Backoff { first, max };
        self
    }

    /// The first and the longest wait between two connections to the same broker.
    #[must_use]
    pub fn reconnect_backoff(mut self, first: Duration, max: Duration) -> Self {
        self.config.reconnect_backoff = Backoff { first, max };
        self
    }

    /// How long a connection may take to come about.
    #[must_use]
    pub fn connection_setup_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// How old what is known of the cluster may be.
    #[must_use]
    pub fn metadata_max_age(mut self, age: Duration) -> Self {
        self.config.metadata_max_age = age;
        self
    }

    /// When an unused connection is closed.
    #[must_use]
    pub fn connections_max_idle(mut self, idle: Duration) -> Self {
        self.config.connections_max_idle = idle;
        self
    }

    /// The largest response that is taken, bytes.
    #[must_use]
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.config.max_response = bytes;
        self
    }

    set_by_name!("client", "a producer's");

    /// Sets one property by Kafka's name, if it is a client's; says whether it is.
    ///
    /// # Errors
    /// [`Error::Config`] for a value that the property can't have.
    pub fn property(&mut self, key: &str, value: &str) -> Result<bool, Error> {
        if ["bootstrap.servers", "bootstrap.controllers"].contains(&key) {
            value.clone_into(&mut self.servers);
            self.config.controllers = key == "bootstrap.controllers";
            return Ok(true);
        }
        self.config.set(key, value)
    }

    /// The client. Connections are made when they are needed.
    ///
    /// # Errors
    /// [`Error::Config`] without an address to begin with, or with one that makes no sense.
    pub fn build(self) -> Result<Client, Error> {
        self.build_over(Arc::new(transport::Tcp))
    }

    pub(crate) fn build_over(mut self, transports: Arc<dyn Transports>) -> Result<Client, Error> {
        let servers = self.servers.split(',').map(str::trim).filter(|server| !server.is_empty());
        self.config.bootstrap = servers.map(address).collect::<Result<_, _>>()?;
        if self.config.bootstrap.is_empty() {
            return Err(Error::config("bootstrap.servers", "no address to begin with"));
        }
        Ok(Client::over(self.config, transports))
    }
}

impl ClientConfig {
    /// Whether there is such a property.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, Error> {
        match key {
            "client.id" => self.client_id = value.to_owned(),
            "request.timeout.ms" => self.request_timeout = millis(key, value)?,
            "default.api.timeout.ms" => self.api_timeout = millis(key, value)?,
            "retry.backoff.ms" => self.retry_backoff.first = millis(key, value)?,
            "retry.backoff.max.ms" => self.retry_backoff.max = millis(key, value)?,
            "reconnect.backoff.ms" => self.reconnect_backoff.first = millis(key, value)?,
            "reconnect.backoff.max.ms" => self.reconnect_backoff.max = millis(key, value)?,
            "socket.connection.setup.timeout.ms" => self.connect_timeout = millis(key, value)?,
            "metadata.max.age.ms" => self.metadata_max_age = millis(key, value)?,
            "connections.max.idle.ms" => self.connections_max_idle = idle(key, value)?,
            "receive.message.max.bytes" => self.max_response = number(key, value, 1024..=i32::MAX as usize)?,
            "send.buffer.bytes" => self.send_buffer = buffer(key, value)?,
            "receive.buffer.bytes" => self.receive_buffer = buffer(key, value)?,
            "security.protocol" if value == "PLAINTEXT" => {}
            "security.protocol" => return Err(Error::config(key, format!("`{value}` is not spoken, PLAINTEXT is"))),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Host and port; the host without the brackets of an IPv6 address.
fn address(text: &str) -> Result<(String, u16), Error> {
    let rest = text.rsplit_once("://").map_or(text, |(_, rest)| rest);
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (rest, None),
    };
    let port = port.map_or(Some(PORT), |port| port.parse().ok());
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match port {
        Some(port) if !bare.is_empty() => Ok((bare.to_owned(), port)),
        _ => Err(Error::config("bootstrap.servers", format!("`{text}` is no host:port"))),
    }
}

/// Negative is never.
fn idle(key: &str, value: &str) -> Result<Duration, Error> {
    let ms: i64 = number(key, value, i64::MIN..=i64::MAX)?;
    Ok(u64::try_from(ms).map_or(Duration::from_secs(u64::from(u32::MAX)), Duration::from_millis))
}

fn buffer(key: &str, value: &str) -> Result<Option<u32>, Error> {
    number(key, value, -1..=i32::MAX).map(|bytes| u32::try_from(bytes).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_of_others_are_left_alone_and_bad_values_refused() {
        let properties = [("bootstrap.servers", "a:1, b"), ("acks", "all"), ("retry.backoff.ms", "7")];
        let builder = ClientBuilder::default().properties(properties).unwrap();
        assert_eq!(builder.servers, "a:1, b");
        assert_eq!(builder.config.retry_backoff.first, Duration::from_millis(7));
        assert!(ClientBuilder::default().set("acks", "all").is_err());
        assert!(ClientBuilder::default().set("request.timeout.ms", "soon").is_err());
        assert!(ClientBuilder::default().build().is_err());
        assert!(ClientBuilder::default().bootstrap_servers("host:port").build().is_err());
    }

    #[test]
    fn addresses_may_be_ipv6_or_have_no_port() {
        assert_eq!(address("[::1]:19092").unwrap(), ("::1".to_owned(), 19092));
        assert_eq!(address("::1").unwrap(), ("::1".to_owned(), 9092));
        assert_eq!(address("PLAINTEXT://host:7").unwrap(), ("host".to_owned(), 7));
    }
}
