//! Log levels as configuration (resource type BROKER_LOGGER): what an alteration may do. Setting the levels is the
//! caller's business.

use crate::alter::{Edit, Operation};
use crate::error::AlterError;

/// The levels that Kafka knows.
const LEVELS: [&str; 6] = ["DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN"];

/// The logger above all others.
pub const ROOT: &str = "root";

/// Checks an alteration of log levels; `exists` tells which loggers there are.
///
/// # Errors
/// INVALID_REQUEST for an operation that loggers do not have, INVALID_CONFIG for an unknown logger or level.
pub fn validate(edits: &[Edit<'_>], exists: impl Fn(&str) -> bool) -> Result<(), AlterError> {
    for edit in edits {
        let name = edit.name;
        let known = || match name == ROOT || exists(name) {
            true => Ok(()),
            false => Err(AlterError::InvalidConfig(format!("Logger {name} does not exist!"))),
        };
        match edit.operation {
            Operation::Set => {
                known()?;
                check_level(name, edit.value.unwrap_or_default())?;
            }
            Operation::Delete => {
                known()?;
                if name == ROOT {
                    let message = "Removing the log level of the root logger is not allowed";
                    return Err(AlterError::InvalidRequest(message.to_owned()));
                }
            }
            Operation::Append | Operation::Subtract => {
                let operation = edit.operation.name();
                let message = format!("{operation} operation is not allowed for the BROKER_LOGGER resource");
                return Err(AlterError::InvalidRequest(message));
            }
        }
    }
    Ok(())
}

fn check_level(name: &str, level: &str) -> Result<(), AlterError> {
    if LEVELS.contains(&level) {
        return Ok(());
    }
    Err(AlterError::InvalidConfig(format!(
        "Cannot set the log level of {name} to {level} as it is not a supported log level. Valid log levels are {}",
        LEVELS.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, operation: Operation, value: &str) -> String {
        let edit = Edit { name, operation, value: Some(value) };
        validate(&[edit], |name| name == "a").map_or_else(|e| format!("{} {e}", e.code()), |()| "ok".to_owned())
    }

    #[test]
    fn levels_are_set_and_removed_for_loggers_that_exist() {
        assert_eq!(outcome("root", Operation::Set, "DEBUG"), "ok");
        assert_eq!(outcome("a", Operation::Delete, ""), "ok");
        assert_eq!(
            outcome("root", Operation::Delete, ""),
            "42 Removing the log level of the root logger is not allowed"
        );
        assert_eq!(outcome("b", Operation::Set, "DEBUG"), "40 Logger b does not exist!");
        assert_eq!(
            outcome("a", Operation::Append, "DEBUG"),
            "42 APPEND operation is not allowed for the BROKER_LOGGER resource"
        );
        assert_eq!(
            outcome("a", Operation::Set, "FOO"),
            "40 Cannot set the log level of a to FOO as it is not a supported log level. Valid log levels are DEBUG, \
             ERROR, FATAL, INFO, TRACE, WARN"
        );
    }
}
