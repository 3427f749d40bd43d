//! Keys and values as text: by the decoders that Kafka brings, or as the records of its own topics.

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use milena_protocol::coordinator_record::Coordinator;
use milena_protocol::json::ToJson;
use milena_protocol::messages::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use milena_protocol::{DecodeError, MetadataRecord, Reader, framing};
use serde_json::{Value, json};

use super::records::Shown;
use super::remote;
use crate::coordinator_records::{Decoded, Undecodable, decode};
use crate::java_text;

/// Type of the records that hold a classic group.
const GROUP_METADATA: i16 = 2;
/// Where Kafka's decoders live.
const PACKAGE: &str = "org.apache.kafka.tools.api.";

/// The flags that choose a decoder.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Arguments {
    /// Reads records as those of __cluster_metadata
    #[arg(long)]
    cluster_metadata_decoder: bool,
    /// Reads records as those of __consumer_offsets
    #[arg(long)]
    offsets_decoder: bool,
    /// Reads records as those of __transaction_state
    #[arg(long)]
    transaction_log_decoder: bool,
    /// Reads records as those of __share_group_state
    #[arg(long)]
    share_group_state_decoder: bool,
    /// Reads records as those of __remote_log_metadata
    #[arg(long)]
    remote_log_metadata_decoder: bool,
    /// How keys are shown: StringDecoder, IntegerDecoder, LongDecoder, DefaultDecoder (hex), with or without package
    #[arg(long, value_name = "CLASS", num_args = 0..=1, default_missing_value = "StringDecoder")]
    key_decoder_class: Option<String>,
    /// How values are shown, as --key-decoder-class
    #[arg(long, value_name = "CLASS", num_args = 0..=1, default_missing_value = "StringDecoder")]
    value_decoder_class: Option<String>,
}

impl Arguments {
    /// Whether any is given.
    pub(super) fn is_any(&self) -> bool {
        self.topic().is_some() || self.key_decoder_class.is_some() || self.value_decoder_class.is_some()
    }

    fn topic(&self) -> Option<Parser> {
        let flags = [
            (self.offsets_decoder, Parser::Coordinator(Coordinator::Group)),
            (self.transaction_log_decoder, Parser::Coordinator(Coordinator::Transaction)),
            (self.cluster_metadata_decoder, Parser::ClusterMetadata),
            (self.remote_log_metadata_decoder, Parser::RemoteLogMetadata),
            (self.share_group_state_decoder, Parser::Coordinator(Coordinator::Share)),
        ];
        flags.into_iter().find_map(|(given, parser)| given.then_some(parser))
    }

    /// What the flags ask for.
    pub(super) fn parser(&self) -> Result<Parser> {
        if let Some(parser) = self.topic() {
            return Ok(parser);
        }
        let value = Decoder::named(self.value_decoder_class.as_deref())?;
        Ok(Parser::Plain { key: Decoder::named(self.key_decoder_class.as_deref())?, value })
    }
}

/// How one field is read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Decoder {
    Text,
    Int,
    Long,
    Bytes,
}

impl Decoder {
    fn named(class: Option<&str>) -> Result<Decoder> {
        match class.map(|class| class.strip_prefix(PACKAGE).unwrap_or(class)) {
            None | Some("StringDecoder") => Ok(Decoder::Text),
            Some("IntegerDecoder") => Ok(Decoder::Int),
            Some("LongDecoder") => Ok(Decoder::Long),
            Some("DefaultDecoder") => Ok(Decoder::Bytes),
            Some(other) => bail!("Failed to load decoder class: there is no {other}"),
        }
    }

