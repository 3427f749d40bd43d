//! DescribeCluster. v1: brokers or controllers. v2: fenced brokers.

use std::borrow::Cow;

use milena_metadata::Image;
use milena_net::Outgoing;
use milena_protocol::messages::DescribeClusterRequest;
use milena_protocol::messages::describe_cluster_response::{DescribeClusterBroker, DescribeClusterResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::authorized_operations;
use crate::cluster_view::ClusterView;
use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};
use crate::services::{Node, Services};

/// The registry's line.
pub const API: Api = Api::new(ApiKey::DESCRIBE_CLUSTER, 0..=2, Handler::Now(handle));

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

fn handle(call: &Call<'_>, services: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: DescribeClusterRequest = call.request()?;
    let image = services.image();
    call.answer(out, &response(&request, &image, &services.node, &call.peer.listener))
}

fn response<'r>(
    request: &DescribeClusterRequest,
    image: &'r Image,
    node: &'r Node,
    listener: &str,
) -> DescribeClusterResponse<'r> {
    match request.endpoint_type {
        BROKERS => {}
        CONTROLLERS => {
            return refused(ErrorCode::MISMATCHED_ENDPOINT_TYPE, "controllers are described by a controller".into());
        }
        other => return refused(ErrorCode::UNSUPPORTED_ENDPOINT_TYPE, format!("there is no endpoint type {other}")),
    }
    let view = ClusterView::new(image.cluster(), listener);
    let brokers = view.reachable().filter(|(broker, _)| !broker.fenced || request.include_fenced_brokers);
    DescribeClusterResponse {
        cluster_id: Cow::Borrowed(&node.cluster_id),
        controller_id: view.controller_id(node.id),
        brokers: brokers
            .map(|(broker, endpoint)| DescribeClusterBroker {
                broker_id: broker.id,
                host: Cow::Borrowed(&endpoint.host),
                port: i32::from(endpoint.port),
                rack: broker.rack.as_deref().map(Cow::Borrowed),
                is_fenced: broker.fenced,
            })
            .collect(),
        cluster_authorized_operations: authorized_operations::cluster(request.include_cluster_authorized_operations),
        ..Default::default()
    }
}

fn refused(error: ErrorCode, message: String) -> DescribeClusterResponse<'static> {
    DescribeClusterResponse {
        error_code: error.0,
        error_message: Some(Cow::Owned(message)),
        controller_id: -1,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_image::{LISTENER, broker, image};

    fn ask(endpoint_type: i8, include_fenced_brokers: bool) -> (i16, i32, Vec<(i32, bool)>) {
        let image = image([broker(1, false), broker(2, true)]);
        let node = Node { id: 1, cluster_id: "c".into() };
        let request = DescribeClusterRequest { endpoint_type, include_fenced_brokers, ..Default::default() };
        let response = response(&request, &image, &node, LISTENER);
        let brokers = response.brokers.iter().map(|broker| (broker.broker_id, broker.is_fenced)).collect();
        (response.error_code, response.controller_id, brokers)
    }

    #[test]
    fn fenced_brokers_are_told_to_those_who_ask() {
        assert_eq!(ask(BROKERS, false), (0, 1, vec![(1, false)]));
        assert_eq!(ask(BROKERS, true), (0, 1, vec![(1, false), (2, true)]));
    }

    #[test]
    fn a_broker_describes_brokers_only() {
        assert_eq!(ask(CONTROLLERS, false), (ErrorCode::MISMATCHED_ENDPOINT_TYPE.0, -1, vec![]));
        for unknown in [-1, 0, 3] {
            assert_eq!(ask(unknown, false), (ErrorCode::UNSUPPORTED_ENDPOINT_TYPE.0, -1, vec![]));
        }
    }
}
