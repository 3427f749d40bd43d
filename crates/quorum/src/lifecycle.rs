//! A node's way through the metadata log: registration, unfencing, controlled shutdown, fencing. The records are those that
//! Kafka's controller writes, in its order; partitions go offline and come back with their broker.

mod replica_directories;

pub use replica_directories::Assignment;

use milena_metadata::{
    Broker, ConfigResource, Endpoint, Image, LeaderRecoveryState, Loaded, NO_LEADER, Partition, Topic, VersionedRecord,
    features,
};
use milena_protocol::messages::{
    BrokerRegistrationChangeRecord, PartitionChangeRecord, RegisterBrokerRecord, RegisterControllerRecord,
    register_broker_record, register_controller_record,
};
use milena_protocol::{MetadataRecord, Uuid};

use crate::election::Election;
use crate::error::QuorumError;
use crate::metadata_log::MetadataLog;

/// How a controller registers.
#[derive(Clone, Debug)]
pub struct ControllerRegistration {
    /// `node.id`.
    pub id: i32,
    /// Random id of the process.
    pub incarnation_id: Uuid,
    /// Controller listeners.
    pub listeners: Vec<Endpoint>,
}

/// How a broker registers.
#[derive(Clone, Debug)]
pub struct BrokerRegistration {
    /// `node.id`.
    pub id: i32,
    /// Random id of the process.
    pub incarnation_id: Uuid,
    /// Advertised listeners, without those of the controller.
    pub listeners: Vec<Endpoint>,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// Ids of the log directories.
    pub directories: Vec<Uuid>,
    /// The broker epoch in the clean-shutdown marker of all log directories; -1 without one.
    pub previous_epoch: i64,
}

/// Static settings that hold where no dynamic configuration says otherwise.
#[derive(Clone, Copy, Debug)]
pub struct TopicDefaults {
    /// `min.insync.replicas`.
    pub min_insync_replicas: i32,
    /// `unclean.leader.election.enable`.
    pub unclean_leader_election: bool,
}

impl Default for TopicDefaults {
    /// Kafka's defaults.
    fn default() -> Self {
        Self { min_insync_replicas: 1, unclean_leader_election: false }
    }
}

type Records = Vec<VersionedRecord<'static>>;

impl MetadataLog {
    /// Registers this process as a controller, if the metadata version knows such registrations.
    ///
    /// # Errors
    /// As [`MetadataLog::append`].
    pub fn register_controller(
        &mut self,
        registration: &ControllerRegistration,
        now_ms: i64,
    ) -> Result<Vec<Loaded>, QuorumError> {
        if !self.image().features().metadata_version().supports_controller_registration() {
            return Ok(Vec::new());
        }
        Ok(self.append(&[controller_record(registration)], now_ms)?.loaded)
    }

    /// Registers this process as a broker, fenced. Returns its broker epoch, the offset of the registration's batch.
    ///
    /// The only broker of a quorum of one cannot be alive twice, so an earlier registration that is not fenced ends here
    /// instead of waiting for its session to expire. If the broker did not stop in order, it leaves the in-sync and
    /// eligible sets, since it may have lost what was not flushed.
    ///
    /// # Errors
    /// As [`MetadataLog::append`].
    pub fn register_broker(
        &mut self,
        registration: &BrokerRegistration,
        defaults: TopicDefaults,
        now_ms: i64,
    ) -> Result<(i64, Vec<Loaded>), QuorumError> {
        let mut loaded = self.fence_broker(registration.id, defaults, now_ms)?;
        let image = self.image().clone();
        let id = registration.id;
        let mut records = Records::new();
        let previous = image.cluster().broker(id);
        if previous.is_some_and(|b| b.epoch != registration.previous_epoch) {
            let elections = Elections { image: &image, defaults, coming: None, leaving: None, unclean: Some(id) };
            let concerned = |p: &Partition| p.isr.contains(&id) || p.eligible_leader_replicas.contains(&id);
            if elections.elr_enabled() {
                elections.run(concerned, &mut records);
            }
        }
        let epoch = self.end_offset();
        records.push(broker_record(&image, registration, epoch, |_| {}));
        loaded.extend(self.append_split(&records, now_ms)?.loaded);
        Ok((epoch, loaded))
    }

    /// Registers this process again where the metadata version has risen to one that knows more of it: controllers, and the
    /// log directories of brokers. The broker stays what it is.
    ///
    /// # Errors
    /// As [`MetadataLog::append`].
    pub fn complete_registrations(
        &mut self,
        controller: &ControllerRegistration,
        broker: &BrokerRegistration,
        now_ms: i64,
    ) -> Result<Vec<Loaded>, QuorumError> {
        let mut loaded = Vec::new();
        if self.image().cluster().controller(controller.id).is_none() {
            loaded = self.register_controller(controller, now_ms)?;
        }
        let image = self.image().clone();
        let current = image.cluster().broker(broker.id).filter(|current| current.directories.is_empty());
        if let Some(current) = current.filter(|_| image.features().metadata_version().supports_directories()) {
            let record = broker_record(&image, broker, current.epoch, |record| {
                record.fenced = current.fenced;
                record.in_controlled_shutdown = current.in_controlled_shutdown;
            });
            loaded.extend(self.append(&[record], now_ms)?.loaded);
        }
        Ok(loaded)
    }

