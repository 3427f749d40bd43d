//! What a fuzzer calls: bytes choose a message, a version and a body. Nothing may panic, and what could be encoded once
//! must decode to the same bytes again.

use crate::catalog::{ENTRIES, Entry};
use crate::error::DecodeError;
use crate::framing::decode_request_header;
use crate::metadata_record::{MetadataRecord, RemoteLogRecord};
use crate::writer::Writer;

/// Two bytes choose the message, one its version, the rest is the body. Message numbers beyond the catalog choose the
/// decoders that find out the message themselves.
pub fn fuzz_decode(data: &[u8]) {
    let Some(([high, low, version], body)) = data.split_first_chunk() else { return };
    let number = usize::from(u16::from_be_bytes([*high, *low])) % (ENTRIES.len() + 3);
    match number.checked_sub(ENTRIES.len()) {
        None => {
            let entry = &ENTRIES[number];
            let versions = entry.max - entry.min + 1;
            check_body(entry, entry.min + i16::from(*version) % versions, body);
        }
        Some(0) => drop(decode_request_header(body)),
        Some(1) => {
            check_record(MetadataRecord::decode_framed(body), |record, w, version| record.encode_framed(w, version))
        }
        Some(_) => {
            check_record(RemoteLogRecord::decode_framed(body), |record, w, version| record.encode_framed(w, version))
        }
    }
}

/// Decodes and encodes `body`, twice when it can be: the two outputs must be equal.
///
/// # Panics
/// When they are not.
pub fn check_body(entry: &Entry, version: i16, body: &[u8]) {
    let mut first = Writer::new();
    match (entry.transcode)(body, version, &mut first) {
        Ok(done) if done.encoded.is_ok() => {}
        Ok(_) | Err(_) => return,
    }
    let mut second = Writer::new();
    let done = (entry.transcode)(&first.buf, version, &mut second);
    let sound = done.is_ok_and(|done| done.left == 0 && done.encoded.is_ok());
    assert!(sound && first == second, "{} v{version}: {:?} became {done:?} {:?}", entry.name, first.buf, second.buf);
}

fn check_record<R>(
    decoded: Result<(R, i16), DecodeError>,
    encode: impl Fn(&R, &mut Writer, i16) -> Result<(), crate::EncodeError>,
) {
    if let Ok((record, version)) = decoded {
        // A string whose replaced bytes made it too long is the only thing that cannot be written.
        let _ = encode(&record, &mut Writer::new(), version);
    }
}
