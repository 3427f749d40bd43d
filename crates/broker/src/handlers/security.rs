//! What a cluster without security says to requests about it, as Apache Kafka does on a PLAINTEXT listener without an authorizer:
//! nobody logs in, no access rule is kept, and no delegation token is given out.

use std::borrow::Cow;

use milena_net::Outgoing;
use milena_protocol::messages::create_acls_response::{AclCreationResult, CreateAclsResponse};
use milena_protocol::messages::delete_acls_response::{DeleteAclsFilterResult, DeleteAclsResponse};
use milena_protocol::messages::{
    CreateAclsRequest, CreateDelegationTokenRequest, CreateDelegationTokenResponse, DeleteAclsRequest,
    DescribeAclsRequest, DescribeAclsResponse, DescribeDelegationTokenRequest, DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest, ExpireDelegationTokenResponse, RenewDelegationTokenRequest,
    RenewDelegationTokenResponse, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
    SaslHandshakeResponse,
};
use milena_protocol::{ApiKey, ErrorCode};

use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal, Room};
use crate::services::Services;

/// SaslHandshake's line of the registry.
pub const SASL_HANDSHAKE: Api = Api::new(ApiKey::SASL_HANDSHAKE, 0..=1, Handler::Now(sasl_handshake));
/// DescribeAcls's line of the registry.
pub const DESCRIBE_ACLS: Api = Api::new(ApiKey::DESCRIBE_ACLS, 1..=3, Handler::Now(describe_acls));
/// CreateAcls's line of the registry.
pub const CREATE_ACLS: Api = Api::new(ApiKey::CREATE_ACLS, 1..=3, Handler::Now(create_acls));
/// DeleteAcls's line of the registry.
pub const DELETE_ACLS: Api = Api::new(ApiKey::DELETE_ACLS, 1..=3, Handler::Now(delete_acls));
/// SaslAuthenticate's line of the registry.
pub const SASL_AUTHENTICATE: Api = Api::new(ApiKey::SASL_AUTHENTICATE, 0..=2, Handler::Now(sasl_authenticate));
/// CreateDelegationToken's line of the registry.
pub const CREATE_DELEGATION_TOKEN: Api = Api::new(ApiKey::CREATE_DELEGATION_TOKEN, 1..=3, Handler::Now(create_token));
/// RenewDelegationToken's line of the registry.
pub const RENEW_DELEGATION_TOKEN: Api = Api::new(ApiKey::RENEW_DELEGATION_TOKEN, 1..=2, Handler::Now(renew_token));
/// ExpireDelegationToken's line of the registry.
pub const EXPIRE_DELEGATION_TOKEN: Api = Api::new(ApiKey::EXPIRE_DELEGATION_TOKEN, 1..=2, Handler::Now(expire_token));
/// DescribeDelegationToken's line of the registry.
pub const DESCRIBE_DELEGATION_TOKEN: Api =
    Api::new(ApiKey::DESCRIBE_DELEGATION_TOKEN, 1..=3, Handler::Now(describe_tokens));

const NO_AUTHORIZER: &str = "No Authorizer is configured.";
/// Who everybody is on a PLAINTEXT listener.
const PRINCIPAL: (&str, &str) = ("User", "ANONYMOUS");
/// First version in which a token's owner can be another than who asks for it.
const FIRST_OWNER_VERSION: i16 = 3;
/// What a token's times are when there is no token.
const NO_TIME: i64 = -1;
/// Bytes of an answer to one rule or filter.
const RESULT_BYTES: usize = 128;

fn sasl_handshake(call: &Call<'_>, _: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    call.request::<SaslHandshakeRequest<'_>>()?;
    call.answer(out, &SaslHandshakeResponse { error_code: ErrorCode::ILLEGAL_SASL_STATE.0, ..Default::default() })
}

fn sasl_authenticate(call: &Call<'_>, _: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    call.request::<SaslAuthenticateRequest<'_>>()?;
    let message = "SaslAuthenticate request received after successful authentication";
    let response = SaslAuthenticateResponse {
        error_code: ErrorCode::ILLEGAL_SASL_STATE.0,
        error_message: Some(message.into()),
        ..Default::default()
    };
    call.answer(out, &response)
}

