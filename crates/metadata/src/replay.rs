//! Replay: one record after the other changes a working copy, which then becomes the next image.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use milena_protocol::messages::{
    AccessControlEntryRecord, BrokerRegistrationChangeRecord, ClearElrRecord, ClientQuotaRecord, ConfigRecord,
    DelegationTokenRecord, PartitionChangeRecord, PartitionRecord, RegisterBrokerRecord, RegisterControllerRecord,
    RemoveTopicRecord, TopicRecord, UnregisterBrokerRecord, UserScramCredentialRecord,
};
use milena_protocol::{MetadataRecord, Uuid};

use crate::cluster::{Broker, Controller, Endpoint, VersionRange};
use crate::configs::{ConfigResource, ConfigResourceType};
use crate::delta::Delta;
use crate::error::ReplayError;
use crate::image::{Image, Provenance};
use crate::partition::Partition;
use crate::security::{Acl, DelegationToken, ScramCredential};
use crate::topics::Topic;

/// A topic that records have touched since the last image. Partitions above a gap wait in `pending`.
#[derive(Debug)]
struct WorkingTopic {
    topic: Topic,
    pending: BTreeMap<usize, Arc<Partition>>,
}

/// Turns an image and records into the next image and the delta between them.
#[derive(Debug)]
pub struct ImageBuilder {
    image: Image,
    base: Image,
    topics: HashMap<Uuid, WorkingTopic>,
    delta: Delta,
}

impl ImageBuilder {
    /// A builder that starts from `base`.
    pub fn new(base: &Image) -> Self {
        Self { image: base.clone(), base: base.clone(), topics: HashMap::new(), delta: Delta::default() }
    }

    /// Applies one record. Records that begin, end or abort a transaction and those that mean nothing in this release
    /// have no effect.
    ///
    /// # Errors
    /// [`ReplayError`] when the record contradicts what came before. The builder must not be used further.
    pub fn replay(&mut self, record: &MetadataRecord<'_>) -> Result<(), ReplayError> {
        match record {
            MetadataRecord::RegisterBroker(r) => self.register_broker(r),
            MetadataRecord::UnregisterBroker(r) => self.unregister_broker(r)?,
            MetadataRecord::FenceBroker(r) => self.change_broker(r.id, r.epoch, |b| b.fenced = true)?,
            MetadataRecord::UnfenceBroker(r) => self.change_broker(r.id, r.epoch, |b| b.fenced = false)?,
            MetadataRecord::BrokerRegistrationChange(r) => self.change_registration(r)?,
            MetadataRecord::RegisterController(r) => self.register_controller(r),
            MetadataRecord::UnregisterController(r) => self.unregister_controller(r.controller_id)?,
            MetadataRecord::Topic(r) => self.create_topic(r),
            MetadataRecord::Partition(r) => self.set_partition(r)?,
            MetadataRecord::PartitionChange(r) => self.change_partition(r)?,
            MetadataRecord::RemoveTopic(r) => self.remove_topic(r)?,
            MetadataRecord::ClearElr(r) => self.clear_elr(r)?,
            MetadataRecord::Config(r) => self.set_config(r),
            MetadataRecord::FeatureLevel(r) => self.set_feature(&r.name, r.feature_level)?,
            MetadataRecord::ClientQuota(r) => self.set_quota(r),
            MetadataRecord::ProducerIds(r) => {
                self.image.next_producer_id = r.next_producer_id;
                self.delta.producer_ids = true;
            }
            MetadataRecord::AccessControlEntry(r) => self.add_acl(r),
            MetadataRecord::RemoveAccessControlEntry(r) => self.remove_acl(r.id)?,
            MetadataRecord::UserScramCredential(r) => self.set_scram(r),
            MetadataRecord::RemoveUserScramCredential(r) => {
                let key = (r.mechanism, r.name.to_string());
                self.image.scram.entries.remove_mut(&key);
                self.delta.scram.insert(key);
            }
            MetadataRecord::DelegationToken(r) => self.set_token(r),
            MetadataRecord::RemoveDelegationToken(r) => {
                self.image.delegation_tokens.entries.remove_mut(&*r.token_id);
                self.delta.delegation_tokens.insert(r.token_id.to_string());
            }
            MetadataRecord::BeginTransaction(_)
            | MetadataRecord::EndTransaction(_)
            | MetadataRecord::AbortTransaction(_)
            | MetadataRecord::NoOp(_)
            | MetadataRecord::ZkMigrationState(_) => {}
        }
        Ok(())
    }

