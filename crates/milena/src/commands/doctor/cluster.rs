//! A cluster as its clients see it: brokers and their addresses, clocks, partitions, disks, groups, transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Result;
use milena_client::admin::{
    BrokerDescription, ConfigResource, Endpoints, GroupListing, OffsetSpec, ProducerState, ResourceType,
    TopicDescription, TopicPartition, TransactionFilter,
};
use milena_client::{Admin, Error};
use milena_io::{Clock, RealClock};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::{Findings, Level, fullness, names};

/// How long a broker may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(3);
/// Clocks that differ by more are worth a word; by much more, timestamps and time-outs go wrong.
const SKEW_MS: (i64, i64) = (1000, 60_000);
/// Transactions that last longer than the longest time-out that brokers allow by default.
const LONG_MS: i64 = 900_000;
/// Records behind, from which on a group that reads is told of.
const FAR_BEHIND: i64 = 100_000;
/// Partitions that are asked for open transactions, one by one.
const MOST_PARTITIONS: usize = 1000;

/// Looks at everything.
///
/// # Errors
/// When the cluster can't be described at all.
pub(super) async fn look(admin: &Admin, findings: &mut Findings) -> Result<()> {
    let cluster = match admin.describe_endpoints(Endpoints::WithFenced).await {
        Err(Error::Request(_)) => admin.describe_cluster().await?,
        other => other?,
    };
    let (fenced, brokers): (Vec<_>, Vec<_>) = cluster.brokers.into_iter().partition(|broker| broker.fenced);
    let controller = cluster.controller.map_or_else(|| "none known".to_owned(), |id| id.to_string());
    let count = if brokers.len() == 1 { "1 broker".to_owned() } else { format!("{} brokers", brokers.len()) };
    findings.good("cluster", format!("{}: {count}, controller {controller}", cluster.id));
    if !fenced.is_empty() {
        let ids = names(fenced.iter().map(|broker| broker.id));
        let advice = "Start them, or `milena cluster unregister` those that will not come back.";
        findings.add(Level::Warning, "brokers", format!("fenced: {ids}"), advice);
    }
    let reachable = addresses(&brokers, findings).await;
    api_versions(admin, &reachable, findings).await;
    features(admin, findings).await;
    clock(admin, findings).await;
    log_dirs(admin, &reachable, findings).await;
    match topics(admin).await {
        Err(error) => findings.failed("topics", &error),
        Ok(topics) => {
            partitions(&topics, findings);
            let factors = replication_factors(admin, &reachable).await;
            internal_topics(&topics, brokers.len(), &factors, findings);
            transactions(admin, &topics, findings).await;
            groups(admin, &topics, findings).await;
        }
    }
    Ok(())
}

/// Whether the addresses that brokers tell their clients can be resolved and connected to from here; the brokers where they can.
async fn addresses(brokers: &[BrokerDescription], findings: &mut Findings) -> Vec<i32> {
    let mut reachable = Vec::new();
    for broker in brokers {
        let place = format!("broker {} at {}:{}", broker.id, broker.host, broker.port);
        let port = u16::try_from(broker.port).unwrap_or(0);
        let why = match lookup_host((broker.host.as_str(), port)).await {
            Err(error) => Some(format!("its name can't be resolved: {error}")),
            Ok(_) => match timeout(PATIENCE, TcpStream::connect((broker.host.as_str(), port))).await {
                Err(_) => Some(format!("no connection within {} s", PATIENCE.as_secs())),
                Ok(Err(error)) => Some(error.to_string()),
                Ok(Ok(_)) => None,
            },
        };
        match why {
            None => {
                findings.good("advertised address", format!("{place} takes connections"));
                reachable.push(broker.id);
            }
            Some(why) => findings.add(
                Level::Wrong,
                "advertised address",
                format!("{place}: {why}"),
                "Clients are told this address: set the broker's advertised.listeners to one that they can reach.",
            ),
        }
    }
    reachable
}

