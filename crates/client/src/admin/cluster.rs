//! The cluster: its brokers, and what they serve.

use milena_protocol::ApiKey;
use milena_protocol::messages::{
    ApiVersionsRequest, DescribeClusterRequest, UnregisterBrokerRequest, UnregisterControllerRequest,
};

use super::Admin;
use crate::call::Target;
use crate::error::{Error, check};

/// A cluster and its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterDescription {
    /// Its id.
    pub id: String,
    /// The node that decides; of a KRaft cluster some broker that passes on to it.
    pub controller: Option<i32>,
    /// Its brokers, in the server's order.
    pub brokers: Vec<BrokerDescription>,
}

/// A broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerDescription {
    /// Its id.
    pub id: i32,
    /// Where clients connect.
    pub host: String,
    /// The port there.
    pub port: i32,
    /// Where it stands, if that was configured.
    pub rack: Option<String>,
    /// Whether it is registered, but takes no part.
    pub fenced: bool,
}

/// Which nodes of a cluster to describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Endpoints {
    /// Brokers that take part.
    #[default]
    Brokers,
    /// Those too that are fenced.
    WithFenced,
}

/// The versions in which a broker serves an API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiRange {
    /// The API.
    pub key: ApiKey,
    /// Oldest version.
    pub min: i16,
    /// Newest version.
    pub max: i16,
}

/// Who asks; a broker wants to know before it tells what it serves.
pub(super) fn introduction() -> ApiVersionsRequest<'static> {
    ApiVersionsRequest {
        client_software_name: "milena".into(),
        client_software_version: env!("CARGO_PKG_VERSION").into(),
        ..Default::default()
    }
}

impl Admin {
    /// The cluster and its brokers.
    ///
    /// # Errors
    /// When no broker answers.
    pub async fn describe_cluster(&self) -> Result<ClusterDescription, Error> {
        self.describe_endpoints(Endpoints::Brokers).await
    }

    /// The cluster and those of its nodes that are asked for.
    ///
    /// # Errors
    /// When no broker answers, or is too old to know the difference.
    pub async fn describe_endpoints(&self, which: Endpoints) -> Result<ClusterDescription, Error> {
        let request = DescribeClusterRequest {
            endpoint_type: self.client.endpoint_type(),
            include_fenced_brokers: which == Endpoints::WithFenced,
            ..Default::default()
        };
        let read = self.client.call(Target::Any, &request).read(|response| {
            check(response.error_code, response.error_message.as_deref())?;
            let broker = |broker: &milena_protocol::messages::describe_cluster_response::DescribeClusterBroker<'_>| {
                BrokerDescription {
                    id: broker.broker_id,
                    host: broker.host.to_string(),
                    port: broker.port,
                    rack: broker.rack.as_deref().map(str::to_owned),
                    fenced: broker.is_fenced,
                }
            };
            Ok(ClusterDescription {
                id: response.cluster_id.to_string(),
                controller: (response.controller_id >= 0).then_some(response.controller_id),
                brokers: response.brokers.iter().map(broker).collect(),
            })
        });
        read.await
    }

    /// What a broker serves, by key.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn api_versions(&self, broker: i32) -> Result<Vec<ApiRange>, Error> {
        let request = introduction();
        let read = self.client.call(Target::Broker(broker), &request).read(|response| {
            check(response.error_code, None)?;
            let range = |api: &milena_protocol::messages::api_versions_response::ApiVersion| ApiRange {
                key: ApiKey(api.api_key),
                min: api.min_version,
                max: api.max_version,
            };
            let mut served: Vec<ApiRange> = response.api_keys.iter().map(range).collect();
            served.sort_by_key(|api| api.key);
            Ok(served)
        });
        read.await
    }

    /// Takes a broker that is gone off the cluster's list.
    ///
    /// # Errors
    /// When the controller does not answer, or refuses.
    pub async fn unregister_broker(&self, id: i32) -> Result<(), Error> {
        let request = UnregisterBrokerRequest { broker_id: id };
        let read = self
            .client
            .call(Target::Controller, &request)
            .read(|response| check(response.error_code, response.error_message.as_deref()));
        read.await
    }

    /// Takes a controller that is gone off the cluster's list.
    ///
    /// # Errors
    /// When the controller does not answer, or refuses.
    pub async fn unregister_controller(&self, id: i32) -> Result<(), Error> {
        let request = UnregisterControllerRequest { controller_id: id };
        let read = self
            .client
            .call(Target::Controller, &request)
            .read(|response| check(response.error_code, response.error_message.as_deref()));
        read.await
    }
}
