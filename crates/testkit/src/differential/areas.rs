//! One file for each area of the recorded cases. Each knows from a case's id what to send and gives the outcome, or
//! `None` for an id it does not know.

mod admin;
mod adv;
mod apiv;
mod batch;
mod batch_records;
mod cgrp;
mod comp;
mod comp_payload;
mod conf;
mod coord;
mod delrec;
mod fetch;
mod frame;
mod frame_evil;
mod grp;
mod grp_rebalance;
mod idem;
mod key;
mod limit;
mod lo;
mod members;
mod meta;
mod mig;
mod off;
mod ofle;
mod prod;
mod prod_entries;
mod seed;
mod session;
mod stored;
mod topics;
mod ts;
mod txn;
mod vers;

use anyhow::Result;
use serde_json::Value;

use super::context::Context;

/// Runs a case by its id.
pub(super) fn run(cx: &mut Context<'_>, id: &str) -> Result<Option<Value>> {
    let parts: Vec<&str> = id.split('.').collect();
    match parts[0] {
        "admin" => admin::run(cx, &parts[1..]),
        "adv" => adv::run(cx, &parts[1..]),
        "apiv" => apiv::run(cx, &parts[1..]),
        "batch" => batch::run(cx, &parts[1..]),
        "cgrp" => cgrp::run(cx, &parts[1..]),
        "comp" => comp::run(cx, &parts[1..]),
        "conf" => conf::run(cx, &parts[1..]),
        "coord" => coord::run(cx, &parts[1..]),
        "delrec" => delrec::run(cx, &parts[1..]),
        "fetch" => fetch::run(cx, &parts[1..]),
        "frame" => frame::run(cx, &parts[1..]),
        "grp" => grp::run(cx, &parts[1..]),
        "idem" => idem::run(cx, &parts[1..]),
        "key" => key::run(cx, &parts[1..]),
        "limit" => limit::run(cx, &parts[1..]),
        "lo" => lo::run(cx, &parts[1..]),
        "meta" => meta::run(cx, &parts[1..]),
        "mig" => mig::run(cx, &parts[1..]),
        "off" => off::run(cx, &parts[1..]),
        "ofle" => ofle::run(cx, &parts[1..]),
        "prod" => prod::run(cx, &parts[1..]),
        "seed" => seed::run(cx, &parts[1..]),
        "session" => session::run(cx, &parts[1..]),
        "topics" => topics::run(cx, &parts[1..]),
        "ts" => ts::run(cx, &parts[1..]),
        "txn" => txn::run(cx, &parts[1..]),
        "vers" => vers::run(cx, &parts[1..]),
        _ => Ok(None),
    }
}
