//! The KRaft quorum as a state machine: events in, effects out.
//!
//! No clock, no disk, no network: a driver executes the effects in order and reports back. Elections of a quorum with one
//! voter are complete; the states, the persisted election and the voter set are those of Kafka, so that votes and fetches
//! of other voters are further events of the same machine.

mod election;
mod engine;
mod voters;

pub use election::{ElectionState, ElectionStateError};
pub use engine::{Effect, Event, Quorum, State};
pub use voters::{ReplicaKey, Voter, VoterEndpoint, VoterSet};
