//! The sequence numbers of one partition, for an idempotent producer: what is sent next, what the broker has, and how the
//! two are brought together again after something went wrong (KIP-360).

use milena_records::add_sequence;

/// Who a producer is for the brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) id: i64,
    pub(super) epoch: i16,
}

/// What must happen before the partition goes on, once nothing of it is on its way any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Repair {
    #[default]
    Nothing,
    /// Records were refused that others were to follow: these move up.
    Renumber,
    /// The broker's state is not known, or not what it should be: a new epoch begins at 0.
    NewEpoch,
}

#[derive(Debug, Default)]
pub(super) struct Sequences {
    identity: Option<Identity>,
    /// Of the next batch that has none yet.
    next: i32,
    /// What follows the last record that the broker has.
    expected: i32,
    repair: Repair,
    /// A batch was given up that the broker may have or not.
    in_doubt: bool,
}

impl Sequences {
    /// Gives a batch of so many records its place.
    pub(super) fn assign(&mut self, records: i32) -> i32 {
        let sequence = self.next;
        self.next = add_sequence(sequence, records);
        sequence
    }

    /// The identity that batches are sent with.
    pub(super) fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// The broker has a batch; `next` follows it.
    pub(super) fn written(&mut self, next: i32) {
        self.expected = next;
        self.in_doubt = false;
    }

    /// The broker has refused a batch for good.
    pub(super) fn refused(&mut self) {
        self.repair = self.repair.max(Repair::Renumber);
    }

    /// A batch that was sent is given up, and the broker may have it or not.
    pub(super) fn given_up(&mut self) {
        self.in_doubt = true;
    }

    /// The broker does not agree about the first batch that is on its way.
    pub(super) fn lost(&mut self) {
        self.repair = Repair::NewEpoch;
    }

    /// Whether a new epoch is needed: nothing of the partition is on its way, and nothing waits to be sent again if
    /// `is_idle`.
    pub(super) fn needs_epoch(&self, is_idle: bool) -> bool {
        // What moves up must not take the place of a batch that the broker may have.
        self.repair == Repair::NewEpoch || self.in_doubt && (is_idle || self.repair == Repair::Renumber)
    }

    /// Whether batches may go on as `current` while others are on their way.
    pub(super) fn are_sound(&self, current: Identity) -> bool {
        self.identity == Some(current) && self.repair == Repair::Nothing
    }

    /// Whether batches that wait must be numbered anew before they are sent again. Nothing of the partition is on its way.
    pub(super) fn needs_renumbering(&self, current: Identity) -> bool {
        self.repair != Repair::Nothing || self.identity != Some(current)
    }

    /// Goes on as `current`. What comes first is numbered by [`assign`](Self::assign) again.
    pub(super) fn restart(&mut self, current: Identity) {
        if self.identity != Some(current) {
            self.identity = Some(current);
            self.expected = 0;
        }
        self.next = self.expected;
        self.repair = Repair::Nothing;
        self.in_doubt = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Identity = Identity { id: 9, epoch: 0 };
    const SECOND: Identity = Identity { id: 9, epoch: 1 };

    fn started() -> Sequences {
        let mut sequences = Sequences::default();
        assert!(sequences.needs_renumbering(FIRST));
        sequences.restart(FIRST);
        sequences
    }

    #[test]
    fn refused_records_leave_no_gap() {
        let mut sequences = started();
        assert_eq!([sequences.assign(10), sequences.assign(5), sequences.assign(1)], [0, 10, 15]);
        sequences.written(10);
        sequences.refused();
        assert!(sequences.needs_renumbering(FIRST) && !sequences.needs_epoch(true));
        sequences.restart(FIRST);
        assert_eq!(sequences.assign(1), 10);
        assert!(!sequences.needs_renumbering(FIRST));
    }

    #[test]
    fn a_lost_state_begins_a_new_epoch_at_zero() {
        let mut sequences = started();
        sequences.assign(10);
        sequences.lost();
        assert!(sequences.needs_epoch(false));
        sequences.restart(SECOND);
        assert_eq!((sequences.assign(3), sequences.identity()), (0, Some(SECOND)));
        assert!(!sequences.needs_epoch(true));
    }

    #[test]
    fn a_doubt_is_settled_by_the_next_answer_or_else_by_a_new_epoch() {
        let mut sequences = started();
        sequences.assign(10);
        sequences.given_up();
        assert!(!sequences.needs_epoch(false) && sequences.needs_epoch(true));
        sequences.written(20);
        assert!(!sequences.needs_epoch(true));
    }

    #[test]
    fn sequences_begin_again_after_the_largest() {
        let mut sequences = started();
        sequences.written(i32::MAX);
        sequences.refused();
        sequences.restart(FIRST);
        assert_eq!([sequences.assign(2), sequences.assign(1)], [i32::MAX, 1]);
    }
}
