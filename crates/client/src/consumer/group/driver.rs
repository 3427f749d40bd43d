//! The task of a member: it does what the state machine says, one step after the other.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use milena_protocol::Uuid;
use milena_protocol::messages::MetadataRequest;
use milena_protocol::messages::metadata_request::MetadataRequestTopic;
use regex_lite::Regex;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::assignor::Topics;
use super::config::{GroupConfig, GroupProtocol};
use super::membership::{Answer, Membership, Request, Step, Wanted};
use crate::call::Target;
use crate::client::Client;
use crate::connection::Reply;
use crate::connections::Connections;
use crate::coordinators::CoordinatorKind;
use crate::error::{Error, check};
use crate::metadata::{Metadata, Topic};

/// Beyond its rebalance timeout, how long the coordinator may take for a JoinGroup.
const JOIN_GRACE: Duration = Duration::from_secs(5);
/// All versions that a broker may have.
const ANY: RangeInclusive<i16> = 0..=i16::MAX;
/// Versions of LeaveGroup that name several members.
const LEAVE: RangeInclusive<i16> = 3..=i16::MAX;
/// Versions of ConsumerGroupHeartbeat in which the member makes its id.
const CONSUMER_HEARTBEAT: RangeInclusive<i16> = 1..=i16::MAX;
/// First version of Metadata that answers for topic ids without names.
const METADATA_BY_ID: i16 = 12;

pub(super) struct Driver {
    client: Client,
    /// The member's own: nothing else has to wait behind a JoinGroup, which is answered when all members have come.
    connections: Connections,
    config: Arc<GroupConfig>,
    shared: Arc<Shared>,
    /// What the machine was told of the subscription.
    wanted: Wanted,
    /// What topics have to match, where the member itself looks for them.
    pattern: Option<Regex>,
    /// Whether it has to find such topics before it can join.
    looking: bool,
    /// When to look at topics again, and when at all there are.
    watch_at: Instant,
    search_at: Instant,
    failures: u32,
}

impl Driver {
    pub(super) fn new(client: Client, config: Arc<GroupConfig>, shared: Arc<Shared>) -> Self {
        let wanted = shared.wanted.lock().clone();
        let now = Instant::now();
        let mut driver = Self {
            connections: client.own_connections(),
            client,
            config,
            shared,
            wanted: wanted.clone(),
            pattern: None,
            looking: false,
            watch_at: now,
            search_at: now,
            failures: 0,
        };
        driver.follow(wanted);
        driver
    }

    pub(super) async fn run(mut self) {
        self.follow_group().await;
        self.connections.close(Duration::ZERO).await;
    }

    /// Does what is to be done until the member has left.
    async fn follow_group(&mut self) {
        loop {
            let wanted = self.shared.wanted.lock().clone();
            if wanted != self.wanted {
                self.follow(wanted);
            }
            let leaving = self.machine(|machine| machine.is_leaving());
            if Instant::now() >= self.watch_at && !leaving {
                self.watch().await;
                continue;
            }
            let looking = self.looking && !leaving;
            let step = if looking { Step::Wait(None) } else { self.machine(|machine| machine.next(Instant::now())) };
            if self.machine(|machine| machine.duties().has_news()) {
                self.shared.wake_holder();
            }
            match step {
                Step::Send(request) => self.ask(&request).await,
                Step::Learn(names) => {
                    if let Some(topics) = self.learn(&names).await {
                        self.machine(|machine| machine.learnt(&topics));
                    }
                }
                Step::Name(ids) => {
                    let names = self.unless_leaving(self.names(&ids)).await.and_then(Result::ok).unwrap_or_default();
                    self.machine(|machine| machine.named(names, Instant::now()));
                }
                Step::Wait(until) => {
                    let until = until.map_or(self.watch_at, |until| until.min(self.watch_at));
                    self.rest(until).await;
                }
                Step::End => return,
            }
        }
    }

