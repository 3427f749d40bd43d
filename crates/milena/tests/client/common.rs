//! The broker under test, and names that no other test uses.

use std::sync::atomic::{AtomicU32, Ordering};

use milena::testing::Broker;
use milena_client::protocol::messages::CreateTopicsRequest;
use milena_client::protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use milena_client::{Client, ClientBuilder, Target, check};

/// A broker for one test; another process's if there is one to test against.
pub struct Cluster {
    bootstrap: String,
    _broker: Option<Broker>,
}

impl Cluster {
    pub fn start() -> Self {
        if let Ok(bootstrap) = std::env::var("MILENA_TEST_BOOTSTRAP") {
            return Self { bootstrap, _broker: None };
        }
        let broker = Broker::start();
        Self { bootstrap: broker.bootstrap_servers(), _broker: Some(broker) }
    }

    pub fn builder(&self) -> ClientBuilder {
        Client::builder().bootstrap_servers(&self.bootstrap)
    }

    pub fn client(&self) -> Client {
        self.builder().build().unwrap()
    }
}

/// A name that begins so and that nobody else has.
pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("{prefix}-{}-{}-{}", std::process::id(), now.as_millis(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A new topic; its leaders may be elected a moment later.
pub async fn create_topic(client: &Client, partitions: i32, configs: &[(&'static str, &'static str)]) -> String {
    let name = unique("topic");
    let config = |(name, value): &(&'static str, &'static str)| CreatableTopicConfig {
        name: (*name).into(),
        value: Some((*value).into()),
    };
    let topic = CreatableTopic {
        name: name.as_str().into(),
        num_partitions: partitions,
        replication_factor: 1,
        configs: configs.iter().map(config).collect(),
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
    let created = client.call(Target::Controller, &request).read(|response| {
        let topic = &response.topics[0];
        check(topic.error_code, topic.error_message.as_deref())
    });
    created.await.unwrap();
    name
}
