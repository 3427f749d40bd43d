//! Hostile bytes, bounded and seeded: every message in every version takes arbitrary and mutated bytes without a panic,
//! and without taking more memory than a small multiple of the input. Set `MILENA_SEED` to repeat a run.

mod support;

use std::collections::BTreeMap;

use fastrand::Rng;
use milena_protocol::Writer;
use milena_protocol::catalog::{ENTRIES, Entry};
use milena_protocol::fuzz::{check_body, fuzz_decode};
use peak_alloc::PeakAlloc;
use support::{hex, lines, unhex};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Bytes of memory that one byte of input may take while it is decoded: an empty array is one byte on the wire and a
/// vector in memory, and tagged fields are nothing on the wire.
const PER_BYTE: usize = 64;
/// What a short input may take besides.
const BASE: usize = 4096;

/// Prints what is needed to repeat the failure.
struct OnFailure {
    seed: u64,
    name: &'static str,
    version: i16,
    body: Vec<u8>,
}

impl Drop for OnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("MILENA_SEED={} {} v{} {}", self.seed, self.name, self.version, hex(&self.body));
        }
    }
}

/// Decodes once with the memory measured, then as the fuzzer does. Returns bytes of memory for each byte of input.
fn run(seed: u64, entry: &Entry, version: i16, body: Vec<u8>) -> usize {
    let context = OnFailure { seed, name: entry.name, version, body };
    let body = &context.body[..];
    let mut w = Writer::over(Vec::with_capacity(4 * body.len() + BASE));
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let _ = (entry.transcode)(body, version, &mut w);
    let taken = MEMORY.peak_usage().saturating_sub(before);
    assert!(taken <= PER_BYTE * body.len() + BASE, "{taken} bytes of memory for {}", body.len());
    check_body(entry, version, body);
    taken.saturating_sub(BASE) / body.len().max(1)
}

/// Bytes with many small numbers, as counts and lengths are.
fn arbitrary(rng: &mut Rng) -> Vec<u8> {
    let len = 1 << rng.usize(..12);
    let zeros = rng.u8(..);
    (0..rng.usize(..len))
        .map(|_| match rng.u8(..) {
            n if n < zeros => 0,
            n if n < 200 => rng.u8(..8),
            _ => rng.u8(..),
        })
        .collect()
}

fn mutated(rng: &mut Rng, original: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..=rng.usize(..3) {
        let at = rng.usize(..=bytes.len());
        match rng.u8(..6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, other[rng.usize(..=other.len())..].iter().copied())),
            2 => drop(bytes.splice(at.., other[rng.usize(..=other.len())..].iter().copied())),
            3 => bytes.insert(at, rng.u8(..)),
            _ if at == bytes.len() => bytes.push(rng.choice([0, 1, 2, 0x7f, 0x80, 0xff]).unwrap_or(0)),
            4 => bytes[at] = rng.choice([0, 1, 2, 0x7f, 0x80, 0xff]).unwrap_or(0),
            _ => bytes[at] ^= 1 << rng.u8(..8),
        }
    }
    bytes
}

/// An array that claims as many elements as there are bytes, at every position where a count may stand.
fn inflated(original: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = original[..at].to_vec();
    bytes.extend(if at.is_multiple_of(2) { vec![0xf0, 0x07] } else { vec![0, 0, 0x03, 0xf0] });
    bytes.resize(bytes.len() + 2000, 0);
    bytes
}

fn bodies() -> BTreeMap<(String, i16), Vec<Vec<u8>>> {
    let mut bodies = BTreeMap::<_, Vec<_>>::new();
    for line in lines("vectors") {
        let version = line["version"].as_i64().unwrap().try_into().unwrap();
        let key = (line["name"].as_str().unwrap().to_owned(), version);
        bodies.entry(key).or_default().push(unhex(line["hex"].as_str().unwrap()));
    }
    bodies
}

#[test]
fn hostile_bytes_neither_panic_nor_take_memory_beyond_their_length() {
    let seed = std::env::var("MILENA_SEED").map_or_else(|_| fastrand::u64(..), |text| text.parse().unwrap());
    println!("MILENA_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let bodies = bodies();
    let (mut runs, mut most) = (0, (0, ""));
    for entry in ENTRIES {
        for version in entry.min..=entry.max {
            let known = &bodies[&(entry.name.to_owned(), version)];
            let longest = known.iter().max_by_key(|body| body.len()).unwrap();
            let inflated = (0..=longest.len().min(60)).map(|at| inflated(longest, at));
            let arbitrary = (0..100).map(|_| arbitrary(&mut rng)).collect::<Vec<_>>();
            let mutated = (0..600).map(|_| {
                let (a, b) = (rng.usize(..known.len()), rng.usize(..known.len()));
                mutated(&mut rng, &known[a], &known[b])
            });
            for body in inflated.chain(arbitrary).chain(mutated) {
                most = most.max((run(seed, entry, version, body), entry.name));
                runs += 1;
            }
        }
    }
    println!("{runs} runs, at most {} bytes of memory for a byte of {}", most.0, most.1);
    for _ in 0..50_000 {
        fuzz_decode(&arbitrary(&mut rng));
    }
}
