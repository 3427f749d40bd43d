//! The task of a member: it does what the state machine says, one step after the other. What has to be known of topics is
//! found out beside that, so that heartbeats go out when it can't be had.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use milena_protocol::messages::MetadataRequest;
use milena_protocol::messages::metadata_request::MetadataRequestTopic;
use milena_protocol::{ErrorCode, Uuid};
use regex_lite::Regex;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::assignor::Topics;
use super::config::{GroupConfig, GroupProtocol};
use super::membership::{Answer, Membership, Request, Step, Wanted};
use crate::call::Target;
use crate::client::Client;
use crate::connection::{Pending, Reply};
use crate::connections::{Connections, Node};
use crate::coordinators::CoordinatorKind;
use crate::error::{Error, check};
use crate::metadata::{Metadata, Topic};
use crate::unless_dropped::UnlessDropped;

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

/// Why a topic is refused rather than not there, with Java's words for it.
const REFUSALS: [(ErrorCode, &str); 2] = [
    (ErrorCode::TOPIC_AUTHORIZATION_FAILED, "Not authorized to access topics"),
    (ErrorCode::INVALID_TOPIC_EXCEPTION, "Invalid topics"),
];

/// Topics that are refused, and why.
type Refused = BTreeMap<String, ErrorCode>;