    /// The image after all replayed records, and what changed since the base.
    ///
    /// # Errors
    /// [`ReplayError::PartitionGap`] when a topic's partitions are not consecutive from 0.
    pub fn finish(mut self, provenance: Provenance) -> Result<(Image, Delta), ReplayError> {
        for (topic_id, working) in self.topics {
            if let Some((index, _)) = working.pending.first_key_value() {
                let partition = i32::try_from(*index).unwrap_or(i32::MAX);
                return Err(ReplayError::PartitionGap { topic_id, partition });
            }
            self.image.topics.insert(Arc::new(working.topic));
        }
        self.image.provenance = provenance;
        Ok((self.image, self.delta))
    }

    fn register_broker(&mut self, r: &RegisterBrokerRecord<'_>) {
        let mut directories = r.log_dirs.to_vec();
        directories.sort_unstable_by_key(Uuid::kafka_order);
        let listeners = r.end_points.iter().map(|e| endpoint(&e.name, &e.host, e.port, e.security_protocol));
        let range = |min, max| VersionRange { min, max };
        let features =
            r.features.iter().map(|f| (f.name.to_string(), range(f.min_supported_version, f.max_supported_version)));
        let broker = Broker {
            id: r.broker_id,
            epoch: r.broker_epoch,
            incarnation_id: r.incarnation_id,
            listeners: listeners.collect(),
            features: features.collect(),
            rack: r.rack.as_deref().map(str::to_owned),
            fenced: r.fenced,
            in_controlled_shutdown: r.in_controlled_shutdown,
            is_migrating_zk_broker: r.is_migrating_zk_broker,
            directories,
            cordoned_directories: r.cordoned_log_dirs.as_deref().map(<[Uuid]>::to_vec),
        };
        Arc::make_mut(&mut self.image.cluster).brokers.insert(broker.id, Arc::new(broker));
        self.delta.brokers.insert(r.broker_id);
    }

    fn unregister_broker(&mut self, r: &UnregisterBrokerRecord) -> Result<(), ReplayError> {
        self.change_broker(r.broker_id, r.broker_epoch, |_| {})?;
        Arc::make_mut(&mut self.image.cluster).brokers.remove(&r.broker_id);
        Ok(())
    }

    fn change_registration(&mut self, r: &BrokerRegistrationChangeRecord<'_>) -> Result<(), ReplayError> {
        let bad = |field, value: i8| Err(ReplayError::Value { field, value: i64::from(value) });
        if !(-1..=1).contains(&r.fenced) {
            return bad("fenced", r.fenced);
        }
        if !(0..=1).contains(&r.in_controlled_shutdown) {
            return bad("inControlledShutdown", r.in_controlled_shutdown);
        }
        self.change_broker(r.broker_id, r.broker_epoch, |broker| {
            match r.fenced {
                1 => broker.fenced = true,
                -1 => broker.fenced = false,
                _ => {}
            }
            if r.in_controlled_shutdown == 1 {
                broker.in_controlled_shutdown = true;
            }
            if !r.log_dirs.is_empty() {
                broker.directories = r.log_dirs.to_vec();
                broker.directories.sort_unstable_by_key(Uuid::kafka_order);
            }
            if let Some(cordoned) = r.cordoned_log_dirs.as_deref() {
                broker.cordoned_directories = Some(cordoned.to_vec());
            }
        })
    }

    fn change_broker(&mut self, id: i32, epoch: i64, change: impl FnOnce(&mut Broker)) -> Result<(), ReplayError> {
        let cluster = Arc::make_mut(&mut self.image.cluster);
        let broker = cluster.brokers.get_mut(&id).ok_or(ReplayError::UnknownBroker { id })?;
        if broker.epoch != epoch {
            return Err(ReplayError::BrokerEpoch { id, expected: broker.epoch, found: epoch });
        }
        change(Arc::make_mut(broker));
        self.delta.brokers.insert(id);
        Ok(())
    }

