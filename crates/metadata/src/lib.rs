//! The metadata image: replay of metadata records, deltas, snapshots.
