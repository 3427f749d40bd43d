//! Drives the quorum over a directory: metadata log, snapshots, quorum state, formatting.
