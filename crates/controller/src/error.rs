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

/// Refusals of one answer that have their messages.
const MOST_MESSAGES: usize = 1000;

/// The messages of one answer. Where a request names very many partitions, the refusals behind the first ones have only their codes, so that
/// the answer stays small beside the request.
pub(crate) struct Messages {
    left: usize,
}

impl Messages {
    /// None is given out yet.
    pub(crate) fn new() -> Self {
        Self { left: MOST_MESSAGES }
    }

    /// The message of an error, as long as there are any.
    pub(crate) fn of(&mut self, error: &ApiError) -> Option<Cow<'static, str>> {
        self.left = self.left.checked_sub(1)?;
        error.message.clone()
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
    fn of_many_refusals_the_first_ones_have_messages() {
        let (error, mut messages) = (ApiError::new(ErrorCode::INVALID_CONFIG, "m"), Messages::new());
        let told = (0..MOST_MESSAGES + 9).filter(|_| messages.of(&error).is_some());
        assert_eq!(told.count(), MOST_MESSAGES);
        assert!(messages.of(&error).is_none());
    }

    #[test]
    fn a_message_is_never_longer_than_its_field() {
        let error = ApiError::new(ErrorCode::INVALID_CONFIG, "é".repeat(40_000));
        assert_eq!(error.message.unwrap(), "é".repeat(LONGEST_MESSAGE / 2));
    }
}
