//! The broker: API registry, handlers, partitions, wiring.

pub mod authorized_operations;
pub mod auto_topics;
pub mod broker;
pub mod cleaner;
pub mod cluster_view;
pub mod controller;
pub mod coordinators;
pub mod decided;
pub mod disk_threads;
pub mod dispatch;
pub mod features;
pub mod fetch_sessions;
pub mod flusher;
pub mod handlers;
pub mod maintenance;
pub mod mover;
pub mod partition;
pub mod producer_ids;
pub mod published;
pub mod publisher;
pub mod purgatory;
pub mod registry;
pub mod replica_directories;
pub mod replicas;
pub mod request;
pub mod retention;
pub mod services;
pub mod session;
pub mod settings;
pub mod storage;
mod vital;

#[cfg(test)]
mod test_image;
#[cfg(test)]
mod test_partitions;
