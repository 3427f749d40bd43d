//! Which values a configuration may have, with Kafka's sentences for those it may not. A validator sees one
//! value; rules between configurations live with the resource they belong to.

use crate::error::ConfigError;
use crate::value::{Value, java_trim};

/// What values a key allows, as written in the `valid` column of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Validator {
    /// `any`.
    Any,
    /// `range MIN..[MAX] [or EXTRA]`: a number within the limits, or exactly the extra value.
    Range {
        /// Smallest value.
        min: Limit,
        /// Largest value, if bounded.
        max: Option<Limit>,
        /// One more allowed value.
        or: Option<Limit>,
    },
    /// `one-of A,B`: one of these texts.
    OneOf(Vec<&'static str>),
    /// `one-of-any-case A,B`.
    OneOfAnyCase(Vec<&'static str>),
    /// `list [empty] [null] [of A,B]`: duplicates are dropped, entries must not be empty.
    List {
        /// The list may be empty.
        empty: bool,
        /// The list may be null.
        null: bool,
        /// The entries must be among these, unless none are given.
        of: Vec<&'static str>,
    },
    /// `non-null`: any text, not null.
    NonNull,
    /// `non-empty`: null or a text with at least one character.
    NonEmpty,
    /// `voters`: `{id}@{host}:{port}` each.
    Voters,
    /// `servers`: `{host}:{port}` each.
    Servers,
    /// `throttled-replicas`: `*` or `[partition]:[broker]` each.
    ThrottledReplicas,
    /// `offset-reset`: `earliest`, `latest` or `by_duration:` with an ISO 8601 duration.
    OffsetReset,
}

/// A limit with the text it has in messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    number: f64,
    text: &'static str,
}

impl Limit {
    fn from_table(text: &'static str) -> Self {
        let number = text.parse().unwrap_or_else(|_| panic!("bad limit {text:?} in a table"));
        Self { number, text }
    }
}

impl Validator {
    pub(crate) fn from_table(cell: &'static str) -> Self {
        let (kind, rest) = cell.split_once(' ').unwrap_or((cell, ""));
        let names = |text: &'static str| text.split(',').collect::<Vec<_>>();
        match kind {
            "any" => Self::Any,
            "range" => Self::range_from_table(rest),
            "one-of" => Self::OneOf(names(rest)),
            "one-of-any-case" => Self::OneOfAnyCase(names(rest)),
            "list" => {
                let (flags, of) = match rest.split_once("of ") {
                    Some((flags, of)) => (flags, names(of)),
                    None => (rest, Vec::new()),
                };
                let flag = |name: &str| flags.split(' ').any(|f| f == name);
                Self::List { empty: flag("empty"), null: flag("null"), of }
            }
            "non-null" => Self::NonNull,
            "non-empty" => Self::NonEmpty,
            "voters" => Self::Voters,
            "servers" => Self::Servers,
            "throttled-replicas" => Self::ThrottledReplicas,
            "offset-reset" => Self::OffsetReset,
            _ => panic!("unknown validator {cell:?} in a table"),
        }
    }

    fn range_from_table(text: &'static str) -> Self {
        let (range, or) = match text.split_once(" or ") {
            Some((range, or)) => (range, Some(Limit::from_table(or))),
            None => (text, None),
        };
        let (min, max) = range.split_once("..").unwrap_or_else(|| panic!("bad range {text:?} in a table"));
        let max = Some(max).filter(|m| !m.is_empty()).map(Limit::from_table);
        Self::Range { min: Limit::from_table(min), max, or }
    }

    /// Drops the repetitions that Kafka drops before it looks at a list.
    pub(crate) fn normalise(&self, value: &mut Value) {
        let (Self::List { .. }, Value::List(entries)) = (self, value) else { return };
        let mut seen = std::collections::HashSet::new();
        entries.retain(|entry| seen.insert(entry.clone()));
    }

