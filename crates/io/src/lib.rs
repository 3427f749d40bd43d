//! Disk, clock and randomness as traits: the real ones and simulated ones.
//!
//! What lives here: the contracts ([`Disk`], [`File`], [`Clock`], [`Rng`]), what production uses and what tests use in its place.
//! What does not: any knowledge of Kafka's files.

pub mod clock;
pub mod disk;
mod real;
pub mod rng;
mod sim;

pub use clock::{Clock, RealClock, SimClock};
pub use disk::{Disk, DiskLock, Entry, File, FileExt, Metadata, OpenMode, is_disk_failure, is_out_of_files};
pub use real::RealDisk;
pub use rng::{RealRng, Rng, SimRng};
pub use sim::{Fault, FaultKind, SimDisk, StepKind};
