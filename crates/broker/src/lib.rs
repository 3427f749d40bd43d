//! The broker: API registry, handlers, partitions, wiring.

/// What a client may do, as sets of operations.
pub mod authorized_operations;
/// Topics that come into being because somebody asks for them.
pub mod auto_topics;
/// A node from start to stop.
pub mod broker;
/// The threads that compact logs.
pub mod cleaner;
/// The cluster as a client of one listener sees it.
pub mod cluster_view;
/// The thread that owns the metadata log.
pub mod controller;
/// The coordinators of groups and transactions that are hosted here.
pub mod coordinators;
/// Requests that the controller decides.
pub mod decided;
/// Threads for what may wait for the disk.
pub mod disk_threads;
/// From frames to handlers.
pub mod dispatch;
/// What follows when levels of features go up.
pub mod features;
/// What clients fetch, kept between their requests.
pub mod fetch_sessions;
/// Who makes logs durable while the broker runs.
pub mod flusher;
/// One file for each API.
pub mod handlers;
/// Checkpoints, retention and deletions, on the side.
pub mod maintenance;
/// Who copies logs to other log directories.
pub mod mover;
/// One partition that this broker hosts.
pub mod partition;
/// Ids for producers, from blocks that the controller gives out.
pub mod producer_ids;
/// The metadata image as requests see it.
pub mod published;
/// Makes the partitions hosted here, and dynamic settings, follow the metadata.
pub mod publisher;
/// Requests that wait for a partition to change.
pub mod purgatory;
/// The one table of APIs.
pub mod registry;
/// Tells the metadata what becomes of log directories.
pub mod replica_directories;
/// The partitions hosted here, by topic.
pub mod replicas;
/// A request as handlers meet it.
pub mod request;
/// Removal of the segments that are due.
pub mod retention;
/// What handlers may ask for.
pub mod services;
/// What is remembered of a connection.
pub mod session;
/// From configuration to what the lower layers take.
pub mod settings;
/// The log directories: where partitions are put, opened, checkpointed and deleted.
pub mod storage;
/// Threads that a node can't go on without.
mod vital;

#[cfg(test)]
mod test_image;
#[cfg(test)]
mod test_partitions;
