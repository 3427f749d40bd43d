//! Members of classic groups, for the areas of groups and offsets: each on a connection of its own.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::client::RawClient;
use crate::differential::context::Context;
use crate::wire;

/// The client id that the outcomes were recorded with.
pub(super) const CLIENT: &str = "cf-client";
const MEMBER_ID_REQUIRED: i64 = 79;

/// How a member joins.
#[derive(Clone)]
pub(super) struct Joining {
    pub(super) version: i16,
    pub(super) session_ms: i32,
    pub(super) rebalance_ms: i32,
    pub(super) protocol_type: &'static str,
    /// Names, and metadata in base64.
    pub(super) protocols: Vec<(&'static str, String)>,
}

impl Joining {
    /// A consumer that knows `range`, as its members are numbered: the first one's metadata is `m1`.
    pub(super) fn consumer(version: i16, number: usize) -> Self {
        let metadata = wire::base64(format!("m{number}").as_bytes());
        let protocols = vec![("range", metadata)];
        Self { version, session_ms: 30_000, rebalance_ms: 60_000, protocol_type: "consumer", protocols }
    }

    pub(super) fn body(&self, group: &str, member: &str) -> Value {
        let protocol = |(name, metadata): &(&str, String)| json!({"name": name, "metadata": metadata});
        let mut body = json!({
            "groupId": group, "sessionTimeoutMs": self.session_ms, "memberId": member,
            "protocolType": self.protocol_type, "protocols": self.protocols.iter().map(protocol).collect::<Vec<_>>(),
        });
        if self.version >= 1 {
            body["rebalanceTimeoutMs"] = self.rebalance_ms.into();
        }
        body
    }
}

/// A member of the case's group.
pub(super) struct Member {
    pub(super) client: RawClient,
    pub(super) joining: Joining,
    pub(super) group: String,
    pub(super) id: String,
    pub(super) generation: i64,
}

impl Member {
    /// Somebody who has not joined yet.
    pub(super) fn new(cx: &mut Context<'_>, joining: Joining) -> Result<Self> {
        cx.coordinated()?;
        let group = cx.name("g");
        Ok(Self { client: cx.connect()?, joining, group, id: String::new(), generation: -1 })
    }

    /// Joined, as the only member.
    pub(super) fn alone(cx: &mut Context<'_>, joining: Joining) -> Result<Self> {
        let mut member = Self::new(cx, joining)?;
        member.join()?;
        Ok(member)
    }

    /// Joined and with its assignment, `a1`.
    pub(super) fn stable(cx: &mut Context<'_>, version: i16) -> Result<Self> {
        let mut member = Self::alone(cx, Joining::consumer(version, 1))?;
        member.assign(&["a1"])?;
        Ok(member)
    }

    /// Sends JoinGroup.
    pub(super) fn ask_to_join(&mut self) -> Result<()> {
        let body = self.joining.body(&self.group, &self.id);
        self.client.send_frame(&wire::request("JoinGroup", self.joining.version, 1, Some(CLIENT), &body)?)
    }

    /// Waits for the answer to JoinGroup.
    pub(super) fn joined(&mut self) -> Result<Value> {
        let reply = wire::response("JoinGroup", self.joining.version, &self.client.next_frame()?)?.body;
        if let Some(id) = reply["memberId"].as_str().filter(|id| !id.is_empty()) {
            id.clone_into(&mut self.id);
        }
        self.generation = reply["generationId"].as_i64().context("no generation")?;
        Ok(reply)
    }

    /// JoinGroup with its answer; once more with the id that it gives, if it does.
    pub(super) fn join(&mut self) -> Result<Value> {
        self.ask_to_join()?;
        let reply = self.joined()?;
        if reply["errorCode"] != MEMBER_ID_REQUIRED {
            return Ok(reply);
        }
        self.ask_to_join()?;
        self.joined()
    }

    /// Sends JoinGroup with the id that a first, refused one gives.
    pub(super) fn ask_with_id(&mut self) -> Result<()> {
        self.ask_to_join()?;
        if self.joined()?["errorCode"] != MEMBER_ID_REQUIRED {
            bail!("the member was to be given an id first");
        }
        self.ask_to_join()
    }

    fn own(&self) -> Value {
        json!({"groupId": self.group, "generationId": self.generation, "memberId": self.id})
    }

    pub(super) fn sync_body(&self, version: i16, assignments: &Value) -> Value {
        let mut body = self.own();
        body["assignments"] = assignments.clone();
        if version >= 5 {
            (body["protocolType"], body["protocolName"]) = ("consumer".into(), "range".into());
        }
        body
    }

    pub(super) fn sync(&mut self, version: i16, assignments: &Value) -> Result<Value> {
        let body = self.sync_body(version, assignments);
        self.client.call("SyncGroup", version, &body)
    }

    /// Brings the assignment of the members with these texts, of which the first one is its own.
    pub(super) fn assign(&mut self, texts: &[&str]) -> Result<Value> {
        let assignments = json!([{"memberId": self.id, "assignment": wire::base64(texts[0].as_bytes())}]);
        self.sync(3, &assignments)
    }

    pub(super) fn heartbeat(&mut self, version: i16) -> Result<Value> {
        let body = self.own();
        self.client.call("Heartbeat", version, &body)
    }

    pub(super) fn leave(&mut self, version: i16) -> Result<Value> {
        let (group, id) = (self.group.clone(), self.id.clone());
        self.client.call("LeaveGroup", version, &leave_body(version, &group, &[&id]))
    }
}

pub(super) fn leave_body(version: i16, group: &str, members: &[&str]) -> Value {
    if version < 3 {
        return json!({"groupId": group, "memberId": members[0]});
    }
    let members: Vec<_> = members.iter().map(|id| json!({"memberId": id})).collect();
    json!({"groupId": group, "members": members})
}

/// The group as DescribeGroups shows it.
pub(super) fn describe(cx: &mut Context<'_>, version: i16, group: &str) -> Result<Value> {
    Ok(cx.call("DescribeGroups", version, json!({"groups": [group]}))?["groups"][0].take())
}

/// Some fields of an object, in normal form.
pub(super) fn fields(cx: &mut Context<'_>, value: &Value, names: &[&str]) -> Value {
    let normal = cx.names.normal(value);
    Value::Object(names.iter().map(|name| ((*name).to_owned(), normal[*name].clone())).collect())
}
