//! The image as records, in the order of Kafka's snapshots. Control records around them are the quorum's.

use milena_protocol::messages::{
    AccessControlEntryRecord, ClientQuotaRecord, ConfigRecord, DelegationTokenRecord, FeatureLevelRecord,
    PartitionRecord, ProducerIdsRecord, RegisterBrokerRecord, RegisterControllerRecord, TopicRecord,
    UserScramCredentialRecord, client_quota_record, register_broker_record, register_controller_record,
};
use milena_protocol::{MetadataRecord, Uuid};
use std::borrow::Cow;

use crate::cluster::{Broker, Controller};
use crate::features::METADATA_VERSION;
use crate::image::Image;
use crate::partition::Partition;
use crate::version::MetadataVersion;

/// A metadata record and the version it is written in.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionedRecord<'a> {
    /// The record.
    pub record: MetadataRecord<'a>,
    /// Its version.
    pub version: i16,
}

impl<'a> VersionedRecord<'a> {
    /// A record with its version.
    pub fn new(record: MetadataRecord<'a>, version: i16) -> Self {
        Self { record, version }
    }

    /// A record in the version that a cluster of this metadata version writes it in. A broker's registration change is
    /// written in the lowest version that can say what it says.
    pub fn at(record: MetadataRecord<'a>, version: MetadataVersion) -> Self {
        let version = match &record {
            MetadataRecord::RegisterBroker(_) => version.register_broker_record_version(),
            MetadataRecord::Partition(_) => version.partition_record_version(),
            MetadataRecord::PartitionChange(_) => version.partition_change_record_version(),
            MetadataRecord::BrokerRegistrationChange(r) if r.cordoned_log_dirs.is_some() => 3,
            MetadataRecord::BrokerRegistrationChange(r) if !r.log_dirs.is_empty() => 2,
            MetadataRecord::BrokerRegistrationChange(r) if r.in_controlled_shutdown != 0 => 1,
            _ => 0,
        };
        Self { record, version }
    }
}

impl Image {
    /// The records that make this image when applied to an empty one: features (the metadata version first), brokers,
    /// controllers, each topic followed by its partitions, configurations, quotas, producer ids, access control entries,
    /// SCRAM credentials, delegation tokens. Versions follow the metadata version.
    pub fn records(&self) -> impl Iterator<Item = VersionedRecord<'_>> {
        let version = self.features().metadata_version();
        let features = self.features().iter().map(|(name, level)| feature_record(name, level));
        let brokers = self.cluster().brokers().map(move |b| broker_record(b, version));
        let controllers = self.cluster().controllers().map(|c| controller_record(c));
        let topics = self.topics().iter().flat_map(move |topic| {
            let record = TopicRecord { name: Cow::Borrowed(&*topic.name), topic_id: topic.id };
            let partitions = (0..).zip(&topic.partitions).map(move |(i, p)| p.to_record(topic.id, i, version));
            std::iter::once(VersionedRecord::new(MetadataRecord::Topic(record), 0)).chain(partitions)
        });
        let producer_ids = (self.next_producer_id() > 0).then(|| {
            let next_producer_id = self.next_producer_id();
            let record = ProducerIdsRecord { broker_id: -1, broker_epoch: -1, next_producer_id };
            VersionedRecord::new(MetadataRecord::ProducerIds(record), 0)
        });
        let cluster = features.chain(brokers).chain(controllers).chain(topics);
        cluster
            .chain(self.config_records())
            .chain(self.quota_records())
            .chain(producer_ids)
            .chain(self.security_records())
    }

    fn config_records(&self) -> impl Iterator<Item = VersionedRecord<'_>> {
        self.configs().iter().flat_map(|(resource, values)| {
            values.iter().map(move |(name, value)| {
                let record = ConfigRecord {
                    resource_type: resource.kind.0,
                    resource_name: Cow::Borrowed(&*resource.name),
                    name: Cow::Borrowed(&**name),
                    value: Some(Cow::Borrowed(&**value)),
                };
                VersionedRecord::new(MetadataRecord::Config(record), 0)
            })
        })
    }

    fn quota_records(&self) -> impl Iterator<Item = VersionedRecord<'_>> {
        self.client_quotas().iter().flat_map(|(entity, values)| {
            values.iter().map(move |(key, value)| {
                let entity = entity.iter().map(|(kind, name)| client_quota_record::EntityData {
                    entity_type: Cow::Borrowed(&**kind),
                    entity_name: name.as_deref().map(Cow::Borrowed),
                });
                let key = Cow::Borrowed(&**key);
                let record = ClientQuotaRecord { entity: entity.collect(), key, value: *value, remove: false };
                VersionedRecord::new(MetadataRecord::ClientQuota(record), 0)
            })
        })
    }

    fn security_records(&self) -> impl Iterator<Item = VersionedRecord<'_>> {
        let acls = self.acls().iter().map(|(id, acl)| {
            MetadataRecord::AccessControlEntry(AccessControlEntryRecord {
                id,
                resource_type: acl.resource_type,
                resource_name: Cow::Borrowed(&*acl.resource_name),
                pattern_type: acl.pattern_type,
                principal: Cow::Borrowed(&*acl.principal),
                host: Cow::Borrowed(&*acl.host),
                operation: acl.operation,
                permission_type: acl.permission_type,
            })
        });
        let scram = self.scram().iter().map(|(mechanism, user, credential)| {
            MetadataRecord::UserScramCredential(UserScramCredentialRecord {
                name: Cow::Borrowed(user),
                mechanism,
                salt: Cow::Borrowed(&*credential.salt),
                stored_key: Cow::Borrowed(&*credential.stored_key),
                server_key: Cow::Borrowed(&*credential.server_key),
                iterations: credential.iterations,
            })
        });
        let tokens = self.delegation_tokens().iter().map(|(id, token)| {
            MetadataRecord::DelegationToken(DelegationTokenRecord {
                owner: Cow::Borrowed(&*token.owner),
                requester: Cow::Borrowed(&*token.requester),
                renewers: token.renewers.iter().map(|r| Cow::Borrowed(&**r)).collect(),
                issue_timestamp: token.issue_timestamp,
                max_timestamp: token.max_timestamp,
                expiration_timestamp: token.expiration_timestamp,
                token_id: Cow::Borrowed(id),
            })
        });
        acls.chain(scram).chain(tokens).map(|record| VersionedRecord::new(record, 0))
    }
}

