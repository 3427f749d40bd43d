//! One file for each command.

pub mod log;
pub mod start;
pub mod storage;