async fn api_versions(admin: &Admin, brokers: &[i32], findings: &mut Findings) {
    let mut served = Vec::new();
    for &broker in brokers {
        match admin.api_versions(broker).await {
            Err(error) => findings.failed("API versions", &format!("broker {broker}: {error}")),
            Ok(versions) => served.push((broker, versions)),
        }
    }
    let Some((_, first)) = served.first() else { return };
    let others: Vec<i32> = served.iter().filter(|(_, versions)| versions != first).map(|(broker, _)| *broker).collect();
    if others.is_empty() {
        findings.good("API versions", format!("{} APIs, the same on all brokers", first.len()));
    } else {
        let advice = "They run different releases: finish the upgrade.";
        findings.add(Level::Warning, "API versions", format!("others on brokers {}", names(others)), advice);
    }
}

async fn features(admin: &Admin, findings: &mut Findings) {
    match admin.describe_features().await {
        Err(error) => findings.failed("features", &error),
        Ok(found) => {
            let low = found.features.iter().filter(|feature| feature.finalized < feature.supported_max);
            let low = low.map(|it| format!("{} {} of {}", it.name, it.finalized, it.supported_max));
            match names(low) {
                none if none.is_empty() => findings.good("features", "all at their newest level"),
                low => findings.add(
                    Level::Note,
                    "features",
                    format!("not at their newest level: {low}"),
                    "When no older broker will come back: `milena kafka-features --bootstrap-server … upgrade \
                     --release-version 4.4`.",
                ),
            }
        }
    }
}

/// The leader of the quorum has all records at the moment that it answers, and says when that is.
async fn clock(admin: &Admin, findings: &mut Findings) {
    let local = RealClock::new();
    let before = local.now_ms();
    let quorum = match admin.describe_quorum().await {
        Err(error) => return findings.failed("clock", &error),
        Ok(quorum) => quorum,
    };
    let here = before.midpoint(local.now_ms());
    let leader = quorum.voters.iter().find(|voter| voter.id == quorum.leader);
    let Some(there) = leader.and_then(|leader| leader.last_caught_up) else { return };
    let skew = there.saturating_sub(here);
    let what = format!("controller {} is {skew} ms away from this machine", quorum.leader);
    let advice = "Have both follow the same time servers: retention and timestamps go by these clocks.";
    match skew.saturating_abs() {
        away if away > SKEW_MS.1 => findings.add(Level::Wrong, "clock", what, advice),
        away if away > SKEW_MS.0 => findings.add(Level::Warning, "clock", what, advice),
        _ => findings.good("clock", "the same as this machine's"),
    }
}

async fn log_dirs(admin: &Admin, brokers: &[i32], findings: &mut Findings) {
    let described = match admin.describe_log_dirs(brokers).await {
        Err(error) => return findings.failed("log directories", &error),
        Ok(described) => described,
    };
    for (broker, dirs) in described {
        let dirs = match dirs {
            Err(error) => {
                findings.failed("log directories", &format!("broker {broker}: {error}"));
                continue;
            }
            Ok(dirs) => dirs,
        };
        for dir in dirs {
            let place = format!("{} on broker {broker}", dir.path);
            if let Some(error) = dir.error {
                let advice = "Its partitions are offline: look at the disk, then restart the broker.";
                findings.add(Level::Wrong, "log directories", format!("{place}: {}", error.name()), advice);
            } else if let (Some(usable), Some(total)) = (dir.usable_bytes, dir.total_bytes) {
                fullness(findings, &place, usable.unsigned_abs(), total.unsigned_abs());
            }
        }
    }
}

async fn topics(admin: &Admin) -> Result<Vec<TopicDescription>, Error> {
    let names: Vec<String> = admin.list_topics().await?.into_iter().map(|topic| topic.name).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    // One that was deleted in between is not missed.
    Ok(admin.describe_topics(&names).await?.into_iter().filter_map(|(_, topic)| topic.ok()).collect())
}

