//! Topics that come into being because somebody asks for them. The asker is not kept waiting: it asks again.

use std::collections::BTreeSet;
use std::sync::Arc;

use milena_controller::{MAX_RECORDS, Records, View, create_topics_automatically};
use milena_io::RealRng;
use parking_lot::Mutex;

use crate::controller::ControllerHandle;

/// Topics that were asked for since the controller last made some, each of them once.
#[derive(Default)]
pub struct AutoTopics {
    wanted: Arc<Mutex<BTreeSet<String>>>,
}

impl AutoTopics {
    /// Has topics created that do not exist. Whatever forbids one is not told: it stays unknown.
    pub fn create<'n>(&self, names: impl IntoIterator<Item = &'n str>, controller: &ControllerHandle) {
        let mut wanted = self.wanted.lock();
        let is_told = !wanted.is_empty();
        add(&mut wanted, names);
        if is_told || wanted.is_empty() {
            return;
        }
        let named = Arc::clone(&self.wanted);
        let change = move |view: View<'_>| {
            let names = std::mem::take(&mut *named.lock());
            records(view, &names)
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
fn records(view: View<'_>, names: &BTreeSet<String>) -> Records {
    let (records, refused) = create_topics_automatically(view, names.iter().map(String::as_str), &mut RealRng);
    for (name, refusal) in refused {
        tracing::debug!(name, %refusal, "a topic is not created automatically");
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
        let records = records(View { image: &image, kraft_version: 0, config: &config }, &names);
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
    fn no_more_names_are_kept_than_topics_can_be_made_together() {
        let mut wanted = BTreeSet::new();
        let names: Vec<String> = (0..2 * MAX_RECORDS).map(|number| number.to_string()).collect();
        add(&mut wanted, names.iter().map(String::as_str));
        add(&mut wanted, ["another"]);
        assert_eq!(wanted.len(), MAX_RECORDS);
    }
}
