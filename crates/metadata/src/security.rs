//! Access control entries, SCRAM credentials and delegation tokens as recorded.

use std::fmt;
use std::sync::Arc;

use milena_protocol::Uuid;
use rpds::RedBlackTreeMapSync;

/// One access control entry; the numbers are Kafka's ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// What is protected: 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user.
    pub resource_type: i8,
    /// Its name, or a prefix of it.
    pub resource_name: String,
    /// 3 literal, 4 prefixed.
    pub pattern_type: i8,
    /// Who, such as `User:alice`.
    pub principal: String,
    /// From where; `*` is anywhere.
    pub host: String,
    /// What is done.
    pub operation: i8,
    /// 2 deny, 3 allow.
    pub permission_type: i8,
}

/// All access control entries by id. A clone shares everything with its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acls {
    pub(crate) entries: RedBlackTreeMapSync<Uuid, Arc<Acl>>,
}

impl Acls {
    /// One entry.
    pub fn get(&self, id: Uuid) -> Option<&Arc<Acl>> {
        self.entries.get(&id)
    }

    /// All entries, ascending by id.
    pub fn iter(&self) -> impl Iterator<Item = (Uuid, &Arc<Acl>)> {
        self.entries.iter().map(|(id, acl)| (*id, acl))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.size()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// What a server keeps of a SCRAM password.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramCredential {
    /// Random salt.
    pub salt: Vec<u8>,
    /// Hash of the client key.
    pub stored_key: Vec<u8>,
    /// Key for the server's signature.
    pub server_key: Vec<u8>,
    /// PBKDF2 rounds.
    pub iterations: i32,
}

impl fmt::Debug for ScramCredential {
    /// Keys never reach a log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramCredential").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

/// All SCRAM credentials, by mechanism (1 SCRAM-SHA-256, 2 SCRAM-SHA-512) and user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScramCredentials {
    pub(crate) entries: RedBlackTreeMapSync<(i8, String), Arc<ScramCredential>>,
}

impl ScramCredentials {
    /// One user's credential of one mechanism.
    pub fn get(&self, mechanism: i8, user: &str) -> Option<&Arc<ScramCredential>> {
        self.entries.get(&(mechanism, user.to_owned()))
    }

    /// All credentials, ascending by mechanism, then user.
    pub fn iter(&self) -> impl Iterator<Item = (i8, &str, &Arc<ScramCredential>)> {
        self.entries.iter().map(|((mechanism, user), credential)| (*mechanism, user.as_str(), credential))
    }
}

/// A delegation token; its secret is derived, not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegationToken {
    /// Principal the token stands for.
    pub owner: String,
    /// Principal that asked for it.
    pub requester: String,
    /// Principals that may renew it.
    pub renewers: Vec<String>,
    /// When it was made, milliseconds since 1970.
    pub issue_timestamp: i64,
    /// Until when it can be renewed, milliseconds since 1970.
    pub max_timestamp: i64,
    /// When it expires unless renewed, milliseconds since 1970.
    pub expiration_timestamp: i64,
}

/// All delegation tokens by token id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelegationTokens {
    pub(crate) entries: RedBlackTreeMapSync<String, Arc<DelegationToken>>,
}

impl DelegationTokens {
    /// One token.
    pub fn get(&self, id: &str) -> Option<&Arc<DelegationToken>> {
        self.entries.get(id)
    }

    /// All tokens, ascending by id.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<DelegationToken>)> {
        self.entries.iter().map(|(id, token)| (id.as_str(), token))
    }
}
