use serde_json::json;

use super::*;

#[test]
fn a_metadata_request_encodes_in_both_forms() {
    let old = encode_body("MetadataRequest", 1, &json!({"topics": [{"name": "ab"}]})).unwrap();
    assert_eq!(old, [0, 0, 0, 1, 0, 2, b'a', b'b']);
    let new = encode_body("MetadataRequest", 9, &json!({"topics": [{"name": "ab"}]})).unwrap();
    assert_eq!(new, [2, 3, b'a', b'b', 0, 1, 0, 0, 0]);
}

#[test]
fn an_unknown_field_is_an_error() {
    assert!(encode_body("MetadataRequest", 1, &json!({"topic": []})).is_err());
}

#[test]
fn every_default_body_survives_the_round_trip() {
    for (key, api) in apis().unwrap() {
        for name in [format!("{api}Request"), format!("{api}Response")] {
            for version in schema(&name).unwrap().versions() {
                let records = ["ShareFetch", "FetchSnapshot"].contains(&api.as_str());
                if records {
                    continue;
                }
                let bytes = encode_body(&name, version, &json!({})).unwrap();
                let (body, trailing) = decode_body(&name, version, &bytes).unwrap();
                assert_eq!(trailing, 0, "{key} {name} v{version}");
                assert_eq!(encode_body(&name, version, &body).unwrap(), bytes, "{key} {name} v{version}");
            }
        }
    }
}