fn partitions(topics: &[TopicDescription], findings: &mut Findings) {
    let (mut count, mut leaderless, mut behind) = (0, Vec::new(), Vec::new());
    for topic in topics {
        for partition in &topic.partitions {
            let name = TopicPartition::new(topic.name.as_str(), partition.partition);
            count += 1;
            if partition.leader.is_none() {
                leaderless.push(name);
            } else if partition.in_sync.len() < partition.replicas.len() {
                behind.push(name);
            }
        }
    }
    if leaderless.is_empty() && behind.is_empty() {
        findings.good("partitions", format!("{count}, all with a leader and all replicas in sync"));
    }
    if !leaderless.is_empty() {
        let what = format!("{} without a leader: {}", leaderless.len(), names(leaderless));
        let advice =
            "Nobody can read or write them: start the brokers that have their replicas, or see to their disks.";
        findings.add(Level::Wrong, "partitions", what, advice);
    }
    if !behind.is_empty() {
        let what = format!("{} with replicas that are not in sync: {}", behind.len(), names(behind));
        let advice = "A broker is down or too slow; `milena cluster` shows who is there.";
        findings.add(Level::Warning, "partitions", what, advice);
    }
}

/// The internal topics: by whose use they are made, what does not work without them, and what says how many replicas they get.
const INTERNAL: [(&str, &str, &str, &str); 2] = [
    ("__consumer_offsets", "a group commits", "no group", "offsets.topic.replication.factor"),
    ("__transaction_state", "a transaction begins", "no transaction", "transaction.state.log.replication.factor"),
];

/// What the first broker that answers has for the replication factors of internal topics, in their order.
async fn replication_factors(admin: &Admin, brokers: &[i32]) -> Vec<usize> {
    for broker in brokers {
        let resource = ConfigResource { kind: ResourceType::Broker, name: broker.to_string() };
        let Ok(described) = admin.describe_configs(vec![resource], false).await else { continue };
        let Some(Ok(entries)) = described.into_iter().next().map(|(_, entries)| entries) else { continue };
        let value = |key: &str| entries.iter().find(|entry| entry.name == key)?.value.as_deref()?.parse().ok();
        return INTERNAL.iter().map(|(.., key)| value(key).unwrap_or(0)).collect();
    }
    Vec::new()
}

fn internal_topics(topics: &[TopicDescription], brokers: usize, factors: &[usize], findings: &mut Findings) {
    for (at, (name, purpose, without, key)) in INTERNAL.into_iter().enumerate() {
        let Some(topic) = topics.iter().find(|topic| topic.name == name) else {
            if let Some(factor) = factors.get(at).filter(|factor| **factor > brokers) {
                let what = format!("{name} can't be made: {key} is {factor}, and there are so many brokers: {brokers}");
                let advice =
                    format!("Until then {without} works: set it to {brokers} or less in the file and restart.");
                findings.add(Level::Wrong, "internal topics", what, advice);
                continue;
            }
            findings.good("internal topics", format!("{name} is not there yet; it is made when {purpose}"));
            continue;
        };
        let replicas = topic.partitions.iter().map(|partition| partition.replicas.len()).min().unwrap_or(0);
        let what = format!("{name}: {} partitions, {replicas} replicas", topic.partitions.len());
        if brokers > 1 && replicas < 2 {
            let advice = "With one replica, the loss of one broker stops groups or transactions: `milena \
                          kafka-reassign-partitions` gives it more.";
            findings.add(Level::Warning, "internal topics", what, advice);
        } else {
            findings.good("internal topics", what);
        }
    }
}

