//! Batches as cases that are data describe them: an object whose keys make one thing of a right batch of three records
//! wrong or special.
//!
//! | key | what it sets |
//! |---|---|
//! | `n`, `records` | the number of plain records; or each as `{"o", "t", "k", "v", "h", "a", "size"}`: offset delta, timestamp delta, key, value, headers, attributes, bytes of a long value |
//! | `codec`, `attrs` | codec by name; further attribute bits |
//! | `base`, `epoch`, `magic`, `crc`, `len`, `lod`, `count` | fields of the header |
//! | `at`, `max` | base and largest timestamp: a number, or `"T0+5"` for the case's own time and 5 ms |
//! | `pid`, `pepoch`, `seq` | the producer |
//! | `plain`, `plain-set`, `plain-cut`, `plain-tail` | the records' bytes: others (hex), `[[AT, HEX]…]` in them, a number fewer, more |
//! | `payload`, `payload-set`, `payload-cut`, `payload-tail` | the same after compression |
//! | `cut`, `tail` | bytes that the whole batch lacks, or that follow it |

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::batch::{Batch, Codec, Record};

/// What is done to bytes.
#[derive(Default)]
struct Edit<'v> {
    set: Option<&'v Value>,
    cut: usize,
    tail: Vec<u8>,
}

impl Edit<'_> {
    fn apply(&self, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        for change in self.set.and_then(Value::as_array).into_iter().flatten() {
            let (at, new) = (int(&change[0])? as usize, hex(&change[1])?);
            bytes.get_mut(at..at + new.len()).context("a change beyond the bytes")?.copy_from_slice(&new);
        }
        bytes.truncate(bytes.len().saturating_sub(self.cut));
        bytes.extend_from_slice(&self.tail);
        Ok(bytes)
    }
}

/// The bytes of the batch that `value` describes.
///
/// # Errors
/// When it describes none.
pub(super) fn batch(t0: i64, value: &Value) -> Result<Vec<u8>> {
    let mut batch = Batch::of(3, t0);
    let (mut plain, mut payload, mut whole) = (Edit::default(), Edit::default(), Edit::default());
    for (key, value) in value.as_object().context("a batch is an object")? {
        match key.as_str() {
            "n" => batch.records = Batch::of(int(value)? as usize, 0).records,
            "records" => {
                batch.records = value.as_array().context("records")?.iter().map(record).collect::<Result<_>>()?
            }
            "codec" => batch.codec = value.as_str().and_then(Codec::parse).context("codec")?,
            "attrs" => batch.attributes = int(value)? as i16,
            "base" => batch.base_offset = int(value)?,
            "epoch" => batch.leader_epoch = int(value)? as i32,
            "magic" => batch.magic = int(value)? as u8,
            "crc" => batch.crc = Some(int(value)? as u32),
            "len" => batch.length = Some(int(value)? as i32),
            "lod" => batch.last_offset_delta = Some(int(value)? as i32),
            "count" => batch.count = Some(int(value)? as i32),
            "at" => batch.base_timestamp = time(t0, value)?,
            "max" => batch.max_timestamp = Some(time(t0, value)?),
            "pid" => batch.producer_id = int(value)?,
            "pepoch" => batch.producer_epoch = int(value)? as i16,
            "seq" => batch.base_sequence = int(value)? as i32,
            "plain" => batch.plain = Some(hex(value)?),
            "plain-set" => plain.set = Some(value),
            "plain-cut" => plain.cut = int(value)? as usize,
            "plain-tail" => plain.tail = hex(value)?,
            "payload" => batch.payload = Some(hex(value)?),
            "payload-set" => payload.set = Some(value),
            "payload-cut" => payload.cut = int(value)? as usize,
            "payload-tail" => payload.tail = hex(value)?,
            "cut" => whole.cut = int(value)? as usize,
            "tail" => whole.tail = hex(value)?,
            _ => bail!("a batch has no {key}"),
        }
    }
    let records = plain.apply(batch.plain())?;
    let compressed = batch.payload.take().map_or_else(|| batch.codec.compress(&records), Ok)?;
    batch.payload = Some(payload.apply(compressed)?);
    whole.apply(batch.build())
}

fn record(value: &Value) -> Result<Record> {
    let text = |value: &Value| value.as_str().map(|text| text.as_bytes().to_vec());
    let mut record = Record::text(0, 0, "k", "v");
    for (key, value) in value.as_object().context("a record is an object")? {
        match key.as_str() {
            "o" => record.offset_delta = int(value)?,
            "t" => record.timestamp_delta = int(value)?,
            "a" => record.attributes = int(value)? as u8,
            "k" => record.key = text(value),
            "v" => record.value = text(value),
            "size" => record.value = Some(vec![b'v'; int(value)? as usize]),
            "h" => {
                let headers = value.as_array().context("headers")?.iter();
                record.headers =
                    headers.map(|h| Ok((text(&h[0]).context("a header")?, text(&h[1])))).collect::<Result<_>>()?;
            }
            _ => bail!("a record has no {key}"),
        }
    }
    Ok(record)
}

/// A time: a number as it is, `T0` with what is added to it.
pub(super) fn time(t0: i64, value: &Value) -> Result<i64> {
    match value.as_str().and_then(|text| text.strip_prefix("T0")) {
        Some("") => Ok(t0),
        Some(delta) => Ok(t0.wrapping_add(delta.parse()?)),
        None => int(value),
    }
}

fn int(value: &Value) -> Result<i64> {
    value.as_i64().with_context(|| format!("{value} is no number"))
}

fn hex(value: &Value) -> Result<Vec<u8>> {
    let text = value.as_str().context("no hex")?;
    let digits = text.as_bytes().chunks(2).map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?));
    digits.collect()
}
