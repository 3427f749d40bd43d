//! Who votes.

use std::fmt;

use milena_protocol::Uuid;

/// A replica of the metadata log: a node and its metadata directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaKey {
    /// The node id.
    pub id: i32,
    /// Id of the directory with the log; zero when unknown, as for voters named in the static configuration.
    pub directory_id: Uuid,
}

impl fmt::Display for ReplicaKey {
    /// As Kafka names a replica in its messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, directory_id } = self;
        if directory_id.is_zero() {
            return write!(f, "ReplicaKey(id={id}, directoryId=<undefined>)");
        }
        write!(f, "ReplicaKey(id={id}, directoryId={directory_id})")
    }
}

/// Where a voter's controller listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoterEndpoint {
    /// Name of the listener.
    pub name: String,
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// One voter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voter {
    /// Its key; a zero directory id matches any directory.
    pub key: ReplicaKey,
    /// Its listeners.
    pub endpoints: Vec<VoterEndpoint>,
    /// Lowest and highest `kraft.version` it supports.
    pub kraft_versions: (i16, i16),
}

/// The voters, ascending by id and each id once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VoterSet {
    voters: Vec<Voter>,
}

impl VoterSet {
    /// A set of these voters; of two with one id the later one counts.
    pub fn new(voters: impl IntoIterator<Item = Voter>) -> Self {
        let mut set: Vec<Voter> = Vec::new();
        for voter in voters {
            match set.binary_search_by_key(&voter.key.id, |v| v.key.id) {
                Ok(at) => set[at] = voter,
                Err(at) => set.insert(at, voter),
            }
        }
        Self { voters: set }
    }

    /// The voters, ascending by id.
    pub fn iter(&self) -> impl Iterator<Item = &Voter> {
        self.voters.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.voters.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.voters.is_empty()
    }

    /// Whether a replica may vote.
    pub fn contains(&self, key: ReplicaKey) -> bool {
        let matches = |v: &Voter| v.key.directory_id.is_zero() || v.key.directory_id == key.directory_id;
        self.voters.iter().any(|v| v.key.id == key.id && matches(v))
    }

    /// Whether a replica is the only one that votes.
    pub fn is_only_voter(&self, key: ReplicaKey) -> bool {
        self.voters.len() == 1 && self.contains(key)
    }
}
