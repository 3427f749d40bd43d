//! A storm of requests from several connections: every API and version that is advertised, with bodies that fit the schema and make
//! little sense, and with frames that are changed at random. What fits is answered, and the answers fit; what does not fit ends its own
//! connection and nothing else.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::batch::{Batch, Codec};
use crate::client::{Event, RawClient};
use crate::server::Server;
use crate::wire::{self, Words};

/// Connections at once.
const CONNECTIONS: u64 = 6;
/// Frames of each of them in one round.
const FRAMES: u64 = 2500;
/// What a storm may leave in memory, in MiB: topics, groups and producers that it made, and buffers for reuse.
const GROWTH_MIB: u64 = 160;
/// Threads of a server, with all that it may start.
const THREADS: usize = 64;
/// Their answers wait for others, or for time to pass.
const WAITING: [&str; 3] = ["Fetch", "JoinGroup", "SyncGroup"];
/// Values of answers that are worth asking again with.
const LEARNED: usize = 24;
const T0: i64 = 1_700_000_000_000;

/// An API and the versions to ask.
type Api = (String, i16, i16);

/// Sends the storm, and looks at the server meanwhile and then.
pub(super) fn storm(server: &Server) -> Result<()> {
    let apis = advertised(server)?;
    let seed = std::env::var("MILENA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let before = super::resident_mib(server)?;
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let rng = Rng::with_seed(seed * CONNECTIONS + number);
                let apis = &apis;
                scope.spawn(move || Sender { server, apis, words: words(), rng, client: None }.run())
            })
            .collect();
        let mut ends =
            senders.into_iter().map(|sender| sender.join().unwrap_or_else(|_| bail!("a sender has panicked")));
        ends.try_for_each(|end| end.with_context(|| format!("seed {seed}")))
    })?;
    server.client()?.call("Metadata", 1, &json!({"topics": []})).context("another connection was harmed")?;
    let (after, threads) = (super::resident_mib(server)?, threads(server)?);
    ensure!(after <= before + GROWTH_MIB, "resident memory went from {before} to {after} MiB");
    ensure!(threads <= THREADS, "{threads} threads");
    Ok(())
}

fn threads(server: &Server) -> Result<usize> {
    let pid = server.pid().context("the server is not running")?;
    Ok(std::fs::read_dir(format!("/proc/{pid}/task"))?.count())
}

/// Everything that is advertised and in the schema.
fn advertised(server: &Server) -> Result<Vec<Api>> {
    let answer = server.client()?.call("ApiVersions", 0, &json!({}))?;
    let keys = answer["apiKeys"].as_array().context("no APIs")?;
    let names = wire::apis()?;
    let number = |api: &Value, name: &str| api[name].as_i64().and_then(|n| i16::try_from(n).ok()).context("a number");
    keys.iter()
        .map(|api| {
            let key = number(api, "apiKey")?;
            let name = names.iter().find(|(k, _)| *k == key).map(|(_, name)| name.clone()).context("no schema")?;
            let least = *wire::schema(&format!("{name}Request"))?.versions().start();
            Ok((name, number(api, "minVersion")?.max(least), number(api, "maxVersion")?))
        })
        .collect()
}

fn words() -> Words {
    let texts = [
        "",
        "a",
        "b",
        "gone",
        "a/b",
        "..",
        "__consumer_offsets",
        "__transaction_state",
        "__cluster_metadata",
        "consumer",
        "range",
        "uniform",
        "1",
        "-1",
        "77",
        "cleanup.policy",
        "compact",
        "delete",
        "segment.bytes",
        "1048576",
        "retention.ms",
        "flush.messages",
        "compression.type",
        "zstd",
        "9223372036854775807",
        "log.cleaner.threads",
        "message.timestamp.type",
        "LogAppendTime",
        "(a+)+$",
        "[a-z]{1,1000}",
        "é\u{10ffff}",
        "Ongoing",
        "Stable",
        "classic",
    ];
    let mut texts: Vec<String> = texts.map(str::to_owned).into();
    texts.extend([249, 250, 32_000].map(|length| "x".repeat(length)));
    let mut bytes = vec![Vec::new(), vec![0; 12], vec![0xff; 40]];
    for codec in Codec::ALL {
        bytes.push(Batch::of(3, T0).with(codec).build());
    }
    for (attributes, producer_id, base_sequence) in
        [(0, 1, 0), (0, 2, i32::MAX), (0x10, 3, 0), (0x30, 3, -1), (0, -7, 0)]
    {
        bytes.push(Batch { attributes, producer_id, producer_epoch: 0, base_sequence, ..Batch::of(2, T0) }.build());
    }
    Words {
        texts,
        uuids: ["AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "dGhpc2lzbm90YXRvcGljIQ"].map(str::to_owned).into(),
        bytes: bytes.iter().map(|bytes| wire::base64(bytes)).collect(),
        numbers: (-3..10).chain([30, 1000, 60_000, T0]).collect(),
    }
}

/// One connection at a time, and the next when that is closed.
struct Sender<'s> {
    server: &'s Server,
    apis: &'s [Api],
    words: Words,
    rng: Rng,
    client: Option<RawClient>,
}

