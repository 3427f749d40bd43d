//! Kafka's error codes: what responses say when something is wrong.

use std::fmt;

/// A code in a response. Zero is success, a negative one is an unknown server error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i16);

macro_rules! error_codes {
    ($($constant:ident $code:literal $retriable:literal $exception:literal $text:literal;)*) => {
        impl ErrorCode {
            $(
                #[doc = concat!("Code ", stringify!($code), ".")]
                pub const $constant: ErrorCode = ErrorCode($code);
            )*

            /// Every code there is, ascending.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode($code)),*];

            /// Kafka's name, such as `NOT_LEADER_OR_FOLLOWER`; `UNKNOWN` for a code that does not exist.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($code => stringify!($constant),)*
                    _ => "UNKNOWN",
                }
            }

            /// The class that Java clients throw for it, without its package.
            pub const fn exception(self) -> &'static str {
                match self.0 {
                    $($code => $exception,)*
                    _ => "UnknownServerException",
                }
            }

            /// What it means, in Kafka's words.
            pub const fn text(self) -> &'static str {
                match self.0 {
                    $($code => $text,)*
                    _ => "The server answered with a code that is not known.",
                }
            }

            /// Whether a client may try again.
            pub const fn is_retriable(self) -> bool {
                match self.0 {
                    $($code => $retriable,)*
                    _ => false,
                }
            }
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/error_code.rs"));

impl ErrorCode {
    /// Whether this is success.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> i16 {
        code.0
    }
}

impl From<i16> for ErrorCode {
    fn from(code: i16) -> ErrorCode {
        ErrorCode(code)
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn codes_have_kafkas_numbers_and_names() {
        assert_eq!(ErrorCode::NOT_LEADER_OR_FOLLOWER.0, 6);
        assert_eq!(ErrorCode(35), ErrorCode::UNSUPPORTED_VERSION);
        assert_eq!(ErrorCode::UNKNOWN_SERVER_ERROR.to_string(), "UNKNOWN_SERVER_ERROR(-1)");
        assert_eq!(ErrorCode(9999).to_string(), "UNKNOWN(9999)");
        assert!(ErrorCode::ALL.is_sorted() && ErrorCode::ALL.len() == 138);
    }

    #[test]
    fn codes_have_the_texts_and_exceptions_of_java_clients() {
        let code = ErrorCode::TOPIC_ALREADY_EXISTS;
        assert_eq!((code.exception(), code.text()), ("TopicExistsException", "Topic with this name already exists."));
        assert_eq!(ErrorCode(9999).exception(), "UnknownServerException");
    }

    #[test]
    fn retriable_codes_are_those_a_client_may_repeat() {
        assert!(ErrorCode::NOT_LEADER_OR_FOLLOWER.is_retriable());
        assert!(!ErrorCode::MESSAGE_TOO_LARGE.is_retriable() && !ErrorCode::NONE.is_retriable());
    }
}
