//! JSON to bytes.

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use super::schema::{Field, Schema, Type};

/// How lengths are written where the walk stands.
#[derive(Clone, Copy)]
struct Form {
    version: i16,
    compact: bool,
}

pub(super) fn message(schema: &Schema, version: i16, body: &Value, out: &mut Vec<u8>) -> Result<()> {
    fields(&schema.fields, Form { version, compact: schema.is_flexible(version) }, body, out)
}

fn fields(fields: &[Field], form: Form, body: &Value, out: &mut Vec<u8>) -> Result<()> {
    let empty = Map::new();
    let object = match body {
        Value::Object(object) => object,
        Value::Null => &empty,
        other => bail!("an object was expected, not {other}"),
    };
    for name in object.keys() {
        if !fields.iter().any(|f| f.key == *name) {
            bail!("no field {name}");
        }
    }
    let mut tagged: Vec<(u32, Vec<u8>)> = Vec::new();
    for field in fields.iter().filter(|f| f.versions.contains(form.version)) {
        let given = object.get(&field.key).unwrap_or(&field.default);
        let inner =
            Form { compact: field.flexible.as_ref().map_or(form.compact, |f| f.contains(form.version)), ..form };
        if field.tagged.contains(form.version) {
            if *given != field.default {
                let mut content = Vec::new();
                value(field, &field.kind, inner, given, true, &mut content).with_context(|| field.key.clone())?;
                tagged.push((field.tag, content));
            }
        } else {
            value(field, &field.kind, inner, given, false, out).with_context(|| field.key.clone())?;
        }
    }
    if form.compact {
        tagged.sort();
        uvarint(tagged.len(), out);
        for (tag, content) in tagged {
            uvarint(tag as usize, out);
            uvarint(content.len(), out);
            out.extend_from_slice(&content);
        }
    }
    Ok(())
}

fn value(field: &Field, kind: &Type, form: Form, given: &Value, tagged: bool, out: &mut Vec<u8>) -> Result<()> {
    let nullable = field.nullable.contains(form.version);
    match kind {
        Type::Bool => out.push(u8::from(given.as_bool().context("a boolean was expected")?)),
        Type::Int(width, _) => int(*width, given, out)?,
        Type::Float => out.extend_from_slice(&given.as_f64().context("a number was expected")?.to_be_bytes()),
        Type::Uuid => out.extend_from_slice(&uuid(given)?),
        Type::String | Type::Bytes | Type::Records if given.is_null() => null(kind, form, out),
        Type::String => {
            let text = given.as_str().context("a string was expected")?;
            length(kind, form, text.len(), out)?;
            out.extend_from_slice(text.as_bytes());
        }
        Type::Bytes | Type::Records => {
            let bytes = STANDARD.decode(given.as_str().context("base64 was expected")?)?;
            length(kind, form, bytes.len(), out)?;
            out.extend_from_slice(&bytes);
        }
        Type::Struct => {
            if nullable {
                // In a tag, presence is an unsigned varint; elsewhere it is a signed byte.
                match (given.is_null(), tagged) {
                    (true, true) => out.push(0),
                    (true, false) => out.push(0xff),
                    (false, _) => out.push(1),
                }
            }
            if !(given.is_null() && nullable) {
                fields(&field.fields, form, given, out)?;
            }
        }
        Type::Array(_) if given.is_null() => null(kind, form, out),
        Type::Array(element) => {
            let all = given.as_array().context("an array was expected")?;
            length(kind, form, all.len(), out)?;
            for one in all {
                // Elements are never null, so that a struct has no presence byte here.
                match &**element {
                    Type::Struct => fields(&field.fields, form, one, out)?,
                    other => value(field, other, form, one, false, out)?,
                }
            }
        }
    }
    Ok(())
}

fn int(width: u8, given: &Value, out: &mut Vec<u8>) -> Result<()> {
    let number = given.as_i64().context("an integer was expected")?;
    let bytes = number.to_be_bytes();
    out.extend_from_slice(&bytes[8 - usize::from(width)..]);
    Ok(())
}

fn uuid(given: &Value) -> Result<[u8; 16]> {
    let bytes = URL_SAFE_NO_PAD.decode(given.as_str().context("a uuid was expected")?)?;
    bytes.try_into().ok().context("a uuid has 16 bytes")
}

fn null(kind: &Type, form: Form, out: &mut Vec<u8>) {
    match (form.compact, kind) {
        (true, _) => out.push(0),
        (false, Type::String) => out.extend_from_slice(&(-1i16).to_be_bytes()),
        (false, _) => out.extend_from_slice(&(-1i32).to_be_bytes()),
    }
}

fn length(kind: &Type, form: Form, length: usize, out: &mut Vec<u8>) -> Result<()> {
    match (form.compact, kind) {
        (true, _) => uvarint(length + 1, out),
        (false, Type::String) => out.extend_from_slice(&i16::try_from(length)?.to_be_bytes()),
        (false, _) => out.extend_from_slice(&i32::try_from(length)?.to_be_bytes()),
    }
    Ok(())
}

fn uvarint(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
