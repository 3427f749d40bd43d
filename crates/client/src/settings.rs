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

/// The setters of a builder that take properties by Kafka's names, over its method `property`.
macro_rules! set_by_name {
    ($what:literal, $others:literal) => {
        /// Sets one property by Kafka's name.
        ///
        /// # Errors
        #[doc = concat!("[`Error::Config`] for a value that the property can't have, and for one that is not a ", $what, "'s.")]
        pub fn set(mut self, key: &str, value: &str) -> Result<Self, Error> {
            let known = self.property(key, value)?;
            if known { Ok(self) } else { Err(Error::config(key, concat!("is no setting of a ", $what))) }
        }

        #[doc = concat!("Sets those of the properties that are a ", $what, "'s; others, such as ", $others, ", are left alone.")]
        ///
        /// # Errors
        /// [`Error::Config`] for a value that the property can't have.
        pub fn properties<K: AsRef<str>, V: AsRef<str>>(
            mut self,
            properties: impl IntoIterator<Item = (K, V)>,
        ) -> Result<Self, Error> {
            for (key, value) in properties {
                self.property(key.as_ref(), value.as_ref())?;
            }
            Ok(self)
        }
    };
}
pub(crate) use set_by_name;

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
