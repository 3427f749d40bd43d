//! Images and configurations of tests, each made in one line.

use std::borrow::Cow;
use std::path::Path;

use milena_config::{BrokerConfig, Settings};
use milena_metadata::{Broker, Image, VersionRange};
use milena_protocol::messages::register_broker_record::BrokerFeature;
use milena_protocol::messages::{FeatureLevelRecord, RegisterBrokerRecord};
use milena_protocol::{MetadataRecord, Uuid};

use crate::view::View;

/// An unfenced broker with one directory.
pub(crate) fn broker(id: i32) -> Broker {
    Broker {
        id,
        epoch: i64::from(id),
        incarnation_id: Uuid::ONE,
        listeners: Vec::new(),
        features: milena_metadata::features()
            .iter()
            .map(|feature| (feature.name.to_owned(), VersionRange { min: feature.min, max: feature.max }))
            .collect(),
        rack: None,
        fenced: false,
        in_controlled_shutdown: false,
        is_migrating_zk_broker: false,
        directories: vec![Uuid::from_bytes([u8::try_from(id).unwrap(); 16])],
        cordoned_directories: None,
    }
}

/// A cluster of the newest metadata version with these brokers.
pub(crate) fn image(brokers: impl IntoIterator<Item = Broker>) -> Image {
    let level = |name: &'static str, feature_level| FeatureLevelRecord { name: name.into(), feature_level };
    let features = [level("metadata.version", 33), level("eligible.leader.replicas.version", 1)];
    let brokers = brokers.into_iter().map(|b| registration(&b));
    with(&Image::default(), &features.into_iter().map(MetadataRecord::from).chain(brokers).collect::<Vec<_>>())
}

fn registration(broker: &Broker) -> MetadataRecord<'static> {
    let feature = |(name, range): (&String, &VersionRange)| BrokerFeature {
        name: name.clone().into(),
        min_supported_version: range.min,
        max_supported_version: range.max,
    };
    RegisterBrokerRecord {
        broker_id: broker.id,
        incarnation_id: broker.incarnation_id,
        broker_epoch: broker.epoch,
        features: broker.features.iter().map(feature).collect(),
        rack: broker.rack.clone().map(Cow::Owned),
        fenced: broker.fenced,
        in_controlled_shutdown: broker.in_controlled_shutdown,
        log_dirs: Cow::Owned(broker.directories.clone()),
        cordoned_log_dirs: broker.cordoned_directories.clone().map(Cow::Owned),
        ..RegisterBrokerRecord::default()
    }
    .into()
}

/// The image after these records.
pub(crate) fn with(image: &Image, records: &[MetadataRecord<'_>]) -> Image {
    image.apply(records).unwrap().0
}

/// The configuration of node 1 with these lines in its file.
pub(crate) fn config(lines: &str) -> BrokerConfig {
    let mut settings = Settings::new();
    let own = "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n\
               controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=localhost:9093\n\
               log.dirs=/data\noffsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n\
               share.coordinator.state.topic.replication.factor=1\n";
    settings.file(Path::new("server.properties"), &format!("{own}{lines}")).unwrap();
    BrokerConfig::load(&settings).unwrap()
}

/// One node with its configuration.
pub(crate) struct Node {
    pub(crate) image: Image,
    pub(crate) config: BrokerConfig,
    pub(crate) kraft_version: i16,
}

impl Node {
    /// Node 1 alone, nothing else set.
    pub(crate) fn new() -> Self {
        Self { image: image([broker(1)]), config: config(""), kraft_version: 0 }
    }

    pub(crate) fn view(&self) -> View<'_> {
        View { image: &self.image, kraft_version: self.kraft_version, config: &self.config }
    }

    /// Appends records.
    pub(crate) fn commit(&mut self, records: &[MetadataRecord<'_>]) {
        self.image = with(&self.image, records);
    }
}
