//! How kafka-console-consumer prints a message, by the name of a class: `DefaultMessageFormatter` by its properties, those
//! that read the coordinators' topics, and `NoOpMessageFormatter`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write as _;

use milena_client::{ConsumerRecord, ConsumerRecords, TimestampType};
use milena_protocol::coordinator_record::Coordinator;
use serde_json::{Value, json};

use crate::connect::Properties;
use crate::coordinator_records::{Undecodable, decode};
use crate::java_text;
use crate::kafka::{Thrown, java};
use crate::output::print_error;

/// The formatter when nobody names another.
pub const CLASS: &str = "org.apache.kafka.tools.consumer.DefaultMessageFormatter";
/// Where Kafka's formatters live.
const PACKAGE: &str = "org.apache.kafka.tools.consumer.";
const SERIALIZATION: &str = "org.apache.kafka.common.errors.SerializationException";

/// How messages are printed.
#[derive(Debug)]
pub enum Formatter {
    /// Not at all.
    Silent,
    /// As text.
    Columns(Columns),
    /// As JSON: records of a coordinator's topic, and those of its types that are wanted.
    Coordinator(Coordinator, &'static [i16]),
}

impl Formatter {
    /// The formatter of a class with properties; `None` when there is no such class.
    pub fn new(class: &str, properties: &Properties) -> Option<Self> {
        Some(match class.strip_prefix(PACKAGE)? {
            "NoOpMessageFormatter" => Self::Silent,
            // What the second one logs besides is not shown where Kafka's tools log.
            "DefaultMessageFormatter" | "LoggingMessageFormatter" => Self::Columns(Columns::new(properties)),
            "OffsetsMessageFormatter" => Self::Coordinator(Coordinator::Group, &[0, 1]),
            "GroupMetadataMessageFormatter" => Self::Coordinator(Coordinator::Group, &[2]),
            "ShareGroupMessageFormatter" => Self::Coordinator(Coordinator::Group, &[10, 11, 12, 13, 14, 15]),
            "TransactionLogMessageFormatter" => Self::Coordinator(Coordinator::Transaction, &[0]),
            "group.share.ShareGroupStateMessageFormatter" => Self::Coordinator(Coordinator::Share, &[0, 1]),
            _ => return None,
        })
    }

    /// Appends a message, one of `records`, to `out`.
    pub fn write(
        &self,
        records: &ConsumerRecords,
        record: &ConsumerRecord<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Thrown> {
        match self {
            Self::Silent => Ok(()),
            Self::Columns(columns) => columns.write(records, record, out),
            Self::Coordinator(coordinator, types) => {
                let Some(key) = record.key else { return Ok(()) };
                let text = as_json(*coordinator, types, record.offset, key, record.value)?;
                out.extend_from_slice(text.unwrap_or_default().as_bytes());
                Ok(())
            }
        }
    }
}

/// A record of a coordinator's topic; `None` for one that is not wanted.
fn as_json(
    coordinator: Coordinator,
    types: &[i16],
    offset: i64,
    key: &[u8],
    value: Option<&[u8]>,
) -> Result<Option<String>, Thrown> {
    let decoded = match decode(coordinator, key, value) {
        Ok(decoded) => decoded,
        Err(Undecodable::Type(_)) => return Ok(None),
        Err(Undecodable::Key(why) | Undecodable::Value(why)) => {
            let message = format!("Could not read record at offset {offset} due to: {why}");
            return Err(Thrown::new(java::RUNTIME, message));
        }
    };
    if !types.contains(&decoded.record_type) {
        return Ok(None);
    }
    let value = decoded.value.map_or(Value::Null, |(version, data)| json!({ "version": version, "data": data }));
    let key = json!({ "type": decoded.record_type, "data": decoded.key });
    Ok(Some(java_text::json(&json!({ "key": key, "value": value }))))
}

/// What is printed, and what stands between.
#[derive(Debug)]
pub struct Columns {
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
    Float,
    Double,
    Boolean,
}

impl Columns {
    fn new(properties: &Properties) -> Self {
        let given: BTreeMap<&str, &str> = properties.iter().map(|(key, value)| (&**key, &**value)).collect();
        let is = |key: &str, default| given.get(key).map_or(default, |text| text.trim().eq_ignore_ascii_case("true"));
        let text = |key: &str, default: &str| given.get(key).map_or(default, |text| text).to_owned();
        let kind = |key: &str| given.get(key).map_or(Type::Bytes, |class| Type::of(class));
        Self {
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
        }
    }

