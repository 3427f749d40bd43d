//! Topics that come into being because somebody asks for them. The asker is not kept waiting: it asks again.

use milena_controller::{MAX_RECORDS, Records, View, create_topic_automatically};
use milena_io::RealRng;

use crate::ports::Ports;

/// Has topics created that do not exist. Whatever forbids one is not told: it stays unknown.
pub fn create<'n>(names: impl IntoIterator<Item = &'n str>, ports: &Ports) {
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    if !names.is_empty() {
        ports.controller.try_change(move |view| records(view, &names));
    }
}

/// The records of those topics that may be made, as many as are committed together; the others' turn comes when they are
/// asked for again.
fn records(view: View<'_>, names: &[String]) -> Records {
    let mut records = Records::new();
    for name in names {
        match create_topic_automatically(view, name, &mut RealRng) {
            Ok(topic) if records.len() + topic.len() > MAX_RECORDS => break,
            Ok(topic) => records.extend(topic),
            Err(refusal) => tracing::debug!(name, %refusal, "a topic is not created automatically"),
        }
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
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let records = records(View { image: &image, config: &config }, &names);
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
}
