//! What a side's transactional producers are, so that requests can name them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::PATIENCE;
use crate::client::RawClient;

/// APIs that may have to be asked again: while the end of a transaction is under way, servers answer as it happens.
const PATIENT: [&str; 5] = ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"];
/// Loading, not available, not coordinator, concurrent transactions.
const AGAIN: [i64; 4] = [14, 15, 16, 51];

/// Producers by transactional id: each one's id and epoch, as it was last told.
#[derive(Debug, Default)]
pub(super) struct Producers(HashMap<String, (i64, i64)>);

impl Producers {
    /// Learns from an answer.
    pub(super) fn remember(&mut self, api: &str, asked: &Value, answer: &Value) {
        let (Some(id), Some(producer), Some(epoch)) =
            (asked["transactionalId"].as_str(), answer["producerId"].as_i64(), answer["producerEpoch"].as_i64())
        else {
            return;
        };
        if ["InitProducerId", "EndTxn"].contains(&api) && answer["errorCode"] == 0 && producer >= 0 {
            self.0.insert(id.to_owned(), (producer, epoch));
        }
    }

    /// The number that a text stands for, if it does.
    pub(super) fn placeholder(&self, text: &str) -> Result<Option<i64>> {
        let (name, is_id) = match (text.strip_prefix("$pid:"), text.strip_prefix("$epoch:")) {
            (Some(name), _) => (name, true),
            (_, Some(name)) => (name, false),
            _ => return Ok(None),
        };
        let (id, more) = name.split_once('^').unwrap_or((name, "0"));
        let (producer, epoch) = self.0.get(id).with_context(|| format!("{id} has no producer"))?;
        Ok(Some(if is_id { *producer } else { *epoch } + more.parse::<i64>()?))
    }
}

/// Whether a server is to be asked again.
pub(super) fn is_busy(api: &str, answer: &Value) -> bool {
    PATIENT.contains(&api) && has_code(answer, &AGAIN)
}

/// Whether an answer in normal form has one of these codes somewhere.
fn has_code(answer: &Value, codes: &[i64]) -> bool {
    match answer {
        Value::Object(object) => object.iter().any(|(key, value)| match value {
            Value::Number(code) => {
                key.ends_with("ErrorCode") && code.as_i64().is_some_and(|code| codes.contains(&code))
            }
            Value::String(name) if key == "errorCode" => codes.iter().any(|code| name.ends_with(&format!("({code})"))),
            other => has_code(other, codes),
        }),
        Value::Array(all) => all.iter().any(|one| has_code(one, codes)),
        _ => false,
    }
}

/// The topic of transactions is made when somebody asks for a coordinator; then its partitions are read one by one.
pub(super) fn wait_for_coordinator(client: &mut RawClient) -> Result<()> {
    let until = Instant::now() + 3 * PATIENCE;
    // So many ids are in every partition.
    let ids: Vec<String> = (0..500).map(|number| format!("wait-{number}")).collect();
    while Instant::now() < until {
        let found = client.call("FindCoordinator", 4, &json!({"keyType": 1, "coordinatorKeys": [ids[0]]}))?;
        let described = client.call("DescribeTransactions", 0, &json!({"transactionalIds": ids}))?;
        if found["coordinators"][0]["errorCode"] == 0 && !has_code(&json!(codes(&described)), &AGAIN) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("transactions have no coordinator")
}

/// The answers' codes, under a name that [`has_code`] looks for.
fn codes(described: &Value) -> Vec<Value> {
    let states = described["transactionStates"].as_array().into_iter().flatten();
    states.map(|state| json!({"stateErrorCode": state["errorCode"]})).collect()
}

/// Markers are written behind the answer to EndTxn.
pub(super) fn wait_complete(client: &mut RawClient, id: &Value) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let described = client.call("DescribeTransactions", 0, &json!({"transactionalIds": [id]}))?;
        let state = described["transactionStates"][0]["transactionState"].as_str().unwrap_or_default();
        if !state.starts_with("Prepare") {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("the transaction does not end: {described}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