fn describe_acls(call: &Call<'_>, _: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: DescribeAclsRequest<'_> = call.request()?;
    known([request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type])?;
    let response = DescribeAclsResponse {
        error_code: ErrorCode::SECURITY_DISABLED.0,
        error_message: Some("No Authorizer is configured on the broker".into()),
        ..Default::default()
    };
    call.answer(out, &response)
}

fn create_acls(call: &Call<'_>, _: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: CreateAclsRequest<'_> = call.request()?;
    let rules = &request.creations;
    rules.iter().try_for_each(|rule| {
        known([rule.resource_type, rule.resource_pattern_type, rule.operation, rule.permission_type])
    })?;
    Room::default().take(rules.len().saturating_mul(RESULT_BYTES))?;
    let refused =
        AclCreationResult { error_code: ErrorCode::SECURITY_DISABLED.0, error_message: Some(NO_AUTHORIZER.into()) };
    call.answer(out, &CreateAclsResponse { results: vec![refused; rules.len()], ..Default::default() })
}

fn delete_acls(call: &Call<'_>, _: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: DeleteAclsRequest<'_> = call.request()?;
    let filters = &request.filters;
    filters.iter().try_for_each(|filter| {
        known([filter.resource_type_filter, filter.pattern_type_filter, filter.operation, filter.permission_type])
    })?;
    Room::default().take(filters.len().saturating_mul(RESULT_BYTES))?;
    let refused = DeleteAclsFilterResult {
        error_code: ErrorCode::SECURITY_DISABLED.0,
        error_message: Some(NO_AUTHORIZER.into()),
        matching_acls: Vec::new(),
    };
    call.answer(out, &DeleteAclsResponse { filter_results: vec![refused; filters.len()], ..Default::default() })
}

/// Refuses what Apache Kafka can't read: a kind, an operation or a permission that is UNKNOWN by its own name.
fn known(codes: [i8; 4]) -> Result<(), Refusal> {
    const UNKNOWN: i8 = 0;
    if codes.contains(&UNKNOWN) { Err(Refusal::UnknownElement) } else { Ok(()) }
}

fn create_token(call: &Call<'_>, _: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: CreateDelegationTokenRequest<'_> = call.request()?;
    let owner_name = request.owner_principal_name.as_deref().filter(|name| !name.is_empty());
    let (error, owner) = match (owner_name, request.owner_principal_type.as_deref()) {
        (None, _) => (ErrorCode::DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, PRINCIPAL),
        (Some(name), Some(kind)) => (ErrorCode::DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, (kind, name)),
        (Some(_), None) => (ErrorCode::UNKNOWN_SERVER_ERROR, PRINCIPAL),
    };
    let requester = if call.header.version < FIRST_OWNER_VERSION { ("", "") } else { PRINCIPAL };
    let response = CreateDelegationTokenResponse {
        error_code: error.0,
        principal_type: Cow::Borrowed(owner.0),
        principal_name: Cow::Borrowed(owner.1),
        token_requester_principal_type: requester.0.into(),
        token_requester_principal_name: requester.1.into(),
        issue_timestamp_ms: NO_TIME,
        expiry_timestamp_ms: NO_TIME,
        max_timestamp_ms: NO_TIME,
        ..Default::default()
    };
    call.answer(out, &response)
}

fn renew_token(call: &Call<'_>, _: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    call.request::<RenewDelegationTokenRequest<'_>>()?;
    let error_code = ErrorCode::DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.0;
    call.answer(out, &RenewDelegationTokenResponse { error_code, expiry_timestamp_ms: NO_TIME, ..Default::default() })
}

fn expire_token(call: &Call<'_>, _: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    call.request::<ExpireDelegationTokenRequest<'_>>()?;
    let error_code = ErrorCode::DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.0;
    call.answer(out, &ExpireDelegationTokenResponse { error_code, expiry_timestamp_ms: NO_TIME, ..Default::default() })
}

fn describe_tokens(call: &Call<'_>, _: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    call.request::<DescribeDelegationTokenRequest<'_>>()?;
    let error_code = ErrorCode::DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.0;
    call.answer(out, &DescribeDelegationTokenResponse { error_code, ..Default::default() })
}
