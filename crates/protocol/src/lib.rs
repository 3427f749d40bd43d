//! Kafka's wire protocol: messages, their codec, API keys, error codes and ids.
//!
//! The types in [`messages`] are generated from `schema/*.json` (Kafka's message definitions) by `codegen`. Decoding
//! borrows from the input and allocates one vector an array; encoding appends to a byte vector and can leave out the
//! bytes of record batches. Input is never trusted: counts and lengths are checked against the bytes that are there.
//!
//! ```
//! use milena_protocol::messages::ListGroupsRequest;
//! use milena_protocol::{Message, Reader, Writer};
//!
//! let request = ListGroupsRequest { states_filter: vec!["Stable".into()], ..Default::default() };
//! let mut w = Writer::new();
//! request.encode(&mut w, 4)?;
//! let bytes = w.into_bytes();
//! assert_eq!(ListGroupsRequest::decode(&mut Reader::new(&bytes), 4), Ok(request));
//! # Ok::<(), milena_protocol::EncodeError>(())
//! ```
//!
//! Requests and responses with their headers, and the prefixes of records, are in [`framing`].

mod api;
#[cfg(feature = "catalog")]
pub mod catalog;
#[cfg(feature = "json")]
pub mod coordinator_record;
mod error;
mod error_code;
pub mod framing;
#[cfg(feature = "catalog")]
pub mod fuzz;
#[cfg(feature = "json")]
pub mod json;
mod message;
mod metadata_record;
mod primitive;
mod reader;
mod records;
mod request;
mod structs;
mod uuid;
mod writer;

pub use api::{ApiInfo, ApiKey, api_info, apis, request_header_version, response_header_version};
pub use error::{DecodeError, EncodeError};
pub use error_code::ErrorCode;
pub use message::Message;
pub use metadata_record::{MetadataRecord, RemoteLogRecord};
pub use reader::Reader;
pub use records::Records;
pub use request::Request;
pub use structs::Structs;
pub use uuid::{ParseUuidError, Uuid};
pub use writer::{Gap, Mark, Writer};

/// A string field: borrowed from the input, or owned.
pub type Str<'a> = std::borrow::Cow<'a, str>;

/// The messages, one module each, and their root structs side by side.
///
/// Field documentation gives Kafka's type, the versions that have the field, and its default when it is not the type's
/// zero. A default instance is Kafka's default instance.
#[allow(missing_docs, unused_variables, unused_imports, clippy::all)]
pub mod messages {
    /// What the generated code uses.
    mod rt {
        pub(crate) use std::borrow::Cow;

        pub(crate) use crate::message::{Message, Wire, absent, need};
        pub(crate) use crate::{DecodeError, EncodeError, Reader, Records, Str, Structs, Uuid, Writer};
    }
    include!(concat!(env!("OUT_DIR"), "/messages.rs"));
}
