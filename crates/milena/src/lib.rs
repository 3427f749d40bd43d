//! What programs use of Milena besides its command: [`testing`], a broker inside a test.

/// A broker inside a test.
pub mod testing;
