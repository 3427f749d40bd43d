//! `LineMessageReader`: how kafka-console-producer makes records out of lines, by its properties.

use std::collections::BTreeMap;

use regex_lite::Regex;

use super::{Thrown, java};
use crate::connect::Properties;
use crate::input::lines::{Flaw, Layout};

/// The class that the tool names when nobody names another.
pub const CLASS: &str = "org.apache.kafka.tools.LineMessageReader";

/// The layout of lines that the properties tell.
pub fn layout(properties: &Properties) -> Result<Layout, Thrown> {
    let given: BTreeMap<&str, &str> = properties.iter().map(|(key, value)| (&**key, &**value)).collect();
    let text = |key: &str, default: &str| given.get(key).map_or(default, |text| text).to_owned();
    let is_set = |key: &str| given.get(key).is_some_and(|text| text.trim().eq_ignore_ascii_case("true"));
    let key_separator = text("key.separator", "\t");
    let delimiter = text("headers.delimiter", "\t");
    let separator = text("headers.separator", ",");
    let header_key_separator = text("headers.key.separator", ":");
    let null_marker = given.get("null.marker").map(|marker| (*marker).to_owned());
    let pattern = Regex::new(&separator)
        .map_err(|error| Thrown::new("java.util.regex.PatternSyntaxException", error.to_string()))?;
    let marker = null_marker.as_ref();
    let equal = [
        (delimiter == separator, "headers.delimiter and headers.separator"),
        (delimiter == header_key_separator, "headers.delimiter and headers.key.separator"),
        (separator == header_key_separator, "headers.separator and headers.key.separator"),
        (Some(&key_separator) == marker, "null.marker and key.separator"),
        (Some(&separator) == marker, "null.marker and headers.separator"),
        (Some(&delimiter) == marker, "null.marker and headers.delimiter"),
        (Some(&header_key_separator) == marker, "null.marker and headers.key.separator"),
    ];
    if let Some((_, which)) = equal.into_iter().find(|(equal, _)| *equal) {
        return Err(Thrown::new(java::KAFKA_EXCEPTION, format!("{which} may not be equal")));
    }
    Ok(Layout {
        headers_delimiter: is_set("parse.headers").then_some(delimiter),
        headers_separator: pattern,
        header_key_separator,
        key_separator: is_set("parse.key").then_some(key_separator),
        null_marker,
        forgiving: is_set("ignore.error"),
    })
}

/// What the reader throws for a line that is no record.
pub fn thrown(flaw: Flaw, layout: &Layout, line: &str, number: u64) -> Thrown {
    let missing = |what: &str| format!("No {what} found on line number {number}: '{line}'");
    let message = match flaw {
        Flaw::NoHeadersDelimiter => missing("headers delimiter"),
        Flaw::NoKeySeparator => missing("key separator"),
        Flaw::NoHeaderKeySeparator(pair) => {
            format!("No header key separator found in pair '{pair}' on line number {number}")
        }
        Flaw::NullHeaderKey => {
            let marker = layout.null_marker.as_deref().unwrap_or_default();
            format!("Header keys should not be equal to the null marker '{marker}' as they can't be null")
        }
        Flaw::NotText => unreachable!("the line is text"),
    };
    Thrown::new(java::KAFKA_EXCEPTION, message)
}

/// A line as Java reads it: it ends with `\n`, `\r` or both, and what is not UTF-8 is replaced. Given is what stands up to a
/// `\n`; it may hold several lines.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text).split('\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> Properties {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn properties_tell_what_a_line_is_made_of() {
        let plain = layout(&properties(&[])).unwrap();
        assert_eq!((plain.key_separator, plain.headers_delimiter, plain.forgiving), (None, None, false));
        let given =
            [("parse.key", " TRUE "), ("key.separator", "|"), ("parse.headers", "true"), ("ignore.error", "true")];
        let layout = layout(&properties(&given)).unwrap();
        assert_eq!(layout.key_separator.as_deref(), Some("|"));
        assert_eq!(layout.headers_delimiter.as_deref(), Some("\t"));
        assert!(layout.forgiving);
    }

    #[test]
    fn separators_must_differ() {
        let refused = |pairs: &[(&str, &str)]| layout(&properties(pairs)).unwrap_err().message;
        let message = "headers.separator and headers.key.separator may not be equal";
        assert_eq!(refused(&[("headers.separator", ":")]), message);
        assert_eq!(refused(&[("null.marker", "\t")]), "null.marker and key.separator may not be equal");
        assert!(layout(&properties(&[("headers.separator", "(")])).is_err());
    }

    #[test]
    fn lines_end_as_in_java() {
        let read = |text| lines(text).collect::<Vec<_>>();
        assert_eq!(read("a\n"), ["a"]);
        assert_eq!(read("a\r\n"), ["a"]);
        assert_eq!(read("a\rb\r\r\n"), ["a", "b", ""]);
        assert_eq!(read("\n"), [""]);
        assert_eq!(read("a"), ["a"]);
    }
}
