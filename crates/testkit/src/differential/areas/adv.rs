//! The least that can be asked of each API: its request with the defaults, which must get an answer that can be read.

use anyhow::Result;
use serde_json::{Value, json};

use crate::differential::context::{Context, version};

/// Lists that depend on what else the server has seen.
const ANY: [(&str, &[&str]); 8] = [
    ("ApiVersions", &["apiKeys", "supportedFeatures", "finalizedFeaturesEpoch", "finalizedFeatures"]),
    ("DescribeLogDirs", &["results"]),
    ("DescribeTopicPartitions", &["topics"]),
    ("DescribeUserScramCredentials", &["results"]),
    ("ListConfigResources", &["configResources"]),
    ("ListGroups", &["groups"]),
    ("ListTransactions", &["transactionStates"]),
    ("Metadata", &["topics"]),
];

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    let [api, v] = id else { return Ok(None) };
    let Some(v) = version(v) else { return Ok(None) };
    if ["FindCoordinator", "OffsetFetch"].contains(api) {
        cx.coordinated()?;
    }
    let mut answer = cx.ask(api, v, body(cx, api, v))?;
    let any = ANY.iter().find(|(name, _)| name == api).map_or(&[][..], |(_, any)| any);
    for field in any {
        if let Some(value) = answer.get_mut(*field) {
            *value = "<any>".into();
        }
    }
    Ok(Some(answer))
}

fn body(cx: &Context<'_>, api: &str, v: i16) -> Value {
    match api {
        // With acks=0 there would be no answer.
        "Produce" => json!({"acks": -1, "timeoutMs": 1000}),
        "ApiVersions" if v >= 3 => json!({"clientSoftwareName": "test", "clientSoftwareVersion": "1"}),
        "AddPartitionsToTxn" if v >= 4 => json!({"transactions": [{"transactionalId": cx.name("x")}]}),
        // UNKNOWN, the default of every filter, ends the connection.
        "DescribeAcls" => {
            let mut any = json!({"resourceTypeFilter": 1, "operation": 1, "permissionType": 1});
            if v >= 1 {
                any["patternTypeFilter"] = 1.into();
            }
            any
        }
        _ => json!({}),
    }
}
