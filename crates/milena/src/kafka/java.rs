//! What Java programs make of errors and patterns: the names of exceptions, their texts, and how names of topics are
//! matched.

use std::process::ExitCode;

use milena_client::Error;
use milena_io::{RealRng, Rng};
use milena_protocol::{ErrorCode, Uuid};
use regex_lite::Regex;

use super::{Ended, Thrown};
use crate::output::print_error;

pub const ADMIN_COMMAND_FAILED: &str = "org.apache.kafka.server.common.AdminCommandFailedException";
pub const ADMIN_OPERATION: &str = "org.apache.kafka.server.common.AdminOperationException";
pub const EXECUTION_EXCEPTION: &str = "java.util.concurrent.ExecutionException";
pub const ILLEGAL_ARGUMENT: &str = "java.lang.IllegalArgumentException";
pub const INVALID_CONFIG: &str = "org.apache.kafka.common.errors.InvalidConfigurationException";
pub const IO_EXCEPTION: &str = "java.io.IOException";
pub const KAFKA_EXCEPTION: &str = "org.apache.kafka.common.KafkaException";
pub const LEADER_NOT_AVAILABLE: &str = "org.apache.kafka.common.errors.LeaderNotAvailableException";
pub const NO_SUCH_FILE: &str = "java.nio.file.NoSuchFileException";
pub const NUMBER_FORMAT: &str = "java.lang.NumberFormatException";
/// Where the exceptions of the library that reads command lines are.
pub const OPTIONS: &str = "joptsimple.";
pub const JSON_MAPPING: &str = "com.fasterxml.jackson.databind.JsonMappingException";
pub const PARSE_EXCEPTION: &str = "java.text.ParseException";
pub const RUNTIME: &str = "java.lang.RuntimeException";
/// Exceptions of the tools that are not those of the server by the same names.
pub const TOOL_COMMAND_FAILED: &str = "org.apache.kafka.tools.AdminCommandFailedException";
pub const TOOL_OPERATION: &str = "org.apache.kafka.tools.AdminOperationException";
pub const TIMEOUT: &str = "org.apache.kafka.common.errors.TimeoutException";
pub const UNKNOWN_TOPIC: &str = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException";
pub const UNSUPPORTED_VERSION: &str = "org.apache.kafka.common.errors.UnsupportedVersionException";

/// States that a group of consumers can be in.
pub const CONSUMER_GROUP_STATES: [&str; 8] =
    ["Unknown", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling"];

/// The exception of a code.
pub fn class(code: ErrorCode) -> String {
    match code.exception() {
        whole if whole.contains('.') => whole.to_owned(),
        name => format!("org.apache.kafka.common.errors.{name}"),
    }
}

/// The exception that an admin client's future throws.
pub fn thrown(error: &Error) -> Thrown {
    let thrown = match error {
        Error::Broker { code, message } => {
            let message = message.as_deref().unwrap_or(code.text()).to_owned();
            Thrown { class: class(*code).into(), message, of_future: true }
        }
        Error::Timeout { what, .. } => {
            Thrown::new(TIMEOUT, format!("Timed out waiting for a node assignment. Call: {}", call(what)))
        }
        Error::UnsupportedVersion { api, .. } => {
            Thrown::new(UNSUPPORTED_VERSION, format!("The broker does not support {}", api.name()))
        }
        other => Thrown::new(KAFKA_EXCEPTION, other.to_string()),
    };
    Thrown { of_future: true, ..thrown }
}

/// The exception with which a producer's record fails.
pub fn send_error(error: &Error, topic: &str) -> Thrown {
    match error {
        Error::Broker { code, message } => {
            let message = message.as_deref().unwrap_or(code.text()).to_owned();
            Thrown { class: class(*code).into(), message, of_future: false }
        }
        Error::Timeout { what, after, .. } if what.starts_with("metadata") => {
            let message = format!("Topic {topic} not present in metadata after {} ms.", after.as_millis());
            Thrown::new(TIMEOUT, message)
        }
        Error::Timeout { .. } => Thrown::new(TIMEOUT, error.to_string()),
        Error::RecordTooLarge { size, limit, key } => Thrown::new(
            "org.apache.kafka.common.errors.RecordTooLargeException",
            format!(
                "The message is {size} bytes when serialized which is larger than {limit}, which is the value of the \
                 {key} configuration."
            ),
        ),
        other => Thrown::new(KAFKA_EXCEPTION, other.to_string()),
    }
}

/// The admin client's name for an API's call.
fn call(api: &str) -> String {
    match api {
        "Metadata" => "listTopics".to_owned(),
        "ApiVersions" => "describeFeatures".to_owned(),
        "IncrementalAlterConfigs" => "incrementalAlterConfigs".to_owned(),
        other => other[..1].to_lowercase() + &other[1..],
    }
}

/// Puts things in the order in which a `HashMap` with their names as keys gives them.
pub fn hash_order<T>(things: &mut [T], name: impl Fn(&T) -> &str) {
    let buckets = (things.len() * 4).div_ceil(3).next_power_of_two().max(16) as u32;
    let bucket = |thing: &T| {
        let hash = name(thing).encode_utf16().fold(0u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()));
        (hash ^ (hash >> 16)) & (buckets - 1)
    };
    things.sort_by_key(bucket);
}

