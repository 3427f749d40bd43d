//! The steps of the test command, the oracle and the benches.

fn main() {}
