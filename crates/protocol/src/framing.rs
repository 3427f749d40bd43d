//! What stands around a message: size and header of requests and responses, record types and versions of records.

use crate::api::{ApiKey, request_header_version, response_header_version};
use crate::error::{DecodeError, EncodeError};
use crate::message::Message;
use crate::messages::{RequestHeader, ResponseHeader};
use crate::reader::Reader;
use crate::writer::Writer;

/// Takes the header of a request; `frame` is without its size, and the reader returned stands at the body.
///
/// The first four bytes (API key and version) decide the header's form, so that is all that an unknown key can give:
/// it is read as version 1.
///
/// # Errors
/// A header which is cut off.
pub fn decode_request_header(frame: &[u8]) -> Result<(RequestHeader<'_>, Reader<'_>), DecodeError> {
    let mut peek = Reader::new(frame);
    let (key, version) = (ApiKey(peek.i16()?), peek.i16()?);
    let header_version = request_header_version(key, version).unwrap_or(1);
    let mut r = Reader::new(frame);
    let header = RequestHeader::decode(&mut r, header_version)?;
    Ok((header, r))
}

/// Appends a whole request: size, header, body.
///
/// # Errors
/// Those of the body; what was appended is taken back.
pub fn encode_request<'a, M: Message<'a>>(
    w: &mut Writer,
    correlation_id: i32,
    client_id: Option<&str>,
    version: i16,
    body: &M,
) -> Result<(), EncodeError> {
    let key = ApiKey(M::API_KEY.unwrap_or(-1));
    let unsupported = EncodeError::UnsupportedVersion { message: M::NAME, version };
    let header_version = request_header_version(key, version).ok_or(unsupported)?;
    let header = RequestHeader {
        request_api_key: key.0,
        request_api_version: version,
        correlation_id,
        client_id: client_id.map(Into::into),
    };
    in_frame(w, |w| {
        header.encode(w, header_version)?;
        body.encode(w, version)
    })
}

/// Appends a whole response: size, header, body. Gaps of the body count in the size.
///
/// # Errors
/// Those of the body; what was appended is taken back.
pub fn encode_response<'a, M: Message<'a>>(
    w: &mut Writer,
    correlation_id: i32,
    version: i16,
    body: &M,
) -> Result<(), EncodeError> {
    let key = ApiKey(M::API_KEY.unwrap_or(-1));
    let unsupported = EncodeError::UnsupportedVersion { message: M::NAME, version };
    let header_version = response_header_version(key, version).ok_or(unsupported)?;
    in_frame(w, |w| {
        ResponseHeader { correlation_id }.encode(w, header_version)?;
        body.encode(w, version)
    })
}

/// Takes the header of a response to a request of this key and version; `frame` is without its size.
///
/// # Errors
/// A header which is cut off.
pub fn decode_response_header(
    frame: &[u8],
    key: ApiKey,
    version: i16,
) -> Result<(ResponseHeader, Reader<'_>), DecodeError> {
    let mut r = Reader::new(frame);
    let header = ResponseHeader::decode(&mut r, response_header_version(key, version).unwrap_or(0))?;
    Ok((header, r))
}

fn in_frame(w: &mut Writer, content: impl FnOnce(&mut Writer) -> Result<(), EncodeError>) -> Result<(), EncodeError> {
    let mark = w.begin_frame();
    let result = content(w).and_then(|()| w.end_frame(mark));
    if result.is_err() {
        w.cancel_frame(mark);
    }
    result
}

/// Takes what stands in front of a metadata record: record type and version.
///
/// # Errors
/// Another frame version than 1, or a type or version beyond an int16.
pub fn decode_record_frame(r: &mut Reader<'_>) -> Result<(i16, i16), DecodeError> {
    let frame_version = r.uvarint()?;
    if frame_version != 1 {
        return Err(DecodeError::FrameVersion(frame_version));
    }
    let (record_type, version) = (r.uvarint()?, r.uvarint()?);
    let record_type = i16::try_from(record_type).map_err(|_| DecodeError::UnknownRecordType(record_type))?;
    let unsupported = DecodeError::UnsupportedVersion { message: "record", version: i16::MAX };
    Ok((record_type, i16::try_from(version).map_err(|_| unsupported)?))
}

