//! Every message behind one type, for tests, fuzzing, and tools that find out the message at run time.

use crate::error::{DecodeError, EncodeError};
use crate::message::Message;
use crate::messages;
use crate::reader::Reader;
use crate::writer::Writer;

/// A message known by its name.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Kafka's name, such as `ProduceRequest`.
    pub name: &'static str,
    /// API key or record type.
    pub api_key: Option<i16>,
    /// Oldest version.
    pub min: i16,
    /// Newest version.
    pub max: i16,
    /// First flexible version; `i16::MAX` when none is.
    pub flexible_from: i16,
    /// Decodes the first argument in this version, and appends what that encodes to.
    pub transcode: fn(&[u8], i16, &mut Writer) -> Result<Transcoded, DecodeError>,
    /// Appends the default instance in this version.
    pub encode_default: fn(&mut Writer, i16) -> Result<(), EncodeError>,
    /// Decodes in this version, and gives the JSON.
    #[cfg(feature = "json")]
    pub to_json: fn(&[u8], i16) -> Result<serde_json::Value, DecodeError>,
}

/// What became of a message that was decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transcoded {
    /// Bytes left after the message.
    pub left: usize,
    /// Whether it could be written again.
    pub encoded: Result<(), EncodeError>,
}

fn transcode<'a, M: Message<'a>>(bytes: &'a [u8], version: i16, w: &mut Writer) -> Result<Transcoded, DecodeError> {
    let mut r = Reader::new(bytes);
    let message = M::decode(&mut r, version)?;
    Ok(Transcoded { left: r.remaining(), encoded: message.encode(w, version) })
}

macro_rules! catalog {
    ($($name:ident)*) => {
        /// All messages, by name.
        pub static ENTRIES: &[Entry] = &[$(Entry {
            name: messages::$name::NAME,
            api_key: messages::$name::API_KEY,
            min: messages::$name::MIN_VERSION,
            max: messages::$name::MAX_VERSION,
            flexible_from: messages::$name::FLEXIBLE_FROM,
            transcode: |bytes, version, w| transcode::<messages::$name>(bytes, version, w),
            encode_default: |w, version| messages::$name::default().encode(w, version),
            #[cfg(feature = "json")]
            to_json: |bytes, version| {
                let message = messages::$name::decode(&mut Reader::new(bytes), version)?;
                Ok(crate::json::ToJson::to_json(&message, version))
            },
        }),*];
    };
}

include!(concat!(env!("OUT_DIR"), "/catalog.rs"));

/// The message with this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.binary_search_by(|entry| entry.name.cmp(name)).ok().map(|i| &ENTRIES[i])
}
