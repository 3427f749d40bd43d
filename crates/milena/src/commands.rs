//! One file for each command.

pub mod start;
pub mod storage;
