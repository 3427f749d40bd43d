//! The codec against bytes that Kafka's own encoder wrote: every message in every version, with every nullable field
//! null and set, every tagged field present, every array empty and filled; and against bytes that Kafka refuses.

mod support;

use milena_protocol::catalog::{self, Entry, Transcoded};
use milena_protocol::{EncodeError, Writer};
use serde_json::Value;
use support::{hex, lines, same_json, unhex};

fn entry(line: &Value) -> (&'static Entry, i16, Vec<u8>) {
    let name = line["name"].as_str().unwrap();
    let version = line["version"].as_i64().unwrap().try_into().unwrap();
    let entry = catalog::find(name).unwrap_or_else(|| panic!("no message {name}"));
    (entry, version, unhex(line["hex"].as_str().unwrap()))
}

/// Decodes all of `bytes` and encodes it again.
fn transcode(entry: &Entry, bytes: &[u8], version: i16) -> Vec<u8> {
    let mut w = Writer::new();
    let done = (entry.transcode)(bytes, version, &mut w);
    assert_eq!(done, Ok(Transcoded { left: 0, encoded: Ok(()) }), "{} v{version} {}", entry.name, hex(bytes));
    w.into_bytes()
}

fn assert_json(entry: &Entry, bytes: &[u8], version: i16, expected: &Value) {
    let json = (entry.to_json)(bytes, version).unwrap();
    let (name, hex) = (entry.name, hex(bytes));
    assert!(same_json(&json, expected), "{name} v{version} {hex}\nis       {json}\nexpected {expected}");
}

#[test]
fn every_body_decodes_to_its_json_and_encodes_to_the_same_bytes() {
    let (mut bodies, mut versions, mut names) = (0, 0, 0);
    let mut last = ("", -1);
    for line in lines("vectors") {
        let (entry, version, bytes) = entry(&line);
        assert_json(entry, &bytes, version, &line["json"]);
        let again = transcode(entry, &bytes, version);
        assert_eq!(hex(&again), hex(&bytes), "{} v{version} {}", entry.name, line["json"]);
        names += usize::from(last.0 != entry.name);
        if last != (entry.name, version) {
            versions += 1;
            let mut w = Writer::new();
            (entry.encode_default)(&mut w, version).unwrap();
            assert_eq!(hex(&w.into_bytes()), hex(&bytes), "the default of {} v{version}", entry.name);
        }
        last = (entry.name, version);
        bodies += 1;
    }
    println!("{bodies} bodies of {names} messages in {versions} versions");
    assert_eq!((bodies, names, versions), (4156, 278, 744));
    assert_eq!(catalog::ENTRIES.len(), 278);
    assert_eq!(catalog::ENTRIES.iter().map(|e| usize::try_from(e.max - e.min + 1).unwrap()).sum::<usize>(), 744);
}

#[test]
fn unknown_tagged_fields_are_skipped() {
    let mut bodies = 0;
    for line in lines("unknown-tags") {
        let (entry, version, bytes) = entry(&line);
        assert_json(entry, &bytes, version, &line["json"]);
        let known = transcode(entry, &bytes, version);
        assert!(known.len() < bytes.len());
        assert_json(entry, &known, version, &line["json"]);
        bodies += 1;
    }
    println!("{bodies} bodies with unknown tagged fields");
    assert_eq!(bodies, 242);
}

#[test]
fn what_kafka_refuses_to_decode_is_refused() {
    let mut refused = 0;
    for line in lines("reject") {
        let (entry, version, bytes) = entry(&line);
        let done = (entry.transcode)(&bytes, version, &mut Writer::new());
        assert!(done.is_err(), "{line} gave {done:?}");
        refused += 1;
    }
    println!("{refused} malformed bodies refused");
    assert_eq!(refused, 3693);
}

#[test]
fn versions_that_do_not_exist_are_refused_both_ways() {
    for entry in catalog::ENTRIES {
        for version in [entry.min - 1, entry.max + 1, i16::MIN, i16::MAX] {
            assert!((entry.transcode)(&[0; 64], version, &mut Writer::new()).is_err());
            let expected = EncodeError::UnsupportedVersion { message: entry.name, version };
            assert_eq!((entry.encode_default)(&mut Writer::new(), version), Err(expected));
        }
    }
}
