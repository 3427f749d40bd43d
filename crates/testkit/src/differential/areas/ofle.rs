//! OffsetForLeaderEpoch.

use anyhow::Result;
use serde_json::{Value, json};

use crate::differential::context::{Context, number, version};

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    let (v, partition, body) = match id {
        [v, epoch] => {
            let (Some(v), Some(epoch)) = (version(v), epoch.strip_prefix("epoch").and_then(number)) else {
                return Ok(None);
            };
            (v, 0, json!({"leaderEpoch": epoch}))
        }
        ["unknown-partition"] => (4, 4, json!({"leaderEpoch": 0})),
        ["empty" | "after-delete" | "replica0" | "replica1"] => (4, 0, json!({"leaderEpoch": 0})),
        [what] => match what.strip_prefix("current").and_then(number) {
            Some(current) => (4, 0, json!({"leaderEpoch": 0, "currentLeaderEpoch": current})),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let topic = cx.create("t", 1, &[])?;
    if id != ["empty"] {
        cx.six(&topic, 0)?;
    }
    if id == ["after-delete"] {
        cx.delete_records(&topic, 0, 4)?;
    }
    let mut question = body;
    question["partition"] = partition.into();
    let mut request = json!({"topics": [{"topic": topic, "partitions": [question]}]});
    if v >= 3 {
        request["replicaId"] = match id {
            ["replica0"] => 0,
            ["replica1"] => 1,
            _ => -1,
        }
        .into();
    }
    cx.ask("OffsetForLeaderEpoch", v, request).map(Some)
}
