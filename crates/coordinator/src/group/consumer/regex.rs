//! Subscriptions by regular expression: which topics an expression stands for is looked up by the coordinator and kept in
//! a record.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::member::Member;
use super::{ConsumerGroup, Metadata, Resolved, Writing};
use crate::expression::whole_match;
use crate::group::{After, GroupCx, Groups};

/// Expressions are looked up again at most this often, ms.
const MIN_INTERVAL_MS: i64 = 10_000;

/// Checks an expression.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(expression: &str) -> Result<(), String> {
    whole_match(expression)
        .map(drop)
        .map_err(|error| format!("SubscribedTopicRegex `{expression}` is not a valid regular expression: {error}."))
}

/// Whether the expressions of a group are to be looked up after a heartbeat of `member`: because there are others than
/// those that were, or because there may be other topics by now.
pub(super) fn is_due(
    group: &ConsumerGroup,
    member: &Member,
    gone: &[Arc<str>],
    metadata: &dyn Metadata,
    now_ms: i64,
) -> bool {
    let last = group.regexes.values().next();
    // Under a clock that was set back nobody waits.
    if last.is_some_and(|last| (last.timestamp..=last.timestamp.saturating_add(MIN_INTERVAL_MS)).contains(&now_ms)) {
        return false;
    }
    let expressions = group.members_with(Some(member), gone).map(|member| &member.regex);
    let expressions: BTreeSet<_> = expressions.filter(|expression| !expression.is_empty()).collect();
    let is_old = || last.is_none_or(|last| last.version < metadata.version());
    !expressions.is_empty() && (expressions.len() != group.regexes.len() || is_old())
}

impl Groups {
    /// Looks all expressions of a group up, and begins a new epoch when one of them stands for other topics than before.
    pub(super) fn resolve(&mut self, id: &Arc<str>, cx: &mut GroupCx<'_, '_>) {
        let Some(group) = self.consumers.get(id) else { return };
        let metadata = Arc::clone(&cx.settings().metadata);
        let names = metadata.names();
        let mut records = cx.records();
        let mut writing = Writing { group: id, records: &mut records };
        let mut resolved = ConsumerGroup::default();
        let mut differ = false;
        let expressions: BTreeSet<_> = group.members.values().map(|member| &member.regex).collect();
        for expression in expressions.into_iter().filter(|expression| !expression.is_empty()) {
            // Every expression was checked when it came in; one of another release may stand for nothing here.
            let matches = whole_match(expression).ok();
            let matches = |name: &&String| matches.as_ref().is_some_and(|matches| matches(name));
            let topics: BTreeSet<_> = names.iter().filter(matches).cloned().collect();
            // One that was not looked up stands for nothing.
            differ |= group.regexes.get(expression).map_or(!topics.is_empty(), |known| known.topics != topics);
            let found = Resolved { topics, version: metadata.version(), timestamp: cx.now().wall_ms };
            writing.regex(expression, &found);
            resolved.regexes.insert(expression.clone(), found);
        }
        for gone in group.regexes.keys().filter(|known| !resolved.regexes.contains_key(*known)) {
            writing.remove_regex(gone);
        }
        let hash = resolved.hash_of(group.members.values(), &*metadata);
        if differ || hash != group.metadata_hash {
            writing.epoch(group.epoch + 1, hash);
        }
        if !records.is_empty() {
            cx.write(records, After::Nothing);
        }
    }
}
