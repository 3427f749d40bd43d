//! Texts of Kafka's properties as values, for every part of the client that has settings.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::error::Error;

/// A number within bounds.
pub(crate) fn number<T>(key: &str, text: &str, allowed: RangeInclusive<T>) -> Result<T, Error>
where
    T: FromStr + PartialOrd + Display,
{
    let value = text.trim().parse().ok().filter(|value| allowed.contains(value));
    value.ok_or_else(|| {
        Error::config(key, format!("`{text}` is not a number from {} to {}", allowed.start(), allowed.end()))
    })
}

/// Milliseconds.
pub(crate) fn millis(key: &str, text: &str) -> Result<Duration, Error> {
    number(key, text, 0..=i64::MAX as u64).map(Duration::from_millis)
}

/// `true` or `false`.
pub(crate) fn boolean(key: &str, text: &str) -> Result<bool, Error> {
    match text.trim() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Error::config(key, format!("`{text}` is neither true nor false"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_value_is_refused_with_its_key() {
        assert_eq!(millis("linger.ms", " 5 ").unwrap(), Duration::from_millis(5));
        let error = number("batch.size", "-1", 0..=9).unwrap_err();
        assert_eq!(error.to_string(), "batch.size: `-1` is not a number from 0 to 9");
        assert!(boolean("enable.idempotence", "yes").is_err());
    }
}
