//! A member of a classic group.

use std::sync::Arc;

use milena_protocol::messages::join_group_request::JoinGroupRequestProtocol;

use crate::engine::Ticket;

/// A member.
#[derive(Debug)]
pub(in crate::group) struct Member {
    pub(in crate::group) id: Arc<str>,
    /// The name of a static member.
    pub(in crate::group) instance: Option<String>,
    pub(in crate::group) client_id: String,
    /// The address it came from, as Kafka writes it.
    pub(in crate::group) client_host: String,
    pub(in crate::group) rebalance_timeout_ms: i32,
    pub(in crate::group) session_timeout_ms: i32,
    pub(in crate::group) protocol_type: String,
    pub(in crate::group) protocols: Protocols,
    pub(in crate::group) assignment: Vec<u8>,
    /// Its JoinGroup that waits.
    pub(in crate::group) join: Option<Ticket>,
    /// Its SyncGroup that waits.
    pub(in crate::group) sync: Option<Ticket>,
    /// It was in no generation yet.
    pub(in crate::group) is_new: bool,
}

impl Member {
    /// Whether it need not be heard of: it waits for us. A new one does not know its id, so waiting proves nothing.
    pub(in crate::group) fn is_excused(&self) -> bool {
        !self.is_new && (self.join.is_some() || self.sync.is_some())
    }
}

/// The protocols of a member in the order of its preference, each with its metadata.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::group) struct Protocols(Arc<[(String, Vec<u8>)]>);

impl Protocols {
    /// Those of a request; the first of a name counts.
    pub(in crate::group) fn of(protocols: &[JoinGroupRequestProtocol<'_>]) -> Self {
        let mut kept: Vec<(String, Vec<u8>)> = Vec::with_capacity(protocols.len());
        let mut names = std::collections::BTreeSet::new();
        for protocol in protocols {
            if names.insert(&*protocol.name) {
                kept.push((protocol.name.to_string(), protocol.metadata.to_vec()));
            }
        }
        Self(kept.into())
    }

    /// The only one that a record keeps.
    pub(super) fn only(name: &str, metadata: &[u8]) -> Self {
        Self([(name.to_owned(), metadata.to_vec())].into())
    }

    /// Those of pairs of names and metadata.
    pub(in crate::group) fn pairs(pairs: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        Self(pairs.into_iter().collect())
    }

    /// The names with their metadata.
    pub(in crate::group) fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, metadata)| (&**name, &**metadata))
    }

    /// Their names.
    pub(in crate::group) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }

    /// What belongs to a protocol.
    pub(in crate::group) fn metadata(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, metadata)| &**metadata)
    }
}
