//! The start of a node, stage by stage.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use milena_config::BrokerConfig;
use milena_io::{Clock, Disk, RealClock, RealDisk, RealRng, Rng};
use milena_metadata::Image;
use milena_net::{BoundServer, Server};
use milena_protocol::Uuid;
use milena_quorum::{ControllerRegistration, MetadataLog, MetadataLogOptions, TopicDefaults};

use super::directories;
use super::{Broker, BrokerError, StartReport, registration};
use crate::auto_topics::AutoTopics;
use crate::cleaner::LogCleaner;
use crate::controller::Controller;
use crate::coordinators::Coordinators;
use crate::disk_threads::DiskThreads;
use crate::dispatch::Dispatch;
use crate::features::Registrations;
use crate::fetch_sessions::FetchSessions;
use crate::maintenance::Maintenance;
use crate::partition::TopicIdentity;
use crate::producer_ids::ProducerIds;
use crate::published::Published;
use crate::publisher::{Publisher, with_dynamic};
use crate::replica_directories::{self, topic_defaults};
use crate::replicas::Replicas;
use crate::services::{Live, Node, Services, Voting};
use crate::settings::{PartitionSettings, connection_limits, net_config};
use crate::storage::{OpenReport, Storage, Wanted};

/// How long a fetch session must be unused before a new one may take its place; Kafka has no setting for it either.
const SESSION_EVICTION: Duration = Duration::from_secs(120);

impl Broker {
    /// Starts a node. With `may_format`, missing and empty log directories are formatted as a quorum of one.
    ///
    /// # Errors
    /// [`BrokerError`]. Nothing was changed when the configuration, a listener or the directories are at fault.
    pub fn start(config: BrokerConfig, may_format: bool) -> Result<Self, BrokerError> {
        registration::check_supported(&config)?;
        let bound = Server::bind(net_config(&config))?;
        let (disk, clock): (Arc<dyn Disk>, Arc<dyn Clock>) = (Arc::new(RealDisk::new()), Arc::new(RealClock::new()));
        let (mut directories, formatted) = directories::prepare(&disk, &*clock, &config, may_format)?;
        let options = directories::metadata_options(&config, &directories);
        let usable = directories::in_order(&config, &mut directories);
        let storage = Storage::lock(Arc::clone(&disk), Arc::clone(&clock), usable, &options.metadata_dir)?;
        // First what fails without having changed anything.
        let log = match open_metadata(disk, options, clock.now_ms(), &storage) {
            Ok(log) => log,
            Err(error) => {
                storage.unlock();
                return Err(error);
            }
        };
        storage.take_clean_markers();
        storage.check()?;
        let storage = Arc::new(storage);
        let clean = storage.previous_broker_epoch() >= 0;
        let quorum = Registered::register(log, &*clock, &config, &bound, &storage)?;
        let config = with_dynamic(&config, quorum.log.image(), config.node_id());
        storage.cordon(config.list("cordoned.log.dirs"));
        let (replicas, found) = open_partitions(&config, quorum.log.image(), &storage)?;
        let report = StartReport { formatted, found, clean };
        let parts = Parts { config, clock, cluster_id: directories.cluster_id, storage, replicas, report };
        parts.run(bound, quorum)
    }
}

/// Opens the metadata log, unless it was lost: the partitions that are there are not to be set aside for that.
fn open_metadata(
    disk: Arc<dyn Disk>,
    options: MetadataLogOptions,
    now_ms: i64,
    storage: &Storage,
) -> Result<MetadataLog, BrokerError> {
    storage.check()?;
    let partition = storage.look()?;
    if milena_quorum::holds_no_metadata(&*disk, &options.metadata_dir)?
        && let Some(partition) = partition
    {
        return Err(BrokerError::MetadataLost { dir: options.metadata_dir, partition });
    }
    Ok(MetadataLog::open(disk, options, now_ms)?)
}

/// The metadata log of a registered broker, which is still fenced.
struct Registered {
    log: MetadataLog,
    epoch: i64,
    defaults: TopicDefaults,
    node: Registrations,
}

impl Registered {
    fn register(
        mut log: MetadataLog,
        clock: &dyn Clock,
        config: &BrokerConfig,
        bound: &BoundServer,
        storage: &Storage,
    ) -> Result<Self, BrokerError> {
        let defaults = topic_defaults(config);
        let incarnation_id = Uuid::random(|bytes| RealRng.fill(bytes));
        let controller = ControllerRegistration {
            id: config.node_id(),
            incarnation_id,
            listeners: registration::controller_endpoints(config),
        };
        log.register_controller(&controller, clock.now_ms())?;
        let broker = registration::broker(config, incarnation_id, &bound.local_addrs(), storage);
        let (epoch, _) = log.register_broker(&broker, defaults, clock.now_ms())?;
        Ok(Self { log, epoch, defaults, node: Registrations { controller, broker } })
    }
}

