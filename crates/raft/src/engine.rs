//! The state machine of one replica. It decides about epochs, votes, leadership and the high watermark; writing the
//! election to disk and records to the log is the driver's work.

use crate::election::ElectionState;
use crate::voters::{ReplicaKey, VoterSet};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The replica starts. `stored` is what the file `quorum-state` says, `log_epoch` the epoch of the last record in the
    /// log or its newest snapshot.
    Start {
        /// The stored election; `None` without a file.
        stored: Option<ElectionState>,
        /// Epoch at the log's end, 0 when it is empty.
        log_epoch: i32,
    },
    /// The election of the last [`Effect::Persist`] is on disk.
    Persisted {
        /// Log end offset at this moment: where a new leader's epoch begins.
        log_end_offset: i64,
    },
    /// Everything below this offset is on disk.
    Flushed {
        /// Log end offset, exclusive.
        end_offset: i64,
    },
    /// This replica shall lead no longer.
    Resign,
}

/// What the driver must do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write the election to disk and report [`Event::Persisted`]. Nothing else may be done before that.
    Persist(ElectionState),
    /// This replica leads. The first thing appended in the epoch is a control batch with a LeaderChange of these voters.
    Lead {
        /// The epoch, which every batch carries.
        epoch: i32,
        /// Ids of all voters.
        voters: Vec<i32>,
        /// Ids of those that voted for this replica.
        granting_voters: Vec<i32>,
    },
    /// Everything below this offset is committed.
    AdvanceHighWatermark(i64),
    /// Leadership has ended; nothing may be appended any more.
    StopLeading,
}

/// The states of a replica, named as in Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Knows an epoch, but no leader.
    Unattached {
        /// Known epoch.
        epoch: i32,
    },
    /// Asks for votes, its own included.
    Candidate {
        /// The epoch it wants to lead.
        epoch: i32,
    },
    /// Leads.
    Leader {
        /// The epoch it leads.
        epoch: i32,
        /// Offset of the epoch's first record; `None` until the election is on disk.
        epoch_start_offset: Option<i64>,
        /// Everything below is committed; `None` until a record of this epoch is.
        high_watermark: Option<i64>,
    },
    /// Led and leads no longer, or led before it was restarted.
    Resigned {
        /// The epoch it led.
        epoch: i32,
    },
}

impl State {
    /// The epoch of the state.
    pub fn epoch(&self) -> i32 {
        match *self {
            Self::Unattached { epoch }
            | Self::Candidate { epoch }
            | Self::Leader { epoch, .. }
            | Self::Resigned { epoch } => epoch,
        }
    }
}

/// One replica of the quorum.
#[derive(Clone, Debug)]
pub struct Quorum {
    local: ReplicaKey,
    voters: VoterSet,
    state: State,
}

impl Quorum {
    /// A replica that has not started.
    pub fn new(local: ReplicaKey, voters: VoterSet) -> Self {
        Self { local, voters, state: State::Unattached { epoch: 0 } }
    }

    /// The current state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The voters.
    pub fn voters(&self) -> &VoterSet {
        &self.voters
    }

    /// Others vote from now on.
    ///
    /// # Panics
    /// When this replica would not be one of them.
    pub fn change_voters(&mut self, voters: VoterSet) {
        assert!(voters.contains(self.local), "{:?} is none of {voters:?}", self.local);
        self.voters = voters;
    }

    /// The committed end of the log, if this replica leads and knows it.
    pub fn high_watermark(&self) -> Option<i64> {
        match self.state {
            State::Leader { high_watermark, .. } => high_watermark,
            _ => None,
        }
    }

