//! Disk, clock and randomness as traits: the real ones and simulated ones.
