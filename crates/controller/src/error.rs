//! Why a topic, a resource or a whole request is refused.

use std::borrow::Cow;

use milena_config::AlterError;
use milena_protocol::ErrorCode;

/// An error code and its message, as a response says them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {}", message.as_deref().unwrap_or_default())]
pub struct ApiError {
    /// The code.
    pub code: ErrorCode,
    /// The message; `None` when the code says it all.
    pub message: Option<Cow<'static, str>>,
}

impl ApiError {
    /// A code with a message.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: Some(message.into()) }
    }

    /// A code alone.
    pub const fn code(code: ErrorCode) -> Self {
        Self { code, message: None }
    }
}

impl From<AlterError> for ApiError {
    fn from(error: AlterError) -> Self {
        Self::new(ErrorCode(error.code()), error.to_string())
    }
}
