//! Each file of a data directory with each kind of damage: what is sound is served, what is not is told with the file, and nothing is given
//! up that may be of use.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use milena_testkit::batch::{Batch, Stored};
use milena_testkit::client::RawClient;
use serde_json::json;

use crate::common::requests::{create_topic, fetch, fetch_all, produce};
use crate::common::{Node, TempDir, copy, messages, start};

const LONG_AGO: i64 = 1_700_000_000_000;
/// Records of a batch, batches of a segment, segments of the topic.
const RECORDS: i64 = 3;
const BATCHES: i64 = 3;
const SEGMENTS: i64 = 4;
const END: i64 = RECORDS * BATCHES * SEGMENTS;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Damage {
    Missing,
    Emptied,
    /// To half a batch less than half the length.
    Cut,
    /// To one batch.
    CutBehindOne,
    Zeroed,
    /// A bit of this byte.
    Flipped(usize),
}

const ALL: [Damage; 5] = [Damage::Missing, Damage::Emptied, Damage::Cut, Damage::Zeroed, Damage::Flipped(20)];

impl Damage {
    fn apply(self, file: &Path) {
        let mut bytes = std::fs::read(file).unwrap();
        match self {
            Self::Missing => return std::fs::remove_file(file).unwrap(),
            Self::Emptied => bytes.clear(),
            Self::Cut => bytes.truncate(bytes.len() / 2),
            Self::CutBehindOne => bytes.truncate(bytes.len() / BATCHES as usize),
            Self::Zeroed => bytes.fill(0),
            Self::Flipped(at) => {
                let at = at.min(bytes.len() - 1);
                bytes[at] ^= 1;
            }
        }
        std::fs::write(file, bytes).unwrap();
    }
}

/// A data directory that was stopped in order: `t` in four segments, and another topic.
struct Sound {
    dir: TempDir,
    /// Who has written everything to `t`, and when: a producer is not known for ever.
    producer_id: i64,
    now: i64,
    batches: Vec<Vec<u8>>,
    other: Vec<u8>,
}

impl Sound {
    fn new() -> Self {
        messages::keep();
        let mut node = Node::start();
        let mut client = node.client();
        let answer = client.call("InitProducerId", 4, &json!({"transactionalId": null, "transactionTimeoutMs": 1}));
        let producer_id = answer.unwrap()["producerId"].as_i64().unwrap();
        create_topic(&mut client, "t", 1, &[("segment.ms", "1000")]);
        create_topic(&mut client, "other", 1, &[]);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64;
        for number in 0..BATCHES * SEGMENTS {
            let answer = produce(&mut client, "t", 0, &batch(producer_id, now, number).build());
            assert_eq!(answer["baseOffset"], number * RECORDS, "{answer}");
        }
        produce(&mut client, "other", 0, &Batch::of(5, LONG_AGO).build());
        let bytes = fetch_all(&mut client, "t", 0);
        let batches = Stored::split(&bytes).unwrap().iter().map(|batch| batch.bytes().to_vec()).collect();
        let other = fetch_all(&mut client, "other", 0);
        node.stop();
        Self { dir: node.copy(), producer_id, now, batches, other }
    }

    /// A copy of it, as after a crash unless `clean`.
    fn copy(&self, clean: bool) -> (TempDir, PathBuf) {
        let dir = TempDir::with_prefix("milena-damage-").unwrap();
        let data = dir.path().join("data");
        copy(&self.dir.path().join("data"), &data);
        if !clean {
            std::fs::remove_file(data.join(".kafka_cleanshutdown")).unwrap();
        }
        (dir, data)
    }

