//! How kafka-console-consumer prints a message: `DefaultMessageFormatter` by its properties, and `NoOpMessageFormatter`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write as _;

use milena_client::{ConsumerRecord, ConsumerRecords, TimestampType};

use crate::connect::Properties;
use crate::kafka::Thrown;
use crate::output::print_error;

/// The formatter when nobody names another.
pub const CLASS: &str = "org.apache.kafka.tools.consumer.DefaultMessageFormatter";
const SILENT: &str = "org.apache.kafka.tools.consumer.NoOpMessageFormatter";
const SERIALIZATION: &str = "org.apache.kafka.common.errors.SerializationException";

/// What is printed, and what stands between.
#[derive(Debug, Default)]
pub struct Formatter {
    timestamp: bool,
    key: bool,
    offset: bool,
    delivery: bool,
    epoch: bool,
    partition: bool,
    headers: bool,
    value: bool,
    key_separator: String,
    line_separator: String,
    headers_separator: String,
    null: String,
    key_type: Type,
    value_type: Type,
    header_type: Type,
}

/// What bytes are taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Type {
    /// Themselves.
    #[default]
    Bytes,
    Text,
    Short,
    Integer,
    Long,
}

impl Formatter {
    /// The formatter of a class with properties; `None` when there is no such class.
    pub fn new(class: &str, properties: &Properties) -> Option<Self> {
        let given: BTreeMap<&str, &str> = properties.iter().map(|(key, value)| (&**key, &**value)).collect();
        let is = |key: &str, default| given.get(key).map_or(default, |text| text.trim().eq_ignore_ascii_case("true"));
        let text = |key: &str, default: &str| given.get(key).map_or(default, |text| text).to_owned();
        let kind = |key: &str| given.get(key).map_or(Type::Bytes, |class| Type::of(class));
        match class {
            SILENT => Some(Self::default()),
            CLASS => Some(Self {
                timestamp: is("print.timestamp", false),
                key: is("print.key", false),
                offset: is("print.offset", false),
                delivery: is("print.delivery", false),
                epoch: is("print.epoch", false),
                partition: is("print.partition", false),
                headers: is("print.headers", false),
                value: is("print.value", true),
                key_separator: text("key.separator", "\t"),
                line_separator: text("line.separator", "\n"),
                headers_separator: text("headers.separator", ","),
                null: text("null.literal", "null"),
                key_type: kind("key.deserializer"),
                value_type: kind("value.deserializer"),
                header_type: kind("headers.deserializer"),
            }),
            _ => None,
        }
    }

    /// Appends a message, one of `records`, to `out`.
    pub fn write(
        &self,
        records: &ConsumerRecords,
        record: &ConsumerRecord<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Thrown> {
        let kind = match record.timestamp_type {
            TimestampType::CreateTime => "CreateTime",
            TimestampType::LogAppendTime => "LogAppendTime",
        };
        let columns = [
            (self.timestamp, format_args!("{kind}:{}", record.timestamp)),
            (self.partition, format_args!("Partition:{}", records.partition())),
            (self.offset, format_args!("Offset:{}", record.offset)),
            (self.delivery, format_args!("Delivery:NOT_PRESENT")),
            (self.epoch, format_args!("Epoch:NOT_PRESENT")),
        ];
        // What stands behind a column tells whether it is the last.
        let mut left = columns.iter().map(|(printed, _)| *printed).chain([self.headers, self.key, self.value]);
        for (printed, column) in columns {
            left.next();
            if printed {
                // There is always room in memory.
                let _ = out.write_fmt(column);
                self.separate(left.clone().any(|printed| printed), out);
            }
        }
        if self.headers {
            self.write_headers(record, out)?;
            self.separate(self.key || self.value, out);
        }
        if self.key {
            out.extend_from_slice(&self.key_type.read(record.key.unwrap_or(self.null.as_bytes()))?);
            self.separate(self.value, out);
        }
        if self.value {
            out.extend_from_slice(&self.value_type.read(record.value.unwrap_or(self.null.as_bytes()))?);
            self.separate(false, out);
        }
        Ok(())
    }

    /// What stands behind a column, or behind the last.
    fn separate(&self, more: bool, out: &mut Vec<u8>) {
        let separator = if more { &self.key_separator } else { &self.line_separator };
        out.extend_from_slice(separator.as_bytes());
    }

    fn write_headers(&self, record: &ConsumerRecord<'_>, out: &mut Vec<u8>) -> Result<(), Thrown> {
        if record.headers.is_empty() {
            out.extend_from_slice(b"NO_HEADERS");
        }
        for (place, header) in record.headers.iter().enumerate() {
            if place > 0 {
                out.extend_from_slice(self.headers_separator.as_bytes());
            }
            out.extend_from_slice(String::from_utf8_lossy(header.key).as_bytes());
            out.push(b':');
            out.extend_from_slice(&self.header_type.read(header.value.unwrap_or(self.null.as_bytes()))?);
        }
        Ok(())
    }
}

impl Type {
    /// What a deserializer takes bytes for. One that is not there is told, and bytes are printed.
    fn of(class: &str) -> Self {
        match class.strip_prefix("org.apache.kafka.common.serialization.") {
            Some("StringDeserializer") => Self::Text,
            Some("ShortDeserializer") => Self::Short,
            Some("IntegerDeserializer") => Self::Integer,
            Some("LongDeserializer") => Self::Long,
            _ => {
                print_error(&format!("ERROR Unable to instantiate a deserializer from {class}\n"));
                Self::Bytes
            }
        }
    }

    fn read(self, bytes: &[u8]) -> Result<Cow<'_, [u8]>, Thrown> {
        let wrong = |class: &str, size: usize| {
            Thrown::new(SERIALIZATION, format!("Size of data received by {class} is not {size}"))
        };
        let number = |number: i64| Cow::Owned(number.to_string().into_bytes());
        Ok(match self {
            Self::Bytes => Cow::Borrowed(bytes),
            Self::Text => match String::from_utf8_lossy(bytes) {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
            Self::Short => {
                let bytes = bytes.try_into().map_err(|_| wrong("ShortDeserializer", 2))?;
                number(i16::from_be_bytes(bytes).into())
            }
            Self::Integer => {
                let bytes = bytes.try_into().map_err(|_| wrong("IntegerDeserializer", 4))?;
                number(i32::from_be_bytes(bytes).into())
            }
            Self::Long => {
                let bytes = bytes.try_into().map_err(|_| wrong("LongDeserializer", 8))?;
                number(i64::from_be_bytes(bytes))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_java_wrote_them() {
        let of = |name: &str| Type::of(&format!("org.apache.kafka.common.serialization.{name}"));
        let read = |kind: Type, bytes: &'static [u8]| kind.read(bytes).map(|text| text.into_owned());
        assert_eq!(read(of("LongDeserializer"), &[0, 0, 0, 0, 0, 0, 1, 0]).unwrap(), b"256");
        assert_eq!(read(of("ShortDeserializer"), &[255, 254]).unwrap(), b"-2");
        assert_eq!(read(of("StringDeserializer"), b"a\xff").unwrap(), "a\u{fffd}".as_bytes());
        let refused = read(of("IntegerDeserializer"), b"null?").unwrap_err();
        assert_eq!(refused.message, "Size of data received by IntegerDeserializer is not 4");
    }

    #[test]
    fn another_class_is_no_formatter() {
        assert!(Formatter::new("none.Such", &Properties::new()).is_none());
        let silent = Formatter::new(SILENT, &Properties::new()).unwrap();
        assert!(!silent.value && !silent.key);
    }
}
