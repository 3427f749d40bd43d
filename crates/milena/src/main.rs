//! The `milena` command.

fn main() {}
