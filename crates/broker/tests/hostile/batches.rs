//! Batches changed at random, with a checksum that fits.

use milena_testkit::batch::{Batch, Codec, Stored, crc};
use milena_testkit::client::RawClient;

use crate::alone;
use crate::common::Node;
use crate::common::requests::{create_topic, fetch_all, produce};
use crate::common::seeded::Random;

/// Where the checksum stands, and what it covers begins.
const CRC: usize = 17;
const COVERED: usize = 21;

/// A right batch of a codec with some bytes changed; mostly the checksum fits what it has become.
fn spoiled(random: &mut Random) -> Vec<u8> {
    let codec = Codec::ALL[random.below(5)];
    let mut bytes = Batch::of(1 + random.below(5), 1_700_000_000_000).with(codec).build();
    for _ in 0..1 + random.below(3) {
        let at = if random.below(3) == 0 { random.below(61) } else { 61 + random.below(bytes.len() - 61) };
        bytes[at] = (random.next() >> 56) as u8;
    }
    if random.below(8) > 0 {
        let sum = crc(&bytes[COVERED..]).to_be_bytes();
        bytes[CRC..COVERED].copy_from_slice(&sum);
    }
    bytes
}

/// Sends spoiled batches; gives how many records were taken.
fn storm(client: &mut RawClient, count: usize, random: &mut Random) -> usize {
    let mut taken = 0;
    for _ in 0..count {
        let bytes = spoiled(random);
        let answer = produce(client, "t", 0, &bytes);
        if answer["errorCode"] == 0 {
            assert_eq!(answer["baseOffset"], taken, "{answer}");
            taken += Stored::split(&bytes).unwrap()[0].last_offset_delta() as usize + 1;
        }
    }
    taken
}

#[test]
fn of_garbage_batches_only_whole_ones_with_offsets_in_a_row_are_stored() {
    let _alone = alone();
    let mut node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[("retention.ms", "-1")]);
    let taken = storm(&mut client, 3_000, &mut Random::new(11));
    assert!(taken > 0);
    let check = |client: &mut RawClient| {
        let bytes = fetch_all(client, "t", 0);
        let mut next = 0;
        for batch in Stored::split(&bytes).unwrap() {
            assert_eq!(batch.base_offset(), next);
            assert_eq!(crc(&batch.bytes()[COVERED..]), batch.crc());
            next += i64::from(batch.last_offset_delta()) + 1;
        }
        assert_eq!(next, taken as i64);
        bytes
    };
    let before = check(&mut client);
    node.stop();
    node.start_again();
    assert!(check(&mut node.client()) == before);
}
