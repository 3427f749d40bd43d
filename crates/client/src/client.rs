//! The handle: what every part of a client shares.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use milena_protocol::messages::metadata_request::MetadataRequestTopic;
use milena_protocol::messages::{DescribeClusterRequest, FindCoordinatorRequest, MetadataRequest};
use milena_protocol::{ApiKey, ErrorCode, Request};
use tokio::time::Instant;

use crate::call::{Call, Target};
use crate::config::{ClientBuilder, ClientConfig};
use crate::connection::Connection;
use crate::connections::{Connections, Node};
use crate::consumer::ConsumerBuilder;
use crate::coordinators::{self, CoordinatorKind, Coordinators};
use crate::error::{Error, check};
use crate::metadata::{Broker, Metadata, Topic};
use crate::producer::ProducerBuilder;
use crate::transport::Transports;
use crate::unless_dropped::UnlessDropped;

/// First version of Metadata in which a client decides whether topics are created by being asked for.
const METADATA_FROM: i16 = 4;

/// First version of DescribeCluster that a controller answers.
const DESCRIBE_CONTROLLERS_FROM: i16 = 1;

/// A handle on a cluster: its connections and what is known of it. Cheap to clone, and all clones share everything.
///
/// Connections are made when they are needed, and end when the last handle is dropped; [`close`](Self::close) also waits
/// for that.
#[derive(Debug, Clone)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Arc<ClientConfig>,
    connections: Connections,
    metadata: ArcSwap<Metadata>,
    /// Who learns metadata holds it; others wait for what comes.
    learning: tokio::sync::Mutex<()>,
    coordinators: Coordinators,
}

/// Which topics to ask for.
#[derive(Debug, Clone)]
enum Asked {
    None,
    All,
    Named { names: Vec<Arc<str>>, create: bool },
}