    /// Unfences a broker: it may lead, and leads what has no leader and can have it. These directories of it take no new replicas. Nothing happens
    /// if it is not fenced.
    ///
    /// # Errors
    /// As [`MetadataLog::append`].
    pub fn unfence_broker(
        &mut self,
        id: i32,
        cordoned: &[Uuid],
        defaults: TopicDefaults,
        now_ms: i64,
    ) -> Result<Vec<Loaded>, QuorumError> {
        let image = self.image().clone();
        let Some(broker) = image.cluster().broker(id).filter(|b| b.fenced) else { return Ok(Vec::new()) };
        let mut records = vec![change_record(broker, 0, |r| r.fenced = -1)];
        let elections = Elections { image: &image, defaults, coming: Some(id), leaving: None, unclean: None };
        elections.run(|p| p.leader == NO_LEADER, &mut records);
        if image.features().metadata_version().supports_cordoned_directories() && broker.cordoned_directories.is_none()
        {
            records.push(change_record(broker, 3, |r| r.cordoned_log_dirs = Some(cordoned.to_vec().into())));
        }
        Ok(self.append_split(&records, now_ms)?.loaded)
    }

    /// Notes that the partitions a broker leads after an unclean election hold all that they will ever hold: a leader says
    /// so once it has recovered its log.
    ///
    /// # Errors
    /// As [`MetadataLog::append`].
    pub fn report_recovered(&mut self, id: i32, now_ms: i64) -> Result<Vec<Loaded>, QuorumError> {
        let image = self.image().clone();
        let version = image.features().metadata_version();
        let mut records = Records::new();
        for topic in image.topics().iter() {
            let recovering =
                |p: &Partition| p.leader == id && p.leader_recovery_state == LeaderRecoveryState::Recovering;
            let partitions = (0..).zip(&topic.partitions).filter(|(_, partition)| recovering(partition));
            records.extend(partitions.map(|(partition_id, _)| {
                let leader_recovery_state = LeaderRecoveryState::Recovered.value();
                let topic_id = topic.id;
                let record =
                    PartitionChangeRecord { partition_id, topic_id, leader_recovery_state, ..Default::default() };
                VersionedRecord::at(record.into(), version)
            }));
        }
        if records.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.append_split(&records, now_ms)?.loaded)
    }

    /// Takes a broker out of service before it stops: its leaderships move or end, then it is fenced.
    ///
    /// # Errors
    /// As [`MetadataLog::append`].
    pub fn shut_down_broker(
        &mut self,
        id: i32,
        defaults: TopicDefaults,
        now_ms: i64,
    ) -> Result<Vec<Loaded>, QuorumError> {
        let image = self.image().clone();
        let Some(broker) = image.cluster().broker(id).filter(|b| !b.fenced) else { return Ok(Vec::new()) };
        let mut changes = Records::new();
        let elections = Elections { image: &image, defaults, coming: None, leaving: Some(id), unclean: None };
        elections.run(|p| p.isr.contains(&id), &mut changes);
        let mut loaded = Vec::new();
        if !changes.is_empty() {
            let mut records = vec![change_record(broker, 1, |r| r.in_controlled_shutdown = 1)];
            records.append(&mut changes);
            loaded = self.append_split(&records, now_ms)?.loaded;
        }
        loaded.extend(self.fence_broker(id, defaults, now_ms)?);
        Ok(loaded)
    }

    /// Fences a broker: it leads nothing any more. Nothing happens if it is fenced or not registered.
    ///
    /// # Errors
    /// As [`MetadataLog::append`].
    pub fn fence_broker(&mut self, id: i32, defaults: TopicDefaults, now_ms: i64) -> Result<Vec<Loaded>, QuorumError> {
        let image = self.image().clone();
        let Some(broker) = image.cluster().broker(id).filter(|b| !b.fenced) else { return Ok(Vec::new()) };
        let mut records = Records::new();
        let elections = Elections { image: &image, defaults, coming: None, leaving: Some(id), unclean: None };
        elections.run(|p| p.isr.contains(&id), &mut records);
        records.push(change_record(broker, 0, |r| r.fenced = 1));
        Ok(self.append_split(&records, now_ms)?.loaded)
    }
}

/// Elections in all partitions that a broker's coming or going concerns.
struct Elections<'a> {
    image: &'a Image,
    defaults: TopicDefaults,
    coming: Option<i32>,
    leaving: Option<i32>,
    unclean: Option<i32>,
}