    fn text(self, bytes: &[u8]) -> Result<String> {
        let short = || format!("{} bytes are too few for a number", bytes.len());
        Ok(match self {
            Decoder::Text => String::from_utf8_lossy(bytes).into_owned(),
            Decoder::Int => i32::from_be_bytes(*bytes.first_chunk().with_context(short)?).to_string(),
            Decoder::Long => i64::from_be_bytes(*bytes.first_chunk().with_context(short)?).to_string(),
            Decoder::Bytes => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }
}

/// What makes text of keys and values.
#[derive(Debug, Clone, Copy)]
pub(super) enum Parser {
    Plain { key: Decoder, value: Decoder },
    Coordinator(Coordinator),
    ClusterMetadata,
    RemoteLogMetadata,
}

impl Parser {
    /// Key and value of the record at `offset`.
    ///
    /// # Errors
    /// Where Kafka's tool stops: too few bytes for a number, a coordinator's record without key.
    pub(super) fn parse(&self, offset: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Result<Shown> {
        match self {
            Parser::Plain { key: k, value: v } => {
                Ok((key.map(|key| k.text(key)).transpose()?, value.map(|value| v.text(value)).transpose()?))
            }
            Parser::Coordinator(coordinator) => {
                let Some(key) = key else {
                    bail!(
                        "Failed to decode message at offset {offset} using the specified decoder (message had a missing key)"
                    )
                };
                Ok(coordinator_text(*coordinator, offset, key, value))
            }
            Parser::ClusterMetadata => {
                let text = metadata(value.unwrap_or_default());
                Ok((None, Some(text.unwrap_or_else(|error| format!("Error at {offset}, skipping. {error}")))))
            }
            Parser::RemoteLogMetadata => {
                let text = remote::text(value.unwrap_or_default());
                Ok((None, Some(text.unwrap_or_else(|error| format!("Error at offset {offset}, skipping. {error}")))))
            }
        }
    }
}

fn metadata(value: &[u8]) -> Result<String, DecodeError> {
    let (record, version) = MetadataRecord::decode_framed(value)?;
    let data = record.to_json(version);
    Ok(java_text::json(&json!({"type": constant(record.name()), "version": version, "data": data})))
}

/// `FeatureLevelRecord` is `FEATURE_LEVEL_RECORD`.
fn constant(name: &str) -> String {
    let mut out = String::new();
    for (at, char) in name.char_indices() {
        if char.is_ascii_uppercase() && at > 0 {
            out.push('_');
        }
        out.push(char.to_ascii_uppercase());
    }
    out
}

fn coordinator_text(coordinator: Coordinator, offset: i64, key: &[u8], value: Option<&[u8]>) -> Shown {
    let Decoded { record_type, key, value } = match decode(coordinator, key, value) {
        Ok(decoded) => decoded,
        Err(Undecodable::Type(record_type)) => {
            return (Some(format!("Unknown record type {record_type} at offset {offset}, skipping.")), None);
        }
        Err(Undecodable::Key(why) | Undecodable::Value(why)) => {
            return (Some(format!("Error at offset {offset}, skipping. {why}")), None);
        }
    };
    let key = java_text::json(&json!({"type": record_type.to_string(), "data": key}));
    let Some((version, mut data)) = value else { return (Some(key), Some("<DELETE>".to_owned())) };
    if (coordinator, record_type) == (Coordinator::Group, GROUP_METADATA) {
        open_members(&mut data);
    }
    (Some(key), Some(java_text::json(&json!({"version": version.to_string(), "data": data}))))
}

/// Shows what members of a classic group of consumers have sent as messages instead of bytes, where it can be read.
fn open_members(data: &mut Value) {
    if data["protocolType"] != "consumer" {
        return;
    }
    for member in data["members"].as_array_mut().into_iter().flatten() {
        open(&mut member["subscription"], subscription);
        open(&mut member["assignment"], assignment);
    }
}

fn open(field: &mut Value, read: fn(&[u8]) -> Option<Value>) {
    let bytes = field.as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
    if let Some(opened) = bytes.and_then(|bytes| read(&bytes)) {
        *field = opened;
    }
}

fn subscription(bytes: &[u8]) -> Option<Value> {
    let (message, version): (ConsumerProtocolSubscription<'_>, _) =
        framing::decode_prefixed(&mut Reader::new(bytes)).ok()?;
    Some(message.to_json(version))
}

fn assignment(bytes: &[u8]) -> Option<Value> {
    let (message, version): (ConsumerProtocolAssignment<'_>, _) =
        framing::decode_prefixed(&mut Reader::new(bytes)).ok()?;
    Some(message.to_json(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_without_key_or_of_another_kind_is_told_as_by_kafka() {
        let offsets = Parser::Coordinator(Coordinator::Group);
        assert!(offsets.parse(7, None, None).is_err());
        let text = |key: &[u8]| offsets.parse(7, Some(key), None).unwrap();
        assert_eq!(text(&[0, 99]), (Some("Unknown record type 99 at offset 7, skipping.".to_owned()), None));
        let cut = "Error at offset 7, skipping. Could not read version from key's buffer.";
        assert_eq!(text(&[0]), (Some(cut.to_owned()), None));
        let deleted = (Some(r#"{"type":"2","data":{"group":"g"}}"#.to_owned()), Some("<DELETE>".to_owned()));
        assert_eq!(text(&[0, 2, 0, 1, b'g']), deleted);
    }

    #[test]
    fn decoders_are_known_by_their_class_with_and_without_package() {
        let decoder = Decoder::named(Some("org.apache.kafka.tools.api.LongDecoder")).unwrap();
        assert_eq!(decoder.text(&[0, 0, 0, 0, 0, 0, 1, 0]).unwrap(), "256");
        assert!(decoder.text(&[0; 7]).is_err());
        assert_eq!(Decoder::named(Some("IntegerDecoder")).unwrap().text(&[0xff; 4]).unwrap(), "-1");
        assert!(Decoder::named(Some("FloatDecoder")).is_err());
    }
}
