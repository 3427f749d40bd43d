//! The broker: API registry, handlers, partitions, wiring.