impl Elections<'_> {
    fn elr_enabled(&self) -> bool {
        self.image.features().elr_enabled()
    }

    fn run(&self, concerned: impl Fn(&Partition) -> bool, records: &mut Records) {
        let version = self.image.features().metadata_version().partition_change_record_version();
        for topic in self.image.topics().iter() {
            for (index, partition) in (0..).zip(&topic.partitions).filter(|(_, p)| concerned(p)) {
                if let Some(record) = self.change(topic, index, partition) {
                    records.push(VersionedRecord::new(MetadataRecord::PartitionChange(record), version));
                }
            }
        }
    }

    /// The change that one partition needs.
    fn change(&self, topic: &Topic, index: i32, partition: &Partition) -> Option<PartitionChangeRecord<'static>> {
        let unclean_allowed = self.topic_setting(topic, "unclean.leader.election.enable");
        let unclean_allowed = unclean_allowed.map_or(self.defaults.unclean_leader_election, |v| v == "true");
        let election = Election {
            version: self.image.features().metadata_version(),
            elr_enabled: self.elr_enabled(),
            min_isr: self.min_isr(topic, partition),
            unclean_allowed,
            acceptable: &|id| self.may_lead(id, partition),
            leaving: self.leaving,
            unclean: self.unclean,
        };
        election.change(topic.id, index, partition)
    }

    fn may_lead(&self, id: i32, partition: &Partition) -> bool {
        let Some(broker) = self.image.cluster().broker(id) else { return false };
        let gone = Some(id) == self.leaving || Some(id) == self.unclean;
        let directory = partition.directory_of(id).is_none_or(|directory| broker.has_online(directory));
        !gone && directory && (Some(id) == self.coming || broker.is_active())
    }

    /// A topic's dynamic configuration, else the cluster's.
    fn topic_setting(&self, topic: &Topic, name: &str) -> Option<&str> {
        let configs = self.image.configs();
        let of_topic = configs.topic(&topic.name).and_then(|values| values.get(name)).map(String::as_str);
        of_topic.or_else(|| configs.value(&ConfigResource::default_broker(), name))
    }

    fn min_isr(&self, topic: &Topic, partition: &Partition) -> usize {
        let configured = self.topic_setting(topic, "min.insync.replicas").and_then(|text| text.trim().parse().ok());
        let configured = configured.unwrap_or(self.defaults.min_insync_replicas);
        usize::try_from(configured).unwrap_or(1).min(partition.replicas.len())
    }
}

fn change_record(
    broker: &Broker,
    version: i16,
    change: impl FnOnce(&mut BrokerRegistrationChangeRecord<'static>),
) -> VersionedRecord<'static> {
    let mut record = BrokerRegistrationChangeRecord {
        broker_id: broker.id,
        broker_epoch: broker.epoch,
        ..BrokerRegistrationChangeRecord::default()
    };
    change(&mut record);
    VersionedRecord::new(MetadataRecord::BrokerRegistrationChange(record), version)
}

fn controller_record(registration: &ControllerRegistration) -> VersionedRecord<'static> {
    let end_points = registration.listeners.iter().cloned().map(|e| register_controller_record::ControllerEndpoint {
        name: e.name.into(),
        host: e.host.into(),
        port: e.port,
        security_protocol: e.security_protocol,
    });
    let features = features().iter().map(|f| register_controller_record::ControllerFeature {
        name: f.name.into(),
        min_supported_version: f.min,
        max_supported_version: f.max,
    });
    let record = RegisterControllerRecord {
        controller_id: registration.id,
        incarnation_id: registration.incarnation_id,
        zk_migration_ready: false,
        end_points: end_points.collect(),
        features: features.collect(),
    };
    VersionedRecord::new(MetadataRecord::RegisterController(record), 0)
}

/// The registration of a fenced broker, and what `change` makes of it.
fn broker_record(
    image: &Image,
    registration: &BrokerRegistration,
    broker_epoch: i64,
    change: impl FnOnce(&mut RegisterBrokerRecord<'static>),
) -> VersionedRecord<'static> {
    let version = image.features().metadata_version();
    let end_points = registration.listeners.iter().cloned().map(|e| register_broker_record::BrokerEndpoint {
        name: e.name.into(),
        host: e.host.into(),
        port: e.port,
        security_protocol: e.security_protocol,
    });
    let features = features().iter().map(|f| register_broker_record::BrokerFeature {
        name: f.name.into(),
        min_supported_version: f.min,
        max_supported_version: f.max,
    });
    let mut log_dirs = Vec::new();
    if version.supports_directories() {
        log_dirs.clone_from(&registration.directories);
        log_dirs.sort_unstable_by_key(Uuid::kafka_order);
    }
    let mut record = RegisterBrokerRecord {
        broker_id: registration.id,
        incarnation_id: registration.incarnation_id,
        broker_epoch,
        end_points: end_points.collect(),
        features: features.collect(),
        rack: registration.rack.clone().map(Into::into),
        fenced: true,
        log_dirs: log_dirs.into(),
        ..RegisterBrokerRecord::default()
    };
    change(&mut record);
    VersionedRecord::new(MetadataRecord::RegisterBroker(record), version.register_broker_record_version())
}
