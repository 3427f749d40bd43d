//! Which broker coordinates a group or a transactional id.

use std::collections::HashMap;
use std::sync::Arc;

use milena_protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use parking_lot::Mutex;

use crate::error::{Error, check};
use crate::metadata::Broker;

/// What a coordinator coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CoordinatorKind {
    /// A consumer group, by its id.
    Group,
    /// A transaction, by its transactional id.
    Transaction,
    /// A share group's partition, by group:topicId:partition.
    Share,
}

/// First version that asks for several keys at once.
pub(crate) const SEVERAL: i16 = 4;

/// The coordinators that were found so far.
#[derive(Debug, Default)]
pub(crate) struct Coordinators(Mutex<HashMap<(CoordinatorKind, String), Arc<Broker>>>);

/// Coordinators that are remembered; when there are more, all are forgotten and found again as they are needed.
const MAX_REMEMBERED: usize = 10_000;

impl Coordinators {
    pub(crate) fn get(&self, kind: CoordinatorKind, key: &str) -> Option<Arc<Broker>> {
        self.0.lock().get(&(kind, key.to_owned())).cloned()
    }

    pub(crate) fn put(&self, kind: CoordinatorKind, key: &str, broker: Arc<Broker>) {
        let mut found = self.0.lock();
        if found.len() >= MAX_REMEMBERED {
            found.clear();
        }
        found.insert((kind, key.to_owned()), broker);
    }

    pub(crate) fn forget(&self, kind: CoordinatorKind, key: &str) {
        self.0.lock().remove(&(kind, key.to_owned()));
    }
}

/// The request that finds one.
pub(crate) fn request<'a>(kind: CoordinatorKind, key: &'a str, version: i16) -> FindCoordinatorRequest<'a> {
    let key_type = match kind {
        CoordinatorKind::Group => 0,
        CoordinatorKind::Transaction => 1,
        CoordinatorKind::Share => 2,
    };
    if version < SEVERAL {
        FindCoordinatorRequest { key: key.into(), key_type, ..Default::default() }
    } else {
        FindCoordinatorRequest { key_type, coordinator_keys: vec![key.into()], ..Default::default() }
    }
}

/// The broker that a response names.
pub(crate) fn found(response: &FindCoordinatorResponse<'_>, version: i16) -> Result<Broker, Error> {
    if version < SEVERAL {
        check(response.error_code, response.error_message.as_deref())?;
        return Ok(broker(response.node_id, &response.host, response.port));
    }
    let none = Error::from(milena_protocol::ErrorCode::COORDINATOR_NOT_AVAILABLE);
    let found = response.coordinators.first().ok_or(none)?;
    check(found.error_code, found.error_message.as_deref())?;
    Ok(broker(found.node_id, &found.host, found.port))
}

fn broker(id: i32, host: &str, port: i32) -> Broker {
    Broker { id, host: host.to_owned(), port: u16::try_from(port).unwrap_or(0), rack: None }
}
