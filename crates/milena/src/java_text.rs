//! Text as Java and its JSON library write it, for what prints as Kafka's tools do.

use std::fmt::{Debug, LowerExp};
use std::io::{self, Write};

use serde_json::Value;
use serde_json::ser::{CharEscape, Formatter, Serializer};

/// A number that may be missing.
pub fn optional_long(value: Option<i64>) -> String {
    value.map_or_else(|| "OptionalLong.empty".to_owned(), |value| format!("OptionalLong[{value}]"))
}

/// JSON in one line.
pub fn json(value: &Value) -> String {
    let mut out = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut out, Jackson);
    // A value writes to memory without fail; what is left of a failure is an empty text.
    if serde::Serialize::serialize(value, &mut serializer).is_err() {
        out.clear();
    }
    String::from_utf8(out).unwrap_or_default()
}

/// How Jackson differs from others: capital letters in `\u001F`, and Java's text of floating point numbers.
struct Jackson;

impl Formatter for Jackson {
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        out.write_all(double(value).as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, out: &mut W, escape: CharEscape) -> io::Result<()> {
        match escape {
            CharEscape::Quote => out.write_all(b"\\\""),
            CharEscape::ReverseSolidus => out.write_all(b"\\\\"),
            CharEscape::Solidus => out.write_all(b"/"),
            CharEscape::Backspace => out.write_all(b"\\b"),
            CharEscape::FormFeed => out.write_all(b"\\f"),
            CharEscape::LineFeed => out.write_all(b"\\n"),
            CharEscape::CarriageReturn => out.write_all(b"\\r"),
            CharEscape::Tab => out.write_all(b"\\t"),
            CharEscape::AsciiControl(byte) => write!(out, "\\u{byte:04X}"),
        }
    }
}

/// As Java's `Double.toString`.
pub fn double(value: f64) -> String {
    decimal(value, &value)
}

/// As Java's `Float.toString`.
pub fn float(value: f32) -> String {
    decimal(value.into(), &value)
}

/// Plain from 0.001 to below ten million, else with an exponent.
fn decimal(value: f64, digits: &(impl Debug + LowerExp)) -> String {
    let size = value.abs();
    if size.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if size == 0.0 || (1e-3..1e7).contains(&size) {
        return format!("{digits:?}");
    }
    let shortest = format!("{digits:e}");
    // Java takes two digits where one would do: the nearest ones.
    let text = if shortest.contains('.') { shortest } else { format!("{digits:.1e}") };
    text.replace('e', "E")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_and_control_characters_are_written_as_by_java() {
        let value = json!({"b": [1e7, 1.5e-4, 50000.0, 123456789.5, -0.0, f64::from_bits(1)], "a": "\u{1f}\n\"é/"});
        assert_eq!(json(&value), r#"{"b":[1.0E7,1.5E-4,50000.0,1.234567895E8,-0.0,4.9E-324],"a":"\u001F\n\"é/"}"#);
    }

    #[test]
    fn floating_point_numbers_of_both_sizes_are_told() {
        assert_eq!([0.1, 1e10, 3.4e38].map(float), ["0.1", "1.0E10", "3.4E38"]);
        assert_eq!([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(double), ["NaN", "Infinity", "-Infinity"]);
    }
}