    /// Whether `value` is allowed for `name`.
    ///
    /// # Errors
    /// Kafka's message.
    pub fn check(&self, name: &str, value: &Value) -> Result<(), ConfigError> {
        let refuse = |reason: String| Err(ConfigError::invalid(name, value.shown(), reason));
        match (self, value) {
            (Self::Range { min, max, or }, _) => check_range(name, value, *min, *max, *or),
            (Self::OneOf(allowed), Value::String(text)) if !allowed.contains(&text.as_str()) => {
                refuse(format!("String must be one of: {}", allowed.join(", ")))
            }
            (Self::OneOfAnyCase(allowed), Value::String(text))
                if !allowed.iter().any(|a| a.eq_ignore_ascii_case(text)) =>
            {
                refuse(format!("String must be one of (case insensitive): {}", allowed.join(", ")))
            }
            (Self::List { empty, of, .. }, Value::List(entries)) => check_list(name, entries, *empty, of),
            (Self::List { null: false, .. }, Value::Null) => {
                Err(ConfigError::rule(name, format!("Configuration '{name}' values must not be null.")))
            }
            (Self::NonNull, Value::Null) => refuse("entry must be non null".to_owned()),
            (Self::NonEmpty, Value::String(text)) if text.is_empty() => refuse("String must be non-empty".to_owned()),
            (Self::Voters, Value::List(entries)) => check_voters(name, entries),
            (Self::Servers, Value::List(entries)) => check_servers(name, entries),
            (Self::ThrottledReplicas, Value::List(entries)) if !throttled_replicas_are_valid(entries) => {
                refuse(format!(
                    "{name} must be the literal '*' or a list of replicas in the following format: \
                 [partitionId]:[brokerId],[partitionId]:[brokerId],..."
                ))
            }
            (Self::OffsetReset, Value::String(text)) if !offset_reset_is_valid(text) => refuse(format!(
                "Invalid value `{text}` for configuration {name}. The value must be either 'earliest', 'latest' or of \
                 the format 'by_duration:<PnDTnHnMn.nS>'."
            )),
            _ => Ok(()),
        }
    }

    /// What is allowed, for people; `None` when everything of the type is.
    pub fn describe(&self) -> Option<String> {
        match self {
            Self::Any | Self::NonNull => None,
            Self::Range { min, max, or } => {
                let range = match max {
                    Some(max) => format!("{} to {}", min.text, max.text),
                    None => format!("at least {}", min.text),
                };
                Some(or.map_or(range.clone(), |or| format!("{range}, or {}", or.text)))
            }
            Self::OneOf(allowed) | Self::OneOfAnyCase(allowed) => Some(allowed.join(", ")),
            Self::List { empty, of, .. } => match (empty, of.is_empty()) {
                (true, true) => None,
                (false, true) => Some("not empty".to_owned()),
                (_, false) => Some(format!("any of {}", of.join(", "))),
            },
            Self::NonEmpty => Some("not empty".to_owned()),
            Self::Voters => Some("{id}@{host}:{port},...".to_owned()),
            Self::Servers => Some("{host}:{port},...".to_owned()),
            Self::ThrottledReplicas => Some("* or {partition}:{broker},...".to_owned()),
            Self::OffsetReset => Some("latest, earliest, by_duration:PnDTnHnMn.nS".to_owned()),
        }
    }
}

fn check_range(
    name: &str,
    value: &Value,
    min: Limit,
    max: Option<Limit>,
    or: Option<Limit>,
) -> Result<(), ConfigError> {
    let refuse = |reason: String| Err(ConfigError::invalid(name, value.shown(), reason));
    let Some(number) = value.number() else { return refuse("Value must be non-null".to_owned()) };
    let below = number < min.number;
    let above = max.is_some_and(|max| number > max.number);
    match (or, max) {
        (Some(or), Some(max)) if (below || above) && number != or.number => {
            refuse(format!("Value must be between {} and {} or equal to {}", min.text, max.text, or.text))
        }
        (Some(_), _) => Ok(()),
        (None, _) if below => refuse(format!("Value must be at least {}", min.text)),
        (None, Some(max)) if above => refuse(format!("Value must be no more than {}", max.text)),
        _ => Ok(()),
    }
}

