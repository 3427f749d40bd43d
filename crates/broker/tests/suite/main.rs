//! Tests of a whole broker inside the test's own process, over real connections: no other program is needed.

#[path = "../common/mod.rs"]
mod common;

mod cases;
mod readme;
