//! An array of structs that need not be encoded for every message it is in.

use std::ops::Deref;
use std::sync::Arc;

use crate::error::EncodeError;
use crate::message::{Message, Wire};
use crate::messages::MetadataResponse;
use crate::messages::metadata_response::MetadataResponsePartition;
use crate::writer::Writer;

/// An array of structs. As a slice it is its items; those of an encoded one can't be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Structs<T> {
    /// The items. Decoding always gives this form.
    Items(Vec<T>),
    /// The array with its length in front, as one version of the message has it.
    Encoded(Arc<[u8]>),
}

impl<T> Default for Structs<T> {
    fn default() -> Self {
        Self::Items(Vec::new())
    }
}

impl<T> Deref for Structs<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Items(items) => items,
            Self::Encoded(_) => &[],
        }
    }
}

impl<T> Structs<T> {
    pub(crate) fn write<'a>(&self, w: &mut Writer, flexible: bool, version: i16) -> Result<(), EncodeError>
    where
        T: Wire<'a>,
    {
        match self {
            Self::Items(items) => w.structs(flexible, items, version),
            Self::Encoded(bytes) => {
                w.buf.extend_from_slice(bytes);
                Ok(())
            }
        }
    }
}

impl Structs<MetadataResponsePartition<'_>> {
    /// The encoded form, for responses of `version` only.
    ///
    /// # Errors
    /// When the version cannot hold an item.
    pub fn encode(&self, version: i16) -> Result<Arc<[u8]>, EncodeError> {
        let mut writer = Writer::new();
        self.write(&mut writer, version >= MetadataResponse::FLEXIBLE_FROM, version)?;
        Ok(writer.buf.into())
    }
}
