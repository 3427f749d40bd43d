//! Topics that come into being because somebody asks for them. The asker is not kept waiting: it asks again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use milena_controller::{ApiError, MAX_RECORDS, Records, View, create_topics_automatically};
use milena_io::RealRng;
use milena_protocol::ErrorCode;
use parking_lot::Mutex;

use crate::controller::ControllerHandle;

/// Topics that were asked for since the controller last made some, each of them once.
#[derive(Default)]
pub struct AutoTopics {
    wanted: Arc<Mutex<BTreeSet<String>>>,
    refusals: Arc<Refusals>,
}

/// How long the same refusal is not told again: who asks for a topic does so many times a second.
const QUIET: Duration = Duration::from_secs(60);
/// Refusals that are remembered; clients can name any number of topics.
const MOST_REFUSALS: usize = 100;

/// What was told of topics that are not made: name and code, and when.
#[derive(Default)]
struct Refusals {
    told: Mutex<BTreeMap<(String, i16), Instant>>,
}

impl Refusals {
    /// Tells, in Kafka's words, why a topic is not made.
    fn tell(&self, name: &str, refusal: &ApiError, now: Instant) {
        if let Some(line) = self.line(name, refusal, now) {
            tracing::warn!("{line}");
        }
    }

    /// The line, unless it was told a short time ago, or there are too many. A topic that is there already was made for another
    /// asker.
    fn line(&self, name: &str, refusal: &ApiError, now: Instant) -> Option<String> {
        if refusal.code == ErrorCode::TOPIC_ALREADY_EXISTS {
            return None;
        }
        let key = (name.to_owned(), refusal.code.0);
        let mut told = self.told.lock();
        told.retain(|_, at| now.duration_since(*at) < QUIET);
        if told.contains_key(&key) || told.len() >= MOST_REFUSALS {
            return None;
        }
        told.insert(key, now);
        let message = refusal.message.as_deref().unwrap_or_default();
        Some(format!("Auto topic creation failed for {name} with error '{}': {message}", refusal.code.name()))
    }
}

impl AutoTopics {
    /// Has topics created that do not exist. Whatever forbids one is logged and not answered: it stays unknown.
    pub fn create<'n>(&self, names: impl IntoIterator<Item = &'n str>, controller: &ControllerHandle) {
        let mut wanted = self.wanted.lock();
        let is_told = !wanted.is_empty();
        add(&mut wanted, names);
        if is_told || wanted.is_empty() {
            return;
        }
        let (named, refusals) = (Arc::clone(&self.wanted), Arc::clone(&self.refusals));
        let change = move |view: View<'_>| {
            let names = std::mem::take(&mut *named.lock());
            records(view, &names, &refusals)
        };
        if !controller.try_change(change) {
            wanted.clear();
        }
    }
}

/// Adds names as far as topics can be made of them together. The others' turn comes when they are asked for again.
fn add<'n>(wanted: &mut BTreeSet<String>, names: impl IntoIterator<Item = &'n str>) {
    let room = MAX_RECORDS.saturating_sub(wanted.len());
    wanted.extend(names.into_iter().take(room).map(str::to_owned));
}

/// The records of those topics that may be made, as many as are committed together.
fn records(view: View<'_>, names: &BTreeSet<String>, refusals: &Refusals) -> Records {
    let (records, refused) = create_topics_automatically(view, names.iter().map(String::as_str), &mut RealRng);
    for (name, refusal) in refused {
        refusals.tell(name, &refusal, Instant::now());
    }
    records
}

#[cfg(test)]
mod tests {
    use milena_config::{BrokerConfig, Settings};
    use milena_protocol::MetadataRecord;

    use super::*;
    use crate::test_image::{broker, image};

    fn made(settings: &str, names: &[&str]) -> (usize, usize) {
        let mut file = Settings::new();
        let node = "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:1,CONTROLLER://:2\n\
                    controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=h:2\n";
        file.file("server.properties".as_ref(), &format!("{node}{settings}")).unwrap();
        let (image, config) = (image([broker(1, false)]), BrokerConfig::load(&file).unwrap());
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let view = View { image: &image, kraft_version: 0, config: &config };
        let records = records(view, &names, &Refusals::default());
        let topics = records.iter().filter(|record| matches!(record, MetadataRecord::Topic(_))).count();
        (topics, records.len() - topics)
    }

    #[test]
    fn topics_that_may_be_made_are_made_together() {
        assert_eq!(made("num.partitions=3", &["a", "no/name", "b"]), (2, 6));
        assert_eq!(made("", &["no/name"]), (0, 0));
    }

    #[test]
    fn no_more_topics_are_made_together_than_can_be_committed_together() {
        assert_eq!(made("num.partitions=4000", &["a", "b", "c"]), (2, 8000));
    }

    #[test]
    fn why_a_topic_is_not_made_is_told_once_in_a_while() {
        let (refusals, began) = (Refusals::default(), Instant::now());
        let refusal = |code| ApiError::new(code, "Unable to replicate.");
        let line = |name: &str, code, seconds| {
            refusals.line(name, &refusal(code), began + Duration::from_secs(seconds)).is_some()
        };
        let (factor, name) = (ErrorCode::INVALID_REPLICATION_FACTOR, ErrorCode::INVALID_TOPIC_EXCEPTION);
        assert!(line("a", factor, 0) && !line("a", factor, 59) && line("a", name, 59) && line("b", factor, 59));
        assert!(line("a", factor, 60) && !line("b", factor, 60));
        assert!(!line("c", ErrorCode::TOPIC_ALREADY_EXISTS, 60));
        let told = (0..2 * MOST_REFUSALS).filter(|topic| line(&topic.to_string(), factor, 200)).count();
        assert_eq!(told, MOST_REFUSALS);
        let text = Refusals::default().line("__consumer_offsets", &refusal(factor), began);
        let expected = "Auto topic creation failed for __consumer_offsets with error 'INVALID_REPLICATION_FACTOR': \
                        Unable to replicate.";
        assert_eq!(text.unwrap(), expected);
    }

    #[test]
    fn no_more_names_are_kept_than_topics_can_be_made_together() {
        let mut wanted = BTreeSet::new();
        let names: Vec<String> = (0..2 * MAX_RECORDS).map(|number| number.to_string()).collect();
        add(&mut wanted, names.iter().map(String::as_str));
        add(&mut wanted, ["another"]);
        assert_eq!(wanted.len(), MAX_RECORDS);
    }
}
