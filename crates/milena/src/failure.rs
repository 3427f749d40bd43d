//! How commands fail: what was tried, what happened, what to do, and an exit code that says which kind of failure it was.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | refused, or failed in another way |
//! | 2 | the command line makes no sense |
//! | 3 | the cluster is not there, or does not answer in time |
//! | 4 | what was asked for does not exist |

use std::io;

use milena_broker::broker::BrokerError;
use milena_client::Error;
use milena_log::LogError;
use milena_protocol::ErrorCode;

use ErrorCode as E;

use crate::holder;

/// A command line that makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Something that was asked for and does not exist.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Missing(pub String);

/// An error about the command line, from a format string and its arguments.
macro_rules! usage {
    ($($text:tt)*) => { anyhow::Error::new($crate::failure::Usage(format!($($text)*))) };
}
pub(crate) use usage;

/// The codes that say that something does not exist.
const MISSING: [ErrorCode; 7] = [
    E::UNKNOWN_TOPIC_OR_PARTITION,
    E::GROUP_ID_NOT_FOUND,
    E::TRANSACTIONAL_ID_NOT_FOUND,
    E::RESOURCE_NOT_FOUND,
    E::BROKER_NOT_AVAILABLE,
    E::BROKER_ID_NOT_REGISTERED,
    E::CONTROLLER_ID_NOT_REGISTERED,
];

/// The exit code for an error of the client.
pub fn code_of(error: &Error) -> u8 {
    match error {
        Error::Config { .. } => 2,
        Error::Connect { .. } | Error::Disconnected { .. } | Error::Timeout { .. } => 3,
        Error::Broker { code, .. } if MISSING.contains(code) => 4,
        _ => 1,
    }
}

/// The exit code for an error of a command.
pub fn code(error: &anyhow::Error) -> u8 {
    if has::<Usage>(error) {
        return 2;
    }
    client_error(error).map_or(if has::<Missing>(error) || is_missing(error) { 4 } else { 1 }, code_of)
}

/// Whether a cause is of this type.
fn has<E: std::error::Error + Send + Sync + 'static>(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<E>())
}

/// Whether it is about a file that does not exist.
fn is_missing(error: &anyhow::Error) -> bool {
    let io_errors = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    io_errors.map(io::Error::kind).any(|kind| kind == io::ErrorKind::NotFound)
}

fn client_error(error: &anyhow::Error) -> Option<&Error> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

/// The error for people: the causes in one line, and what to do in the next.
pub fn text(error: &anyhow::Error) -> String {
    let mut text = format!("milena: {}\n", message(error));
    let of_client = || client_error(error).and_then(advice).map(str::to_owned);
    if let Some(advice) = of_client().or_else(|| advice_on_this_machine(error)) {
        text += &format!("  {advice}\n");
    }
    text
}

/// What can be done about an error of a start, or of a tool that wants a log directory.
fn advice_on_this_machine(error: &anyhow::Error) -> Option<String> {
    let start = error.downcast_ref::<BrokerError>();
    if start.is_some_and(BrokerError::is_address_in_use) {
        let advice = "Does a broker run already? --listen HOST:PORT, or listeners in the file, takes another address.";
        return Some(advice.to_owned());
    }
    let locked = match error.downcast_ref() {
        Some(LogError::Locked { dir }) => Some(&**dir),
        _ => start.and_then(BrokerError::locked_dir),
    };
    locked.map(holder::advice)
}