    fn register_controller(&mut self, r: &RegisterControllerRecord<'_>) {
        let range = |min, max| VersionRange { min, max };
        let features =
            r.features.iter().map(|f| (f.name.to_string(), range(f.min_supported_version, f.max_supported_version)));
        let controller = Controller {
            id: r.controller_id,
            incarnation_id: r.incarnation_id,
            zk_migration_ready: r.zk_migration_ready,
            listeners: r.end_points.iter().map(|e| endpoint(&e.name, &e.host, e.port, e.security_protocol)).collect(),
            features: features.collect(),
        };
        Arc::make_mut(&mut self.image.cluster).controllers.insert(controller.id, Arc::new(controller));
        self.delta.controllers.insert(r.controller_id);
    }

    fn unregister_controller(&mut self, id: i32) -> Result<(), ReplayError> {
        let removed = Arc::make_mut(&mut self.image.cluster).controllers.remove(&id);
        removed.ok_or(ReplayError::UnknownController { id })?;
        self.delta.controllers.insert(id);
        Ok(())
    }

    fn create_topic(&mut self, r: &TopicRecord<'_>) {
        let topic = Topic { name: Arc::from(&*r.name), id: r.topic_id, partitions: Vec::new() };
        self.topics.insert(r.topic_id, WorkingTopic { topic, pending: BTreeMap::new() });
        self.delta.topics.created.insert(r.topic_id);
    }

