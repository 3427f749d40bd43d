//! Makes the partitions hosted here follow the metadata. Only the controller's thread calls it, so the set of
//! partitions has one writer.

use std::collections::BTreeSet;
use std::sync::Arc;

use milena_config::broker::DynamicConfig;
use milena_config::{BrokerConfig, Overrides};
use milena_metadata::{ConfigResource, ConfigResourceType, Delta, Image, Loaded, Topic};
use milena_net::Connections;
use milena_protocol::{ErrorCode, Uuid};

use crate::coordinators::Coordinators;
use crate::disk_threads::DiskThreads;
use crate::partition::{Partition, TopicIdentity};
use crate::replicas::Replicas;
use crate::services::Live;
use crate::settings::{PartitionSettings, changes_connection_limits, connection_limits};
use crate::storage::{New, Storage};

/// Follows the metadata.
pub struct Publisher {
    /// `node.id`.
    pub node_id: i32,
    /// What requests see.
    pub live: Arc<Live>,
    /// The partitions.
    pub replicas: Arc<Replicas>,
    /// Their files.
    pub storage: Arc<Storage>,
    /// What lives on partitions of internal topics.
    pub coordinators: Arc<Coordinators>,
    /// What reads from the disk for requests.
    pub readers: DiskThreads,
    /// How many connections there may be.
    pub connections: Arc<Connections>,
}

impl Publisher {
    /// Follows images in their order: settings and partitions first, then requests see the image.
    pub fn follow(&self, loaded: Vec<Loaded>) {
        for Loaded { image, delta } in loaded {
            self.publish(&image, &delta);
            self.live.image.store(Arc::new(image.into()));
            // Nobody commits offsets of these topics any more.
            let deleted: Vec<_> = delta.topics.deleted.values().map(|topic| topic.name.to_string()).collect();
            if !deleted.is_empty() {
                self.coordinators.topics_deleted(&deleted);
            }
        }
    }

    /// Brings settings and partitions to what `image` says; `delta` says what is different from before.
    fn publish(&self, image: &Image, delta: &Delta) {
        self.publish_broker_config(image, &delta.configs);
        self.delete(delta);
        self.create_and_lead(image, delta);
        self.publish_topic_configs(image, &delta.configs);
        if !delta.topics.changed.is_empty() || !delta.topics.deleted.is_empty() {
            self.coordinators.follow(&self.replicas.topics(), image);
        }
    }

    fn publish_broker_config(&self, image: &Image, changed: &BTreeSet<ConfigResource>) {
        if !changed.iter().any(|resource| resource.kind == ConfigResourceType::BROKER) {
            return;
        }
        let before = self.live.config.load();
        let config = with_dynamic(&before, image, self.node_id);
        self.set_io_threads(&config);
        // Not each time: names of hosts may have to be looked up.
        if changes_connection_limits(&before, &config) {
            self.connections.limit(connection_limits(&config));
        }
        self.storage.cordon(config.list("cordoned.log.dirs"));
        self.live.config.store(Arc::new(config));
        for topic in self.replicas.topics().iter() {
            self.configure(image, &topic.identity.name);
        }
    }

    /// As many threads for the disk as `num.io.threads` allows, of each kind; those that copy logs have their own settings.
    pub fn set_io_threads(&self, config: &BrokerConfig) {
        let most = usize::try_from(config.num_io_threads()).unwrap_or(1);
        self.storage.flusher().set_threads(most);
        self.readers.set_most(most);
        let movers = config.value("num.replica.alter.log.dirs.threads").text().and_then(|text| text.parse().ok());
        let movers = movers.unwrap_or(self.storage.directories().len());
        self.storage.mover().configure(movers, config.replica_alter_log_dirs_io_max_bytes_per_second());
    }

    fn publish_topic_configs(&self, image: &Image, changed: &BTreeSet<ConfigResource>) {
        for resource in changed.iter().filter(|resource| resource.kind == ConfigResourceType::TOPIC) {
            self.configure(image, &resource.name);
        }
    }