    /// Starts on a copy with one damaged file, and looks at everything.
    fn damaged(&self, file: &str, damage: Damage, clean: bool) -> Seen {
        let (_dir, data) = self.copy(clean);
        damage.apply(&data.join(file));
        let broker = match start(&data, "127.0.0.1:0", &[], true) {
            Ok(broker) => broker,
            Err(error) => return Seen { refused: Some(error.to_string()), ..Seen::default() },
        };
        let mut client = RawClient::connect(broker.addresses().next().unwrap().1).unwrap();
        let mut seen = self.served(&mut client);
        seen.other = fetch_all(&mut client, "other", 0) == self.other;
        let last = batch(self.producer_id, self.now, BATCHES * SEGMENTS - 1);
        let [again, new] = [last, Batch::of(1, self.now)].map(|batch| produce(&mut client, "t", 0, &batch.build()));
        (seen.again, seen.new) = (again["baseOffset"].as_i64().unwrap(), new["baseOffset"].as_i64().unwrap());
        let read = fetch(&mut client, "t", 0, seen.new);
        let read = STANDARD.decode(read["records"].as_str().unwrap_or_default()).unwrap();
        assert_eq!(Stored::split(&read).unwrap()[0].base_offset(), seen.new, "{file} {damage:?} {clean}");
        broker.stop().unwrap();
        seen.told = messages::about(&data);
        let names = std::fs::read_dir(data.join("t-0")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        seen.kept = names.filter(|name| name.ends_with(".cut")).collect();
        seen.kept.sort_unstable();
        seen
    }

    /// Reads `t` from its beginning to its end, past what can't be read.
    fn served(&self, client: &mut RawClient) -> Seen {
        let (mut seen, mut next) = (Seen::default(), 0);
        loop {
            let answer = fetch(client, "t", 0, next);
            if answer["errorCode"] == 1 {
                return seen;
            }
            let bytes = STANDARD.decode(answer["records"].as_str().unwrap_or_default()).unwrap();
            let batches = Stored::split(&bytes).unwrap();
            if answer["errorCode"] != 0 {
                seen.refusals.push((next, answer["errorCode"].as_i64().unwrap()));
                next += RECORDS;
            } else if batches.is_empty() {
                return seen;
            }
            for batch in batches {
                let number = (batch.base_offset() / RECORDS) as usize;
                let whole = self.batches.get(number).is_some_and(|sound| sound == batch.bytes());
                if whole {
                    seen.sound.push(number as i64)
                } else {
                    seen.altered.push(number as i64)
                }
                next = batch.base_offset() + RECORDS;
            }
        }
    }
}

/// What a broker makes of a damaged directory.
#[derive(Debug, Default)]
struct Seen {
    /// The message of the start that failed.
    refused: Option<String>,
    /// Numbers of the batches that come as they were, and of those that do not.
    sound: Vec<i64>,
    altered: Vec<i64>,
    /// Offsets that can't be read, with the error.
    refusals: Vec<(i64, i64)>,
    /// The other topic is whole.
    other: bool,
    /// Base offset of the last batch, sent again, and of a new one.
    again: i64,
    new: i64,
    /// What the log of the broker says of the directory.
    told: Vec<String>,
    kept: Vec<String>,
}

impl Seen {
    fn is_whole(&self) -> bool {
        self.refused.is_none() && self.other && self.new == END && self.again == END - RECORDS && self.has(0..12)
    }

    /// Exactly these batches are served, and no others instead of them.
    fn has(&self, batches: impl Iterator<Item = i64>) -> bool {
        self.altered.is_empty() && self.sound == batches.collect::<Vec<_>>()
    }