    /// The working copy of a topic, made on first use.
    fn topic(&mut self, id: Uuid) -> Result<&mut WorkingTopic, ReplayError> {
        use std::collections::hash_map::Entry;
        match self.topics.entry(id) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let topic = self.image.topics.get_by_id(id).ok_or(ReplayError::UnknownTopicId { id })?;
                Ok(entry.insert(WorkingTopic { topic: Topic::clone(topic), pending: BTreeMap::new() }))
            }
        }
    }

    fn partition_changed(&mut self, topic_id: Uuid, partition: i32) {
        self.delta.topics.changed.entry(topic_id).or_default().insert(partition);
    }

    fn set_partition(&mut self, r: &PartitionRecord<'_>) -> Result<(), ReplayError> {
        let value = i64::from(r.partition_id);
        let index = usize::try_from(r.partition_id).map_err(|_| ReplayError::Value { field: "partitionId", value })?;
        let partition = Arc::new(Partition::from_record(r)?);
        let working = self.topic(r.topic_id)?;
        let partitions = &mut working.topic.partitions;
        if let Some(existing) = partitions.get_mut(index) {
            *existing = partition;
        } else {
            working.pending.insert(index, partition);
            while let Some(next) = working.pending.remove(&partitions.len()) {
                partitions.push(next);
            }
        }
        self.partition_changed(r.topic_id, r.partition_id);
        Ok(())
    }

    fn change_partition(&mut self, r: &PartitionChangeRecord<'_>) -> Result<(), ReplayError> {
        let unknown = ReplayError::UnknownPartition { topic_id: r.topic_id, partition: r.partition_id };
        let index = usize::try_from(r.partition_id).map_err(|_| unknown.clone())?;
        let partition = self.topic(r.topic_id)?.topic.partitions.get_mut(index).ok_or(unknown)?;
        Arc::make_mut(partition).merge(r)?;
        self.partition_changed(r.topic_id, r.partition_id);
        Ok(())
    }

    fn remove_topic(&mut self, r: &RemoveTopicRecord) -> Result<(), ReplayError> {
        let topic = self.topic(r.topic_id)?.topic.clone();
        self.topics.remove(&r.topic_id);
        self.image.topics.remove(&topic);
        let delta = &mut self.delta.topics;
        delta.changed.remove(&r.topic_id);
        if !delta.created.remove(&r.topic_id)
            && let Some(old) = self.base.topics.get_by_id(r.topic_id)
        {
            delta.deleted.insert(r.topic_id, old.clone());
        }
        let resource = ConfigResource::topic(&topic.name);
        if self.image.configs.remove(&resource) {
            self.delta.configs.insert(resource);
        }
        Ok(())
    }

    fn clear_elr(&mut self, r: &ClearElrRecord<'_>) -> Result<(), ReplayError> {
        let ids: Vec<Uuid> = if r.topic_name.is_empty() {
            let working = self.topics.keys().copied();
            working.chain(self.image.topics.iter().map(|t| t.id).filter(|id| !self.topics.contains_key(id))).collect()
        } else {
            let working = self.topics.values().find(|w| *w.topic.name == *r.topic_name).map(|w| w.topic.id);
            let id = working.or_else(|| self.image.topics.get(&r.topic_name).map(|t| t.id));
            vec![id.ok_or_else(|| ReplayError::UnknownTopic { name: r.topic_name.to_string() })?]
        };
        for id in ids {
            self.clear_topic_elr(id)?;
        }
        Ok(())
    }

    fn clear_topic_elr(&mut self, id: Uuid) -> Result<(), ReplayError> {
        let has_elr = |p: &Arc<Partition>| !p.eligible_leader_replicas.is_empty() || !p.last_known_elr.is_empty();
        let untouched = !self.topics.contains_key(&id);
        if untouched && self.image.topics.get_by_id(id).is_some_and(|t| !t.partitions.iter().any(has_elr)) {
            return Ok(());
        }
        let mut cleared = Vec::new();
        for (index, partition) in (0..).zip(&mut self.topic(id)?.topic.partitions) {
            if has_elr(partition) && Arc::make_mut(partition).clear_elr() {
                cleared.push(index);
            }
        }
        for index in cleared {
            self.partition_changed(id, index);
        }
        Ok(())
    }

    fn set_config(&mut self, r: &ConfigRecord<'_>) {
        let resource = ConfigResource { kind: ConfigResourceType(r.resource_type), name: r.resource_name.to_string() };
        self.image.configs.set(&resource, &r.name, r.value.as_deref());
        self.delta.configs.insert(resource);
    }

    fn set_feature(&mut self, name: &str, level: i16) -> Result<(), ReplayError> {
        Arc::make_mut(&mut self.image.features).set(name, level)?;
        self.delta.features.insert(name.to_owned());
        Ok(())
    }

    fn set_quota(&mut self, r: &ClientQuotaRecord<'_>) {
        let name = |n: &Option<std::borrow::Cow<'_, str>>| n.as_deref().map(str::to_owned);
        let entity = r.entity.iter().map(|e| (e.entity_type.to_string(), name(&e.entity_name))).collect();
        let value = (!r.remove).then_some(r.value);
        self.image.client_quotas.set(&entity, &r.key, value);
        self.delta.client_quotas.insert(entity);
    }

    fn add_acl(&mut self, r: &AccessControlEntryRecord<'_>) {
        let acl = Acl {
            resource_type: r.resource_type,
            resource_name: r.resource_name.to_string(),
            pattern_type: r.pattern_type,
            principal: r.principal.to_string(),
            host: r.host.to_string(),
            operation: r.operation,
            permission_type: r.permission_type,
        };
        self.image.acls.entries.insert_mut(r.id, Arc::new(acl));
        self.delta.acls.insert(r.id);
    }

    fn remove_acl(&mut self, id: Uuid) -> Result<(), ReplayError> {
        if !self.image.acls.entries.remove_mut(&id) {
            return Err(ReplayError::UnknownAcl { id });
        }
        self.delta.acls.insert(id);
        Ok(())
    }

    fn set_scram(&mut self, r: &UserScramCredentialRecord<'_>) {
        let credential = ScramCredential {
            salt: r.salt.to_vec(),
            stored_key: r.stored_key.to_vec(),
            server_key: r.server_key.to_vec(),
            iterations: r.iterations,
        };
        let key = (r.mechanism, r.name.to_string());
        self.image.scram.entries.insert_mut(key.clone(), Arc::new(credential));
        self.delta.scram.insert(key);
    }

    fn set_token(&mut self, r: &DelegationTokenRecord<'_>) {
        let token = DelegationToken {
            owner: r.owner.to_string(),
            requester: r.requester.to_string(),
            renewers: r.renewers.iter().map(|p| p.to_string()).collect(),
            issue_timestamp: r.issue_timestamp,
            max_timestamp: r.max_timestamp,
            expiration_timestamp: r.expiration_timestamp,
        };
        self.image.delegation_tokens.entries.insert_mut(r.token_id.to_string(), Arc::new(token));
        self.delta.delegation_tokens.insert(r.token_id.to_string());
    }
}

fn endpoint(name: &str, host: &str, port: u16, security_protocol: i16) -> Endpoint {
    Endpoint { name: name.to_owned(), host: host.to_owned(), port, security_protocol }
}