/// An exception that nobody catches, or a signal.
pub fn uncaught(ended: Ended) -> ExitCode {
    match ended {
        Ended::Thrown(thrown) => print_error(&format!("Exception in thread \"main\" {}\n", thrown.caught().1)),
        Ended::Stopped(signal) => return signal.code().into(),
        Ended::Usage(_) | Ended::Version => {}
    }
    ExitCode::FAILURE
}

/// `Uuid.randomUuid()`.
pub fn random_uuid() -> Uuid {
    Uuid::random(|bytes| RealRng.fill(bytes))
}

/// A number as `%.Nf` prints it.
pub fn fixed(value: f64, digits: usize) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        _ if value.is_infinite() => "Infinity".to_owned(),
        _ => format!("{value:.digits$}"),
    }
}

/// A client that can't be made.
pub fn config(error: &anyhow::Error) -> Thrown {
    Thrown::new(KAFKA_EXCEPTION, format!("{error:#}"))
}

/// Names of topics: a regular expression for the whole name, where a comma stands for "or".
pub fn topic_filter(text: &str) -> Result<Regex, Thrown> {
    let text = text.trim().replace(',', "|").replace(' ', "");
    let text = text.trim_matches(['"', '\'']);
    Regex::new(&format!("^(?:{text})$")).map_err(|_| Thrown::new(RUNTIME, format!("{text} is an invalid regex.")))
}

/// `Classic`, as types of groups are printed.
pub fn group_type(kind: &str) -> String {
    let mut letters = kind.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

/// What `--validate-regex` says.
pub fn validate_regex(text: &str) -> String {
    match Regex::new(text) {
        Ok(_) => format!("The regular expression `{text}` is valid.\n"),
        Err(error) => format!("The regular expression `{text}` is invalid: {error}.\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_matched_as_a_whole() {
        let filter = topic_filter("\"a.*, b\"").ok().unwrap();
        assert_eq!(["abc", "b", "xa", "bc"].map(|name| filter.is_match(name)), [true, true, false, false]);
        assert_eq!(topic_filter("a(").unwrap_err().message, "a( is an invalid regex.");
    }

    #[test]
    fn a_refusal_has_the_servers_words_or_the_codes() {
        let refused = thrown(&Error::from(ErrorCode::TOPIC_ALREADY_EXISTS));
        assert_eq!(
            refused.text(),
            "org.apache.kafka.common.errors.TopicExistsException: Topic with this name already exists."
        );
        let told = milena_client::check(36, Some("Topic 't' already exists.")).unwrap_err();
        assert_eq!(thrown(&told).message, "Topic 't' already exists.");
    }

    #[test]
    fn names_come_in_the_order_of_their_hashes() {
        // As a HashMap of Java prints them.
        let mut names = ["retention.ms", "cleanup.policy", "min.insync.replicas", "segment.ms"];
        hash_order(&mut names, |name| name);
        assert_eq!(names, ["cleanup.policy", "min.insync.replicas", "retention.ms", "segment.ms"]);
    }

    #[test]
    fn types_begin_with_a_capital() {
        assert_eq!(["classic", "", "x"].map(group_type), ["Classic", "", "X"]);
    }
}
