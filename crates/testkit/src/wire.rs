//! Kafka's encoding, driven at run time by the message schemas: a body is JSON in Kafka's own names, and the codec walks
//! the schema beside it. It is slow and simple on purpose, and independent of the generated codec that servers use.
//!
//! In the JSON, bytes and records are padded base64 and uuids unpadded base64url. When a body is encoded, a missing
//! field takes its default, a field of other versions is left out, and an unknown name is an error, so that a typing
//! mistake in a test shows.

mod any;
mod decode;
mod encode;
mod schema;

use anyhow::{Context, Result};
use base64::Engine;
use serde_json::{Value, json};

pub use any::{Words, any};
pub use decode::Decoder;
pub use schema::{Schema, apis, schema};

/// A reply taken apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The correlation id that came back.
    pub correlation: i32,
    /// The body.
    pub body: Value,
    /// Bytes after the body; a right reply has none.
    pub trailing: usize,
}

/// The bytes of a message body.
///
/// # Errors
/// When the body does not fit the schema at this version.
pub fn encode_body(name: &str, version: i16, body: &Value) -> Result<Vec<u8>> {
    let schema = schema(name)?;
    let mut out = Vec::new();
    encode::message(&schema, version, body, &mut out).with_context(|| format!("{name} v{version}"))?;
    Ok(out)
}

/// A message body as JSON, and how many bytes follow it.
///
/// # Errors
/// When the bytes do not fit the schema at this version.
pub fn decode_body(name: &str, version: i16, bytes: &[u8]) -> Result<(Value, usize)> {
    let schema = schema(name)?;
    let mut decoder = Decoder::new(bytes);
    let body = decode::message(&schema, version, &mut decoder).with_context(|| format!("{name} v{version}"))?;
    Ok((body, decoder.remaining()))
}

/// A request's header and body, without the frame's length.
///
/// # Errors
/// As [`encode_body`].
pub fn request(api: &str, version: i16, correlation: i32, client_id: Option<&str>, body: &Value) -> Result<Vec<u8>> {
    let mut out = header(api, version, correlation, client_id)?;
    out.extend_from_slice(&encode_body(&format!("{api}Request"), version, body)?);
    Ok(out)
}

/// A request's header alone.
///
/// # Errors
/// When the API is unknown.
pub fn header(api: &str, version: i16, correlation: i32, client_id: Option<&str>) -> Result<Vec<u8>> {
    let schema = schema(&format!("{api}Request"))?;
    let header_version = if schema.is_flexible(version) { 2 } else { 1 };
    let key = schema.api_key.context("not a request")?;
    let fields = json!({
        "requestApiKey": key, "requestApiVersion": version, "correlationId": correlation, "clientId": client_id,
    });
    encode_body("RequestHeader", header_version, &fields)
}

/// A reply frame (without its length) taken apart.
///
/// # Errors
/// When it does not fit the schema.
pub fn response(api: &str, version: i16, frame: &[u8]) -> Result<Reply> {
    let schema = schema(&format!("{api}Response"))?;
    // Replies to ApiVersions keep the old header, so that a client that guessed the version wrong can read them.
    let header_version = i16::from(schema.is_flexible(version) && api != "ApiVersions");
    let mut decoder = Decoder::new(frame);
    let header_schema = self::schema("ResponseHeader")?;
    let header = decode::message(&header_schema, header_version, &mut decoder)?;
    let correlation =
        header["correlationId"].as_i64().and_then(|c| i32::try_from(c).ok()).context("no correlation id")?;
    let body = decode::message(&schema, version, &mut decoder).with_context(|| format!("{api} v{version} reply"))?;
    Ok(Reply { correlation, body, trailing: decoder.remaining() })
}

/// `body` without the fields that the message does not have in this version, so that one body serves all versions.
///
/// # Errors
/// When there is no such message.
pub fn fit(name: &str, version: i16, body: &Value) -> Result<Value> {
    Ok(schema(name)?.fit(version, body))
}

/// A frame: the length of `payload`, then `payload`.
#[must_use]
pub fn framed(payload: &[u8]) -> Vec<u8> {
    let length = i32::try_from(payload.len()).unwrap_or(i32::MAX);
    let mut out = length.to_be_bytes().to_vec();
    out.extend_from_slice(payload);
    out
}

/// Bytes as the JSON of a body holds them.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Bytes from the JSON of a body.
///
/// # Errors
/// When the text is not base64.
pub fn from_base64(text: &str) -> Result<Vec<u8>> {
    Ok(base64::engine::general_purpose::STANDARD.decode(text)?)
}

#[cfg(test)]
mod tests;