fn check_list(name: &str, entries: &[String], empty: bool, of: &[&str]) -> Result<(), ConfigError> {
    if entries.is_empty() && !empty {
        let allowed = if of.is_empty() { "any non-empty value".to_owned() } else { format!("[{}]", of.join(", ")) };
        let message = format!("Configuration '{name}' must not be empty. Valid values include: {allowed}");
        return Err(ConfigError::rule(name, message));
    }
    for entry in entries {
        if entry.is_empty() {
            return Err(ConfigError::rule(name, format!("Configuration '{name}' values must not be empty.")));
        }
        if !of.is_empty() && !of.contains(&entry.as_str()) {
            return Err(ConfigError::invalid(name, entry, format!("String must be one of: {}", of.join(", "))));
        }
    }
    Ok(())
}

fn check_voters(name: &str, entries: &[String]) -> Result<(), ConfigError> {
    let valid = |entry: &String| {
        let (id, address) = entry.split_once('@')?;
        let (_, port) = host_and_port(address)?;
        Some(id.parse::<i32>().ok()?).zip(Some(port))
    };
    if entries.iter().all(|entry| valid(entry).is_some()) {
        return Ok(());
    }
    let message =
        format!("Invalid configuration value for {name}. Each entry should be in the form `{{id}}@{{host}}:{{port}}`.");
    Err(ConfigError::rule(name, message))
}

fn check_servers(name: &str, entries: &[String]) -> Result<(), ConfigError> {
    match entries.iter().find(|entry| host_and_port(entry).is_none()) {
        None => Ok(()),
        Some(entry) => Err(ConfigError::rule(
            name,
            format!(
                "Failed to parse host name from {entry} for the configuration {name}. Each entry should be in the form \
                 \"{{host}}:{{port}}\""
            ),
        )),
    }
}

/// Host and port of `[protocol://]host:port`; the host may be an IPv6 address in brackets.
pub(crate) fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let address = address.split_once("://").map_or(address, |(_, rest)| rest);
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let host_chars = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
    (!host.is_empty() && host.chars().all(host_chars)).then_some(())?;
    Some((host, port.parse().ok()?))
}

fn throttled_replicas_are_valid(entries: &[String]) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let pair = |entry: &String| entry.split_once(':').is_some_and(|(p, b)| digits(p) && digits(b));
    match entries {
        [only] if only == "*" => true,
        _ => entries.iter().all(|entry| entry.is_empty() || pair(entry)),
    }
}

fn offset_reset_is_valid(text: &str) -> bool {
    match text.strip_prefix("by_duration:") {
        Some(duration) => duration_is_valid(java_trim(duration)),
        None => text == "earliest" || text == "latest",
    }
}

/// `PnDTnHnMn.nS` with at least one part, no negative amount.
fn duration_is_valid(text: &str) -> bool {
    let text = text.to_ascii_uppercase();
    let Some(rest) = text.strip_prefix('P') else { return false };
    let (days, time) = match rest.split_once('T') {
        Some((_, "")) => return false,
        Some((days, time)) => (days, time),
        None => (rest, ""),
    };
    let amounts = |mut part: &str, units: &str| {
        let mut allowed = units.chars();
        while !part.is_empty() {
            let Some(end) = part.find(|c: char| c.is_ascii_alphabetic()) else { return false };
            let unit = part[end..].chars().next().unwrap_or('?');
            let amount = part[..end].strip_prefix('+').unwrap_or(&part[..end]);
            let whole = amount.bytes().all(|b| b.is_ascii_digit());
            let fraction = unit == 'S' && amount.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            if amount.is_empty() || !(whole || fraction) || !allowed.any(|u| u == unit) {
                return false;
            }
            part = &part[end + 1..];
        }
        true
    };
    !rest.is_empty() && amounts(days, "D") && amounts(time, "HMS")
}