async fn transactions(admin: &Admin, topics: &[TopicDescription], findings: &mut Findings) {
    let filter = TransactionFilter { longer_than: Some(LONG_MS), ..TransactionFilter::default() };
    match admin.list_transactions(&filter).await {
        Err(error) => return findings.failed("transactions", &error),
        Ok(long) if !long.is_empty() => {
            let what = format!("going on for more than 15 minutes: {}", names(long.into_iter().map(|it| it.id)));
            let advice = "`milena txn describe ID` shows what they have written to; their readers wait.";
            findings.add(Level::Warning, "transactions", what, advice);
        }
        Ok(_) => {}
    }
    let led = topics.iter().filter(|topic| !topic.internal).flat_map(led_partitions);
    let (mut hanging, mut looked_at) = (Vec::new(), 0);
    let now = RealClock::new().now_ms();
    for partition in led.clone().take(MOST_PARTITIONS) {
        looked_at += 1;
        let Ok(producers) = admin.describe_producers(&partition, None).await else { continue };
        if producers.iter().any(|producer| hangs(producer, now)) {
            hanging.push(format!("{}:{}", partition.topic, partition.partition));
        }
    }
    let left_out = led.count() - looked_at;
    if left_out > 0 {
        let advice = "`milena kafka-transactions find-hanging --broker-id ID` looks at all partitions of a broker.";
        findings.add(Level::Note, "transactions", format!("{left_out} partitions were not looked at"), advice);
    }
    if hanging.is_empty() {
        findings.good("transactions", "none hangs");
    } else {
        let what = format!("open for more than 15 minutes on {}", names(hanging));
        let advice =
            "Readers of committed records stop there: `milena txn producers TOPIC:PARTITION`, then `milena txn abort`.";
        findings.add(Level::Wrong, "transactions", what, advice);
    }
}

async fn groups(admin: &Admin, topics: &[TopicDescription], findings: &mut Findings) {
    let groups = match admin.list_groups(&[], &[]).await {
        Err(error) => return findings.failed("groups", &error),
        Ok(groups) => groups,
    };
    let (mut left, mut slow) = (Vec::new(), Vec::new());
    let led: BTreeSet<TopicPartition> = topics.iter().flat_map(led_partitions).collect();
    // What a share group has acknowledged is not committed as offsets are.
    for group in groups.iter().filter(|group| group.kind != "share") {
        match lag(admin, group, &led).await {
            Err(error) => findings.failed("groups", &format!("{}: {error}", group.id)),
            Ok(lag) if lag > 0 && group.state == "Empty" => left.push(format!("{} ({lag} records)", group.id)),
            Ok(lag) if lag >= FAR_BEHIND => slow.push(format!("{} ({lag} records)", group.id)),
            Ok(_) => {}
        }
    }
    if left.is_empty() && slow.is_empty() {
        findings.good("groups", format!("{}, none left behind", groups.len()));
    }
    if !left.is_empty() {
        let advice =
            "Nobody reads for them: start their consumers, or `milena group delete` those that are not needed.";
        findings.add(Level::Note, "groups", format!("without members, behind: {}", names(left)), advice);
    }
    if !slow.is_empty() {
        let advice = "Their consumers are too slow or stuck: `milena group describe GROUP` shows where.";
        findings.add(Level::Warning, "groups", format!("far behind: {}", names(slow)), advice);
    }
}

/// Partitions of a topic that have a leader.
fn led_partitions(topic: &TopicDescription) -> impl Iterator<Item = TopicPartition> + Clone {
    let led = topic.partitions.iter().filter(|partition| partition.leader.is_some());
    led.map(|partition| TopicPartition::new(topic.name.as_str(), partition.partition))
}

/// Whether a producer's transaction has been open for too long; one whose records have no time is not suspected.
fn hangs(producer: &ProducerState, now: i64) -> bool {
    let since = producer.last_timestamp;
    producer.transaction_start.is_some() && since >= 0 && now.saturating_sub(since) > LONG_MS
}

