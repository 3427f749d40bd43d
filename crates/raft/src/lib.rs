//! The KRaft quorum as a state machine.