/// What can be done about an error.
fn advice(error: &Error) -> Option<&'static str> {
    let code = match error {
        Error::Connect { .. } => {
            return Some(
                "Is a broker running there? `milena start` starts one; --bootstrap-server or MILENA_BOOTSTRAP_SERVERS \
                 names another.",
            );
        }
        Error::Timeout { .. } | Error::Disconnected { .. } => {
            return Some("The broker may be starting, stopping or overloaded; --timeout waits longer.");
        }
        Error::UnsupportedVersion { .. } => return Some("This cluster does not serve what the command needs."),
        Error::Broker { code, .. } => *code,
        _ => return None,
    };
    Some(match code {
        E::UNKNOWN_TOPIC_OR_PARTITION => "`milena topic list` shows the topics that there are.",
        E::TOPIC_ALREADY_EXISTS => "--if-not-exists accepts that; `milena topic alter` adds partitions.",
        E::BROKER_NOT_AVAILABLE | E::INVALID_REPLICATION_FACTOR => "`milena cluster` shows the brokers that there are.",
        E::GROUP_ID_NOT_FOUND => "`milena group list` shows the groups that there are.",
        E::NON_EMPTY_GROUP | E::GROUP_SUBSCRIBED_TO_TOPIC | E::UNKNOWN_MEMBER_ID => {
            "The group is in use: stop its members first. `milena group describe --members` shows them."
        }
        E::TRANSACTIONAL_ID_NOT_FOUND => "`milena txn list` shows the transactions that there are.",
        E::OFFSET_OUT_OF_RANGE => "`milena offsets` shows where partitions begin and end.",
        E::INVALID_CONFIG => "`milena config describe TYPE NAME --all` shows the names and their values.",
        _ => return None,
    })
}

/// The error and its causes in one line. Many an error says its cause itself; it is not said twice.
pub fn message(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        before if cause.is_empty() || before.contains(&cause) => said,
        before => format!("{before}: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, Error as Any};

    use super::*;

    #[test]
    fn a_cause_that_an_error_says_itself_is_not_said_twice() {
        let full = || Any::msg("No space left on device");
        assert_eq!(
            message(&full().context("writing a: No space left on device")),
            "writing a: No space left on device"
        );
        assert_eq!(message(&full().context("writing a")), "writing a: No space left on device");
        let nested = Err::<(), _>(full()).context("writing a: No space left on device").context("starting");
        assert_eq!(message(&nested.unwrap_err()), "starting: writing a: No space left on device");
    }

    #[test]
    fn a_refusal_says_what_to_do_and_has_its_exit_code() {
        let error = Any::from(Error::from(E::UNKNOWN_TOPIC_OR_PARTITION)).context("topic nope");
        let expected =
            "milena: topic nope: UNKNOWN_TOPIC_OR_PARTITION\n  `milena topic list` shows the topics that there are.\n";
        assert_eq!(text(&error), expected);
        assert_eq!(code(&error), 4);
        assert_eq!(code(&Any::from(Error::from(E::INVALID_CONFIG))), 1);
        assert_eq!(code(&Any::msg("nothing of the client's")), 1);
        let nobody = text(&Any::from(Error::from(E::BROKER_NOT_AVAILABLE)).context("broker 9"));
        assert!(
            nobody.ends_with("BROKER_NOT_AVAILABLE\n  `milena cluster` shows the brokers that there are.\n"),
            "{nobody}"
        );
        let unsaid = milena_client::check(E::UNKNOWN_TOPIC_OR_PARTITION.0, Some("")).unwrap_err();
        assert_eq!(unsaid.to_string(), "UNKNOWN_TOPIC_OR_PARTITION");
        let missing = Err::<(), _>(io::Error::from(io::ErrorKind::NotFound)).context("reading f").unwrap_err();
        assert_eq!((code(&missing), code(&Any::from(io::Error::from(io::ErrorKind::PermissionDenied)))), (4, 1));
        let usage = usage!("`{}`: is not topic:partition", "orders").context("--from");
        assert_eq!((code(&usage), code(&Any::new(Missing("partition 9".to_owned())))), (2, 4));
        assert_eq!(text(&Any::msg("plain")), "milena: plain\n");
    }

    #[test]
    fn what_another_process_has_is_said_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let locked = || LogError::Locked { dir: dir.path().to_owned() };
        let advice = "\n  Most likely a broker runs on it: stop that one first";
        assert!(text(&Any::from(locked())).contains(advice));
        assert!(text(&Any::from(BrokerError::from(locked()))).contains(advice));
        let lock = std::fs::File::create(dir.path().join(".lock")).unwrap();
        assert_eq!(holder::holder(dir.path()), None);
        drop(lock);
    }
}