/// Opens the partitions that the metadata has on this node.
fn open_partitions(
    config: &BrokerConfig,
    image: &Image,
    storage: &Storage,
) -> Result<(Arc<Replicas>, OpenReport), BrokerError> {
    let mut wanted = Vec::new();
    for topic in image.topics().iter() {
        let identity = Arc::new(TopicIdentity { name: topic.name.to_string(), id: topic.id });
        let settings = PartitionSettings::of_topic(config, image, &topic.name);
        for (index, partition) in (0..).zip(&topic.partitions) {
            if partition.replicas.contains(&config.node_id()) {
                let (topic, settings) = (Arc::clone(&identity), Arc::clone(&settings));
                let directory = partition.directory_of(config.node_id()).unwrap_or(Uuid::ZERO);
                wanted.push(Wanted { topic, index, leader_epoch: partition.leader_epoch, settings, directory });
            }
        }
    }
    let per_directory = usize::try_from(config.num_recovery_threads_per_data_dir()).unwrap_or(1);
    let opened = storage.open_all(wanted, per_directory * storage.directories().len())?;
    storage.check()?;
    let replicas = Replicas::default();
    replicas.add(opened.partitions);
    replicas.add_offline(opened.offline);
    storage.forget_deleted(&replicas);
    Ok((Arc::new(replicas), opened.found))
}

/// Everything that stands before the node serves.
struct Parts {
    config: BrokerConfig,
    clock: Arc<dyn Clock>,
    cluster_id: String,
    storage: Arc<Storage>,
    replicas: Arc<Replicas>,
    report: StartReport,
}

impl Parts {
    /// Becomes leader and serves.
    fn run(self, bound: BoundServer, quorum: Registered) -> Result<Broker, BrokerError> {
        let Self { config, clock, cluster_id, storage, replicas, report } = self;
        let Registered { mut log, epoch, defaults, node } = quorum;
        let node_id = config.node_id();
        let flusher = storage.flusher();
        let readers = DiskThreads::new("reader", 1);
        let (delay_ms, interval_ms) = (config.log_initial_task_delay_ms(), config.log_flush_scheduler_interval_ms());
        let flush_timer =
            flusher.start_timer(delay_ms, interval_ms, storage.failures()).map_err(BrokerError::Thread)?;
        let slots = usize::try_from(config.max_incremental_fetch_session_cache_slots()).unwrap_or(0);
        let image = Published::from(Image::clone(log.image()));
        let live = Arc::new(Live {
            image: ArcSwap::from_pointee(image),
            config: ArcSwap::from_pointee(config),
            voting: ArcSwap::from_pointee(Voting::of(&log)),
        });
        let coordinators = Arc::new(Coordinators::new(Arc::clone(&live), Arc::clone(&clock), Arc::clone(&replicas)));
        let publisher = Publisher {
            node_id,
            live: Arc::clone(&live),
            replicas: Arc::clone(&replicas),
            storage: Arc::clone(&storage),
            coordinators: Arc::clone(&coordinators),
            readers: readers.clone(),
            connections: bound.limits(),
        };
        publisher.set_io_threads(&publisher.live.config.load());
        publisher.connections.limit(connection_limits(&publisher.live.config.load()));
        let cordoned = storage.take_cordoned();
        publisher.follow(log.unfence_broker(node_id, &cordoned, defaults, clock.now_ms())?);
        publisher.follow(log.report_recovered(node_id, clock.now_ms())?);
        replica_directories::tell(&mut log, &publisher, clock.now_ms());
        storage.check()?;
        storage.resume_moves(&replicas);
        coordinators.follow(&replicas.topics(), &live.image.load());
        let coordinator_thread = coordinators.start(storage.failures()).map_err(BrokerError::Thread)?;
        let (controller, handle) = Controller::start(log, Arc::clone(&live), publisher, node, Arc::clone(&clock))
            .map_err(BrokerError::Thread)?;
        let maintenance =
            Maintenance::start(Arc::clone(&storage), Arc::clone(&replicas), Arc::clone(&live), handle.clone())
                .map_err(BrokerError::Thread)?;
        let looks = handle.clone();
        storage.mover().on_caught_up(move || {
            looks.try_change(|_| Vec::new());
        });
        let cleaner = LogCleaner::start(Arc::clone(&storage), Arc::clone(&replicas), Arc::clone(&live))
            .map_err(BrokerError::Thread)?;
        let services = Services {
            replicas: Arc::clone(&replicas),
            live,
            controller: handle,
            auto_topics: AutoTopics::default(),
            maintenance: maintenance.handle(),
            coordinators: Arc::clone(&coordinators),
            fetch_sessions: FetchSessions::new(slots, SESSION_EVICTION),
            clock: Arc::clone(&clock),
            storage: Arc::clone(&storage),
            node: Node { id: node_id, cluster_id },
            producer_ids: ProducerIds::default(),
            readers: readers.clone(),
        };
        let services = Arc::new(services);
        coordinators.markers().take_producer_ids_from(&services);
        let server = bound.start(Arc::new(Dispatch::new(services)))?;
        Ok(Broker {
            server,
            readers,
            controller,
            maintenance,
            coordinators: coordinator_thread,
            cleaner,
            flush_timer,
            replicas,
            storage,
            clock,
            node_id,
            epoch,
            defaults,
            report,
        })
    }
}