    fn machine<T>(&self, with: impl FnOnce(&mut dyn Membership) -> T) -> T {
        with(&mut **self.shared.machine.lock())
    }

    /// Nothing until then, or until the holder does something.
    async fn rest(&self, until: Instant) {
        tokio::select! {
            () = sleep_until(until) => {}
            () = self.shared.woken.notified() => {}
        }
    }

    /// What `work` gives, unless the member is to leave meanwhile.
    async fn unless_leaving<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let leaving = async {
            while !self.machine(|machine| machine.is_leaving()) {
                self.shared.woken.notified().await;
            }
        };
        tokio::select! {
            done = work => Some(done),
            () = leaving => None,
        }
    }

    /// The holder has subscribed to something else.
    fn follow(&mut self, wanted: Wanted) {
        self.wanted = wanted.clone();
        (self.pattern, self.looking, self.watch_at) = (None, false, Instant::now());
        let of_classic = self.config.protocol == GroupProtocol::Classic;
        match wanted {
            // Java's `matches` is of the whole name.
            Wanted::Pattern(pattern) if of_classic => match Regex::new(&format!("^(?:{pattern})$")) {
                Ok(regex) => (self.pattern, self.looking, self.search_at) = (Some(regex), true, Instant::now()),
                Err(error) => {
                    let error = Error::config("subscription", format!("`{pattern}` is no regular expression: {error}"));
                    self.machine(|machine| machine.duties().fatal = Some(error));
                }
            },
            wanted => self.machine(|machine| machine.subscribe(wanted)),
        }
    }

    /// Looks at the topics that matter.
    async fn watch(&mut self) {
        let now = Instant::now();
        self.watch_at = now + self.config.heartbeat_interval;
        if self.pattern.is_some() && now >= self.search_at && !self.search().await {
            return;
        }
        let watched = self.machine(|machine| machine.watched());
        if watched.is_empty() {
            return;
        }
        if let Some(topics) = self.learn(&watched).await {
            if topics.len() < watched.len() {
                self.watch_at = self.watch_at.min(now + self.client.config().retry_backoff.max);
            }
            self.machine(|machine| machine.learnt(&topics));
        }
    }

    /// Looks for all topics that match the pattern; whether that worked.
    async fn search(&mut self) -> bool {
        let Some(found) = self.unless_leaving(self.client.all_topics()).await else { return false };
        let metadata = match found {
            Ok(metadata) => metadata,
            Err(error) => {
                self.trouble(error);
                return false;
            }
        };
        self.failures = 0;
        let wanted = |topic: &&Arc<Topic>| {
            let matches = self.pattern.as_ref().is_some_and(|pattern| pattern.is_match(&topic.name));
            matches && !(topic.is_internal && self.config.exclude_internal)
        };
        let topics = metadata.topics().filter(wanted).map(|topic| topic.name.to_string()).collect();
        self.machine(|machine| machine.subscribe(Wanted::Topics(topics)));
        (self.looking, self.search_at) = (false, Instant::now() + self.client.config().metadata_max_age);
        true
    }

    /// Metadata can't be had: it is asked for again a little later, if that can help.
    fn trouble(&mut self, error: Error) {
        tracing::debug!(%error, "no metadata");
        self.failures = self.failures.saturating_add(1);
        self.watch_at = Instant::now() + self.client.config().retry_backoff.after(self.failures);
        if !error.is_retriable() {
            self.machine(|machine| machine.duties().fatal = Some(error));
        }
    }

    /// What is known of topics, learnt anew where it is old; those that do not exist are missing. `None` when nothing can be
    /// learnt.
    async fn learn(&mut self, names: &BTreeSet<String>) -> Option<Topics> {
        let mut topics = Topics::new();
        for name in names {
            match self.unless_leaving(self.client.topic(name, self.config.create_topics)).await? {
                Ok(topic) => {
                    topics.insert(name.clone(), racks(&self.client.known(), &topic));
                }
                Err(error) if error.code().is_some() => tracing::debug!(topic = name, %error, "is not there"),
                Err(error) => {
                    self.trouble(error);
                    self.rest(self.watch_at).await;
                    return None;
                }
            }
        }
        self.failures = 0;
        Some(topics)
    }

    /// Names of topics.
    async fn names(&self, ids: &[Uuid]) -> Result<Vec<(Uuid, String)>, Error> {
        let topic = |id: &Uuid| MetadataRequestTopic { topic_id: *id, name: None };
        let request = MetadataRequest { topics: Some(ids.iter().map(topic).collect()), ..Default::default() };
        let connection = self.client.connection(Target::Any).await?;
        let version = connection.versions().highest(milena_protocol::ApiKey::METADATA, &(METADATA_BY_ID..=i16::MAX))?;
        let reply = connection.send(&request, version, self.client.config().request_timeout).await?.await?;
        let response = reply.decode()?;
        let named = response
            .topics
            .iter()
            .filter_map(|topic| (topic.error_code == 0).then_some((topic.topic_id, topic.name.as_deref()?.to_owned())));
        Ok(named.collect())
    }

    async fn ask(&self, request: &Request) {
        let config = self.client.config();
        let patience = config.request_timeout;
        let join = patience.max(self.config.max_poll_interval.saturating_add(JOIN_GRACE));
        let asked = async {
            match request {
                Request::Join(request) => {
                    self.hear(read(&self.exchange(request, ANY, join).await).map(Answer::Join));
                }
                Request::Sync(request) => {
                    self.hear(read(&self.exchange(request, ANY, join).await).map(Answer::Sync));
                }
                Request::Heartbeat(request) => {
                    let patience = patience.min(self.config.session_timeout);
                    self.hear(read(&self.exchange(request, ANY, patience).await).map(Answer::Heartbeat));
                }
                Request::Leave(request) => {
                    self.hear(read(&self.exchange(request, LEAVE, patience).await).map(Answer::Leave));
                }
                Request::ConsumerHeartbeat(request) => {
                    let reply = self.exchange(request, CONSUMER_HEARTBEAT, patience).await;
                    self.hear(read(&reply).map(Answer::ConsumerHeartbeat));
                }
            }
        };
        self.unless_leaving(asked).await;
    }

    /// Sends a request to the coordinator, once.
    async fn exchange<R: milena_protocol::Request>(
        &self,
        request: &R,
        versions: RangeInclusive<i16>,
        patience: Duration,
    ) -> Result<Reply<R>, Error> {
        let coordinator = self.client.coordinator(CoordinatorKind::Group, &self.config.group).await?;
        let connection = self.client.connection_of(&self.connections, coordinator.id).await?;
        let version = connection.versions().highest(R::KEY, &versions)?;
        connection.send(request, version, patience).await?.await
    }

    /// Gives the machine what has come of a request.
    fn hear(&self, answer: Result<Answer<'_>, Error>) {
        let answer = answer.unwrap_or_else(Answer::Failed);
        let error = match &answer {
            Answer::Failed(error) => Some(error.clone()),
            other => check(other.code().0, None).err(),
        };
        if let Some(error) = error {
            tracing::debug!(%error, "was not answered as hoped");
            self.client.note_error(self.coordinator(), &error);
        }
        self.machine(|machine| machine.received(&answer, Instant::now()));
    }

    fn coordinator(&self) -> Target<'_> {
        Target::Coordinator(CoordinatorKind::Group, &self.config.group)
    }
}

fn read<R: milena_protocol::Request>(reply: &Result<Reply<R>, Error>) -> Result<R::Response<'_>, Error> {
    reply.as_ref().map_err(Error::clone)?.decode()
}

/// Of each partition of a topic, where its replicas are.
fn racks(metadata: &Metadata, topic: &Topic) -> Vec<BTreeSet<String>> {
    let rack = |broker: &i32| metadata.broker(*broker)?.rack.clone();
    topic.partitions.iter().map(|partition| partition.replicas.iter().filter_map(rack).collect()).collect()
}