impl Client {
    /// Settings for a new client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    pub(crate) fn over(config: ClientConfig, transports: Arc<dyn Transports>) -> Self {
        let config = Arc::new(config);
        Self(Arc::new(Inner {
            connections: Connections::new(Arc::clone(&config), transports),
            config,
            metadata: ArcSwap::default(),
            learning: tokio::sync::Mutex::default(),
            coordinators: Coordinators::default(),
        }))
    }

    /// A request to whoever answers for `target`, tried again as long as that can help and time allows.
    pub fn call<'a, R: Request>(&'a self, target: Target<'a>, request: &'a R) -> Call<'a, R> {
        Call::new(self, target, request)
    }

    /// Settings for a producer on this client's connections.
    pub fn producer(&self) -> ProducerBuilder {
        ProducerBuilder::new(self.clone())
    }

    /// Settings for a consumer of this client's cluster.
    pub fn consumer(&self) -> ConsumerBuilder {
        ConsumerBuilder::new(self.clone())
    }

    /// What is known of the cluster without asking.
    pub fn known(&self) -> Arc<Metadata> {
        self.0.metadata.load_full()
    }

    /// The cluster's brokers and controller, no older than `metadata.max.age.ms`.
    ///
    /// # Errors
    /// When no broker answers.
    pub async fn cluster(&self) -> Result<Arc<Metadata>, Error> {
        let (known, oldest) = (self.known(), self.oldest());
        if is_fresh(&known, oldest) {
            return Ok(known);
        }
        self.learn(Asked::None, move |metadata| is_fresh(metadata, oldest)).await
    }

    /// The cluster with all its topics, asked now.
    ///
    /// # Errors
    /// When no broker answers.
    pub async fn all_topics(&self) -> Result<Arc<Metadata>, Error> {
        self.learn(Asked::All, |_| false).await
    }

    /// A topic, no older than `metadata.max.age.ms` and not known to be out of date. With `create`, it is created if it does
    /// not exist and the cluster allows that.
    ///
    /// # Errors
    /// The server's code for the topic, such as `UNKNOWN_TOPIC_OR_PARTITION`, or that no broker answers. It is asked once.
    pub async fn topic(&self, name: &str, create: bool) -> Result<Arc<Topic>, Error> {
        let oldest = self.oldest();
        let wanted: Arc<str> = name.into();
        let fresh = {
            let wanted = Arc::clone(&wanted);
            move |metadata: &Metadata| metadata.topic(&wanted).is_some_and(|topic| topic.is_fresh(oldest))
        };
        if !fresh(&self.known()) {
            let mut names = vec![Arc::clone(&wanted)];
            // What has grown old is asked for with it.
            let stale = self.known().topics().any(|topic| !topic.is_fresh(oldest));
            if stale {
                names.extend(self.known().used_topics().into_iter().filter(|other| &**other != name));
            }
            let learnt = self.learn(Asked::Named { names, create: false }, fresh.clone()).await;
            let is_missing = |error: &Error| error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
            match learnt {
                // This one only: the others may be missing because somebody has deleted them.
                Err(error) if create && is_missing(&error) => {
                    self.learn(Asked::Named { names: vec![wanted], create }, fresh).await?;
                }
                other => drop(other?),
            }
        }
        self.known().topic(name).cloned().ok_or_else(|| ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.into())
    }

    /// A connection to whoever answers for `target`, made if it is not there.
    ///
    /// # Errors
    /// When it is not known who that is, or no connection comes about. It is tried once.
    pub async fn connection(&self, target: Target<'_>) -> Result<Connection, Error> {
        self.0.connections.check_open()?;
        match target {
            Target::Any if !self.0.config.controllers => self.any().await,
            // Of controllers only the active one answers.
            Target::Any | Target::Controller => {
                let controller = self.cluster().await?.controller;
                let none = || Error::from(ErrorCode::NOT_CONTROLLER);
                self.broker_connection(controller.ok_or_else(none)?).await
            }
            Target::Broker(id) => self.broker_connection(id).await,
            Target::Leader(topic, partition) => {
                let topic = self.topic(topic, false).await?;
                let unknown = || Error::from(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
                let leader = topic.partition(partition).ok_or_else(unknown)?.leader;
                let none = || Error::from(ErrorCode::LEADER_NOT_AVAILABLE);
                self.broker_connection(leader.ok_or_else(none)?).await
            }
            Target::Coordinator(kind, key) => {
                let broker = self.coordinator(kind, key).await?;
                self.0.connections.get(Node::Broker(broker.id), &broker.host, broker.port).await
            }
        }
    }

    /// Ends all connections, of every clone of this handle, and waits for their tasks. Answers that are under way are waited
    /// for until `patience` is over; then no task of the client is left.
    pub async fn close(&self, patience: Duration) {
        self.0.connections.close(patience).await;
    }

    pub(crate) fn config(&self) -> &ClientConfig {
        &self.0.config
    }

    /// Something went wrong at `target`: what may have caused it is forgotten, so that it is learnt anew.
    pub(crate) fn note_error(&self, target: Target<'_>, error: &Error) {
        let lost = error.is_of_connection();
        let code = error.code();
        match target {
            Target::Coordinator(kind, key) => {
                let codes = [ErrorCode::NOT_COORDINATOR, ErrorCode::COORDINATOR_NOT_AVAILABLE];
                if lost || code.is_some_and(|code| codes.contains(&code)) {
                    self.0.coordinators.forget(kind, key);
                }
            }
            Target::Leader(topic, _) => {
                if let Some(topic) = self.known().topic(topic)
                    && (lost || code.is_some_and(ErrorCode::is_retriable))
                {
                    topic.expire();
                }
            }
            Target::Controller | Target::Any if code == Some(ErrorCode::NOT_CONTROLLER) => self.expire_cluster(),
            Target::Controller if lost => self.expire_cluster(),
            Target::Broker(_) if lost => self.expire_cluster(),
            _ => {}
        }
    }

    fn expire_cluster(&self) {
        self.0.metadata.rcu(|known| known.expired());
    }

    /// What was learnt before this is too old.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        Instant::now().checked_sub(self.0.config.metadata_max_age)
    }

    async fn broker_connection(&self, id: i32) -> Result<Connection, Error> {
        self.connection_of(&self.0.connections, id).await
    }

    /// Connections of their own, on which nothing waits for what others have asked.
    pub(crate) fn own_connections(&self) -> Connections {
        self.0.connections.another()
    }

    /// Whether nobody has closed the client.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        self.0.connections.check_open()
    }

    /// The connection to a broker among these.
    pub(crate) async fn connection_of(&self, connections: &Connections, id: i32) -> Result<Connection, Error> {
        self.check_open()?;
        let mut cluster = self.cluster().await?;
        if cluster.broker(id).is_none() {
            // It may be newer than what is known.
            self.expire_cluster();
            cluster = self.cluster().await?;
        }
        let none = || Error::from(ErrorCode::BROKER_NOT_AVAILABLE);
        let broker = cluster.broker(id).ok_or_else(none)?;
        connections.get(Node::Broker(id), &broker.host, broker.port).await
    }

    /// A connection to any broker: one that is open, or else one that has not failed a moment ago; at last to where the
    /// client began.
    async fn any(&self) -> Result<Connection, Error> {
        let known = self.known();
        let mut nodes: Vec<_> = known.brokers().map(|b| (Node::Broker(b.id), b.host.clone(), b.port)).collect();
        fastrand::shuffle(&mut nodes);
        let bootstrap = self.0.config.bootstrap.iter().enumerate();
        nodes.extend(bootstrap.map(|(place, (host, port))| (Node::Bootstrap(place), host.clone(), *port)));
        let connections = &self.0.connections;
        let opened = nodes.iter().find_map(|(node, host, port)| connections.opened(*node, host, *port));
        if let Some(connection) = opened {
            return Ok(connection);
        }
        nodes.sort_by_key(|(node, ..)| connections.is_backing_off(*node));
        let mut failed = Error::Closed;
        for (node, host, port) in nodes {
            match connections.get(node, &host, port).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// The broker that coordinates a group or a transactional id, as far as is known. It is asked once.
    ///
    /// # Errors
    /// When no broker answers, or there is no coordinator yet.
    pub async fn coordinator(&self, kind: CoordinatorKind, key: &str) -> Result<Arc<Broker>, Error> {
        if let Some(broker) = self.0.coordinators.get(kind, key) {
            return Ok(broker);
        }
        let connection = self.any().await?;
        let version = connection.versions().highest(ApiKey::FIND_COORDINATOR, &(0..=i16::MAX))?;
        let request = coordinators::request(kind, key, version);
        let pending = connection.send::<FindCoordinatorRequest<'_>>(&request, version, self.0.config.request_timeout);
        let reply = pending.await?.await?;
        let broker = Arc::new(coordinators::found(&reply.decode()?, version)?);
        self.0.coordinators.put(kind, key, Arc::clone(&broker));
        Ok(broker)
    }

    /// Asks for metadata, unless somebody else has meanwhile learnt what is wanted. That is done by a task, since others wait
    /// for it who must not depend on whether this future goes on; it ends when this is dropped.
    async fn learn(
        &self,
        asked: Asked,
        is_known: impl Fn(&Metadata) -> bool + Send + 'static,
    ) -> Result<Arc<Metadata>, Error> {
        let client = self.clone();
        UnlessDropped::spawn(async move { client.learn_in_turn(&asked, is_known).await }).await
    }

    async fn learn_in_turn(&self, asked: &Asked, is_known: impl Fn(&Metadata) -> bool) -> Result<Arc<Metadata>, Error> {
        let _learning = self.0.learning.lock().await;
        let known = self.known();
        if is_known(&known) {
            return Ok(known);
        }
        let connection = self.any().await?;
        if self.0.config.controllers && matches!(asked, Asked::None) {
            return self.learn_controllers(&connection).await;
        }
        let version = connection.versions().highest(ApiKey::METADATA, &(METADATA_FROM..=i16::MAX))?;
        let request = metadata_request(asked);
        let reply = connection.send(&request, version, self.0.config.request_timeout).await?.await?;
        let response = reply.decode()?;
        check(response.error_code, None)?;
        let (keep_since, now) = (self.oldest(), Instant::now());
        let all = matches!(asked, Asked::All);
        let learnt = Arc::new(known.with(&response, all, keep_since, now));
        self.0.metadata.store(Arc::clone(&learnt));
        tracing::debug!(brokers = response.brokers.len(), topics = response.topics.len(), "learnt metadata");
        // The first is the one that is wanted.
        if let Asked::Named { names, .. } = asked {
            let told = response.topics.iter().find(|topic| topic.name.as_deref() == names.first().map(|name| &**name));
            check(told.map_or(0, |topic| topic.error_code), None)?;
        }
        Ok(learnt)
    }

    /// What a controller tells of the cluster.
    async fn learn_controllers(&self, connection: &Connection) -> Result<Arc<Metadata>, Error> {
        let version =
            connection.versions().highest(ApiKey::DESCRIBE_CLUSTER, &(DESCRIBE_CONTROLLERS_FROM..=i16::MAX))?;
        let request = DescribeClusterRequest { endpoint_type: self.endpoint_type(), ..Default::default() };
        let reply = connection.send(&request, version, self.0.config.request_timeout).await?.await?;
        let response = reply.decode()?;
        check(response.error_code, response.error_message.as_deref())?;
        let learnt = Arc::new(Metadata::of_controllers(&response, Instant::now()));
        self.0.metadata.store(Arc::clone(&learnt));
        Ok(learnt)
    }

    /// Which nodes are described: brokers, or controllers.
    pub(crate) fn endpoint_type(&self) -> i8 {
        if self.0.config.controllers { 2 } else { 1 }
    }
}

fn is_fresh(metadata: &Metadata, oldest: Option<Instant>) -> bool {
    metadata.fetched.is_some_and(|fetched| oldest.is_none_or(|oldest| fetched >= oldest))
}

fn metadata_request(asked: &Asked) -> MetadataRequest<'_> {
    let (topics, create) = match asked {
        Asked::None => (Some(Vec::new()), false),
        Asked::All => (None, false),
        Asked::Named { names, create } => {
            let topic = |name| MetadataRequestTopic { name: Some(name), ..Default::default() };
            (Some(names.iter().map(|name| topic((&**name).into())).collect()), *create)
        }
    };
    MetadataRequest { topics, allow_auto_topic_creation: create, ..Default::default() }
}
