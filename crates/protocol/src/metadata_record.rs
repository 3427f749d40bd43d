//! The records of the metadata log and of the remote log metadata topic, each as one enum, with the frame that they
//! have as a record's value: uvarint 1, uvarint record type, uvarint version, body.

use crate::error::{DecodeError, EncodeError};
use crate::message::Message;
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{framing, messages};

macro_rules! records {
    ($(#[$doc:meta])* $enum:ident $($variant:ident $record:ident $($lt:lifetime)?;)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $enum<'a> {
            $(
                #[doc = concat!("A ", stringify!($record), ".")]
                $variant(messages::$record $(<$lt>)?),
            )*
        }

        impl<'a> $enum<'a> {
            /// The record type, the `apiKey` of the definition.
            pub fn record_type(&self) -> i16 {
                match self {
                    $(Self::$variant(_) => messages::$record::API_KEY.expect("every record has a type"),)*
                }
            }

            /// Kafka's name of the record.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => messages::$record::NAME,)*
                }
            }

            /// Newest version of the record.
            pub fn max_version(&self) -> i16 {
                match self {
                    $(Self::$variant(_) => messages::$record::MAX_VERSION,)*
                }
            }

            /// Takes the body of a record of this type.
            ///
            /// # Errors
            /// [`DecodeError::UnknownRecordType`], and all that decoding can give.
            pub fn decode_body(record_type: i16, r: &mut Reader<'a>, version: i16) -> Result<Self, DecodeError> {
                match record_type {
                    $(t if messages::$record::API_KEY == Some(t) => Ok(Self::$variant(Message::decode(r, version)?)),)*
                    t => Err(DecodeError::UnknownRecordType(u32::from(t.cast_unsigned()))),
                }
            }

            /// Appends the body only.
            ///
            /// # Errors
            /// Those of the record.
            pub fn encode_body(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError> {
                match self {
                    $(Self::$variant(record) => record.encode(w, version),)*
                }
            }

            /// The record in a record's value, and the version it was written in. Nothing may follow it.
            ///
            /// # Errors
            /// Another frame version than 1, an unknown type or version, a bad body, trailing bytes.
            pub fn decode_framed(bytes: &'a [u8]) -> Result<(Self, i16), DecodeError> {
                let mut r = Reader::new(bytes);
                let (record_type, version) = framing::decode_record_frame(&mut r)?;
                let record = Self::decode_body(record_type, &mut r, version)?;
                r.finish()?;
                Ok((record, version))
            }

            /// Appends frame and body.
            ///
            /// # Errors
            /// Those of the record.
            pub fn encode_framed(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError> {
                framing::encode_record_frame(w, self.record_type(), version);
                self.encode_body(w, version)
            }

            /// The record as JSON, under Kafka's names.
            #[cfg(feature = "json")]
            pub fn to_json(&self, version: i16) -> serde_json::Value {
                match self {
                    $(Self::$variant(record) => crate::json::ToJson::to_json(record, version),)*
                }
            }
        }

        $(
            impl<'a> From<messages::$record $(<$lt>)?> for $enum<'a> {
                fn from(record: messages::$record $(<$lt>)?) -> Self {
                    Self::$variant(record)
                }
            }
        )*
    };
}

include!(concat!(env!("OUT_DIR"), "/metadata_record.rs"));

#[cfg(test)]
mod tests {
    use super::MetadataRecord;
    use crate::messages::TopicRecord;
    use crate::{DecodeError, Uuid, Writer};

    fn framed(record: &MetadataRecord<'_>) -> Vec<u8> {
        let mut w = Writer::new();
        record.encode_framed(&mut w, 0).unwrap();
        w.into_bytes()
    }

    #[test]
    fn a_framed_record_reads_back_with_its_version() {
        let record = MetadataRecord::from(TopicRecord { name: "t".into(), topic_id: Uuid::ONE });
        let bytes = framed(&record);
        assert_eq!(bytes[..3], [1, 2, 0]);
        assert_eq!(MetadataRecord::decode_framed(&bytes), Ok((record, 0)));
    }

    #[test]
    fn unknown_types_versions_and_frames_are_told_apart() {
        let decode = |bytes: &'static [u8]| MetadataRecord::decode_framed(bytes).unwrap_err();
        assert_eq!(decode(&[1, 99, 0, 0]), DecodeError::UnknownRecordType(99));
        assert_eq!(decode(&[1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]), DecodeError::UnknownRecordType(u32::MAX));
        assert_eq!(decode(&[0, 20, 0, 0]), DecodeError::FrameVersion(0));
        assert_eq!(decode(&[1, 20, 0, 0, 7]), DecodeError::TrailingBytes(1));
        assert_eq!(decode(&[1, 20, 9, 0]), DecodeError::UnsupportedVersion { message: "NoOpRecord", version: 9 });
    }
}
