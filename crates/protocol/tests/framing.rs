//! Whole frames and prefixed records as Kafka writes them: headers, sizes, record types and versions.

mod support;

use milena_protocol::catalog::{self, Entry};
use milena_protocol::framing;
use milena_protocol::json::ToJson;
use milena_protocol::messages::{self, RequestHeader, ResponseHeader};
use milena_protocol::{
    ApiKey, Message, MetadataRecord, Reader, RemoteLogRecord, Writer, request_header_version, response_header_version,
};
use serde_json::Value;
use support::{hex, lines, same_json, unhex};

/// One line of the data.
struct Frame {
    line: Value,
    entry: &'static Entry,
    version: i16,
    bytes: Vec<u8>,
}

impl Frame {
    fn header_version(&self) -> i16 {
        self.line["headerVersion"].as_i64().unwrap().try_into().unwrap()
    }

    /// Checks the body's JSON, and appends the body as encoded anew.
    fn body(&self, bytes: &[u8], w: &mut Writer) {
        let json = (self.entry.to_json)(bytes, self.version).unwrap();
        assert!(same_json(&json, &self.line["json"]), "{json}\n{}", self.line);
        let done = (self.entry.transcode)(bytes, self.version, w).unwrap();
        assert_eq!((done.left, done.encoded), (0, Ok(())), "{}", self.line);
    }

    /// The frame as encoded anew.
    fn again(&self) -> Writer {
        let mut w = Writer::new();
        match self.line["what"].as_str().unwrap() {
            "request" => self.request(&mut w),
            "response" => self.response(&mut w),
            "metadata-record" => self.metadata_record(&mut w),
            "coordinator-key" => self.prefixed(&mut w, self.entry.api_key.unwrap()),
            "version-prefixed" => self.prefixed(&mut w, self.version),
            "plain" => {
                assert_eq!(self.bytes[..2], self.version.to_be_bytes());
                self.body(&self.bytes, &mut w);
            }
            other => panic!("{other}"),
        }
        w
    }

    fn request(&self, w: &mut Writer) {
        let (header, r) = framing::decode_request_header(&self.bytes[4..]).unwrap();
        let key = ApiKey(header.request_api_key);
        assert_eq!(Some(key.0), self.entry.api_key);
        assert_eq!(request_header_version(key, self.version), Some(self.header_version()));
        assert_eq!(header.to_json(self.header_version()), self.line["header"]);
        let mark = w.begin_frame();
        header.encode(w, self.header_version()).unwrap();
        self.body(r.rest(), w);
        w.end_frame(mark).unwrap();
    }

    fn response(&self, w: &mut Writer) {
        let key = ApiKey(self.entry.api_key.unwrap());
        assert_eq!(response_header_version(key, self.version), Some(self.header_version()));
        let (header, r) = framing::decode_response_header(&self.bytes[4..], key, self.version).unwrap();
        assert_eq!(header.to_json(self.header_version()), self.line["header"]);
        let mark = w.begin_frame();
        header.encode(w, self.header_version()).unwrap();
        self.body(r.rest(), w);
        w.end_frame(mark).unwrap();
    }

    fn metadata_record(&self, w: &mut Writer) {
        let (name, json) = if self.entry.name.starts_with("Remote") {
            let (record, version) = RemoteLogRecord::decode_framed(&self.bytes).unwrap();
            record.encode_framed(w, version).unwrap();
            (record.name(), record.to_json(version))
        } else {
            let (record, version) = MetadataRecord::decode_framed(&self.bytes).unwrap();
            record.encode_framed(w, version).unwrap();
            (record.name(), record.to_json(version))
        };
        assert_eq!(name, self.entry.name);
        assert!(same_json(&json, &self.line["json"]), "{json}\n{}", self.line);
    }

    fn prefixed(&self, w: &mut Writer, prefix: i16) {
        let mut r = Reader::new(&self.bytes);
        assert_eq!(r.i16(), Ok(prefix));
        w.i16(prefix);
        self.body(r.rest(), w);
    }
}

fn frames() -> impl Iterator<Item = Frame> {
    lines("framing").map(|line| Frame {
        entry: catalog::find(line["name"].as_str().unwrap()).unwrap(),
        version: line["version"].as_i64().unwrap().try_into().unwrap(),
        bytes: unhex(line["hex"].as_str().unwrap()),
        line,
    })
}

#[test]
fn every_frame_reads_and_is_written_as_kafka_writes_it() {
    let mut count = 0;
    for frame in frames() {
        assert_eq!(hex(&frame.again().into_bytes()), hex(&frame.bytes), "{}", frame.line);
        count += 1;
    }
    println!("{count} frames");
    assert_eq!(count, 54);
}

fn frame(what: &str, name: &str) -> Frame {
    frames().find(|frame| frame.line["what"] == what && frame.entry.name == name).unwrap()
}

#[test]
fn whole_requests_and_responses_are_written_in_one_call() {
    let frame = frame("request", "SaslHandshakeRequest");
    let request = messages::SaslHandshakeRequest { mechanism: "mecha-1".into() };
    let mut w = Writer::new();
    framing::encode_request(&mut w, 6, Some(""), 1, &request).unwrap();
    assert_eq!(w.into_bytes(), frame.bytes);

    let frame = self::frame("response", "SaslHandshakeResponse");
    let response =
        messages::SaslHandshakeResponse { error_code: 0, mechanisms: vec!["mecha-2".into(), "mecha-3".into()] };
    let mut w = Writer::new();
    framing::encode_response(&mut w, 6, 1, &response).unwrap();
    assert_eq!(w.into_bytes(), frame.bytes);
}

#[test]
fn coordinator_keys_and_values_are_written_in_one_call() {
    let bytes = frame("coordinator-key", "OffsetCommitKey").bytes;
    let key: messages::OffsetCommitKey<'_> = framing::decode_coordinator_key(&mut Reader::new(&bytes)).unwrap();
    let mut w = Writer::new();
    framing::encode_coordinator_key(&mut w, &key).unwrap();
    assert_eq!(w.into_bytes(), bytes);
    assert!(framing::decode_coordinator_key::<messages::GroupMetadataKey<'_>>(&mut Reader::new(&bytes)).is_err());

    let bytes = frame("version-prefixed", "OffsetCommitValue").bytes;
    let (value, version) =
        framing::decode_prefixed::<messages::OffsetCommitValue<'_>>(&mut Reader::new(&bytes)).unwrap();
    let mut w = Writer::new();
    framing::encode_prefixed(&mut w, version, &value).unwrap();
    assert_eq!(w.into_bytes(), bytes);
}

#[test]
fn headers_have_the_versions_that_the_frames_use() {
    assert_eq!((RequestHeader::MIN_VERSION, RequestHeader::MAX_VERSION), (1, 2));
    assert_eq!((ResponseHeader::MIN_VERSION, ResponseHeader::MAX_VERSION), (0, 1));
}
