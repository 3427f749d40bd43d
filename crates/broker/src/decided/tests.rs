use std::path::Path;
use std::sync::Arc;

use milena_config::{BrokerConfig, Settings};
use milena_net::Peer;
use milena_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest,
    CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, alter_configs_request, create_partitions_request, create_topics_request,
    delete_topics_request, incremental_alter_configs_request,
};
use milena_protocol::{Message, Reader, Writer, framing};

use super::*;
use crate::handlers;
use crate::registry::{APIS, Api, Handler};
use crate::request::{Call, Header};
use crate::test_image::{broker, image, topic};

const NODE: &str = "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:1,CONTROLLER://:2\n\
                    controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=h:2\n";

/// Has a body decided on a cluster of broker 1 with the topic `t` of one partition: how many records that makes, and the
/// response without its header.
fn decided(api: &Api, version: i16, body: &[u8]) -> Result<(usize, Vec<u8>), Refusal> {
    let Handler::Decided(decide, _) = api.handler else {
        panic!("{} is not decided by the controller", api.key.name())
    };
    run(api, decide, version, body)
}

/// The response, without its header, that refuses a body.
fn refused(api: &Api, version: i16, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let Handler::Decided(_, refuse) = api.handler else {
        panic!("{} is not decided by the controller", api.key.name())
    };
    let refuse = |call: &Call<'_>, _: View<'_>, out: &mut Outgoing| {
        refuse(call, ErrorCode::KAFKA_STORAGE_ERROR, out).map(|()| Vec::new())
    };
    Ok(run(api, refuse, version, body)?.1)
}

fn run(
    api: &Api,
    decide: impl Fn(&Call<'_>, View<'_>, &mut Outgoing) -> Result<Records, Refusal>,
    version: i16,
    body: &[u8],
) -> Result<(usize, Vec<u8>), Refusal> {
    let address = "127.0.0.1:1".parse().unwrap();
    let peer = Arc::new(Peer { id: 1, listener: "PLAINTEXT".into(), local: address, remote: address, reactor: 0 });
    let call = Call { header: Header::new(api.key, version, 7, None), body, peer: &peer, claim: None };
    let mut settings = Settings::new();
    settings.file(Path::new("server.properties"), NODE).unwrap();
    let config = BrokerConfig::load(&settings).unwrap();
    let image = image([broker(1, false)].into_iter().chain(topic("t", 1, &[&[1]])));
    let mut out = Outgoing::new();
    let records = decide(&call, View { image: &image, kraft_version: 0, config: &config }, &mut out)?;
    let (header, body) = framing::decode_response_header(&out.bytes[4..], api.key, version).unwrap();
    assert_eq!(header.correlation_id, 7);
    let body_at = out.bytes.len() - body.remaining();
    Ok((records.len(), out.bytes[body_at..].to_vec()))
}

/// Asks in every version; each must make `records` records and be answered with `code`, which `code_of` finds.
macro_rules! every_version {
    ($api:ident, $request:expr, $response:ident, $records:expr, $code:expr, $code_of:expr) => {
        for version in handlers::$api::API.versions.clone() {
            let mut body = Writer::new();
            let request = $request(version);
            request.encode(&mut body, version).unwrap();
            let (records, response) = decided(&handlers::$api::API, version, &body.into_bytes()).unwrap();
            let response = $response::decode(&mut Reader::new(&response), version).unwrap();
            let code: i16 = $code_of(&response);
            assert_eq!((records, code), ($records, $code), "version {version}: {response:?}");
        }
    };
}

#[test]
fn create_topics_is_decided_in_every_version() {
    let request = |name: &'static str| {
        move |_| {
            let topic = create_topics_request::CreatableTopic {
                name: name.into(),
                num_partitions: 2,
                replication_factor: 1,
                ..Default::default()
            };
            CreateTopicsRequest { topics: vec![topic], ..Default::default() }
        }
    };
    let code = |response: &CreateTopicsResponse<'_>| response.topics[0].error_code;
    every_version!(create_topics, request("new"), CreateTopicsResponse, 3, 0, code);
    every_version!(create_topics, request("t"), CreateTopicsResponse, 0, 36, code);
}

#[test]
fn delete_topics_is_decided_in_every_version() {
    let request = |name: &'static str| {
        move |version| {
            let state = delete_topics_request::DeleteTopicState { name: Some(name.into()), ..Default::default() };
            let (topics, topic_names) =
                if version < 6 { (Vec::new(), vec![name.into()]) } else { (vec![state], Vec::new()) };
            DeleteTopicsRequest { topics, topic_names, timeout_ms: 1 }
        }
    };
    let code = |response: &DeleteTopicsResponse<'_>| response.responses[0].error_code;
    every_version!(delete_topics, request("t"), DeleteTopicsResponse, 1, 0, code);
    every_version!(delete_topics, request("no"), DeleteTopicsResponse, 0, 3, code);
}

