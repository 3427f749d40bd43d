//! The first exchange of a connection: ApiVersions, in the newest version that both sides have.

use std::io;
use std::sync::Arc;

use milena_protocol::framing::{decode_response_header, encode_request};
use milena_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use milena_protocol::{ApiKey, ErrorCode, Message, Writer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::frames::Frames;
use super::{ApiVersions, driver};
use crate::config::ClientConfig;
use crate::error::{Error, check};
use crate::transport::Transport;

/// The newest version that every broker can be asked in; one that does not know it answers in version 0.
const NEWEST: i16 = 4;

/// Asks what the broker serves.
pub(crate) async fn learn_versions(
    stream: &mut dyn Transport,
    address: &Arc<str>,
    config: &ClientConfig,
) -> Result<ApiVersions, Error> {
    let frame = exchange(stream, NEWEST, config).await.map_err(|e| Error::disconnected(address, e))?;
    let code = ErrorCode(i16::from_be_bytes(frame.get(4..6).and_then(|code| code.try_into().ok()).unwrap_or_default()));
    if code != ErrorCode::UNSUPPORTED_VERSION {
        return understood(&frame, NEWEST);
    }
    // The answer is in version 0; newer brokers say in it which versions they would understand.
    let known = decoded(&frame, 0)?
        .api_keys
        .iter()
        .find(|api| api.api_key == ApiKey::API_VERSIONS.0)
        .map_or(0, |api| api.max_version.clamp(0, NEWEST));
    let frame = exchange(stream, known, config).await.map_err(|e| Error::disconnected(address, e))?;
    understood(&frame, known)
}

async fn exchange(stream: &mut dyn Transport, version: i16, config: &ClientConfig) -> io::Result<bytes::Bytes> {
    let request = ApiVersionsRequest {
        client_software_name: "milena".into(),
        client_software_version: env!("CARGO_PKG_VERSION").into(),
        ..Default::default()
    };
    let mut writer = Writer::new();
    encode_request(&mut writer, 0, Some(&config.client_id), version, &request).map_err(io::Error::other)?;
    stream.write_all(&writer.into_bytes()).await?;
    stream.flush().await?;
    let mut frames = Frames::new(config.max_response);
    loop {
        if let Some(frame) = frames.next().map_err(io::Error::other)? {
            // The request's correlation id is 0, and so is the answer's.
            return if frame.starts_with(&[0; 4]) { Ok(frame) } else { Err(io::Error::other(driver::UNASKED)) };
        }
        if stream.read_buf(frames.room()).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn decoded(frame: &[u8], version: i16) -> Result<ApiVersionsResponse<'_>, Error> {
    let malformed = |source| Error::Malformed { what: ApiVersionsResponse::NAME, source };
    let (_, mut body) = decode_response_header(frame, ApiKey::API_VERSIONS, version).map_err(malformed)?;
    ApiVersionsResponse::decode(&mut body, version).map_err(malformed)
}

fn understood(frame: &[u8], version: i16) -> Result<ApiVersions, Error> {
    let response = decoded(frame, version)?;
    check(response.error_code, None)?;
    Ok(ApiVersions {
        apis: response.api_keys.iter().map(|api| (ApiKey(api.api_key), api.min_version..=api.max_version)).collect(),
        finalized: response
            .finalized_features
            .iter()
            .map(|feature| (feature.name.to_string(), feature.max_version_level))
            .collect(),
    })
}