    fn write(&self, records: &ConsumerRecords, record: &ConsumerRecord<'_>, out: &mut Vec<u8>) -> Result<(), Thrown> {
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
            Some("FloatDeserializer") => Self::Float,
            Some("DoubleDeserializer") => Self::Double,
            Some("BooleanDeserializer") => Self::Boolean,
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
        let text = |text: String| Cow::Owned(text.into_bytes());
        Ok(match self {
            Self::Bytes => Cow::Borrowed(bytes),
            Self::Text => match String::from_utf8_lossy(bytes) {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
            Self::Short => {
                let bytes = bytes.try_into().map_err(|_| wrong("ShortDeserializer", 2))?;
                text(i16::from_be_bytes(bytes).to_string())
            }
            Self::Integer => {
                let bytes = bytes.try_into().map_err(|_| wrong("IntegerDeserializer", 4))?;
                text(i32::from_be_bytes(bytes).to_string())
            }
            Self::Long => {
                let bytes = bytes.try_into().map_err(|_| wrong("LongDeserializer", 8))?;
                text(i64::from_be_bytes(bytes).to_string())
            }
            Self::Float => {
                let bytes = bytes.try_into().map_err(|_| wrong("Deserializer", 4))?;
                text(java_text::float(f32::from_be_bytes(bytes)))
            }
            Self::Double => {
                let bytes = bytes.try_into().map_err(|_| wrong("Deserializer", 8))?;
                text(java_text::double(f64::from_be_bytes(bytes)))
            }
            Self::Boolean => match bytes {
                [0] => Cow::Borrowed(b"false"),
                [1] => Cow::Borrowed(b"true"),
                [other] => {
                    let message = format!("Unexpected byte received by BooleanDeserializer: {}", other.cast_signed());
                    return Err(Thrown::new(SERIALIZATION, message));
                }
                _ => return Err(wrong("BooleanDeserializer", 1)),
            },
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
    fn numbers_with_a_fraction_and_truths_are_text_as_in_java() {
        let of = |name: &str| Type::of(&format!("org.apache.kafka.common.serialization.{name}"));
        let read = |name: &str, bytes: &[u8]| {
            let read = of(name).read(bytes).map(|text| String::from_utf8_lossy(&text).into_owned());
            read.map_err(|thrown| thrown.message)
        };
        assert_eq!(read("DoubleDeserializer", &1e7f64.to_be_bytes()), Ok("1.0E7".to_owned()));
        assert_eq!(read("FloatDeserializer", &0.5f32.to_be_bytes()), Ok("0.5".to_owned()));
        assert_eq!(read("FloatDeserializer", b""), Err("Size of data received by Deserializer is not 4".to_owned()));
        assert_eq!(read("BooleanDeserializer", &[1]), Ok("true".to_owned()));
        let odd = "Unexpected byte received by BooleanDeserializer: -1".to_owned();
        assert_eq!(read("BooleanDeserializer", &[255]), Err(odd));
    }

    #[test]
    fn another_class_is_no_formatter() {
        let of = |class: &str| Formatter::new(class, &Properties::new());
        assert!(of("none.Such").is_none() && of(&format!("{PACKAGE}Such")).is_none());
        assert!(matches!(of(&format!("{PACKAGE}NoOpMessageFormatter")), Some(Formatter::Silent)));
    }

    #[test]
    fn records_of_a_coordinator_are_json_where_they_are_wanted() {
        let Some(Formatter::Coordinator(coordinator, types)) =
            Formatter::new(&format!("{PACKAGE}GroupMetadataMessageFormatter"), &Properties::new())
        else {
            panic!("it is the one of a coordinator");
        };
        let text = |key: &[u8]| as_json(coordinator, types, 7, key, None);
        let deleted = r#"{"key":{"type":2,"data":{"group":"g"}},"value":null}"#;
        assert_eq!(text(&[0, 2, 0, 1, b'g']), Ok(Some(deleted.to_owned())));
        assert_eq!(text(&[0, 99]), Ok(None));
        assert_eq!(text(&[0, 3, 0, 1, b'g']), Ok(None));
        let refused = text(&[0]).unwrap_err();
        let why = "Could not read record at offset 7 due to: Could not read version from key's buffer.";
        assert_eq!(refused.message, why);
    }
}
