//! kafka-transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use milena_client::Admin;
use milena_client::admin::{ProducerState, TopicPartition, TransactionFilter};
use milena_protocol::ErrorCode;

use super::argparse::{self, Command};
use super::options::{Flag, Options};
use super::table::table;
use super::{Ended, Thrown, ask, java, now_ms};
use crate::output::{print, print_error};

const COMMON: &[Flag] = &[
    Flag::value("bootstrap-server", "hostname and port for the broker to connect to"),
    Flag::value("command-config", "property file containing configs to be passed to admin client"),
    Flag::switch("help", "show this help message and exit").short("h"),
    Flag::switch("version", "show the version of this Kafka distribution and exit").short("v"),
];

const HELP: Flag = Flag::switch("help", "show this help message and exit").short("h");
const BROKER: Flag = Flag::value("broker-id", "broker id");
const TOPIC: Flag = Flag::value("topic", "topic name");
const PARTITION: Flag = Flag::value("partition", "partition number");

const COMMANDS: &[Command] = &[
    Command {
        name: "list",
        help: "list transactions",
        flags: &[
            HELP,
            Flag::value("duration-filter", "duration (in millis) to filter by"),
            Flag::value("transactional-id-pattern", "regular expression of transactional ids"),
        ],
        required: &[],
    },
    Command {
        name: "describe",
        help: "describe the state of an active transactional-id",
        flags: &[HELP, Flag::value("transactional-id", "transactional id")],
        required: &["transactional-id"],
    },
    Command {
        name: "describe-producers",
        help: "describe the states of active producers for a topic partition",
        flags: &[HELP, BROKER, TOPIC, PARTITION],
        required: &["topic", "partition"],
    },
    Command {
        name: "abort",
        help: "abort a hanging transaction (requires administrative privileges)",
        flags: &[
            HELP,
            TOPIC,
            PARTITION,
            Flag::value("start-offset", "start offset of the transaction to abort"),
            Flag::value("producer-id", "producer id"),
            Flag::value("producer-epoch", "producer epoch"),
            Flag::value("coordinator-epoch", "coordinator epoch"),
        ],
        required: &["topic", "partition"],
    },
    Command {
        name: "find-hanging",
        help: "find hanging transactions",
        flags: &[
            HELP,
            BROKER,
            Flag::value("max-transaction-timeout", "maximum transaction timeout in minutes"),
            TOPIC,
            PARTITION,
        ],
        required: &[],
    },
    Command {
        name: "forceTerminateTransaction",
        help: "Force abort an ongoing transaction on transactionalId",
        flags: &[HELP, Flag::value("transactionalId", "transactional id")],
        required: &["transactionalId"],
    },
];

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    argparse::run("kafka-transactions.sh", COMMON, COMMANDS, arguments, execute, |thrown| {
        print_error(&format!("{}\n", thrown.message));
    })
}

/// What the tool says when a question fails.
fn failed(what: &str) -> impl Fn(milena_client::Error) -> Ended + '_ {
    move |error| {
        let why = match error.code() {
            Some(ErrorCode::TRANSACTIONAL_ID_NOT_FOUND) => {
                let id = what.split('`').nth(1).unwrap_or_default();
                format!(
                    "DescribeTransactions request for transactionalId `{id}` failed because the ID could not be found"
                )
            }
            _ => java::thrown(&error).message,
        };
        let message = format!("{what}: {why}. Enable debug logging for additional detail.");
        Thrown::argument(message.replace("..", ".")).into()
    }
}

fn execute(command: &str, options: &Options) -> Result<(), Ended> {
    if !options.has("bootstrap-server") {
        return Err(Ended::Usage("argument --bootstrap-server is required".to_owned()));
    }
    ask(options, async |admin| match command {
        "list" => list(admin, options).await,
        "describe" => describe(admin, options).await,
        "describe-producers" => describe_producers(admin, options).await,
        "abort" => abort(admin, options).await,
        "forceTerminateTransaction" => {
            let id = options.value("transactionalId")?.unwrap_or_default();
            let what = format!("Failed to force terminate transactionalId `{id}`");
            admin.terminate_transaction(id).await.map_err(failed(&what))
        }
        _ => find_hanging(admin, options).await,
    })
}

