//! What golden bytes cannot show: gaps in place of records, sizes of tagged fields, and messages that a version cannot
//! hold.

use milena_protocol::framing::encode_response;
use milena_protocol::messages::describe_configs_request::{DescribeConfigsRequest, DescribeConfigsResource};
use milena_protocol::messages::fetch_response::{FetchResponse, FetchableTopicResponse, NodeEndpoint, PartitionData};
use milena_protocol::messages::{
    FetchRequest, FetchSnapshotResponse, JoinGroupResponse, MetadataRequest, ProduceRequest, SaslHandshakeRequest,
};
use milena_protocol::{
    ApiInfo, ApiKey, DecodeError, EncodeError, Gap, Message, Reader, Records, Uuid, Writer, api_info,
};

fn encode<'a, M: Message<'a>>(message: &M, version: i16) -> Result<Vec<u8>, EncodeError> {
    let mut w = Writer::new();
    message.encode(&mut w, version)?;
    Ok(w.into_bytes())
}

/// A response with two partitions, and a tagged field after them that takes more than 127 bytes.
fn fetch<'a>(records: [Records<'a>; 2], host: &'a str) -> FetchResponse<'a> {
    let partitions = records.map(|records| PartitionData { records: Some(records), ..Default::default() });
    let topic = FetchableTopicResponse { topic_id: Uuid::ONE, partitions: partitions.into(), ..Default::default() };
    let endpoint = NodeEndpoint { host: host.into(), ..Default::default() };
    FetchResponse { responses: vec![topic], node_endpoints: vec![endpoint], ..Default::default() }
}

#[test]
fn gaps_filled_by_the_caller_give_the_bytes_of_a_response_without_gaps() {
    let (first, second) = (vec![7; 1000], vec![8; 5]);
    for host in ["h", &"h".repeat(300)] {
        let whole = fetch([Records::Bytes(&first), Records::Bytes(&second)], host);
        let mut expected = Writer::over(b"before".to_vec());
        encode_response(&mut expected, 3, 17, &whole).unwrap();

        let mut w = Writer::over(b"before".to_vec());
        encode_response(&mut w, 3, 17, &fetch([Records::Gap(1000), Records::Gap(5)], host)).unwrap();
        let [Gap { at: one, len: 1000 }, Gap { at: two, len: 5 }] = w.gaps[..] else { panic!("{:?}", w.gaps) };
        let filled = [&w.buf[..one], &first, &w.buf[one..two], &second, &w.buf[two..]].concat();
        assert_eq!(filled, expected.into_bytes());
    }
}

#[test]
fn an_empty_gap_leaves_no_mark() {
    let mut w = Writer::new();
    fetch([Records::Gap(0), Records::Gap(0)], "").encode(&mut w, 17).unwrap();
    assert_eq!(w.gaps, []);
}

#[test]
fn tagged_fields_of_every_size_read_back() {
    for len in [0, 1, 100, 119, 120, 121, 122, 127, 128, 129, 16_000, 16_371, 16_384, 32_000] {
        let host = "h".repeat(len);
        let response = fetch([Records::Bytes(&[]), Records::Bytes(&[1])], &host);
        let bytes = encode(&response, 17).unwrap();
        let mut r = Reader::new(&bytes);
        assert_eq!(FetchResponse::decode(&mut r, 17).as_ref(), Ok(&response), "{len}");
        assert_eq!(r.remaining(), 0);
    }
}

#[test]
fn a_field_that_the_version_lacks_is_dropped_or_refused_as_the_definition_says() {
    let ignorable = FetchRequest { rack_id: "r".into(), session_id: 5, ..Default::default() };
    let bytes = encode(&ignorable, 4).unwrap();
    assert_eq!(FetchRequest::decode(&mut Reader::new(&bytes), 4), Ok(FetchRequest::default()));

    let refused = MetadataRequest { allow_auto_topic_creation: false, ..Default::default() };
    let error = EncodeError::FieldNotInVersion { field: "MetadataRequest.AllowAutoTopicCreation", version: 3 };
    assert_eq!(encode(&refused, 3), Err(error));
    assert!(encode(&refused, 4).is_ok());
}

