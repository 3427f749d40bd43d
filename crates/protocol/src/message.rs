//! The traits that generated types implement, and the two checks which their encoders share.

use crate::error::{DecodeError, EncodeError};
use crate::reader::Reader;
use crate::writer::Writer;

/// A message: a request's or response's body, a header, a record's key or value, a control record.
///
/// `'a` is the lifetime of the bytes that a decoded message borrows from.
pub trait Message<'a>: Sized {
    /// Kafka's name, such as `ProduceRequest`.
    const NAME: &'static str;
    /// The API key of requests and responses, the record type of records, `None` for everything else.
    const API_KEY: Option<i16>;
    /// Oldest version that exists.
    const MIN_VERSION: i16;
    /// Newest version that exists.
    const MAX_VERSION: i16;
    /// First flexible version; `i16::MAX` when none is.
    const FLEXIBLE_FROM: i16;

    /// Takes a message from the bytes that `r` is at. Bytes after it are left alone.
    ///
    /// # Errors
    /// [`DecodeError::UnsupportedVersion`] when the version does not exist, anything else when the bytes are not such a
    /// message.
    fn decode(r: &mut Reader<'a>, version: i16) -> Result<Self, DecodeError>;

    /// Appends the message to `w`. After an error, `w` may hold a part of it.
    ///
    /// # Errors
    /// [`EncodeError::UnsupportedVersion`] when the version does not exist, anything else when the version cannot hold
    /// the message.
    fn encode(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError>;

    /// How long the broker wants to hear nothing more from the client, milliseconds; 0 where a message can't say that.
    fn throttle_time_ms(&self) -> i32 {
        0
    }
}

/// A generated struct, nested ones too; the version is one which the message has.
pub(crate) trait Wire<'a>: Sized {
    /// The fewest bytes that the struct takes in any version.
    const MIN_SIZE: usize;
    fn dec(r: &mut Reader<'a>, v: i16) -> Result<Self, DecodeError>;
    fn enc(&self, w: &mut Writer, v: i16) -> Result<(), EncodeError>;
}

/// Decodes when the version is one of `M`'s.
pub(crate) fn decode<'a, M: Message<'a> + Wire<'a>>(r: &mut Reader<'a>, version: i16) -> Result<M, DecodeError> {
    if version < M::MIN_VERSION || version > M::MAX_VERSION {
        return Err(DecodeError::UnsupportedVersion { message: M::NAME, version });
    }
    M::dec(r, version)
}

/// Encodes when the version is one of `M`'s.
pub(crate) fn encode<'a, M: Message<'a> + Wire<'a>>(m: &M, w: &mut Writer, version: i16) -> Result<(), EncodeError> {
    if version < M::MIN_VERSION || version > M::MAX_VERSION {
        return Err(EncodeError::UnsupportedVersion { message: M::NAME, version });
    }
    m.enc(w, version)
}

/// A field that the version does not have must be at its default, unless it may be dropped.
#[inline]
pub(crate) fn absent(differs: bool, field: &'static str, version: i16) -> Result<(), EncodeError> {
    if differs { Err(EncodeError::FieldNotInVersion { field, version }) } else { Ok(()) }
}

/// A field that has no null in this version.
#[inline]
pub(crate) fn need<'b, T>(value: &'b Option<T>, field: &'static str) -> Result<&'b T, EncodeError> {
    value.as_ref().ok_or(EncodeError::UnexpectedNull { field })
}
