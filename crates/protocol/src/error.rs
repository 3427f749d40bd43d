//! What can go wrong between bytes and messages. Kafka's error codes, which travel inside responses, are in
//! [`crate::error_code`].

use thiserror::Error;

/// Why bytes are not the message they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A field or a length reaches beyond the end of the input.
    #[error("{needed} bytes needed, {remaining} left")]
    Truncated {
        /// Bytes that the field takes.
        needed: usize,
        /// Bytes from the field's start to the end of the input.
        remaining: usize,
    },
    /// A uvarint does not end within five bytes.
    #[error("varint longer than five bytes")]
    VarintTooLong,
    /// An array claims more elements than bytes remain, or more than one million, or than other arrays of the message have left of it.
    #[error("array of {count} elements with {remaining} bytes left")]
    TooManyElements {
        /// Elements claimed.
        count: usize,
        /// Bytes after the count.
        remaining: usize,
    },
    /// A tagged section claims more fields than its limit or than the bytes that remain.
    #[error("{0} tagged fields")]
    TooManyTaggedFields(u32),
    /// A compact string claims more than 32,767 bytes.
    #[error("string of {0} bytes")]
    StringTooLong(usize),
    /// Null where this version of the message has no null; the value names the type.
    #[error("null {0} where null is not allowed")]
    UnexpectedNull(&'static str),
    /// A known tag that this version of the message does not have.
    #[error("tag {tag} does not exist in version {version}")]
    TagNotInVersion {
        /// The tag as written.
        tag: u32,
        /// Version being decoded.
        version: i16,
    },
    /// The message has no such version.
    #[error("{message} has no version {version}")]
    UnsupportedVersion {
        /// Name of the message.
        message: &'static str,
        /// Version asked for.
        version: i16,
    },
    /// A framed record has a frame version other than 1.
    #[error("record frame version {0}")]
    FrameVersion(u32),
    /// A framed record, or a coordinator key, of a type that does not exist.
    #[error("unknown record type {0}")]
    UnknownRecordType(u32),
    /// Bytes follow where the message must be the last thing.
    #[error("{0} bytes after the end of the message")]
    TrailingBytes(usize),
}

/// Why a message cannot be written in the version asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The message has no such version.
    #[error("{message} has no version {version}")]
    UnsupportedVersion {
        /// Name of the message.
        message: &'static str,
        /// Version asked for.
        version: i16,
    },
    /// A field holds something else than its default, and the version has neither the field nor leave to drop it.
    #[error("{field} does not exist in version {version}")]
    FieldNotInVersion {
        /// Struct and field name.
        field: &'static str,
        /// Version asked for.
        version: i16,
    },
    /// A field is null where the version has no null.
    #[error("{field} must not be null")]
    UnexpectedNull {
        /// Struct and field name.
        field: &'static str,
    },
    /// A string above 32,767 bytes, or anything above 2^31 - 1.
    #[error("{what} of length {len} is too long")]
    TooLong {
        /// What is too long: "string", "bytes", "array", "tagged field", "frame".
        what: &'static str,
        /// Its length, in bytes or elements.
        len: usize,
    },
}
