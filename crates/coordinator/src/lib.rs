//! Coordinators: state machines that each live on one partition of an internal topic. Pure: no clock, no file, no random
//! number that was not handed in; records to write and answers to give come out.
//!
//! | module | what lives there |
//! |---|---|
//! | `engine` | what a state machine must be able to do, and what it may do meanwhile |
//! | `runtime` | runs one: writes in order, answers what is committed, timers |
//! | `load` | builds the state from the partition's log |
//! | `records` | records of a write, as keys and values of batches |
//! | `timers` | deadlines by name |
//! | `expression` | regular expressions of clients |
//! | `partition` | which partition a key belongs to |
//! | `group` | the state machine of `__consumer_offsets`: groups and their offsets |
//! | `transaction` | the state machine of `__transaction_state`: transactional ids and their transactions |

mod engine;
mod expression;
pub mod group;
mod load;
mod partition;
mod records;
mod runtime;
#[cfg(test)]
mod test_log;
mod timers;
pub mod transaction;

pub use engine::{Cx, Engine, Input, Now, Replayed, Ticket};
pub use expression::whole_match;
pub use load::{LoadError, Loader};
pub use partition::partition_for;
pub use records::Records;
pub use runtime::{Runtime, coordinator_error};
pub use timers::Timers;
