//! What the broker answers, byte by byte: for each API a file with requests and responses of every version. With
//! `UPDATE_TRANSCRIPTS=1` the files are written instead of compared; then read what has changed.
//!
//! What differs from run to run (port, ids that are drawn, the data directory, sizes of the disk) is replaced by fixed
//! values. The bytes are those of the response with these values: the response as it came is encoded again and must be
//! what was received, so that nothing else hides behind the replacement.

mod exchanges;
mod normal;
mod text;

use std::collections::BTreeSet;
use std::path::PathBuf;

use milena_testkit::client::RawClient;
use milena_testkit::wire;
use serde_json::Value;

use self::exchanges::Stage;
use self::normal::Normal;
use super::common::Node;
use super::common::requests::{create_topic, produce};
use super::versions::{advertised, name_of};

/// The correlation id of every request.
const CORRELATION: i32 = 7;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

#[test]
fn transcripts_are_current() {
    let update = std::env::var_os("UPDATE_TRANSCRIPTS").is_some();
    let mut names = BTreeSet::new();
    for (key, min, max) in advertised(&mut Node::start().client()) {
        let api = name_of(key);
        let file = folder().join(format!("{}.txt", text::snake_case(&api)));
        let fresh = transcript(&api, min, max);
        if update {
            std::fs::write(&file, &fresh).unwrap();
        }
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(kept == fresh, "{}", text::first_difference(&api, &kept, &fresh));
        names.insert(file);
    }
    let files: BTreeSet<_> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files, names, "each API that is served has a transcript, and nothing else has");
}

/// All exchanges of an API with a fresh node that holds three records in partition 0 of the topic `t`.
fn transcript(api: &str, min: i16, max: i16) -> String {
    let node = Node::start();
    let mut client = node.client();
    let topic_id = create_topic(&mut client, "t", 2, &[]);
    assert_eq!(produce(&mut client, "t", 0, &exchanges::three_records())["errorCode"], 0);
    let mut normal = Normal::new(&node);
    let mut out = format!("{api}\n");
    for version in min..=max {
        for (title, body) in exchanges::of(api, &Stage { version, topic_id: &topic_id }) {
            let body = wire::fit(&format!("{api}Request"), version, &body).unwrap();
            out += &exchange(&mut client, &mut normal, (api, version), title, &body);
        }
    }
    out
}

/// One request and its response, as text.
fn exchange(
    client: &mut RawClient,
    normal: &mut Normal,
    (api, version): (&str, i16),
    title: &str,
    body: &Value,
) -> String {
    let request = wire::request(api, version, CORRELATION, Some("client"), body).unwrap();
    client.send_frame(&request).unwrap();
    let frame = client.next_frame().unwrap_or_else(|error| panic!("{api} v{version}, {title}: {error}"));
    let reply = wire::response(api, version, &frame).unwrap();
    assert_eq!((reply.correlation, reply.trailing), (CORRELATION, 0), "{api} v{version}, {title}");
    let name = format!("{api}Response");
    let encode = |body: &Value| wire::encode_body(&name, version, body).unwrap();
    let body_at = frame.len() - encode(&reply.body).len();
    assert_eq!(frame[body_at..], encode(&reply.body), "{api} v{version}, {title}: {}", reply.body);
    let (asked, answered) = (normal.of(body), normal.of(&reply.body));
    let bytes = [&frame[..body_at], &encode(&answered)].concat();
    format!(
        "\n== v{version}: {title}\nrequest  {}\nresponse {}\n{}",
        text::json(&asked),
        text::json(&answered),
        text::hex(&bytes)
    )
}