    fn tells(&self, words: &[&str]) -> bool {
        self.told.iter().any(|line| words.iter().all(|word| line.contains(word)))
    }
}

/// A batch for `t`.
fn batch(producer_id: i64, now: i64, number: i64) -> Batch {
    let batch = Batch::of(RECORDS as usize, now + number / BATCHES * 2000);
    Batch { producer_id, producer_epoch: 0, base_sequence: (number * RECORDS) as i32, ..batch }
}

fn segment(number: i64, kind: &str) -> String {
    format!("t-0/{:020}{kind}", number * BATCHES * RECORDS)
}

#[test]
fn a_damaged_segment_is_told_and_everything_else_is_served_after_a_clean_stop() {
    let sound = Sound::new();
    let size = sound.batches[0].len();
    // Damage, batches of the second segment that are served, offsets that are refused, and what is told.
    let rows: [(Damage, &[i64], &[i64], &str); 6] = [
        (Damage::Missing, &[], &[], "from offset 9 to 18"),
        (Damage::Emptied, &[], &[], "from offset 9 to 18"),
        (Damage::CutBehindOne, &[3], &[], "from offset 12 to 18"),
        (Damage::Cut, &[3], &[12, 15], "corrupt at byte"),
        (Damage::Zeroed, &[], &[9, 12, 15], "corrupt at byte 0"),
        // The length of the second batch.
        (Damage::Flipped(size + 8), &[3], &[12, 15], "corrupt at byte"),
    ];
    for (damage, left, refused, told) in rows {
        let file = segment(1, ".log");
        let seen = sound.damaged(&file, damage, true);
        let rest = (0..3).chain(left.iter().copied()).chain(6..12);
        assert!(seen.has(rest) && seen.other, "{damage:?}: {seen:?}");
        assert_eq!(seen.refusals, refused.iter().map(|at| (*at, 2)).collect::<Vec<_>>(), "{damage:?}");
        let named = if damage == Damage::Missing { segment(0, ".log") } else { file };
        assert!(seen.tells(&[told, &named]), "{damage:?}: {:?}", seen.told);
        assert_eq!((seen.new, seen.again), (END, END - RECORDS), "{damage:?}");
    }
    for (at, what) in [(16, "magic"), (70, "checksum")] {
        let seen = sound.damaged(&segment(1, ".log"), Damage::Flipped(size + at), true);
        assert_eq!((seen.altered, seen.refusals), (vec![4], vec![]), "its {what} tells the client");
    }
}

#[test]
fn a_damaged_last_segment_is_told_and_no_offset_is_given_twice_after_a_clean_stop() {
    let sound = Sound::new();
    let rows: [(Damage, &[i64], &[i64]); 5] = [
        (Damage::Missing, &[], &[27, 30, 33]),
        (Damage::Emptied, &[], &[27, 30, 33]),
        (Damage::CutBehindOne, &[9], &[30, 33]),
        (Damage::Cut, &[9], &[30, 33]),
        (Damage::Zeroed, &[], &[27, 30, 33]),
    ];
    for (damage, left, refused) in rows {
        let seen = sound.damaged(&segment(3, ".log"), damage, true);
        assert!(seen.has((0..9).chain(left.iter().copied())) && seen.other, "{damage:?}: {seen:?}");
        assert_eq!(seen.refusals, refused.iter().map(|at| (*at, 2)).collect::<Vec<_>>(), "{damage:?}");
        assert!(seen.tells(&[".log", "corrupt at byte"]), "{damage:?}: {:?}", seen.told);
        assert_eq!((seen.new, seen.again), (END, END - RECORDS), "{damage:?}");
    }
}

#[test]
fn a_damaged_last_segment_is_cut_after_a_crash_and_what_may_be_sound_is_kept() {
    let sound = Sound::new();
    let size = sound.batches[0].len();
    // Damage, batches that are left of the last segment, and where what is kept began.
    let rows: [(Damage, i64, Option<i64>); 6] = [
        (Damage::Emptied, 0, None),
        (Damage::CutBehindOne, 1, None),
        (Damage::Cut, 1, None),
        (Damage::Zeroed, 0, None),
        (Damage::Flipped(size + 70), 1, Some(30)),
        (Damage::Flipped(2 * size + 70), 2, None),
    ];
    for (damage, left, kept) in rows {
        let seen = sound.damaged(&segment(3, ".log"), damage, false);
        assert!(seen.has(0..9 + left) && seen.other && seen.refusals.is_empty(), "{damage:?}: {seen:?}");
        assert_eq!(
            seen.kept,
            kept.map(|at| format!("{at:020}.log.1.cut")).into_iter().collect::<Vec<_>>(),
            "{damage:?}"
        );
        if !matches!(damage, Damage::Emptied | Damage::CutBehindOne) {
            let position = format!("position={}", left * size as i64);
            assert!(seen.tells(&[&segment(3, ".log"), &position]), "{damage:?}: {:?}", seen.told);
        }
        assert!(seen.tells(&["records that were on disk are missing"]), "{damage:?}: {:?}", seen.told);
    }
}

#[test]
fn indexes_and_snapshots_are_made_anew_or_not_believed() {
    let sound = Sound::new();
    for clean in [true, false] {
        for kind in [".index", ".timeindex", ".snapshot"] {
            for (number, damage) in [1, 3].iter().flat_map(|number| ALL.map(|damage| (*number, damage))) {
                let file = match kind {
                    ".snapshot" => segment(number + 1, kind),
                    _ => segment(number, kind),
                };
                let (_dir, data) = sound.copy(clean);
                if std::fs::metadata(data.join(&file)).unwrap().len() == 0 && matches!(damage, Damage::Flipped(_)) {
                    continue;
                }
                let seen = sound.damaged(&file, damage, clean);
                assert!(seen.is_whole(), "{file} {damage:?} {clean}: {seen:?}");
            }
        }
    }
}

#[test]
fn small_files_are_made_anew_or_the_start_names_them() {
    let sound = Sound::new();
    // File, and which damages a start gets over: missing, emptied, zeroed, cut.
    let rows = [
        ("recovery-point-offset-checkpoint", [true; 4]),
        ("replication-offset-checkpoint", [true; 4]),
        ("log-start-offset-checkpoint", [true; 4]),
        ("t-0/leader-epoch-checkpoint", [true; 4]),
        ("t-0/partition.metadata", [true; 4]),
        ("meta.properties", [false; 4]),
    ];
    let damages = [Damage::Missing, Damage::Emptied, Damage::Zeroed, Damage::Cut];
    for (clean, (file, whole)) in [true, false].iter().flat_map(|clean| rows.map(|row| (*clean, row))) {
        for (damage, whole) in damages.into_iter().zip(whole) {
            let seen = sound.damaged(file, damage, clean);
            let named = seen.refused.as_ref().is_some_and(|message| message.contains(file));
            assert!(if whole { seen.is_whole() } else { named }, "{file} {damage:?} {clean}: {seen:?}");
        }
    }
}

#[test]
fn a_log_start_offset_beyond_the_log_takes_nothing_away_for_good() {
    let sound = Sound::new();
    let (_dir, data) = sound.copy(true);
    std::fs::write(data.join("log-start-offset-checkpoint"), "0\n1\nt 0 9000\n").unwrap();
    let broker = start(&data, "127.0.0.1:0", &[], true).unwrap();
    let mut client = RawClient::connect(broker.addresses().next().unwrap().1).unwrap();
    let answer = produce(&mut client, "t", 0, &Batch::of(1, LONG_AGO).build());
    assert_eq!(answer["baseOffset"], 9000);
    broker.stop().unwrap();
    let kept = (0..SEGMENTS).map(|number| std::fs::read(data.join(segment(number, ".log.1.cut"))).unwrap());
    assert_eq!(kept.flatten().collect::<Vec<_>>(), sound.batches.concat());
    assert!(messages::about(&data).iter().any(|line| line.contains("below its start offset 9000")));
}
