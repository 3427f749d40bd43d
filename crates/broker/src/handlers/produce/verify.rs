//! Transactions that begin in a partition: their coordinator must know that the partition belongs to them before their first
//! batch is written. Batches of transactions that are open there already cost one look at the partition.

use milena_coordinator::transaction::Producer;
use milena_log::VerificationStart;
use milena_protocol::{ErrorCode, Str};
use milena_records::Batch;

use super::plan::{Part, Plan, Request, Topic};
use crate::coordinators::{Begin, Coordinators, Support};

/// First version whose clients know TRANSACTION_ABORTABLE.
const FIRST_ABORTABLE_VERSION: i16 = 11;
/// First version whose clients leave adding partitions to the broker.
const FIRST_IMPLICIT_VERSION: i16 = 12;

const NOT_ADDED: &str = "The partition was not added to the transaction";
const NOT_VERIFIED: &str = "It can't be verified at present that the partition was added to the transaction";

/// Refuses the batches whose transaction may not begin in their partitions; the others get what the log asks for. With
/// `always_verify` off, only what clients leave to the broker is done.
pub(super) fn verify(
    frames: &[&mut [u8]],
    plan: &mut Plan,
    coordinators: &Coordinators,
    always_verify: bool,
    now_ms: i64,
) {
    let Plan { requests, topics, parts } = plan;
    for request in requests.iter().filter(|request| request.transactional_id.is_some()) {
        let support = support(request.version);
        if !always_verify && support != Support::Implicit {
            continue;
        }
        let topics = &topics[request.topics.clone()];
        let begun: Vec<(usize, Producer)> = topics
            .iter()
            .flat_map(|topic| topic.parts.clone())
            .filter_map(|at| {
                let part = &mut parts[at];
                begin(part, &frames[part.frame][part.batch.clone()], support, now_ms).map(|producer| (at, producer))
            })
            .collect();
        ask(request, topics, &begun, parts, support, coordinators);
    }
}

fn support(version: i16) -> Support {
    match version {
        FIRST_IMPLICIT_VERSION.. => Support::Implicit,
        FIRST_ABORTABLE_VERSION.. => Support::Abortable,
        _ => Support::Plain,
    }
}

/// The producer of a batch whose transaction is not known to be open in the partition.
fn begin(part: &mut Part, batch: &[u8], support: Support, now_ms: i64) -> Option<Producer> {
    let partition = part.partition.as_ref().filter(|_| part.is_good())?;
    // What no producer sends belongs to no transaction, whatever it says.
    let batch = Batch::parse(batch).ok().filter(|batch| batch.is_transactional() && batch.producer_id() >= 0)?;
    let producer = Producer { id: batch.producer_id(), epoch: batch.producer_epoch() };
    let start = VerificationStart {
        producer_id: producer.id,
        epoch: producer.epoch,
        base_sequence: batch.base_sequence(),
        epoch_bumps: support == Support::Implicit,
        now_ms,
    };
    match partition.begin_verification(&start) {
        Ok(guard) => {
            part.guard = guard;
            guard.map(|_| producer)
        }
        Err(_) => {
            part.refuse(ErrorCode::INVALID_PRODUCER_EPOCH, None);
            None
        }
    }
}

/// Asks the coordinator once for all that begins with one request.
fn ask(
    request: &Request,
    topics: &[Topic],
    begun: &[(usize, Producer)],
    parts: &mut [Part],
    support: Support,
    coordinators: &Coordinators,
) {
    let (Some(id), Some((_, producer))) = (request.transactional_id.as_deref(), begun.first()) else { return };
    let names = topics.iter().flat_map(|topic| topic.parts.clone().map(move |at| (at, topic.name.as_str())));
    // Both are in the order of the parts.
    let mut wanted = begun.iter().map(|(at, _)| *at).peekable();
    let names: Vec<(usize, &str)> = names.filter(|(at, _)| wanted.next_if_eq(at).is_some()).collect();
    let partitions: Vec<(Str<'_>, i32)> = names.iter().map(|(at, name)| ((*name).into(), parts[*at].index)).collect();
    let verified = coordinators.verify(&Begin { id, producer: *producer, support }, &partitions);
    for ((at, own), error) in begun.iter().zip(verified) {
        // Kafka takes all batches of a request for those of one producer.
        let error = if own == producer { error } else { ErrorCode::INVALID_PRODUCER_ID_MAPPING };
        let message = match error {
            ErrorCode::NONE => continue,
            ErrorCode::INVALID_TXN_STATE => Some(NOT_ADDED),
            ErrorCode::NOT_ENOUGH_REPLICAS => Some(NOT_VERIFIED),
            _ => None,
        };
        parts[*at].refuse(error, message);
    }
}