#[test]
fn null_is_refused_where_the_version_has_none() {
    let response = JoinGroupResponse { protocol_name: None, ..Default::default() };
    let error = EncodeError::UnexpectedNull { field: "JoinGroupResponse.ProtocolName" };
    assert_eq!(encode(&response, 6), Err(error));
    assert!(encode(&response, 7).is_ok());

    let mut snapshot = FetchSnapshotResponse::default();
    snapshot.topics.push(Default::default());
    snapshot.topics[0].partitions.push(Default::default());
    let error = EncodeError::UnexpectedNull { field: "PartitionSnapshot.UnalignedRecords" };
    assert_eq!(encode(&snapshot, 0), Err(error));
}

#[test]
fn strings_end_at_32767_bytes_in_both_forms() {
    let longest = "x".repeat(32_767);
    let request = |text: String| SaslHandshakeRequest { mechanism: text.into() };
    assert!(encode(&request(longest.clone()), 0).is_ok());
    let error = EncodeError::TooLong { what: "string", len: 32_768 };
    assert_eq!(encode(&request(longest.clone() + "x"), 0), Err(error));
    let produce = ProduceRequest { transactional_id: Some((longest + "x").into()), ..Default::default() };
    assert_eq!(encode(&produce, 9), Err(error));
}

#[test]
fn invalid_utf8_is_replaced_and_valid_utf8_is_borrowed() {
    let request = SaslHandshakeRequest::decode(&mut Reader::new(&[0, 3, b'a', 0xff, b'b']), 0).unwrap();
    assert_eq!(request.mechanism, "a\u{fffd}b");
    let request = SaslHandshakeRequest::decode(&mut Reader::new(&[0, 2, 0xc3, 0xa9]), 0).unwrap();
    assert!(matches!(request.mechanism, std::borrow::Cow::Borrowed("é")));
}

#[test]
fn lengths_and_booleans_are_read_as_leniently_as_kafka_does() {
    // A negative array length is null, whatever its value; a boolean is anything but zero.
    let request = MetadataRequest::decode(&mut Reader::new(&[0x80, 0, 0, 0, 7]), 4).unwrap();
    assert_eq!((request.topics, request.allow_auto_topic_creation), (None, true));
    // Non-minimal varints are numbers like others: zero in two bytes, then an empty section in two bytes.
    let request = MetadataRequest::decode(&mut Reader::new(&[0x80, 0, 1, 0, 0x80, 0]), 11).unwrap();
    assert_eq!(request.topics, None);
}

#[test]
fn the_table_of_apis_is_kafkas() {
    let number = |text: &str| if text == "none" { i16::MAX } else { text.parse().unwrap() };
    let mut rows = 0;
    for line in include_str!("data/apis.tsv").lines().skip(1) {
        let row: Vec<&str> = line.split('\t').collect();
        let key = ApiKey(row[0].parse().unwrap());
        assert_eq!(key.name(), row[1]);
        let expected = (row[2] != "-").then(|| ApiInfo {
            key,
            name: key.name(),
            min: number(row[2]),
            max: number(row[3]),
            flexible_from: number(row[5]),
            latest_unstable: row[4] == "true",
            on_broker: row[7].contains("broker"),
            on_controller: row[7].contains("controller"),
            cluster_action: row[8] == "true",
            forwardable: row[9] == "true",
        });
        assert_eq!(api_info(key), expected.as_ref());
        rows += 1;
    }
    assert_eq!(rows, 95);
}

#[test]
fn arrays_within_arrays_share_the_limit_of_elements() {
    let decoded = |keys: usize| {
        let resource =
            DescribeConfigsResource { configuration_keys: Some(vec!["".into(); keys]), ..Default::default() };
        let request = DescribeConfigsRequest { resources: vec![resource; 2], ..Default::default() };
        let bytes = encode(&request, 4).unwrap();
        DescribeConfigsRequest::decode(&mut Reader::new(&bytes), 4).map(|request| request.resources.len())
    };
    assert_eq!(decoded(499_999), Ok(2));
    assert!(matches!(decoded(500_000), Err(DecodeError::TooManyElements { count: 500_000, .. })));
}
