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

/// Bytes of a message at most. It may repeat names and values of the request, which are as long as a field can be.
const LONGEST_MESSAGE: usize = 4096;

impl ApiError {
    /// A code with a message.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        let mut message = message.into();
        if message.len() > LONGEST_MESSAGE {
            let end = message.floor_char_boundary(LONGEST_MESSAGE);
            message.to_mut().truncate(end);
        }
        Self { code, message: Some(message) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_never_longer_than_its_field() {
        let error = ApiError::new(ErrorCode::INVALID_CONFIG, "é".repeat(40_000));
        assert_eq!(error.message.unwrap(), "é".repeat(LONGEST_MESSAGE / 2));
    }
}