fn feature_record(name: &str, feature_level: i16) -> VersionedRecord<'_> {
    debug_assert!(name != METADATA_VERSION || MetadataVersion::from_level(feature_level).is_ok());
    let record = FeatureLevelRecord { name: Cow::Borrowed(name), feature_level };
    VersionedRecord::new(MetadataRecord::FeatureLevel(record), 0)
}

/// The registration as a record of the version the metadata version asks for; what that version cannot say is left out.
fn broker_record(broker: &Broker, version: MetadataVersion) -> VersionedRecord<'_> {
    let end_points = broker.listeners.iter().map(|e| register_broker_record::BrokerEndpoint {
        name: Cow::Borrowed(&*e.name),
        host: Cow::Borrowed(&*e.host),
        port: e.port,
        security_protocol: e.security_protocol,
    });
    let features = broker.features.iter().map(|(name, range)| register_broker_record::BrokerFeature {
        name: Cow::Borrowed(&**name),
        min_supported_version: range.min,
        max_supported_version: range.max,
    });
    let record_version = version.register_broker_record_version();
    let directories: &[Uuid] = if version.supports_directories() { &broker.directories } else { &[] };
    let cordoned = broker.cordoned_directories.as_deref().filter(|_| version.supports_cordoned_directories());
    let record = RegisterBrokerRecord {
        broker_id: broker.id,
        is_migrating_zk_broker: broker.is_migrating_zk_broker && record_version >= 2,
        incarnation_id: broker.incarnation_id,
        broker_epoch: broker.epoch,
        end_points: end_points.collect(),
        features: features.collect(),
        rack: broker.rack.as_deref().map(Cow::Borrowed),
        fenced: broker.fenced,
        in_controlled_shutdown: broker.in_controlled_shutdown,
        log_dirs: Cow::Borrowed(directories),
        cordoned_log_dirs: cordoned.map(Cow::Borrowed),
    };
    VersionedRecord::new(MetadataRecord::RegisterBroker(record), record_version)
}

fn controller_record(controller: &Controller) -> VersionedRecord<'_> {
    let end_points = controller.listeners.iter().map(|e| register_controller_record::ControllerEndpoint {
        name: Cow::Borrowed(&*e.name),
        host: Cow::Borrowed(&*e.host),
        port: e.port,
        security_protocol: e.security_protocol,
    });
    let features = controller.features.iter().map(|(name, range)| register_controller_record::ControllerFeature {
        name: Cow::Borrowed(&**name),
        min_supported_version: range.min,
        max_supported_version: range.max,
    });
    let record = RegisterControllerRecord {
        controller_id: controller.id,
        incarnation_id: controller.incarnation_id,
        zk_migration_ready: controller.zk_migration_ready,
        end_points: end_points.collect(),
        features: features.collect(),
    };
    VersionedRecord::new(MetadataRecord::RegisterController(record), 0)
}

impl Partition {
    /// The partition as a record of the version the metadata version asks for; what that version cannot say is left out.
    pub fn to_record(&self, topic_id: Uuid, partition_id: i32, version: MetadataVersion) -> VersionedRecord<'_> {
        let directories: &[Uuid] = if version.supports_directories() { &self.directories } else { &[] };
        fn elr(list: &[i32], version: MetadataVersion) -> Option<Cow<'_, [i32]>> {
            (version.supports_elr() && !list.is_empty()).then_some(Cow::Borrowed(list))
        }
        let record = PartitionRecord {
            partition_id,
            topic_id,
            replicas: Cow::Borrowed(&*self.replicas),
            isr: Cow::Borrowed(&*self.isr),
            removing_replicas: Cow::Borrowed(&*self.removing_replicas),
            adding_replicas: Cow::Borrowed(&*self.adding_replicas),
            leader: self.leader,
            leader_recovery_state: self.leader_recovery_state.value(),
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            directories: Cow::Borrowed(directories),
            eligible_leader_replicas: elr(&self.eligible_leader_replicas, version),
            last_known_elr: elr(&self.last_known_elr, version),
        };
        VersionedRecord::new(MetadataRecord::Partition(record), version.partition_record_version())
    }
}