impl Sender<'_> {
    fn run(mut self) -> Result<()> {
        for number in 0..FRAMES * crate::rounds() {
            let (api, least, most) = self.rng.choice(self.apis).context("no APIs")?.clone();
            let version = self.rng.i16(least..=most);
            let body = wire::any(&format!("{api}Request"), version, &self.words, &mut self.rng)?;
            let request = wire::request(&api, version, number as i32, Some("storm"), &body)?;
            let mut client = match self.client.take() {
                Some(client) => client,
                None => self.server.client()?,
            };
            if self.rng.u8(..3) == 0 {
                let spoiled = spoil(request, &mut self.rng);
                // It may have been closed for the last one.
                let is_open = client.send_frame(&spoiled).is_ok() && self.rng.bool();
                let event = if is_open { client.next_event(Duration::from_millis(20))? } else { Event::Silent };
                self.client = matches!(event, Event::Frame(_)).then_some(client);
            } else {
                let answer = sent(&mut client, &api, version, number as i32, &request, &body);
                let answer = answer.with_context(|| format!("{api} v{version} {}", shortened(&body)))?;
                if let Some(answer) = answer {
                    self.learn("", &answer);
                    self.client = Some(client);
                }
            }
        }
        Ok(())
    }

    /// Keeps the ids that a server has given out.
    fn learn(&mut self, key: &str, value: &Value) {
        match value {
            Value::Object(object) => object.iter().for_each(|(key, value)| self.learn(key, value)),
            Value::Array(all) => all.iter().take(3).for_each(|value| self.learn(key, value)),
            Value::String(text) => match key {
                "memberId" | "leader" if !text.is_empty() => remember(&mut self.words.texts, text.clone()),
                "topicId" => remember(&mut self.words.uuids, text.clone()),
                _ => {}
            },
            Value::Number(number) if ["producerId", "sessionId", "generationId", "memberEpoch"].contains(&key) => {
                remember(&mut self.words.numbers, number.as_i64().unwrap_or(0));
            }
            _ => {}
        }
    }
}

/// The newest are at the end, behind those of the start.
fn remember<T: PartialEq>(all: &mut Vec<T>, new: T) {
    if !all.contains(&new) {
        if all.len() > 2 * LEARNED {
            all.remove(LEARNED);
        }
        all.push(new);
    }
}

/// Sends a request that fits, and checks that its answer does. `None` when the connection is to be given up.
fn sent(
    client: &mut RawClient,
    api: &str,
    version: i16,
    correlation: i32,
    request: &[u8],
    body: &Value,
) -> Result<Option<Value>> {
    client.send_frame(request)?;
    let is_silent = api == "Produce" && body["acks"].as_i64().unwrap_or(0) == 0;
    let waits = is_silent || WAITING.contains(&api);
    let event = client.next_event(if waits { Duration::from_millis(30) } else { Duration::from_secs(30) })?;
    let frame = match event {
        Event::Frame(frame) => frame,
        Event::Silent if waits => return Ok(None),
        Event::Closed if is_silent || names_unknown(api, body) => return Ok(None),
        other => bail!("{other:?} instead of an answer"),
    };
    ensure!(!is_silent, "an answer to acks=0");
    let reply = wire::response(api, version, &frame)?;
    ensure!(reply.correlation == correlation, "correlation id {} instead of {correlation}", reply.correlation);
    ensure!(reply.trailing == 0, "{} bytes behind the answer", reply.trailing);
    Ok(Some(reply.body))
}

/// Whether a rule for access, or a filter of rules, has an element that is UNKNOWN. Such a request closes its connection, as in
/// Apache Kafka.
fn names_unknown(api: &str, body: &Value) -> bool {
    let rules = match api {
        "DescribeAcls" => std::slice::from_ref(body),
        "CreateAcls" => body["creations"].as_array().map_or(&[][..], Vec::as_slice),
        "DeleteAcls" => body["filters"].as_array().map_or(&[][..], Vec::as_slice),
        _ => return false,
    };
    let kind = if api == "CreateAcls" { "resourceType" } else { "resourceTypeFilter" };
    let pattern = if api == "CreateAcls" { "resourcePatternType" } else { "patternTypeFilter" };
    let is_unknown = |rule: &Value| {
        let is_zero = |name: &str| rule[name].as_i64().unwrap_or(0) == 0;
        [kind, "operation", "permissionType"].into_iter().any(is_zero) || rule[pattern] == 0
    };
    rules.iter().any(is_unknown)
}

fn shortened(body: &Value) -> String {
    body.to_string().chars().take(3000).collect()
}

/// Changes a frame somewhere, its API and version seldom.
fn spoil(mut frame: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    const ABSURD: [&[u8]; 6] = [
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff],
        &[0x80, 0, 0, 0],
        &[0xff, 0xff, 0xff, 0xff, 0x07],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0x7f, 0xff],
    ];
    for _ in 0..rng.usize(1..4) {
        let from = if rng.u8(..10) == 0 { 0 } else { 8.min(frame.len()) };
        let at = from + rng.usize(..(frame.len() - from).max(1));
        match rng.u8(..5) {
            0 => frame.truncate(at),
            1 => {
                let more: Vec<u8> = (0..rng.usize(..20)).map(|_| rng.u8(..)).collect();
                let at = at.min(frame.len());
                frame.splice(at..at, more).for_each(drop);
            }
            2 => {
                let bytes = ABSURD[rng.usize(..ABSURD.len())];
                let (start, end) = (at.min(frame.len()), (at + bytes.len()).min(frame.len()));
                frame.splice(start..end, bytes.iter().copied()).for_each(drop);
            }
            3 => {
                let end = frame.len().min(at + 30);
                let again = frame.get(at..end).unwrap_or_default().to_vec();
                frame.splice(at.min(end)..at.min(end), again).for_each(drop);
            }
            _ => {
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= 1 << rng.u8(..8);
                }
            }
        }
    }
    frame
}