/// Records between what a group has committed and the ends of its partitions, where these can be had at once.
async fn lag(admin: &Admin, group: &GroupListing, led: &BTreeSet<TopicPartition>) -> Result<i64, Error> {
    let mut committed: BTreeMap<TopicPartition, i64> =
        admin.committed_offsets(&group.id).await?.into_iter().map(|(partition, it)| (partition, it.offset)).collect();
    committed.retain(|partition, _| led.contains(partition));
    let asked = committed.keys().map(|partition| (partition.clone(), OffsetSpec::Latest)).collect();
    let ends = admin.list_offsets(asked).await.into_iter();
    let ends = ends.filter_map(|(partition, end)| Some((partition, end.ok()?.offset?)));
    Ok(ends.fold(0, |sum: i64, (partition, end)| sum.saturating_add(end.saturating_sub(committed[&partition]).max(0))))
}

#[cfg(test)]
mod tests {
    use milena_client::admin::PartitionDescription;

    use super::*;

    fn topic(name: &str, leader: Option<i32>, in_sync: &[i32]) -> TopicDescription {
        let partition = PartitionDescription {
            partition: 0,
            leader,
            leader_epoch: 0,
            replicas: vec![1, 2],
            in_sync: in_sync.to_vec(),
            offline: vec![],
            eligible_leaders: None,
            last_known_eligible: None,
        };
        TopicDescription { name: name.to_owned(), id: Default::default(), internal: false, partitions: vec![partition] }
    }

    #[test]
    fn partitions_without_leader_are_wrong_and_those_behind_a_warning() {
        let mut findings = Findings::default();
        partitions(&[topic("a", None, &[]), topic("b", Some(1), &[1]), topic("c", Some(1), &[1, 2])], &mut findings);
        let seen: Vec<_> = findings.all.iter().map(|finding| (finding.level, finding.what.as_str())).collect();
        let expected =
            [(Level::Wrong, "1 without a leader: a-0"), (Level::Warning, "1 with replicas that are not in sync: b-0")];
        assert_eq!(seen, expected);
    }

    #[test]
    fn an_internal_topic_that_needs_more_replicas_than_there_are_brokers_can_not_be_made() {
        let levels = |brokers, factors: &[usize]| {
            let mut findings = Findings::default();
            internal_topics(&[], brokers, factors, &mut findings);
            findings.all.iter().map(|finding| finding.level).collect::<Vec<_>>()
        };
        assert_eq!(levels(1, &[3, 1]), [Level::Wrong, Level::Good]);
        assert_eq!(levels(3, &[3, 3]), [Level::Good, Level::Good]);
        assert_eq!(levels(1, &[]), [Level::Good, Level::Good]);
    }

    #[tokio::test]
    async fn an_address_that_nobody_listens_on_is_wrong() {
        let broker = |host: &str, port| BrokerDescription { id: 1, host: host.into(), port, rack: None, fenced: false };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = i32::from(listener.local_addr().unwrap().port());
        let mut findings = Findings::default();
        assert_eq!(addresses(&[broker("127.0.0.1", port)], &mut findings).await, [1]);
        drop(listener);
        assert!(addresses(&[broker("127.0.0.1", port)], &mut findings).await.is_empty());
        assert!(addresses(&[broker("no\0name", 1)], &mut findings).await.is_empty());
        assert_eq!((findings.count(Level::Good), findings.count(Level::Wrong)), (1, 2));
    }

    #[test]
    fn a_transaction_without_times_is_not_taken_for_one_that_hangs() {
        let producer = |transaction_start, last_timestamp| ProducerState {
            id: 1,
            epoch: 0,
            coordinator_epoch: None,
            last_sequence: 0,
            last_timestamp,
            transaction_start,
        };
        let now = 10 * LONG_MS;
        assert!(hangs(&producer(Some(5), 0), now));
        assert!(!hangs(&producer(None, 0), now) && !hangs(&producer(Some(5), now), now));
        assert!(!hangs(&producer(Some(5), -1), now) && !hangs(&producer(Some(5), i64::MIN), now));
    }
}