    /// Takes an event and says what must be done.
    ///
    /// # Panics
    /// When an event cannot happen in the current state: the driver and the machine disagree.
    pub fn on(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Start { stored, log_epoch } => self.start(stored, log_epoch),
            Event::Persisted { log_end_offset } => self.persisted(log_end_offset),
            Event::Flushed { end_offset } => self.flushed(end_offset),
            Event::Resign => self.resign(),
        }
    }

    fn start(&mut self, stored: Option<ElectionState>, log_epoch: i32) -> Vec<Effect> {
        let stored = stored.unwrap_or_default();
        self.state = if stored.epoch < log_epoch {
            // The file lost a write that the log proves; nobody can have voted since in an epoch this replica knows.
            State::Unattached { epoch: log_epoch }
        } else if stored.leader_id == Some(self.local.id) {
            // A restarted leader never goes on leading its epoch.
            State::Resigned { epoch: stored.epoch }
        } else {
            State::Unattached { epoch: stored.epoch }
        };
        if self.voters.is_only_voter(self.local) { self.stand() } else { Vec::new() }
    }

    /// Becomes a candidate in the next epoch. The vote for itself must be on disk before it counts.
    fn stand(&mut self) -> Vec<Effect> {
        let epoch = self.state.epoch().checked_add(1).expect("2^31 elections take longer than any machine lives");
        self.state = State::Candidate { epoch };
        vec![Effect::Persist(ElectionState { epoch, leader_id: None, voted: Some(self.local) })]
    }

    fn persisted(&mut self, log_end_offset: i64) -> Vec<Effect> {
        match self.state {
            State::Candidate { epoch } if self.voters.is_only_voter(self.local) => {
                self.state = State::Leader { epoch, epoch_start_offset: None, high_watermark: None };
                let election = ElectionState { epoch, leader_id: Some(self.local.id), voted: None };
                vec![Effect::Persist(election)]
            }
            State::Leader { epoch, epoch_start_offset: None, .. } => {
                self.state = State::Leader { epoch, epoch_start_offset: Some(log_end_offset), high_watermark: None };
                let voters: Vec<i32> = self.voters.iter().map(|v| v.key.id).collect();
                vec![Effect::Lead { epoch, voters, granting_voters: vec![self.local.id] }]
            }
            state => panic!("an election was persisted in state {state:?}, which persists none"),
        }
    }

    /// The sole voter has all of the log that is on disk, so that is what is committed; but only once a record of its own
    /// epoch is among it.
    fn flushed(&mut self, end_offset: i64) -> Vec<Effect> {
        let State::Leader { epoch_start_offset: Some(start), ref mut high_watermark, .. } = self.state else {
            return Vec::new();
        };
        if end_offset <= start || high_watermark.is_some_and(|hw| hw >= end_offset) {
            return Vec::new();
        }
        *high_watermark = Some(end_offset);
        vec![Effect::AdvanceHighWatermark(end_offset)]
    }

    fn resign(&mut self) -> Vec<Effect> {
        match self.state {
            State::Leader { epoch, .. } => {
                self.state = State::Resigned { epoch };
                vec![Effect::StopLeading]
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voters::Voter;
    use milena_protocol::Uuid;

    fn quorum(ids: &[i32]) -> Quorum {
        let key = |id| ReplicaKey { id, directory_id: Uuid::ZERO };
        let voter = |id: &i32| Voter { key: key(*id), endpoints: vec![], kraft_versions: (0, 1) };
        Quorum::new(key(1), VoterSet::new(ids.iter().map(voter)))
    }

    fn local() -> ReplicaKey {
        ReplicaKey { id: 1, directory_id: Uuid::ZERO }
    }

    #[test]
    fn a_sole_voter_votes_for_itself_on_disk_before_it_leads() {
        let mut q = quorum(&[1]);
        let effects = q.on(Event::Start { stored: None, log_epoch: 0 });
        let vote = ElectionState { epoch: 1, leader_id: None, voted: Some(local()) };
        assert_eq!(effects, [Effect::Persist(vote)]);
        let leads = ElectionState { epoch: 1, leader_id: Some(1), voted: None };
        assert_eq!(q.on(Event::Persisted { log_end_offset: 0 }), [Effect::Persist(leads)]);
        let lead = Effect::Lead { epoch: 1, voters: vec![1], granting_voters: vec![1] };
        assert_eq!(q.on(Event::Persisted { log_end_offset: 0 }), [lead]);
    }

    fn leader(stored: ElectionState, log_end_offset: i64) -> Quorum {
        let mut q = quorum(&[1]);
        q.on(Event::Start { stored: Some(stored), log_epoch: stored.epoch });
        q.on(Event::Persisted { log_end_offset });
        q.on(Event::Persisted { log_end_offset });
        q
    }

    #[test]
    fn a_restarted_leader_leads_the_next_epoch() {
        let mut q = quorum(&[1]);
        let stored = ElectionState { epoch: 4, leader_id: Some(1), voted: None };
        let effects = q.on(Event::Start { stored: Some(stored), log_epoch: 4 });
        let vote = ElectionState { epoch: 5, leader_id: None, voted: Some(local()) };
        assert_eq!(effects, [Effect::Persist(vote)]);
    }

    #[test]
    fn a_crash_after_the_vote_costs_one_epoch() {
        let stored = ElectionState { epoch: 5, leader_id: None, voted: Some(local()) };
        assert_eq!(leader(stored, 10).state().epoch(), 6);
    }

    #[test]
    fn the_log_can_know_a_later_epoch_than_a_lost_quorum_state() {
        let mut q = quorum(&[1]);
        let effects = q.on(Event::Start { stored: None, log_epoch: 9 });
        assert!(matches!(effects[..], [Effect::Persist(ElectionState { epoch: 10, .. })]));
    }

    #[test]
    fn nothing_is_committed_before_a_record_of_the_leaders_own_epoch() {
        let mut q = leader(ElectionState { epoch: 1, leader_id: Some(1), voted: None }, 20);
        assert_eq!(q.on(Event::Flushed { end_offset: 20 }), []);
        assert_eq!(q.high_watermark(), None);
        assert_eq!(q.on(Event::Flushed { end_offset: 21 }), [Effect::AdvanceHighWatermark(21)]);
        assert_eq!(q.on(Event::Flushed { end_offset: 21 }), []);
        assert_eq!(q.high_watermark(), Some(21));
    }

    #[test]
    fn a_resigned_leader_commits_nothing() {
        let mut q = leader(ElectionState::default(), 0);
        assert_eq!(q.on(Event::Resign), [Effect::StopLeading]);
        assert_eq!(q.on(Event::Flushed { end_offset: 5 }), []);
        assert_eq!(q.on(Event::Resign), []);
    }

    #[test]
    fn one_voter_of_three_and_a_node_outside_the_voters_stay_unattached() {
        for ids in [&[1, 2, 3][..], &[2], &[]] {
            let mut q = quorum(ids);
            assert_eq!(q.on(Event::Start { stored: None, log_epoch: 3 }), []);
            assert_eq!(q.state(), State::Unattached { epoch: 3 });
        }
    }

    #[test]
    fn a_voter_of_another_directory_is_another_voter() {
        let directory_id = "VUK78uoJyllVz-GqkcCBCA".parse().unwrap();
        let key = ReplicaKey { id: 1, directory_id };
        let voters = VoterSet::new([Voter { key, endpoints: vec![], kraft_versions: (0, 1) }]);
        assert!(voters.is_only_voter(key));
        assert!(!voters.is_only_voter(local()));
    }
}
