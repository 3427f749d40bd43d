//! Bodies that fit a schema and make little sense: every field takes what its type and name allow, and values at the edges most of all.

use anyhow::Result;
use fastrand::Rng;
use serde_json::{Map, Value};

use super::schema::{Field, Type, schema};

/// Elements that a body has at most, all its lists together.
const MOST_ELEMENTS: usize = 400;

/// What a body may speak of.
#[derive(Debug, Default)]
pub struct Words {
    /// For every text: names that exist, names that do not, and no names at all.
    pub texts: Vec<String>,
    /// Unpadded base64url.
    pub uuids: Vec<String>,
    /// Base64, for records and other bytes.
    pub bytes: Vec<String>,
    /// For every number, beside the smallest and largest ones.
    pub numbers: Vec<i64>,
}

/// A body that can be encoded in this version.
///
/// # Errors
/// When there is no such message.
pub fn any(name: &str, version: i16, words: &Words, rng: &mut Rng) -> Result<Value> {
    let schema = schema(name)?;
    let mut left = MOST_ELEMENTS;
    Ok(object(&schema.fields, version, words, rng, &mut left))
}

fn object(fields: &[Field], version: i16, words: &Words, rng: &mut Rng, left: &mut usize) -> Value {
    let mut object = Map::new();
    for field in fields.iter().filter(|field| field.versions.contains(version)) {
        // A field that is left out has its default.
        if rng.u8(..8) > 0 {
            object.insert(field.key.clone(), value(field, &field.kind, version, words, rng, left));
        }
    }
    Value::Object(object)
}

fn value(field: &Field, kind: &Type, version: i16, words: &Words, rng: &mut Rng, left: &mut usize) -> Value {
    if field.nullable.contains(version) && rng.u8(..6) == 0 {
        return Value::Null;
    }
    match kind {
        Type::Bool => rng.bool().into(),
        Type::Int(width, signed) => number(u32::from(*width), *signed, words, rng).into(),
        Type::Float => [0.0, -1.0, 1e300, -0.5][rng.usize(..4)].into(),
        Type::Uuid => one_of(&words.uuids, rng).into(),
        Type::String => one_of(&words.texts, rng).into(),
        Type::Bytes | Type::Records => one_of(&words.bytes, rng).into(),
        Type::Struct => object(&field.fields, version, words, rng, left),
        Type::Array(element) => {
            let wanted = if rng.u8(..40) == 0 { rng.usize(..MOST_ELEMENTS) } else { rng.usize(..4) };
            let count = wanted.min(*left);
            *left -= count;
            (0..count).map(|_| value_of(field, element, version, words, rng, left)).collect()
        }
    }
}

/// An element of a list, which is never null.
fn value_of(field: &Field, kind: &Type, version: i16, words: &Words, rng: &mut Rng, left: &mut usize) -> Value {
    match kind {
        Type::Struct => object(&field.fields, version, words, rng, left),
        other => {
            let element = Field { nullable: super::schema::Versions::none(), ..field.clone() };
            value(&element, other, version, words, rng, left)
        }
    }
}

fn one_of(all: &[String], rng: &mut Rng) -> String {
    rng.choice(all).cloned().unwrap_or_default()
}

fn number(width: u32, signed: bool, words: &Words, rng: &mut Rng) -> i64 {
    let bits = 8 * width - u32::from(signed);
    let most = if bits >= 63 { i64::MAX } else { (1 << bits) - 1 };
    let least = if signed { -most - 1 } else { 0 };
    match rng.u8(..12) {
        0 => most,
        1 => least,
        2 => most - 1,
        3 => rng.i64(least..=most),
        _ => rng.choice(&words.numbers).copied().unwrap_or(0).clamp(least, most),
    }
}
