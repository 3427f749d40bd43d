//! Which names topics may have, and which names are too much alike.

use milena_protocol::ErrorCode;

use crate::error::ApiError;

/// Longest name of a topic, in UTF-16 units: a partition's directory has room for its number behind it.
pub const MAX_NAME_LENGTH: usize = 249;

/// Checks the name of a topic.
///
/// # Errors
/// INVALID_TOPIC_EXCEPTION with Kafka's message.
pub fn validate_topic_name(name: &str) -> Result<(), ApiError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let reason = match name {
        "" => "the empty string is not allowed".to_owned(),
        "." | ".." => format!("'{name}' is not allowed"),
        _ if name.encode_utf16().count() > MAX_NAME_LENGTH => {
            format!("the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}")
        }
        _ if !name.chars().all(legal) => {
            format!("'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")
        }
        _ => return Ok(()),
    };
    Err(ApiError::new(ErrorCode::INVALID_TOPIC_EXCEPTION, format!("Topic name is invalid: {reason}")))
}

/// A name that a request has, as messages repeat it: longer ones are no topics'.
pub(crate) fn shown(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME_LENGTH)]
}

/// Whether a name has a character that metrics cannot tell from another one.
pub(crate) fn has_collision_characters(name: &str) -> bool {
    name.contains(['.', '_'])
}

/// The name as it is in metrics, where `_` stands for `.` too. Names with the same unified form collide.
pub(crate) fn unified(name: &str) -> String {
    name.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str) -> String {
        validate_topic_name(name).unwrap_err().to_string()
    }

    #[test]
    fn names_of_249_letters_digits_dots_underscores_and_dashes_are_legal() {
        for name in ["a", "_R", "-R", "A.b_c-9", "...", &"x".repeat(249)] {
            assert_eq!(validate_topic_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn other_names_are_refused_with_kafkas_message() {
        let invalid = "INVALID_TOPIC_EXCEPTION(17): Topic name is invalid: ";
        assert_eq!(message(""), format!("{invalid}the empty string is not allowed"));
        assert_eq!(message(".."), format!("{invalid}'..' is not allowed"));
        let long = "x".repeat(250);
        assert_eq!(
            message(&long),
            format!("{invalid}the length of '{long}' is longer than the max allowed length 249")
        );
        for name in ["a/b", "a,b", "토픽", "a b"] {
            let reason = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'";
            assert_eq!(message(name), format!("{invalid}'{name}' {reason}"));
        }
    }

    #[test]
    fn a_dot_and_an_underscore_are_alike() {
        assert_eq!(unified("a.b"), unified("a_b"));
        assert!(has_collision_characters("a.b") && has_collision_characters("a_b") && !has_collision_characters("a-b"));
    }
}
