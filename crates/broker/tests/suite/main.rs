//! Tests of a whole broker inside the test's own process, over real connections: no other program is needed.
#![allow(unreachable_pub, reason = "a test has no public surface; `pub` says what a module offers to the others")]

#[path = "../common/mod.rs"]
mod common;

mod cases;
mod compaction;
mod connections;
mod damage;
mod deletion;
mod directories;
mod faults;
mod flush;
mod groups;
mod live_settings;
mod process;
mod producers;
mod readme;
mod record_rules;
mod restart;
mod scale;
mod start;
mod topics;
mod transactions;
mod transcripts;
mod versions;