#[test]
fn create_partitions_is_decided_in_every_version() {
    let request = |count| {
        move |_| {
            let name = "t".into();
            let topic = create_partitions_request::CreatePartitionsTopic { name, count, assignments: None };
            CreatePartitionsRequest { topics: vec![topic], timeout_ms: 1, validate_only: false }
        }
    };
    let code = |response: &CreatePartitionsResponse<'_>| response.results[0].error_code;
    every_version!(create_partitions, request(4), CreatePartitionsResponse, 3, 0, code);
    every_version!(create_partitions, request(1), CreatePartitionsResponse, 0, 37, code);
}

#[test]
fn alter_configs_is_decided_in_every_version() {
    let request = |value: &'static str| {
        move |_| {
            let config =
                alter_configs_request::AlterableConfig { name: "retention.ms".into(), value: Some(value.into()) };
            let resource = alter_configs_request::AlterConfigsResource {
                resource_type: 2,
                resource_name: "t".into(),
                configs: vec![config],
            };
            AlterConfigsRequest { resources: vec![resource], validate_only: false }
        }
    };
    let code = |response: &AlterConfigsResponse<'_>| response.responses[0].error_code;
    every_version!(alter_configs, request("5"), AlterConfigsResponse, 1, 0, code);
    every_version!(alter_configs, request("x"), AlterConfigsResponse, 0, 40, code);
}

#[test]
fn incremental_alter_configs_is_decided_in_every_version() {
    let request = |value: &'static str| {
        move |_| {
            let config = incremental_alter_configs_request::AlterableConfig {
                name: "retention.ms".into(),
                config_operation: 0,
                value: Some(value.into()),
            };
            let resource = incremental_alter_configs_request::AlterConfigsResource {
                resource_type: 2,
                resource_name: "t".into(),
                configs: vec![config],
            };
            IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false }
        }
    };
    let code = |response: &IncrementalAlterConfigsResponse<'_>| response.responses[0].error_code;
    every_version!(incremental_alter_configs, request("5"), IncrementalAlterConfigsResponse, 1, 0, code);
    every_version!(incremental_alter_configs, request("x"), IncrementalAlterConfigsResponse, 0, 40, code);
}

#[test]
fn bytes_that_are_no_request_are_refused() {
    let decides = |api: &&Api| matches!(api.handler, Handler::Decided(..));
    for api in APIS.iter().filter(decides) {
        let refused = decided(api, *api.versions.start(), &[0x7f; 4]);
        assert!(matches!(refused, Err(Refusal::Malformed(_))), "{}", api.key.name());
    }
}

/// Refuses a request for `t` in every version; the code must be the one given.
macro_rules! every_refusal {
    ($api:ident, $request:expr, $response:ident, $code_of:expr) => {
        for version in handlers::$api::API.versions.clone() {
            let mut body = Writer::new();
            $request(version).encode(&mut body, version).unwrap();
            let response = refused(&handlers::$api::API, version, &body.into_bytes()).unwrap();
            let response = $response::decode(&mut Reader::new(&response), version).unwrap();
            let code: i16 = $code_of(&response);
            assert_eq!(code, 56, "version {version}: {response:?}");
        }
    };
}

#[test]
fn what_could_not_be_made_durable_is_refused_in_every_version() {
    every_refusal!(
        create_topics,
        |_| {
            let topic = create_topics_request::CreatableTopic { name: "t".into(), ..Default::default() };
            CreateTopicsRequest { topics: vec![topic], ..Default::default() }
        },
        CreateTopicsResponse,
        |response: &CreateTopicsResponse<'_>| response.topics[0].error_code
    );
    every_refusal!(
        delete_topics,
        |version| {
            let state = delete_topics_request::DeleteTopicState { name: Some("t".into()), ..Default::default() };
            let (topics, topic_names) =
                if version < 6 { (Vec::new(), vec!["t".into()]) } else { (vec![state], Vec::new()) };
            DeleteTopicsRequest { topics, topic_names, timeout_ms: 1 }
        },
        DeleteTopicsResponse,
        |response: &DeleteTopicsResponse<'_>| response.responses[0].error_code
    );
    every_refusal!(
        create_partitions,
        |_| {
            let topic = create_partitions_request::CreatePartitionsTopic { name: "t".into(), ..Default::default() };
            CreatePartitionsRequest { topics: vec![topic], ..Default::default() }
        },
        CreatePartitionsResponse,
        |response: &CreatePartitionsResponse<'_>| response.results[0].error_code
    );
    every_refusal!(
        alter_configs,
        |_| AlterConfigsRequest { resources: vec![Default::default()], validate_only: false },
        AlterConfigsResponse,
        |response: &AlterConfigsResponse<'_>| response.responses[0].error_code
    );
    every_refusal!(
        incremental_alter_configs,
        |_| IncrementalAlterConfigsRequest { resources: vec![Default::default()], validate_only: false },
        IncrementalAlterConfigsResponse,
        |response: &IncrementalAlterConfigsResponse<'_>| response.responses[0].error_code
    );
}
