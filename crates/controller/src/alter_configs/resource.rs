//! One resource's alteration: what the broker that was asked checks, then what the controller checks, then the records.

use std::borrow::Cow;

use milena_config::alter::{self, Change, Edit, Operation, Resource};
use milena_config::{Overrides, client_metrics, dynamic, group, logger, topic};
use milena_metadata::{ConfigResource, ConfigResourceType};
use milena_protocol::ErrorCode;
use milena_protocol::messages::ConfigRecord;

use super::{Alteration, RawEdit};
use crate::config_records::{MAX_VALUE_LENGTH, MIN_INSYNC_REPLICAS, value_too_long};
use crate::error::ApiError;
use crate::name::validate_topic_name;
use crate::view::{Records, View};

/// The records of an alteration.
pub(super) fn alter(view: View<'_>, alteration: &Alteration<'_, '_>) -> Result<Records, ApiError> {
    check_shape(alteration)?;
    if alteration.kind == ConfigResourceType::BROKER_LOGGER.0 && !alteration.replaces {
        return alter_loggers(view, alteration);
    }
    let resource = Resource::from_code(alteration.kind)
        .ok_or_else(|| invalid_request(format!("Unknown resource type {}", alteration.kind)))?;
    let edits = alteration.edits().map_err(|operation| match resource {
        Resource::Broker => invalid_request(format!("Unknown operations type {operation}")),
        _ => ApiError::code(ErrorCode::UNKNOWN_SERVER_ERROR),
    });
    if resource == Resource::Broker {
        // Without a name it is the default of all.
        if !alteration.name.is_empty() {
            check_node(view, &alteration.name, "Unexpected broker id, expected", "but received")?;
        }
        check_dynamic(view, alteration, edits.as_deref().map_err(ApiError::clone)?)?;
    }
    let changed = ConfigResource { kind: ConfigResourceType(alteration.kind), name: alteration.name.to_string() };
    let existing = view.image.configs().get(&changed).map(|map| Overrides::clone(map)).unwrap_or_default();
    let changes = if alteration.replaces {
        alter::replace(resource, &existing, &replacement(&edits?))
    } else {
        alter::incremental(resource, &existing, &edits?)?
    };
    for change in &changes {
        check_change(view, &changed, change)?;
    }
    check_outcome(view, resource, &changed.name, &existing, &changes)?;
    Ok(changes.into_iter().map(|change| record(&changed, change)).collect())
}

fn record(resource: &ConfigResource, change: Change) -> milena_protocol::MetadataRecord<'static> {
    ConfigRecord {
        resource_type: resource.kind.0,
        resource_name: Cow::Owned(resource.name.clone()),
        name: Cow::Owned(change.name),
        value: change.value.map(Cow::Owned),
    }
    .into()
}

fn invalid_request(message: impl Into<Cow<'static, str>>) -> ApiError {
    ApiError::new(ErrorCode::INVALID_REQUEST, message)
}

/// Refuses repeated keys and missing values; an operation that does not exist needs a value too.
fn check_shape<'r>(alteration: &Alteration<'_, 'r>) -> Result<(), ApiError> {
    let edit = |raw: &RawEdit<'r>| {
        let operation = Operation::from_code(raw.operation).unwrap_or(Operation::Set);
        Edit { name: raw.name, operation, value: raw.value }
    };
    let edits: Vec<Edit<'_>> = alteration.edits.iter().map(edit).collect();
    Ok(alter::check_shape(&edits)?)
}

/// Log levels are no metadata: the root logger's may be altered, and nothing is recorded.
fn alter_loggers(view: View<'_>, alteration: &Alteration<'_, '_>) -> Result<Records, ApiError> {
    check_node(view, &alteration.name, "Unexpected node id. Expected", "but received")?;
    let edits = alteration.edits().map_err(|operation| invalid_request(format!("Unknown operation type: {operation}")));
    logger::validate(&edits?, |_| false)?;
    Ok(Vec::new())
}

/// A node alters what is its own.
fn check_node(view: View<'_>, name: &str, expected: &str, received: &str) -> Result<(), ApiError> {
    let own = view.config.node_id();
    match name.parse::<i32>() {
        Ok(id) if own == id => Ok(()),
        Ok(id) => Err(invalid_request(format!("{expected} {own}, {received} {id}"))),
        Err(_) => Err(invalid_request(format!("Node id must be an integer, but it is: {name}"))),
    }
}

/// What the running broker would do with its new configuration.
fn check_dynamic(view: View<'_>, alteration: &Alteration<'_, '_>, edits: &[Edit<'_>]) -> Result<(), ApiError> {
    let per_broker = !alteration.name.is_empty();
    if alteration.replaces {
        return Ok(dynamic::check_replacement(view.config, per_broker, &replacement(edits))?);
    }
    Ok(dynamic::check_alter(view.config, per_broker, edits)?)
}

fn replacement(edits: &[Edit<'_>]) -> Overrides {
    edits.iter().filter_map(|edit| Some((edit.name.to_owned(), edit.value?.to_owned()))).collect()
}

/// Rules of single keys that only the controller can enforce.
fn check_change(view: View<'_>, resource: &ConfigResource, change: &Change) -> Result<(), ApiError> {
    let refuse = |message: &'static str| Err(ApiError::new(ErrorCode::INVALID_CONFIG, message));
    let features = view.image.features();
    let of_broker = resource.kind == ConfigResourceType::BROKER;
    if of_broker && change.name == MIN_INSYNC_REPLICAS && features.elr_enabled() {
        match (&*resource.name, &change.value) {
            ("", Some(_)) => {}
            ("", None) => return refuse("Cluster-level min.insync.replicas cannot be removed while ELR is enabled."),
            _ => return refuse("Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        }
    }
    if of_broker && change.name == "cordoned.log.dirs" && !features.metadata_version().supports_cordoned_directories() {
        return refuse(
            "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0",
        );
    }
    match &change.value {
        Some(value) if value.len() > MAX_VALUE_LENGTH => Err(value_too_long()),
        _ => Ok(()),
    }
}

/// Whether the resource may have the configuration that it would have, and exists.
fn check_outcome(
    view: View<'_>,
    resource: Resource,
    name: &str,
    existing: &Overrides,
    changes: &[Change],
) -> Result<(), ApiError> {
    let new = alter::apply(existing, changes);
    match resource {
        Resource::Topic if name.is_empty() => Err(invalid_request("Default topic resources are not allowed.")),
        Resource::Topic => {
            validate_topic_name(name)?;
            topic::validate(view.config, &new, existing)?;
            if view.image.topics().get(name).is_some() {
                return Ok(());
            }
            let message = format!("The topic '{name}' does not exist.");
            Err(ApiError::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message))
        }
        Resource::Group if name.is_empty() => Err(invalid_request("Default group resources are not allowed.")),
        Resource::Group => Ok(group::validate(view.config, &new)?),
        Resource::ClientMetrics => Ok(client_metrics::validate(name, &new)?),
        // The node that decides is registered, and no other one gets here.
        Resource::Broker => Ok(()),
    }
}
