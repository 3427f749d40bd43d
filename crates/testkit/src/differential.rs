//! The same questions to Apache Kafka and to Milena. A case is an id, a sentence and an outcome that was recorded from
//! Apache Kafka (`data/oracle-cases.jsonl.gz`); the code in `areas` knows from the id what to send, or the
//! case says so itself (`steps`). [`requests`] is a
//! second table, of single requests, whose outcomes are only compared between the servers.

mod areas;
pub mod cases;
mod context;
mod differences;
mod normalise;
pub mod requests;
pub mod runner;
mod spec;
mod steps;
