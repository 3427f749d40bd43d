//! Text to typed value and back, as Kafka's ConfigDef does it. Whether a value is allowed is the validator's
//! business, not this module's.

use std::fmt;

use crate::definition::ConfigType;
use crate::error::ConfigError;

/// A parsed configuration value.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// Not set and without default.
    Null,
    /// BOOLEAN.
    Boolean(bool),
    /// INT.
    Int(i32),
    /// SHORT.
    Short(i16),
    /// LONG.
    Long(i64),
    /// DOUBLE.
    Double(f64),
    /// STRING and CLASS.
    String(String),
    /// LIST.
    List(Vec<String>),
    /// PASSWORD; never printed.
    Password(String),
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password(_) => f.write_str("[hidden]"),
            other => write!(f, "{}", other.text().unwrap_or_else(|| "null".to_owned())),
        }
    }
}

impl Value {
    /// Parses `text` as a value of `kind`, after trimming.
    ///
    /// # Errors
    /// Kafka's message with `name` and `text` when it is not one.
    pub fn parse(name: &str, kind: ConfigType, text: &str) -> Result<Self, ConfigError> {
        let trimmed = java_trim(text);
        let not_a_number = || ConfigError::invalid(name, text, format!("Not a number of type {}", kind.name()));
        match kind {
            ConfigType::Boolean if trimmed.eq_ignore_ascii_case("true") => Ok(Self::Boolean(true)),
            ConfigType::Boolean if trimmed.eq_ignore_ascii_case("false") => Ok(Self::Boolean(false)),
            ConfigType::Boolean => Err(ConfigError::invalid(name, text, "Expected value to be either true or false")),
            ConfigType::Int => trimmed.parse().map(Self::Int).map_err(|_| not_a_number()),
            ConfigType::Short => trimmed.parse().map(Self::Short).map_err(|_| not_a_number()),
            ConfigType::Long => trimmed.parse().map(Self::Long).map_err(|_| not_a_number()),
            ConfigType::Double => parse_double(trimmed).map(Self::Double).ok_or_else(not_a_number),
            ConfigType::String | ConfigType::Class => Ok(Self::String(trimmed.to_owned())),
            ConfigType::List => Ok(Self::List(parse_list(trimmed))),
            ConfigType::Password => Ok(Self::Password(trimmed.to_owned())),
        }
    }

    /// Kafka's text of the value: lists joined with commas, doubles as Java prints them; `None` for null
    /// and for passwords.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Null | Self::Password(_) => None,
            Self::Boolean(v) => Some(v.to_string()),
            Self::Int(v) => Some(v.to_string()),
            Self::Short(v) => Some(v.to_string()),
            Self::Long(v) => Some(v.to_string()),
            Self::Double(v) => Some(double_text(*v)),
            Self::String(v) => Some(v.clone()),
            Self::List(v) => Some(v.join(",")),
        }
    }

    /// The number of an INT, SHORT or LONG.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Int(v) => Some(i64::from(*v)),
            Self::Short(v) => Some(i64::from(*v)),
            Self::Long(v) => Some(*v),
            _ => None,
        }
    }

    /// The value inside an error message.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Password(_) => "[hidden]".to_owned(),
            Self::List(v) => format!("[{}]", v.join(", ")),
            other => other.text().unwrap_or_default(),
        }
    }

    /// A number of any type as `f64`, for ranges.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Int(v) => Some(f64::from(*v)),
            Self::Short(v) => Some(f64::from(*v)),
            // Limits are far below 2^53, so rounding a large value cannot move it across one.
            Self::Long(v) => Some(*v as f64),
            Self::Double(v) => Some(*v),
            _ => None,
        }
    }
}

/// Java's `String.trim`: everything up to the space character goes.
pub(crate) fn java_trim(text: &str) -> &str {
    text.trim_matches(|c: char| c <= ' ')
}

/// Splits at commas with blanks around them; an empty text is an empty list.
pub fn parse_list(text: &str) -> Vec<String> {
    let text = java_trim(text);
    if text.is_empty() {
        return Vec::new();
    }
    text.split(',').map(|part| java_trim(part).to_owned()).collect()
}

fn parse_double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned == "NaN" || unsigned == "Infinity" {
        return text.parse().ok();
    }
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text).parse().ok()
}

/// Java's `Double.toString`: plain between 1e-3 and 1e7, otherwise `d.dE±n`.
pub fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let magnitude = value.abs();
    if value == 0.0 || (1e-3..1e7).contains(&magnitude) {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let point = if mantissa.contains('.') { "" } else { ".0" };
    format!("{mantissa}{point}E{exponent}")
}

/// How a typed field reads a value; null reads as the type's zero.
pub(crate) trait FromValue {
    fn from_value(value: Option<&Value>) -> Self;
}

impl FromValue for bool {
    fn from_value(value: Option<&Value>) -> Self {
        matches!(value, Some(Value::Boolean(true)))
    }
}

impl FromValue for i64 {
    fn from_value(value: Option<&Value>) -> Self {
        value.and_then(Value::integer).unwrap_or(0)
    }
}

impl FromValue for i32 {
    fn from_value(value: Option<&Value>) -> Self {
        match value {
            Some(Value::Int(v)) => *v,
            Some(Value::Short(v)) => Self::from(*v),
            _ => 0,
        }
    }
}

impl FromValue for i16 {
    fn from_value(value: Option<&Value>) -> Self {
        if let Some(Value::Short(v)) = value { *v } else { 0 }
    }
}

impl FromValue for f64 {
    fn from_value(value: Option<&Value>) -> Self {
        if let Some(Value::Double(v)) = value { *v } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_print_as_java_prints_them() {
        let text: Vec<String> =
            [0.5, 1.0, f64::MAX, 2_147_483_647.0, 0.000_1, 1e7, 123_456.789].iter().map(|v| double_text(*v)).collect();
        assert_eq!(text, ["0.5", "1.0", "1.7976931348623157E308", "2.147483647E9", "1.0E-4", "1.0E7", "123456.789"]);
    }

    #[test]
    fn list_entries_are_trimmed_and_an_empty_text_is_an_empty_list() {
        assert_eq!(parse_list(" a , b,a,,c "), ["a", "b", "a", "", "c"]);
        assert!(parse_list("  ").is_empty());
    }
}
