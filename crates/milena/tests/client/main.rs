//! The client against a broker inside this process, or against the one that `MILENA_TEST_BOOTSTRAP` names.

#![allow(unreachable_pub)] // Nothing of a test is reachable; `pub` says what a module offers to the others.

mod cluster;
mod common;
mod consumer;
mod groups;
mod producer;
mod read;
mod transactions;
