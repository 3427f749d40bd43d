//! Records as JSON objects, one a line:
//! `{"key": "k", "value": {"any": "JSON"}, "headers": {"trace": "abc"}, "partition": 0, "timestamp": 1796119200000}`.
//!
//! Text stands for its bytes, `null` for nothing, any other JSON for itself as it is written. Bytes that are no text are
//! base64 in `key_base64` and `value_base64`. Headers are an object, or a list of `{"key": …, "value": …}` where a key comes
//! more than once. What `milena consume -J` prints can be read again: topic and offset are passed over.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::{Draft, DraftHeader};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'l> {
    #[serde(borrow)]
    key: Option<&'l RawValue>,
    #[serde(borrow)]
    key_base64: Option<Cow<'l, str>>,
    #[serde(borrow)]
    value: Option<&'l RawValue>,
    #[serde(borrow)]
    value_base64: Option<Cow<'l, str>>,
    headers: Option<Value>,
    partition: Option<i32>,
    timestamp: Option<i64>,
    #[serde(rename = "topic")]
    _topic: Option<IgnoredAny>,
    #[serde(rename = "offset")]
    _offset: Option<IgnoredAny>,
}

/// Reads a line.
///
/// # Errors
/// What is wrong with it.
pub fn read(line: &[u8]) -> Result<Draft<'_>, String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| {
        // It is one line, whose number the reader knows.
        let text = error.to_string();
        let what = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
        format!("column {}: {what}", error.column())
    })?;
    Ok(Draft {
        key: bytes("key", line.key, line.key_base64.as_deref())?,
        value: bytes("value", line.value, line.value_base64.as_deref())?,
        headers: line.headers.map_or(Ok(SmallVec::new()), headers)?,
        partition: line.partition,
        timestamp: line.timestamp,
    })
}

/// The bytes that a field stands for.
fn bytes<'l>(name: &str, json: Option<&'l RawValue>, base64: Option<&str>) -> Result<Option<Cow<'l, [u8]>>, String> {
    match (json.map(RawValue::get), base64) {
        (Some(_), Some(_)) => Err(format!("{name} and {name}_base64 are both there")),
        (None, Some(text)) => decoded(text).map(Some).map_err(|why| format!("{name}_base64: {why}")),
        (Some(text), None) if text.starts_with('"') => Ok(Some(match serde_json::from_str::<&str>(text) {
            Ok(plain) => Cow::Borrowed(plain.as_bytes()),
            // There are escapes in it.
            Err(_) => {
                let whole: String = serde_json::from_str(text).map_err(|why| format!("{name}: {why}"))?;
                Cow::Owned(whole.into_bytes())
            }
        })),
        (Some(text), None) => Ok(Some(Cow::Borrowed(text.as_bytes()))),
        (None, None) => Ok(None),
    }
}

fn decoded(text: &str) -> Result<Cow<'static, [u8]>, String> {
    STANDARD.decode(text).map(Cow::Owned).map_err(|why| why.to_string())
}

fn headers<'l>(value: Value) -> Result<SmallVec<[DraftHeader<'l>; 4]>, String> {
    match value {
        Value::Null => Ok(SmallVec::new()),
        Value::Object(fields) => Ok(fields.into_iter().map(|(key, value)| (key.into(), field(value))).collect()),
        Value::Array(items) => items.into_iter().map(item).collect(),
        _ => Err("headers: neither an object nor a list".to_owned()),
    }
}

fn item<'l>(item: Value) -> Result<DraftHeader<'l>, String> {
    let bad = || "headers: an item is not {\"key\": …, \"value\": …}".to_owned();
    let Value::Object(mut fields) = item else { return Err(bad()) };
    let Some(Value::String(key)) = fields.remove("key") else { return Err(bad()) };
    let value = match (fields.remove("value"), fields.remove("value_base64")) {
        (None, Some(Value::String(text))) => Some(decoded(&text).map_err(|why| format!("headers: {key}: {why}"))?),
        (value, None) => value.and_then(field),
        _ => return Err(bad()),
    };
    if fields.is_empty() { Ok((key.into(), value)) } else { Err(bad()) }
}

fn field(value: Value) -> Option<Cow<'static, [u8]>> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(Cow::Owned(text.into_bytes())),
        other => Some(Cow::Owned(other.to_string().into_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(text: &str) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(text.as_bytes()))
    }

    #[test]
    fn text_is_its_bytes_and_other_json_itself() {
        let line = r#"{"key":"k","value":{"a": [1]},"partition":2,"timestamp":5,"topic":"t","offset":9}"#;
        let expected = Draft {
            key: owned("k"),
            value: owned(r#"{"a": [1]}"#),
            partition: Some(2),
            timestamp: Some(5),
            ..Draft::default()
        };
        assert_eq!(read(line.as_bytes()), Ok(expected));
        assert_eq!(read(br#"{"value":"a\n\u00e9"}"#).unwrap().value, owned("a\né"));
        assert_eq!(read(br#"{"value":1.50}"#).unwrap().value, owned("1.50"));
        assert_eq!(read(br#"{"key":null,"value":null}"#), Ok(Draft::default()));
    }

    #[test]
    fn bytes_that_are_no_text_are_base64() {
        let draft = read(br#"{"key_base64":"/w==","value_base64":""}"#).unwrap();
        assert_eq!((draft.key.as_deref(), draft.value.as_deref()), (Some(&b"\xff"[..]), Some(&b""[..])));
        assert!(read(br#"{"key_base64":"?"}"#).unwrap_err().starts_with("key_base64: "));
        assert_eq!(read(br#"{"key":"a","key_base64":""}"#).unwrap_err(), "key and key_base64 are both there");
    }

    #[test]
    fn headers_are_an_object_or_a_list() {
        let expected: SmallVec<[DraftHeader<'_>; 4]> =
            [("a".into(), owned("1")), ("b".into(), None), ("a".into(), owned("\u{ff}"))].into_iter().collect();
        let list = r#"{"headers":[{"key":"a","value":1},{"key":"b"},{"key":"a","value_base64":"w78="}]}"#;
        assert_eq!(read(list.as_bytes()).unwrap().headers, expected);
        let object = read(br#"{"headers":{"a":"1","b":null}}"#).unwrap();
        assert_eq!(object.headers[..], expected[..2]);
        for bad in [r#"{"headers":1}"#, r#"{"headers":[1]}"#, r#"{"headers":[{"key":"a","x":1}]}"#] {
            assert!(read(bad.as_bytes()).unwrap_err().starts_with("headers: "), "{bad}");
        }
    }

    #[test]
    fn a_bad_line_is_told_with_its_column() {
        assert_eq!(read(b"{\"value\":}").unwrap_err(), "column 10: expected value");
        assert!(read(br#"{"valu":1}"#).unwrap_err().contains("unknown field `valu`"));
    }
}
