//! Bytes to JSON, strict: what a right server would never send is an error.

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use super::schema::{Field, Schema, Type};

/// A position in bytes that were received.
#[derive(Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// How many bytes are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(count)
            .with_context(|| format!("{count} bytes were expected, {} are left", self.bytes.len()))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn int(&mut self, width: u8, signed: bool) -> Result<i64> {
        let mut number: i64 = 0;
        for byte in self.take(usize::from(width))? {
            number = number << 8 | i64::from(*byte);
        }
        let unused = 64 - 8 * u32::from(width);
        Ok(if signed { number << unused >> unused } else { number })
    }

    fn uvarint(&mut self) -> Result<usize> {
        let mut number = 0;
        for shift in (0..35).step_by(7) {
            let byte = usize::from(self.take(1)?[0]);
            number |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        bail!("a varint of more than five bytes")
    }

    /// A length or count; `None` for null.
    fn length(&mut self, kind: &Type, compact: bool) -> Result<Option<usize>> {
        let raw = match (compact, kind) {
            (true, _) => i64::try_from(self.uvarint()?)? - 1,
            (false, Type::String) => self.int(2, true)?,
            (false, _) => self.int(4, true)?,
        };
        match raw {
            -1 => Ok(None),
            n if n >= 0 && n as usize <= self.remaining() => Ok(Some(n as usize)),
            n => bail!("a length of {n} with {} bytes left", self.remaining()),
        }
    }
}

pub(super) fn message(schema: &Schema, version: i16, decoder: &mut Decoder<'_>) -> Result<Value> {
    fields(&schema.fields, version, schema.is_flexible(version), decoder)
}

fn fields(fields: &[Field], version: i16, compact: bool, decoder: &mut Decoder<'_>) -> Result<Value> {
    let mut object = Map::new();
    for field in fields.iter().filter(|f| f.versions.contains(version) && !f.tagged.contains(version)) {
        let compact = field.flexible.as_ref().map_or(compact, |f| f.contains(version));
        let read = value(field, &field.kind, version, compact, false, decoder).with_context(|| field.key.clone())?;
        object.insert(field.key.clone(), read);
    }
    if compact {
        let mut previous = None;
        for _ in 0..decoder.uvarint()? {
            let tag = decoder.uvarint()?;
            if previous.is_some_and(|p| p >= tag) {
                bail!("tags are out of order");
            }
            previous = Some(tag);
            let size = decoder.uvarint()?;
            let mut inner = Decoder::new(decoder.take(size)?);
            let known = fields.iter().find(|f| f.tagged.contains(version) && f.tag as usize == tag);
            let field = known.with_context(|| format!("unknown tag {tag}"))?;
            let read = value(field, &field.kind, version, true, true, &mut inner).with_context(|| field.key.clone())?;
            if inner.remaining() != 0 {
                bail!("tag {tag} has {} bytes too many", inner.remaining());
            }
            object.insert(field.key.clone(), read);
        }
    }
    Ok(Value::Object(object))
}

fn value(field: &Field, kind: &Type, version: i16, compact: bool, tagged: bool, d: &mut Decoder<'_>) -> Result<Value> {
    let nullable = field.nullable.contains(version);
    Ok(match kind {
        Type::Bool => Value::Bool(d.take(1)?[0] != 0),
        Type::Int(width, signed) => d.int(*width, *signed)?.into(),
        Type::Float => f64::from_be_bytes(d.take(8)?.try_into()?).into(),
        Type::Uuid => URL_SAFE_NO_PAD.encode(d.take(16)?).into(),
        Type::Struct => {
            let present = !nullable || if tagged { d.uvarint()? == 1 } else { d.int(1, true)? == 1 };
            if present { fields(&field.fields, version, compact, d)? } else { Value::Null }
        }
        Type::String | Type::Bytes | Type::Records | Type::Array(_) => match d.length(kind, compact)? {
            Some(length) => sized(field, kind, version, compact, length, d)?,
            None if nullable => Value::Null,
            None => bail!("null where it is not allowed"),
        },
    })
}

fn sized(field: &Field, kind: &Type, version: i16, compact: bool, length: usize, d: &mut Decoder<'_>) -> Result<Value> {
    match kind {
        Type::String => Ok(std::str::from_utf8(d.take(length)?)?.into()),
        Type::Array(element) => {
            let mut all = Vec::new();
            for _ in 0..length {
                all.push(match &**element {
                    Type::Struct => fields(&field.fields, version, compact, d)?,
                    other => value(field, other, version, compact, false, d)?,
                });
            }
            Ok(Value::Array(all))
        }
        _ => Ok(STANDARD.encode(d.take(length)?).into()),
    }
}