/// What was found out of topics.
enum Seen {
    /// All that match the pattern.
    Matching(BTreeSet<String>),
    /// What there is of those that were asked for.
    Known { asked: BTreeSet<String>, topics: Topics, refused: Refused },
}

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
    unresolved: bool,
    /// When to look at topics again, and when at all there are.
    watch_at: Instant,
    search_at: Instant,
    failures: u32,
    /// The look that is under way, and the question for names.
    looking: Option<UnlessDropped<Seen>>,
    naming: Option<UnlessDropped<Vec<(Uuid, String)>>>,
    /// What the consumer was told of topics that are refused, and when to tell it again.
    refused: Refused,
    refuse_at: Instant,
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
            unresolved: false,
            watch_at: now,
            search_at: now,
            failures: 0,
            looking: None,
            naming: None,
            refused: Refused::new(),
            refuse_at: now,
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
                self.look();
            }
            let unresolved = self.unresolved && !leaving;
            let step = if unresolved { Step::Wait(None) } else { self.machine(|machine| machine.next(Instant::now())) };
            if self.machine(|machine| machine.duties().has_news()) {
                self.shared.wake_holder();
            }
            match step {
                Step::Send(request) => self.ask(&request).await,
                Step::Learn(until) => {
                    if self.failures == 0 {
                        self.look();
                    }
                    self.rest(Some(until)).await;
                }
                Step::Name(ids, until) => {
                    self.naming.get_or_insert_with(|| UnlessDropped::spawn(names(self.client.clone(), ids)));
                    self.rest(Some(until)).await;
                }
                Step::Wait(until) => self.rest(until).await,
                Step::End => return,
            }
        }
    }

    fn machine<T>(&self, with: impl FnOnce(&mut dyn Membership) -> T) -> T {
        with(&mut **self.shared.machine.lock())
    }

    /// Nothing until then, or until the holder does something, or something was found out.
    async fn rest(&mut self, until: Option<Instant>) {
        let watch_at = self.looking.is_none().then_some(self.watch_at);
        let until = until.into_iter().chain(watch_at).min();
        let (looking, naming) = (&mut self.looking, &mut self.naming);
        let (seen, named) = tokio::select! {
            () = unless_none(until.map(sleep_until)) => return,
            () = self.shared.woken.notified() => return,
            seen = unless_none(looking.as_mut()) => (Some(seen), None),
            named = unless_none(naming.as_mut()) => (None, Some(named)),
        };
        if let Some(seen) = seen {
            self.looking = None;
            self.saw(seen);
        }
        if let Some(named) = named {
            self.naming = None;
            self.machine(|machine| machine.named(named.unwrap_or_default(), Instant::now()));
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
        self.looking = None;
        (self.pattern, self.unresolved, self.watch_at) = (None, false, Instant::now());
        match wanted {
            Wanted::Pattern(pattern) if self.config.protocol == GroupProtocol::Classic => {
                self.pattern = Some(whole(&pattern).expect("the consumer has checked it"));
                (self.unresolved, self.search_at) = (true, Instant::now());
            }
            wanted => self.machine(|machine| machine.subscribe(wanted)),
        }
    }

    /// Begins to look at the topics that matter, unless that is being done.
    fn look(&mut self) {
        if self.looking.is_some() {
            return;
        }
        let now = Instant::now();
        self.watch_at = now + self.config.heartbeat_interval;
        let client = self.client.clone();
        if let Some(pattern) = self.pattern.clone().filter(|_| now >= self.search_at) {
            self.looking = Some(UnlessDropped::spawn(search(client, pattern, self.config.exclude_internal)));
            return;
        }
        let asked = self.machine(|machine| machine.watched());
        if !asked.is_empty() {
            // What a pattern matched and is gone is not created anew.
            let create = self.config.create_topics && self.pattern.is_none();
            self.looking = Some(UnlessDropped::spawn(learn(client, asked, create)));
        }
    }

    /// Takes what was found out.
    fn saw(&mut self, seen: Result<Seen, Error>) {
        let now = Instant::now();
        match seen {
            Err(error) => return self.trouble(error),
            Ok(Seen::Matching(topics)) => {
                self.machine(|machine| machine.subscribe(Wanted::Topics(topics)));
                self.unresolved = false;
                (self.search_at, self.watch_at) = (now + self.client.config().metadata_max_age, now);
            }
            // Others matter by now.
            Ok(Seen::Known { asked, .. }) if asked != self.machine(|machine| machine.watched()) => self.watch_at = now,
            Ok(Seen::Known { asked, topics, refused }) => {
                if topics.len() < asked.len() {
                    self.watch_at = self.watch_at.min(now + self.client.config().retry_backoff.max);
                }
                self.tell_refused(refused, now);
                self.machine(|machine| machine.learnt(&topics));
            }
        }
        self.failures = 0;
    }

    /// Metadata can't be had: it is asked for again a little later.
    fn trouble(&mut self, error: Error) {
        tracing::debug!(%error, "no metadata");
        self.failures = self.failures.saturating_add(1);
        self.watch_at = Instant::now() + self.client.config().retry_backoff.after(self.failures);
        if !error.is_retriable() {
            self.machine(|machine| machine.duties().report(error));
        }
    }

    /// Has the consumer hear which topics are refused: when there are others, and from time to time.
    fn tell_refused(&mut self, refused: Refused, now: Instant) {
        if self.refused == refused && now < self.refuse_at {
            return;
        }
        self.refuse_at = now + self.client.config().metadata_max_age;
        if let Some(error) = refusal(&refused) {
            self.machine(|machine| machine.duties().report(error));
        }
        self.refused = refused;
    }

    async fn ask(&mut self, request: &Request) {
        let patience = self.client.config().request_timeout;
        let join = patience.max(self.config.max_poll_interval.saturating_add(JOIN_GRACE));
        let heard = match request {
            Request::Join(request) => {
                let reply = self.exchange(request, ANY, join).await;
                reply.map(|reply| self.hear(read(&reply).map(Answer::Join)))
            }
            Request::Sync(request) => {
                let reply = self.exchange(request, ANY, join).await;
                reply.map(|reply| self.hear(read(&reply).map(Answer::Sync)))
            }
            Request::Heartbeat(request) => {
                let reply = self.exchange(request, ANY, patience.min(self.config.session_timeout)).await;
                reply.map(|reply| self.hear(read(&reply).map(Answer::Heartbeat)))
            }
            Request::Leave(request) => {
                let reply = self.exchange(request, LEAVE, patience).await;
                reply.map(|reply| self.hear(read(&reply).map(Answer::Leave)))
            }
            Request::ConsumerHeartbeat(request) => {
                let reply = self.exchange(request, CONSUMER_HEARTBEAT, patience).await;
                reply.map(|reply| self.hear(read(&reply).map(Answer::ConsumerHeartbeat)))
            }
        };
        if heard.is_none() && matches!(request, Request::Join(_) | Request::Sync(_)) {
            // A broker answers a connection in order: LeaveGroup would wait there for the others of the group.
            let given_up = std::mem::replace(&mut self.connections, self.client.own_connections());
            given_up.close(Duration::ZERO).await;
        }
    }

    /// Sends a request to the coordinator, once, and waits for the answer unless the member is to leave meanwhile.
    async fn exchange<R: milena_protocol::Request>(
        &self,
        request: &R,
        versions: RangeInclusive<i16>,
        patience: Duration,
    ) -> Option<Result<Reply<R>, Error>> {
        let sent = match self.unless_leaving(self.send(request, versions, patience)).await? {
            Ok(sent) => sent,
            Err(error) => return Some(Err(error)),
        };
        let who = self.machine(|machine| machine.identity());
        if who.member.is_empty() && who.instance.is_none() {
            // The coordinator names it at once, and keeps a place for that name, which only who knows the name gives back.
            return Some(sent.await);
        }
        self.unless_leaving(sent).await
    }

    /// Sends a request to the coordinator. Where that is it says itself: no metadata is needed.
    async fn send<R: milena_protocol::Request>(
        &self,
        request: &R,
        versions: RangeInclusive<i16>,
        patience: Duration,
    ) -> Result<Pending<R>, Error> {
        let coordinator = self.client.coordinator(CoordinatorKind::Group, &self.config.group).await?;
        let node = Node::Broker(coordinator.id);
        let connection = self.connections.get(node, &coordinator.host, coordinator.port).await?;
        let version = connection.versions().highest(R::KEY, &versions)?;
        connection.send(request, version, patience).await
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

/// Waits for this, or for ever without it.
async fn unless_none<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// The expression for whole names, as Java's `matches` has it.
///
/// # Errors
/// [`Error::Config`] when it can't be understood.
pub(super) fn whole(pattern: &str) -> Result<Regex, Error> {
    let wrong = |error| Error::config("subscription", format!("`{pattern}` is no regular expression: {error}"));
    Regex::new(&format!("^(?:{pattern})$")).map_err(wrong)
}

/// All topics that match.
async fn search(client: Client, pattern: Regex, exclude_internal: bool) -> Result<Seen, Error> {
    let metadata = client.all_topics().await?;
    let matches = |topic: &&Arc<Topic>| pattern.is_match(&topic.name) && !(topic.is_internal && exclude_internal);
    Ok(Seen::Matching(metadata.topics().filter(matches).map(|topic| topic.name.to_string()).collect()))
}

/// What is known of topics, learnt anew where it is old; those that do not exist are missing.
async fn learn(client: Client, asked: BTreeSet<String>, create: bool) -> Result<Seen, Error> {
    let (mut topics, mut refused) = (Topics::new(), Refused::new());
    for name in &asked {
        match client.topic(name, create).await {
            Ok(topic) => {
                topics.insert(name.clone(), racks(&client.known(), &topic));
            }
            Err(error) => {
                let Some(code) = error.code() else { return Err(error) };
                tracing::debug!(topic = name, %error, "is not there");
                if REFUSALS.iter().any(|(refusal, _)| *refusal == code) {
                    refused.insert(name.clone(), code);
                }
            }
        }
    }
    Ok(Seen::Known { asked, topics, refused })
}

/// What the consumer hears of topics that are refused; the worse of two reasons.
fn refusal(refused: &Refused) -> Option<Error> {
    REFUSALS.iter().find_map(|(code, text)| {
        let names: Vec<&str> = refused.iter().filter(|(_, of)| *of == code).map(|(name, _)| name.as_str()).collect();
        let message = || format!("{text}: [{}]", names.join(", "));
        (!names.is_empty()).then(|| Error::Broker { code: *code, message: Some(message().into()) })
    })
}

/// Names of topics.
async fn names(client: Client, ids: Vec<Uuid>) -> Result<Vec<(Uuid, String)>, Error> {
    let topic = |id: &Uuid| MetadataRequestTopic { topic_id: *id, name: None };
    let request = MetadataRequest { topics: Some(ids.iter().map(topic).collect()), ..Default::default() };
    let connection = client.connection(Target::Any).await?;
    let version = connection.versions().highest(milena_protocol::ApiKey::METADATA, &(METADATA_BY_ID..=i16::MAX))?;
    let reply = connection.send(&request, version, client.config().request_timeout).await?.await?;
    let response = reply.decode()?;
    let named = response
        .topics
        .iter()
        .filter_map(|topic| (topic.error_code == 0).then_some((topic.topic_id, topic.name.as_deref()?.to_owned())));
    Ok(named.collect())
}

/// Of each partition of a topic, where its replicas are.
fn racks(metadata: &Metadata, topic: &Topic) -> Vec<BTreeSet<String>> {
    let rack = |broker: &i32| metadata.broker(*broker)?.rack.clone();
    topic.partitions.iter().map(|partition| partition.replicas.iter().filter_map(rack).collect()).collect()
}