async fn list(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let filter = TransactionFilter {
        longer_than: options.number("duration-filter")?,
        id_pattern: options.value("transactional-id-pattern")?.map(str::to_owned),
        ..TransactionFilter::default()
    };
    let listed = admin.list_transactions(&filter).await.map_err(failed("Failed to list transactions"))?;
    let rows = listed
        .into_iter()
        .map(|listed| vec![listed.id, listed.coordinator.to_string(), listed.producer_id.to_string(), listed.state]);
    print(&table(&["TransactionalId", "Coordinator", "ProducerId", "TransactionState"], rows.collect()));
    Ok(())
}

async fn describe(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let id = options.value("transactional-id")?.unwrap_or_default();
    let what = format!("Failed to describe transaction state of transactional-id `{id}`");
    let Some((_, found)) = admin.describe_transactions(&[id.to_owned()]).await?.pop() else { return Ok(()) };
    let found = found.map_err(failed(&what))?;
    let none = || "None".to_owned();
    let partitions: Vec<String> = found.partitions.iter().map(ToString::to_string).collect();
    let row = vec![
        found.coordinator.to_string(),
        found.id,
        found.producer_id.to_string(),
        found.producer_epoch.to_string(),
        found.state,
        found.timeout.to_string(),
        found.started.map_or_else(none, |started| started.to_string()),
        found.started.map_or_else(none, |started| (now_ms() - started).to_string()),
        partitions.join(","),
    ];
    const HEADERS: [&str; 9] = [
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    ];
    print(&table(&HEADERS, vec![row]));
    Ok(())
}

fn partition_of(options: &Options) -> Result<TopicPartition, Ended> {
    let topic = options.value("topic")?.unwrap_or_default();
    Ok(TopicPartition::new(topic, options.number("partition")?.unwrap_or_default()))
}

async fn describe_producers(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let partition = partition_of(options)?;
    let broker: Option<i32> = options.number("broker-id")?;
    let whom = broker.map_or("leader".to_owned(), |id| format!("broker {id}"));
    let what = format!("Failed to describe producers for partition {partition} on {whom}");
    let producers = admin.describe_producers(&partition, broker).await.map_err(failed(&what))?;
    let row = |producer: ProducerState| {
        vec![
            producer.id.to_string(),
            producer.epoch.to_string(),
            producer.coordinator_epoch.unwrap_or(-1).to_string(),
            producer.last_sequence.to_string(),
            producer.last_timestamp.to_string(),
            producer.transaction_start.map_or_else(|| "None".to_owned(), |start| start.to_string()),
        ]
    };
    const HEADERS: [&str; 6] = [
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
    ];
    print(&table(&HEADERS, producers.into_iter().map(row).collect()));
    Ok(())
}

async fn abort(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let partition = partition_of(options)?;
    let start: Option<i64> = options.number("start-offset")?;
    let producer_id: Option<i64> = options.number("producer-id")?;
    let (id, epoch, coordinator) = match (start, producer_id) {
        (None, None) => {
            let message = "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or \
                           above) or with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)";
            return Err(Thrown::argument(message).into());
        }
        (Some(start), _) => {
            let what = format!("Failed to validate producer state for partition {partition}");
            let producers = admin.describe_producers(&partition, None).await.map_err(failed(&what))?;
            let found = producers.into_iter().find(|producer| producer.transaction_start == Some(start));
            let found = found.ok_or_else(|| {
                let message =
                    format!("Could not find any open transactions starting at offset {start} on partition {partition}");
                Thrown::argument(message)
            })?;
            (found.id, i16::try_from(found.epoch).unwrap_or(i16::MAX), found.coordinator_epoch.unwrap_or(0))
        }
        (None, Some(id)) => {
            let missing = |name: &str| Thrown::argument(format!("Missing required argument --{name}"));
            let epoch = options.number("producer-epoch")?.ok_or_else(|| missing("producer-epoch"))?;
            let coordinator: i32 = options.number("coordinator-epoch")?.ok_or_else(|| missing("coordinator-epoch"))?;
            (id, epoch, coordinator.max(0))
        }
    };
    let what = format!(
        "Failed to abort transaction AbortTransactionSpec(topicPartition={partition}, producerId={id}, \
         producerEpoch={epoch}, coordinatorEpoch={coordinator})"
    );
    admin.abort_transaction(&partition, id, epoch, coordinator).await.map_err(failed(&what))
}

