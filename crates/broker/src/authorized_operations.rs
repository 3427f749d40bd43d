//! What a client may do, as sets of operations. Nothing is authorized here: without an authorizer everybody may do
//! everything, and is told so.

/// Said when the client did not ask.
pub const NOT_ASKED: i32 = i32::MIN;
/// Everything that can be done with a topic.
const TOPIC: i32 = 3576;
/// Everything that can be done with the cluster.
const CLUSTER: i32 = 8096;

/// Everything that can be done with a group.
const GROUP: i32 = 3400;

/// What the client may do with a group, if it asked.
pub fn group(asked: bool) -> i32 {
    if asked { GROUP } else { NOT_ASKED }
}

/// What the client may do with a topic, if it asked.
pub fn topic(asked: bool) -> i32 {
    if asked { TOPIC } else { NOT_ASKED }
}

/// What the client may do with the cluster, if it asked.
pub fn cluster(asked: bool) -> i32 {
    if asked { CLUSTER } else { NOT_ASKED }
}