/// Appends what stands in front of a metadata record. Types and versions are not negative.
pub fn encode_record_frame(w: &mut Writer, record_type: i16, version: i16) {
    w.uvarint(1);
    w.uvarint(u32::from(record_type.cast_unsigned()));
    w.uvarint(u32::from(version.cast_unsigned()));
}

/// Appends the key of a coordinator record: int16 record type, then the key as version 0.
///
/// # Errors
/// Those of the key.
pub fn encode_coordinator_key<'a, M: Message<'a>>(w: &mut Writer, key: &M) -> Result<(), EncodeError> {
    w.i16(M::API_KEY.ok_or(EncodeError::UnsupportedVersion { message: M::NAME, version: 0 })?);
    key.encode(w, 0)
}

/// Takes the key of a coordinator record of type `M`.
///
/// # Errors
/// [`DecodeError::UnknownRecordType`] when the type is another one, and all that decoding can give.
pub fn decode_coordinator_key<'a, M: Message<'a>>(r: &mut Reader<'a>) -> Result<M, DecodeError> {
    let record_type = r.i16()?;
    if M::API_KEY != Some(record_type) {
        return Err(DecodeError::UnknownRecordType(u32::from(record_type.cast_unsigned())));
    }
    M::decode(r, 0)
}

/// Appends an int16 version and the message: values of coordinator records, keys of control records, what consumers
/// put into group requests.
///
/// # Errors
/// Those of the message.
pub fn encode_prefixed<'a, M: Message<'a>>(w: &mut Writer, version: i16, message: &M) -> Result<(), EncodeError> {
    w.i16(version);
    message.encode(w, version)
}

/// Takes an int16 version and the message in that version.
///
/// # Errors
/// [`DecodeError::UnsupportedVersion`] for a version that does not exist, and all that decoding can give.
pub fn decode_prefixed<'a, M: Message<'a>>(r: &mut Reader<'a>) -> Result<(M, i16), DecodeError> {
    let version = r.i16()?;
    Ok((M::decode(r, version)?, version))
}

#[cfg(test)]
mod tests {
    use super::{decode_request_header, encode_request, encode_response};
    use crate::messages::{EndTxnMarker, MetadataRequest, ProduceResponse, RequestHeader};
    use crate::{DecodeError, EncodeError, Writer};

    #[test]
    fn a_request_ends_where_its_size_says() {
        let mut w = Writer::over(vec![7]);
        encode_request(&mut w, 5, Some("me"), 12, &MetadataRequest::default()).unwrap();
        let size = i32::from_be_bytes(w.buf[1..5].try_into().unwrap());
        assert_eq!(size as usize, w.buf.len() - 5);
        let (header, r) = decode_request_header(&w.buf[5..]).unwrap();
        let expected = RequestHeader {
            request_api_key: 3,
            request_api_version: 12,
            correlation_id: 5,
            client_id: Some("me".into()),
        };
        assert_eq!((header, r.rest()[0]), (expected, 1));
    }

    #[test]
    fn a_message_that_cannot_be_written_leaves_nothing_behind() {
        let mut w = Writer::over(vec![7]);
        let request = MetadataRequest { topics: None, ..Default::default() };
        let null = EncodeError::UnexpectedNull { field: "MetadataRequest.Topics" };
        assert_eq!(encode_request(&mut w, 5, None, 0, &request), Err(null));
        let missing = EncodeError::UnsupportedVersion { message: "ProduceResponse", version: 99 };
        assert_eq!(encode_response(&mut w, 5, 99, &ProduceResponse::default()), Err(missing));
        let no_api = EncodeError::UnsupportedVersion { message: "EndTxnMarker", version: 0 };
        assert_eq!(encode_response(&mut w, 5, 0, &EndTxnMarker::default()), Err(no_api));
        assert_eq!(w.buf, [7]);
    }

    #[test]
    fn a_cut_header_is_refused() {
        for len in 0..10 {
            let frame = &[0, 3, 0, 12, 0, 0, 0, 1, 0, 1][..len];
            assert!(matches!(decode_request_header(frame), Err(DecodeError::Truncated { .. })), "{len}");
        }
    }
}
