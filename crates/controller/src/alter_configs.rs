//! AlterConfigs, which replaces all of a resource's configuration, and IncrementalAlterConfigs, which edits it key by key.
//! What values may be is asked of the configuration's definitions.

mod resource;

use milena_config::alter::{Edit, Operation};
use milena_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    alter_configs_response, incremental_alter_configs_request, incremental_alter_configs_response,
};
use milena_protocol::{ErrorCode, Str};

use crate::config_records::clear_elr_records;
use crate::error::ApiError;
use crate::limits::check_records;
use crate::repeated::Repeated;
use crate::view::{Records, View};

/// Decides an AlterConfigs request. Each resource is altered or refused as a whole; one that occurs twice is refused.
pub fn alter_configs<'a>(view: View<'_>, request: &AlterConfigsRequest<'a>) -> (Records, AlterConfigsResponse<'a>) {
    let set = |name, value| RawEdit { name, value, operation: SET };
    let alterations = request.resources.iter().map(|resource| Alteration {
        kind: resource.resource_type,
        name: resource.resource_name.clone(),
        replaces: true,
        edits: resource.configs.iter().map(|c| set(&*c.name, c.value.as_deref())).collect(),
    });
    let (records, outcomes) = decide(view, alterations.collect(), request.validate_only);
    let responses = outcomes.into_iter().map(Into::into).collect();
    (records, AlterConfigsResponse { responses, ..AlterConfigsResponse::default() })
}

/// Decides an IncrementalAlterConfigs request. Each resource is altered or refused as a whole; one that occurs twice is
/// refused.
pub fn incremental_alter_configs<'a>(
    view: View<'_>,
    request: &IncrementalAlterConfigsRequest<'a>,
) -> (Records, IncrementalAlterConfigsResponse<'a>) {
    let alterations = request.resources.iter().map(|resource| Alteration {
        kind: resource.resource_type,
        name: resource.resource_name.clone(),
        replaces: false,
        edits: resource.configs.iter().map(raw_edit).collect(),
    });
    let (records, outcomes) = decide(view, alterations.collect(), request.validate_only);
    let responses = outcomes.into_iter().map(Into::into).collect();
    (records, IncrementalAlterConfigsResponse { responses, ..IncrementalAlterConfigsResponse::default() })
}

/// Code of the operation that sets a value.
const SET: i8 = 0;

/// One key of a request, its operation not looked at yet.
struct RawEdit<'r> {
    name: &'r str,
    operation: i8,
    value: Option<&'r str>,
}

fn raw_edit<'r>(config: &'r incremental_alter_configs_request::AlterableConfig<'_>) -> RawEdit<'r> {
    RawEdit { name: &config.name, operation: config.config_operation, value: config.value.as_deref() }
}

/// What a request does to one resource.
struct Alteration<'a, 'r> {
    /// Code of the resource's type.
    kind: i8,
    name: Str<'a>,
    /// What is not named goes back to its default.
    replaces: bool,
    edits: Vec<RawEdit<'r>>,
}

impl<'r> Alteration<'_, 'r> {
    /// The edits, or the first operation that does not exist.
    fn edits(&self) -> Result<Vec<Edit<'r>>, i8> {
        let edit = |raw: &RawEdit<'r>| {
            let operation = Operation::from_code(raw.operation).ok_or(raw.operation)?;
            Ok(Edit { name: raw.name, operation, value: raw.value })
        };
        self.edits.iter().map(edit).collect()
    }
}

/// What became of one resource, as both responses say it.
pub struct AlterOutcome<'a> {
    /// Code of the resource's type.
    pub kind: i8,
    /// Its name.
    pub name: Str<'a>,
    /// The code is NONE when it was altered.
    pub error: ApiError,
}

macro_rules! said_in {
    ($responses:ident) => {
        impl<'a> From<AlterOutcome<'a>> for $responses::AlterConfigsResourceResponse<'a> {
            fn from(outcome: AlterOutcome<'a>) -> Self {
                Self {
                    error_code: outcome.error.code.0,
                    error_message: outcome.error.message,
                    resource_type: outcome.kind,
                    resource_name: outcome.name,
                }
            }
        }
    };
}

said_in!(alter_configs_response);
said_in!(incremental_alter_configs_response);

fn decide<'a>(
    view: View<'_>,
    alterations: Vec<Alteration<'a, '_>>,
    validate_only: bool,
) -> (Records, Vec<AlterOutcome<'a>>) {
    let repeated = Repeated::of(alterations.iter().map(|alteration| (alteration.kind, &alteration.name)));
    let mut records = Vec::new();
    let decide = |alteration: &Alteration<'a, '_>| {
        let error = if repeated.contains((alteration.kind, &alteration.name)) {
            ApiError::new(ErrorCode::INVALID_REQUEST, "Each resource must appear at most once.")
        } else {
            match resource::alter(view, alteration) {
                Ok(changes) => {
                    records.extend(changes);
                    ApiError::code(ErrorCode::NONE)
                }
                Err(error) => error,
            }
        };
        AlterOutcome { kind: alteration.kind, name: alteration.name.clone(), error }
    };
    let mut outcomes: Vec<AlterOutcome<'a>> = alterations.iter().map(decide).collect();
    let clear = clear_elr_records(view.image, &records);
    records.extend(clear);
    if let Err(error) = check_records(&records) {
        records.clear();
        for outcome in outcomes.iter_mut().filter(|outcome| outcome.error.code == ErrorCode::NONE) {
            outcome.error = error.clone();
        }
    }
    if validate_only {
        records.clear();
    }
    (records, outcomes)
}

#[cfg(test)]
mod tests;
