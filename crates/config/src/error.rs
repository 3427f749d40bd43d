//! The two errors of configuration: a value that Kafka's definitions refuse, and an alteration that a
//! request is answered with. Their texts are Kafka's, since tools and tests of applications match on them.

use thiserror::Error;

/// A configuration value, or a combination of values, that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// One value that does not parse or that its validator refuses.
    #[error("Invalid value {value} for configuration {name}{}", reason.as_ref().map(|r| format!(": {r}")).unwrap_or_default())]
    Invalid {
        /// The configuration's name.
        name: String,
        /// The value as Kafka prints it: `null`, `[a, b]` for lists, `[hidden]` for passwords.
        value: String,
        /// What is allowed; Kafka leaves it out in a few places.
        reason: Option<String>,
    },
    /// A name without default that nothing sets.
    #[error("Missing required configuration \"{name}\" which has no default value.")]
    Missing {
        /// The configuration's name.
        name: String,
    },
    /// A rule about one or more configurations, whole sentence.
    #[error("{message}")]
    Rule {
        /// The name the rule is mostly about, to find its origin.
        name: String,
        /// The sentence.
        message: String,
    },
}

impl ConfigError {
    /// `Invalid value {value} for configuration {name}: {reason}`.
    pub fn invalid(name: &str, value: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { name: name.to_owned(), value: value.into(), reason: Some(reason.into()) }
    }

    /// A rule's sentence about `name`.
    pub fn rule(name: &str, message: impl Into<String>) -> Self {
        Self::Rule { name: name.to_owned(), message: message.into() }
    }

    /// The configuration that the error is about.
    pub fn name(&self) -> &str {
        match self {
            Self::Invalid { name, .. } | Self::Missing { name } | Self::Rule { name, .. } => name,
        }
    }
}

/// Why an alteration of a resource's configuration is refused; becomes the response's error code and message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AlterError {
    /// INVALID_CONFIG (40).
    #[error("{0}")]
    InvalidConfig(String),
    /// INVALID_REQUEST (42).
    #[error("{0}")]
    InvalidRequest(String),
}

impl AlterError {
    /// The protocol's error code.
    pub fn code(&self) -> i16 {
        match self {
            Self::InvalidConfig(_) => 40,
            Self::InvalidRequest(_) => 42,
        }
    }
}

impl From<ConfigError> for AlterError {
    fn from(error: ConfigError) -> Self {
        Self::InvalidConfig(error.to_string())
    }
}
