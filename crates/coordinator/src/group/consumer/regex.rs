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

/// Whether the expressions of a group are to be looked up: because `member` has a new one, or because there may be other
/// topics by now.
pub(super) fn is_due(group: &ConsumerGroup, member: &Member, metadata: &dyn Metadata, now_ms: i64) -> bool {
    if !member.regex.is_empty() && !group.regexes.contains_key(&member.regex) {
        return true;
    }
    let is_old = |(version, at)| now_ms >= at + MIN_INTERVAL_MS && version < metadata.version();
    !group.regexes.is_empty() && group.looked_up.is_none_or(is_old)
}

impl Groups {
    /// Looks all expressions of a group up, and begins a new epoch when one of them stands for other topics than before.
    pub(super) fn resolve(&mut self, id: &Arc<str>, cx: &mut GroupCx<'_, '_>) {
        let Some(group) = self.consumers.get_mut(id) else { return };
        let metadata = Arc::clone(&cx.settings().metadata);
        group.looked_up = Some((metadata.version(), cx.now().wall_ms));
        let names = metadata.names();
        let mut records = cx.records();
        let mut writing = Writing { group: id, records: &mut records };
        let mut resolved = ConsumerGroup::default();
        let expressions: BTreeSet<_> = group.members.values().map(|member| &member.regex).collect();
        for expression in expressions.into_iter().filter(|expression| !expression.is_empty()) {
            // Every expression was checked when it came in; one of another release may stand for nothing here.
            let matches = whole_match(expression).ok();
            let matches = |name: &&String| matches.as_ref().is_some_and(|matches| matches(name));
            let topics = names.iter().filter(matches).cloned().collect();
            let found = Resolved { topics, version: metadata.version(), timestamp: cx.now().wall_ms };
            if group.regexes.get(expression).is_none_or(|known| known.topics != found.topics) {
                writing.regex(expression, &found);
            }
            resolved.regexes.insert(expression.clone(), found);
        }
        for gone in group.regexes.keys().filter(|known| !resolved.regexes.contains_key(*known)) {
            writing.remove_regex(gone);
        }
        let topics = |regexes: &std::collections::BTreeMap<String, Resolved>| -> Vec<_> {
            regexes.iter().map(|(expression, found)| (expression.clone(), found.topics.clone())).collect()
        };
        if topics(&resolved.regexes) != topics(&group.regexes) {
            let hash = resolved.hash_of(group.members.values(), &*metadata);
            writing.epoch(group.epoch + 1, hash);
        }
        if !records.is_empty() {
            cx.write(records, After::Nothing);
        }
    }
}
