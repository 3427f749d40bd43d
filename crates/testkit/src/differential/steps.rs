//! Cases that are data: topics are made, and requests sent one after the other. What each answered is the outcome.
//!
//! A case has `topics` (short name to `{"partitions", "configs"}`; nothing means one partition of the topic `t`) and
//! `steps`, each an object of one key:
//!
//! | step | what it does |
//! |---|---|
//! | `{"produce": [[TOPIC, PARTITION, BATCH…]…], "v", "acks", "txid"}` | Produce; a topic that was not made is unknown |
//! | `{"stored": [TOPIC, PARTITION]}` | every batch with its records |
//! | `{"offsets": [TOPIC, PARTITION, TIMESTAMP…]}` | ListOffsets |
//! | `{"delete": [[TOPIC, PARTITION, OFFSET]…], "v"}` | DeleteRecords |
//! | `{"producers": [TOPIC, PARTITION]}` | DescribeProducers |
//! | `{"alter": [TOPIC, KEY, VALUE]}` | sets a configuration and waits until the broker follows it |
//!
//! What a BATCH may say is in [`super::spec`].

use anyhow::{Context as _, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::context::{Context, SILENCE};
use super::spec;
use crate::batch::Stored;
use crate::client::Event;
use crate::wire;

/// The id of no topic.
const NO_TOPIC: &str = "dGhpc2lzbm90YXRvcGljIQ";
/// First Produce version that names topics by id.
const FIRST_TOPIC_ID_VERSION: i64 = 13;
/// From the case's own time on: what the broker's clock may say while the case runs, ms.
const NOW: std::ops::Range<i64> = 50_000..900_000;
/// Records of a batch that are shown one by one.
const SHOWN: usize = 12;

/// A case under way.
struct Steps<'c, 's> {
    cx: &'c mut Context<'s>,
    /// Every batch that was sent.
    sent: Vec<Vec<u8>>,
    /// The append times that were answered.
    times: Vec<i64>,
    /// How many topics were made to see that a change is followed.
    later: usize,
}

/// Runs a case that is data.
pub(super) fn run(cx: &mut Context<'_>, case: &Value) -> Result<Value> {
    match case["topics"].as_object() {
        None => drop(cx.create("t", 1, &[])?),
        Some(topics) => {
            for (short, topic) in topics {
                let configs = topic["configs"].as_object().cloned().unwrap_or_default();
                let configs: Vec<_> = configs.iter().map(|(k, v)| (&**k, v.as_str().unwrap_or_default())).collect();
                cx.create(short, topic["partitions"].as_i64().unwrap_or(1) as i32, &configs)?;
            }
        }
    }
    let all = case["steps"].as_array().context("no steps")?;
    for id in all.iter().filter_map(|step| step["txid"].as_str()) {
        // Whether another case has used a coordinator already must not matter.
        cx.transactional(&cx.name(id))?;
    }
    let mut steps = Steps { cx, sent: Vec::new(), times: Vec::new(), later: 0 };
    all.iter().map(|step| steps.step(step).with_context(|| step.to_string())).collect()
}

impl Steps<'_, '_> {
    fn step(&mut self, step: &Value) -> Result<Value> {
        let place = |list: &Value| Some((list[0].as_str()?.to_owned(), list[1].as_i64()?));
        let (kind, of) = step.as_object().and_then(|step| step.iter().next()).context("no step")?;
        let at = || place(of).context("no topic and partition");
        match kind.as_str() {
            "produce" => self.produce(step),
            "delete" => self.delete(step),
            "stored" => self.stored(&at()?.0, at()?.1),
            "offsets" => self.offsets(&at()?.0, at()?.1, &of.as_array().context("a list")?[2..]),
            "producers" => {
                let topics = json!([{"name": self.cx.name(&at()?.0), "partitionIndexes": [at()?.1]}]);
                let mut answer = self.cx.ask("DescribeProducers", 0, json!({"topics": topics}))?;
                let mut partition = answer["topics"][0]["partitions"][0].take();
                if let Some(producers) = partition["activeProducers"].as_array_mut() {
                    producers.sort_by_key(|producer| producer["producerId"].to_string());
                }
                for producer in partition["activeProducers"].as_array_mut().into_iter().flatten() {
                    if let Some(time) = producer["lastTimestamp"].as_i64() {
                        producer["lastTimestamp"] = self.time(time);
                    }
                }
                Ok(partition)
            }
            "alter" => self.alter(of),
            _ => bail!("no such step"),
        }
    }

    /// A time of the case; the broker's own is `<now>`.
    fn time(&self, time: i64) -> Value {
        if NOW.contains(&time.wrapping_sub(self.cx.t0())) { "<now>".into() } else { self.cx.names.time(time) }
    }

    fn produce(&mut self, step: &Value) -> Result<Value> {
        let (v, acks) = (step["v"].as_i64().unwrap_or(12), step["acks"].as_i64().unwrap_or(-1));
        let mut topics: Vec<Value> = Vec::new();
        for entry in step["produce"].as_array().context("no entries")? {
            let entry = entry.as_array().filter(|entry| entry.len() >= 2).context("an entry")?;
            let mut bytes = Vec::new();
            for batch in &entry[2..] {
                let batch = spec::batch(self.cx.t0(), batch)?;
                bytes.extend_from_slice(&batch);
                self.sent.push(batch);
            }
            let name = self.cx.name(entry[0].as_str().context("no topic")?);
            let data = json!({"index": entry[1], "records": STANDARD.encode(&bytes)});
            match topics.last_mut().filter(|last| last["name"] == *name) {
                Some(last) => last["partitionData"].as_array_mut().context("a list")?.push(data),
                None => {
                    let id = self.cx.id(&name).unwrap_or_else(|_| NO_TOPIC.to_owned());
                    topics.push(json!({"name": name, "topicId": id, "partitionData": [data]}));
                }
            }
        }
        let unused = if v >= FIRST_TOPIC_ID_VERSION { "name" } else { "topicId" };
        topics.iter_mut().filter_map(Value::as_object_mut).for_each(|topic| drop(topic.shift_remove(unused)));
        let txid = step["txid"].as_str().map(|id| self.cx.name(id));
        let body = json!({"transactionalId": txid, "acks": acks, "timeoutMs": 10000, "topicData": topics});
        if acks == 0 { self.unanswered(v as i16, &body) } else { self.answered(v as i16, &body) }
    }

    /// What follows a Produce that wants no answer.
    fn unanswered(&mut self, v: i16, body: &Value) -> Result<Value> {
        let mut client = self.cx.connect()?;
        client.send("Produce", v, body)?;
        let next = client.send("ApiVersions", 0, &json!({}));
        Ok(match client.next_event(SILENCE * 2)? {
            Event::Frame(frame) if wire::response("ApiVersions", 0, &frame)?.correlation == next? => "next is answered",
            Event::Frame(_) => "answered",
            Event::Closed => "closed",
            Event::Silent => "silent",
        }
        .into())
    }

    fn answered(&mut self, v: i16, body: &Value) -> Result<Value> {
        let mut client = self.cx.connect()?;
        let correlation = client.send("Produce", v, body)?;
        let reply = match client.next_event(SILENCE * 2)? {
            Event::Closed => return Ok("closed".into()),
            Event::Silent => return Ok("silent".into()),
            Event::Frame(frame) => wire::response("Produce", v, &frame)?,
        };
        if reply.correlation != correlation {
            bail!("another request is answered");
        }
        let mut outcome = Map::new();
        for topic in reply.body["responses"].as_array().into_iter().flatten() {
            let named = self.cx.names.normal(&json!({"topicId": topic["topicId"], "name": topic["name"]}));
            let name = named["name"].as_str().or(named["topicId"].as_str()).unwrap_or_default().to_owned();
            for partition in topic["partitionResponses"].as_array().into_iter().flatten() {
                outcome.insert(format!("{name}/{}", partition["index"]), self.partition(partition));
            }
        }
        outcome.sort_keys();
        Ok(outcome.into())
    }

    /// A partition's answer, without what every answer has.
    fn partition(&mut self, answer: &Value) -> Value {
        let mut brief = self.cx.names.normal(answer);
        if let Some(time) = answer["logAppendTimeMs"].as_i64().filter(|time| *time != -1) {
            brief["logAppendTimeMs"] = self.time(time);
            self.times.push(time);
        }
        if let Some(brief) = brief.as_object_mut() {
            let nobody = json!({"leaderId": -1, "leaderEpoch": -1});
            brief.shift_remove("index");
            brief.retain(|_, value| !value.is_null() && *value != json!([]) && *value != nobody);
        }
        brief
    }

    fn delete(&mut self, step: &Value) -> Result<Value> {
        let mut topics = Vec::new();
        for entry in step["delete"].as_array().context("no entries")? {
            let name = self.cx.name(entry[0].as_str().context("no topic")?);
            let partitions = json!([{"partitionIndex": entry[1], "offset": entry[2]}]);
            topics.push(json!({"name": name, "partitions": partitions}));
        }
        let v = step["v"].as_i64().unwrap_or(2) as i16;
        let mut answer = self.cx.ask("DeleteRecords", v, json!({"topics": topics, "timeoutMs": 10000}))?;
        let mut topics = answer["topics"].take();
        if let Some(topics) = topics.as_array_mut() {
            topics.sort_by_key(|topic| topic["name"].as_str().map(str::to_owned));
            let partitions = topics.iter_mut().filter_map(|topic| topic["partitions"].as_array_mut());
            partitions.for_each(|partitions| partitions.sort_by_key(|p| p["partitionIndex"].as_i64()));
        }
        Ok(topics)
    }

    fn offsets(&mut self, topic: &str, partition: i64, timestamps: &[Value]) -> Result<Value> {
        let name = self.cx.name(topic);
        timestamps
            .iter()
            .map(|asked| {
                let answer = self.cx.list_offset(&name, partition as i32, spec::time(self.cx.t0(), asked)?)?;
                let time = answer["timestamp"].as_i64().unwrap_or(-1);
                Ok(json!([answer["errorCode"], answer["offset"], self.time(time), answer["leaderEpoch"]]))
            })
            .collect()
    }

    fn stored(&mut self, topic: &str, partition: i64) -> Result<Value> {
        let bytes = self.cx.stored(&self.cx.name(topic), partition as i32)?;
        let mut all = Vec::new();
        for batch in Stored::split(&bytes)? {
            let sent = self.sent.iter().find(|sent| sent.get(17..21) == Some(&batch.bytes()[17..21]));
            let sent = sent.or_else(|| self.sent.iter().find(|sent| sent.get(61..) == Some(batch.body())));
            let raw = batch.fields(sent.map_or(&[][..], Vec::as_slice));
            let mut fields = self.cx.names.normal(&raw);
            let newest = raw["maxTs"].as_i64().unwrap_or(-1);
            fields["maxTs"] = self.time(newest);
            if fields["maxTs"] == "<now>" {
                fields["answered"] = self.times.contains(&newest).into();
            }
            fields["records"] = match batch.records() {
                Ok(records) if records.len() <= SHOWN => self.cx.names.normal(&records.into()),
                Ok(records) => records.len().into(),
                // Stored as it came, though not every reader takes it.
                Err(error) => error.to_string().into(),
            };
            all.push(fields);
        }
        Ok(all.into())
    }

    fn alter(&mut self, of: &Value) -> Result<Value> {
        let name = self.cx.name(of[0].as_str().context("no topic")?);
        let config = json!({"name": of[1], "configOperation": 0, "value": of[2]});
        let resource = json!({"resourceType": 2, "resourceName": name, "configs": [config]});
        let body = json!({"resources": [resource], "validateOnly": false});
        let answer = self.cx.call("IncrementalAlterConfigs", 1, body)?;
        let code = answer["responses"][0]["errorCode"].clone();
        if code == 0 {
            self.followed(&name, &of[1], &of[2])?;
        }
        Ok(self.cx.names.normal(&json!({"errorCode": code})))
    }

    /// Waits until a change of configuration counts. A broker shows it when it begins to follow the metadata that has it,
    /// and has followed it when it leads a topic that was made later.
    fn followed(&mut self, topic: &str, key: &Value, value: &Value) -> Result<()> {
        let resource = json!({"resourceType": 2, "resourceName": topic, "configurationKeys": [key]});
        let body = json!({"resources": [resource]});
        let shown = |answer: &Value| answer["results"][0]["configs"][0]["value"] == *value;
        self.cx.until(|cx| cx.call("DescribeConfigs", 4, body.clone()), shown)?;
        self.later += 1;
        self.cx.create(&format!("later{}", self.later), 1, &[]).map(drop)
    }
}
