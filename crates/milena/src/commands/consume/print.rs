//! How `milena consume` prints a record: by a format as kcat's, or as JSON.

use std::io::Write as _;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use milena_client::{ConsumerRecord, ConsumerRecords};
use serde_json::{Value, json};

use crate::failure::usage;
use crate::input::unescape;

/// How to print.
pub enum Printer {
    /// JSON objects, one a line.
    Json,
    /// Piece by piece.
    Format(Vec<Piece>),
}

/// A piece of a format.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    Topic,
    Partition,
    Offset,
    Time,
    Key,
    KeyLength,
    Value,
    ValueLength,
    /// In 4 bytes, the highest first.
    ValueLengthBytes,
    Headers,
}

impl Printer {
    /// As JSON.
    pub fn json() -> Self {
        Self::Json
    }

    /// By a format.
    ///
    /// # Errors
    /// A percent sign with nothing that is known behind it.
    pub fn new(format: &str) -> Result<Self> {
        let mut pieces = Vec::new();
        let mut parts = format.split('%');
        let text = |text: &str| (!text.is_empty()).then(|| Piece::Text(unescape(text)));
        pieces.extend(parts.next().and_then(text));
        while let Some(part) = parts.next() {
            let mut letters = part.chars();
            let piece = match letters.next() {
                Some('t') => Piece::Topic,
                Some('p') => Piece::Partition,
                Some('o') => Piece::Offset,
                Some('T') => Piece::Time,
                Some('k') => Piece::Key,
                Some('K') => Piece::KeyLength,
                Some('s') => Piece::Value,
                Some('S') => Piece::ValueLength,
                Some('R') => Piece::ValueLengthBytes,
                Some('h') => Piece::Headers,
                Some(other) => return Err(usage!("--format: %{other} stands for nothing; --help tells what there is")),
                // Behind the second of two percent signs there is text again.
                None => {
                    pieces.push(Piece::Text("%".to_owned()));
                    match parts.next() {
                        Some(rest) => pieces.extend(text(rest)),
                        None => return Err(usage!("--format: there is nothing behind the last %")),
                    }
                    continue;
                }
            };
            pieces.push(piece);
            pieces.extend(text(letters.as_str()));
        }
        Ok(Self::Format(pieces))
    }

    /// Appends a record, one of `records`, to `out`.
    pub fn print(&self, records: &ConsumerRecords, record: &ConsumerRecord<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Json => print_json(records, record, out),
            Self::Format(pieces) => pieces.iter().for_each(|piece| piece.print(records, record, out)),
        }
    }
}

impl Piece {
    fn print(&self, records: &ConsumerRecords, record: &ConsumerRecord<'_>, out: &mut Vec<u8>) {
        let length = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i64);
        let mut number = |number: i64| {
            // There is always room in memory.
            let _ = write!(out, "{number}");
        };
        match self {
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Topic => out.extend_from_slice(records.topic().as_bytes()),
            Self::Partition => number(records.partition().into()),
            Self::Offset => number(record.offset),
            Self::Time => number(record.timestamp),
            Self::KeyLength => number(length(record.key)),
            Self::ValueLength => number(length(record.value)),
            Self::Key => out.extend_from_slice(record.key.unwrap_or_default()),
            Self::Value => out.extend_from_slice(record.value.unwrap_or_default()),
            Self::ValueLengthBytes => out.extend_from_slice(&(length(record.value) as i32).to_be_bytes()),
            Self::Headers => print_headers(record, out),
        }
    }
}

/// `name=value,name=value`.
fn print_headers(record: &ConsumerRecord<'_>, out: &mut Vec<u8>) {
    for (place, header) in record.headers.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(header.key);
        out.push(b'=');
        out.extend_from_slice(header.value.unwrap_or(b"NULL"));
    }
}

fn print_json(records: &ConsumerRecords, record: &ConsumerRecord<'_>, out: &mut Vec<u8>) {
    let mut object = json!({
        "topic": records.topic(),
        "partition": records.partition(),
        "offset": record.offset,
        "timestamp": record.timestamp,
    });
    let headers = record.headers.iter().map(|header| {
        let mut object = json!({ "key": String::from_utf8_lossy(header.key) });
        put(&mut object, "value", header.value);
        object
    });
    object["headers"] = headers.collect();
    put(&mut object, "key", record.key);
    put(&mut object, "value", record.value);
    let _ = writeln!(out, "{object}");
}

/// Bytes as text where they are text, as base64 under another name where they are not.
fn put(object: &mut Value, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(std::str::from_utf8) {
        None => object[name] = Value::Null,
        Some(Ok(text)) => object[name] = text.into(),
        Some(Err(_)) => object[format!("{name}_base64")] = STANDARD.encode(bytes.unwrap_or_default()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(format: &str) -> Result<Vec<Piece>, String> {
        match Printer::new(format).map_err(|error| error.to_string())? {
            Printer::Format(pieces) => Ok(pieces),
            Printer::Json => unreachable!("it is a format"),
        }
    }

    #[test]
    fn a_format_is_text_and_what_a_percent_sign_stands_for() {
        let text = |text: &str| Piece::Text(text.to_owned());
        assert_eq!(pieces(r"%s\n").unwrap(), [Piece::Value, text("\n")]);
        assert_eq!(pieces("a%t[%p]").unwrap(), [text("a"), Piece::Topic, text("["), Piece::Partition, text("]")]);
        assert_eq!(pieces("100%%s%%%k").unwrap(), [text("100"), text("%"), text("s"), text("%"), Piece::Key]);
        assert_eq!(pieces("").unwrap(), []);
    }

    #[test]
    fn what_a_format_does_not_have_is_refused() {
        assert!(pieces("%x").unwrap_err().contains("%x stands for nothing"));
        assert!(pieces("a%").unwrap_err().contains("nothing behind the last %"));
    }

    #[test]
    fn bytes_that_are_no_text_are_base64() {
        let mut object = json!({});
        put(&mut object, "key", None);
        put(&mut object, "value", Some(b"\xff"));
        assert_eq!(object, json!({ "key": null, "value_base64": "/w==" }));
    }
}