    /// Gives the partitions of a topic their settings.
    fn configure(&self, image: &Image, topic: &str) {
        let topics = self.replicas.topics();
        let Some(hosted) = topics.by_name(topic) else { return };
        let settings = PartitionSettings::of_topic(&self.live.config.load(), image, topic);
        for partition in hosted.partitions() {
            partition.set_settings(Arc::clone(&settings));
        }
    }

    fn delete(&self, delta: &Delta) {
        if delta.topics.deleted.is_empty() {
            return;
        }
        for partition in self.replicas.remove(delta.topics.deleted.keys().copied()) {
            self.storage.delete_later(&partition);
        }
        self.storage.forget_deleted(&self.replicas);
    }

    fn create_and_lead(&self, image: &Image, delta: &Delta) {
        let mut added = Vec::new();
        for (id, changed) in &delta.topics.changed {
            let Some(topic) = image.topics().get_by_id(*id) else { continue };
            added.extend(self.follow_topic(image, topic, changed));
        }
        if !added.is_empty() {
            self.replicas.add(added);
        }
    }

    /// Tries again to make the partitions that could not be made; not all of them when the first one fails again.
    pub fn make_missing(&self) {
        if !self.storage.has_missing() {
            return;
        }
        let image = self.live.image.load_full();
        let mut missing = self.storage.take_missing().into_iter();
        for (id, index) in missing.by_ref() {
            let Some(topic) = image.topics().get_by_id(id) else { continue };
            let made = self.follow_topic(&image, topic, &BTreeSet::from([index]));
            if made.is_empty() {
                break;
            }
            self.replicas.add(made);
        }
        missing.for_each(|(id, index)| self.storage.note_missing(id, index));
        self.coordinators.follow(&self.replicas.topics(), &image);
    }

    /// Makes the changed partitions of a topic follow; those that are new come back.
    fn follow_topic(&self, image: &Image, topic: &Topic, changed: &BTreeSet<i32>) -> Vec<Arc<Partition>> {
        let hosted = self.replicas.topics().by_id(topic.id).cloned();
        let identity = match &hosted {
            Some(hosted) => Arc::clone(&hosted.identity),
            None => Arc::new(TopicIdentity { name: topic.name.to_string(), id: topic.id }),
        };
        let settings = PartitionSettings::of_topic(&self.live.config.load(), image, &topic.name);
        let mut new = Vec::new();
        for &index in changed {
            let Some(registration) = topic.partition(index).filter(|it| it.replicas.contains(&self.node_id)) else {
                continue;
            };
            let epoch = registration.leader_epoch;
            match hosted.as_ref().map(|hosted| hosted.served(index)) {
                Some(Ok(partition)) => partition.lead_with_epoch(epoch).unwrap_or_else(|error| {
                    tracing::error!(%partition, %error, "a new leader epoch can't be recorded");
                }),
                Some(Err(ErrorCode::KAFKA_STORAGE_ERROR)) => {}
                _ => match self.storage.create(&New {
                    topic: &identity,
                    index,
                    leader_epoch: epoch,
                    settings: &settings,
                    directory: registration.directory_of(self.node_id).unwrap_or(Uuid::ZERO),
                }) {
                    Ok(partition) => new.push(Arc::new(partition)),
                    Err(error) => {
                        tracing::error!(topic = %topic.name, index, %error, "a partition can't be made; it is tried again");
                        self.storage.note_missing(topic.id, index);
                    }
                },
            }
        }
        new
    }
}

/// The settings with the dynamic ones of `image`. A dynamic value that is not valid has no effect.
pub fn with_dynamic(config: &BrokerConfig, image: &Image, node_id: i32) -> BrokerConfig {
    let overrides = |resource: ConfigResource| -> Overrides {
        image.configs().get(&resource).map_or_else(Overrides::new, |map| Overrides::clone(map))
    };
    let dynamic = DynamicConfig {
        broker: overrides(ConfigResource::broker(node_id)),
        default: overrides(ConfigResource::default_broker()),
    };
    let (config, errors) = config.with_dynamic(dynamic);
    for error in errors {
        tracing::warn!(%error, "a dynamic setting has no effect");
    }
    config
}

#[cfg(test)]
mod tests;
