//! What the tests of a whole server stand on: Apache Kafka or Milena started in a box, a client that sends any bytes,
//! a codec read from the message schemas at run time, and the table of cases both servers are asked.
//!
//! Nothing here uses the crates of the server, so that one mistake cannot hide on both sides of a comparison.

pub mod batch;
pub mod cache;
pub mod client;
pub mod differential;
pub mod hostile;
pub mod oracle;
pub mod ports;
pub mod server;
pub mod wire;

/// How many times as much as usual is tried: `MILENA_ROUNDS`, 1 without it.
#[must_use]
pub fn rounds() -> u64 {
    std::env::var("MILENA_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}