/// An open transaction on a partition.
type Open = (TopicPartition, ProducerState);

async fn find_hanging(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let broker: Option<i32> = options.number("broker-id")?;
    if !options.has("topic") && broker.is_none() {
        let message =
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search";
        return Err(Thrown::argument(message).into());
    }
    if options.has("partition") && !options.has("topic") {
        return Err(Thrown::argument("The --partition argument requires --topic to be provided").into());
    }
    let minutes: i64 = options.number("max-transaction-timeout")?.unwrap_or(15);
    let oldest = now_ms() - minutes * 60_000;
    let mut open: Vec<Open> = Vec::new();
    for partition in searched(admin, options, broker).await? {
        let what = format!("Failed to describe producers for partition {partition}");
        let producers = admin.describe_producers(&partition, broker).await.map_err(failed(&what))?;
        let old = |producer: &ProducerState| producer.transaction_start.is_some() && producer.last_timestamp < oldest;
        open.extend(producers.into_iter().filter(old).map(|producer| (partition.clone(), producer)));
    }
    let hanging = hanging(admin, open).await?;
    let row = |(partition, producer): Open| {
        vec![
            partition.topic.to_string(),
            partition.partition.to_string(),
            producer.id.to_string(),
            producer.epoch.to_string(),
            producer.coordinator_epoch.unwrap_or(-1).to_string(),
            producer.transaction_start.unwrap_or(-1).to_string(),
            producer.last_timestamp.to_string(),
            ((now_ms() - producer.last_timestamp) / 60_000).to_string(),
        ]
    };
    const HEADERS: [&str; 8] = [
        "Topic",
        "Partition",
        "ProducerId",
        "ProducerEpoch",
        "CoordinatorEpoch",
        "StartOffset",
        "LastTimestamp",
        "Duration(min)",
    ];
    print(&table(&HEADERS, hanging.into_iter().map(row).collect()));
    Ok(())
}

/// The partitions to look at.
async fn searched(admin: &Admin, options: &Options, broker: Option<i32>) -> Result<Vec<TopicPartition>, Ended> {
    let names = match options.value("topic")? {
        Some(_) if options.has("partition") => return Ok(vec![partition_of(options)?]),
        Some(topic) => vec![topic.to_owned()],
        None => {
            let listed = admin.list_topics().await.map_err(failed("Failed to list topics"))?;
            listed.into_iter().filter(|topic| !topic.internal).map(|topic| topic.name).collect()
        }
    };
    let what = format!("Failed to describe {} topics", names.len());
    let mut partitions = Vec::new();
    for (name, topic) in admin.describe_topics(&names).await.map_err(failed(&what))? {
        let here = topic.map_err(failed(&what))?.partitions.into_iter();
        let here = here.filter(|known| broker.is_none_or(|broker| known.replicas.contains(&broker)));
        partitions.extend(here.map(|known| TopicPartition::new(name.as_str(), known.partition)));
    }
    Ok(partitions)
}

/// Those of which no coordinator knows any more.
async fn hanging(admin: &Admin, open: Vec<Open>) -> Result<Vec<Open>, Ended> {
    if open.is_empty() {
        return Ok(open);
    }
    let producer_ids: BTreeSet<i64> = open.iter().map(|(_, producer)| producer.id).collect();
    let producers = producer_ids.len();
    let filter = TransactionFilter { producer_ids: producer_ids.into_iter().collect(), ..Default::default() };
    let what = format!("Failed to list transactions for {producers} producers");
    let listed = admin.list_transactions(&filter).await.map_err(failed(&what))?;
    let mut known: BTreeMap<i64, Vec<TopicPartition>> = BTreeMap::new();
    for listed in listed {
        for (_, described) in admin.describe_transactions(&[listed.id]).await? {
            match described {
                Ok(described) => known.entry(listed.producer_id).or_default().extend(described.partitions),
                Err(error) if error.code() == Some(ErrorCode::TRANSACTIONAL_ID_NOT_FOUND) => {}
                Err(error) => return Err(failed("Failed to describe 1 transactions")(error)),
            }
        }
    }
    let is_known =
        |(partition, producer): &Open| known.get(&producer.id).is_some_and(|known| known.contains(partition));
    Ok(open.into_iter().filter(|open| !is_known(open)).collect())
}
