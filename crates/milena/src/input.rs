//! Records as commands read them: from lines ([`lines`]) or from JSON ([`json`]). What is read borrows from the line, so that
//! a record costs no allocation where nothing in it has to be rewritten.

pub mod json;
pub mod lines;

use std::borrow::Cow;

use milena_client::{Delivery, Error, Header, Producer, Record, Transaction};
use smallvec::SmallVec;

/// A header: its key, and its value unless that is null.
pub type DraftHeader<'l> = (Cow<'l, str>, Option<Cow<'l, [u8]>>);

/// A record that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draft<'l> {
    /// The key.
    pub key: Option<Cow<'l, [u8]>>,
    /// The value.
    pub value: Option<Cow<'l, [u8]>>,
    /// The headers, in their order.
    pub headers: SmallVec<[DraftHeader<'l>; 4]>,
    /// Where it shall go, if it says so.
    pub partition: Option<i32>,
    /// Its stamp, ms since 1970, if it has one.
    pub timestamp: Option<i64>,
}

impl Draft<'_> {
    /// Sends the record.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub async fn send(&self, sink: &Sink, topic: &str) -> Result<Delivery, Error> {
        let headers: SmallVec<[Header<'_>; 4]> =
            self.headers.iter().map(|(key, value)| (&**key, value.as_deref())).collect();
        let mut record = Record::to(topic).headers(&headers);
        if let Some(key) = &self.key {
            record = record.key(key);
        }
        if let Some(value) = &self.value {
            record = record.value(value);
        }
        if let Some(partition) = self.partition {
            record = record.partition(partition);
        }
        if let Some(timestamp) = self.timestamp {
            record = record.timestamp(timestamp);
        }
        sink.send(&record).await
    }

    /// Bytes of key, value and headers.
    pub fn len(&self) -> usize {
        let length = |bytes: &Option<Cow<'_, [u8]>>| bytes.as_ref().map_or(0, |bytes| bytes.len());
        let headers = self.headers.iter().map(|(key, value)| key.len() + length(value));
        length(&self.key) + length(&self.value) + headers.sum::<usize>()
    }
}

/// Where records go.
#[derive(Debug)]
pub enum Sink {
    /// To a producer.
    Producer(Producer),
    /// Into a transaction.
    Transaction(Transaction),
}

impl Sink {
    /// Sends a record.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub async fn send(&self, record: &Record<'_>) -> Result<Delivery, Error> {
        match self {
            Self::Producer(producer) => producer.send(record).await,
            Self::Transaction(transaction) => transaction.send(record).await,
        }
    }
}

/// Text in which `\t`, `\n`, `\r`, `\0`, `\\` and `\x1f` stand for the characters that they name. Any other backslash is
/// itself.
pub fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let (character, length) = escape(&rest[at..]);
        out.push(character);
        rest = &rest[at + length..];
    }
    out + rest
}

/// The character that a text, which begins with a backslash, begins with, and how many bytes it takes there.
fn escape(text: &str) -> (char, usize) {
    match text.as_bytes().get(1) {
        Some(b't') => ('\t', 2),
        Some(b'n') => ('\n', 2),
        Some(b'r') => ('\r', 2),
        Some(b'0') => ('\0', 2),
        Some(b'\\') => ('\\', 2),
        Some(b'x') => match text.get(2..4).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => (char::from(byte), 4),
            None => ('\\', 1),
        },
        _ => ('\\', 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_characters_and_others_for_themselves() {
        assert_eq!(unescape(r"a\tb\n\r\0\\t"), "a\tb\n\r\0\\t");
        assert_eq!(unescape(r"\x1f|\x3"), "\u{1f}|\\x3");
        assert_eq!(unescape(r"\d\"), r"\d\");
        assert_eq!(unescape(":"), ":");
    }
}
