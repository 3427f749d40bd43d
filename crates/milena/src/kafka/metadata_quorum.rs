//! kafka-metadata-quorum.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use milena_client::Admin;
use milena_client::admin::{QuorumDescription, QuorumReplica, VoterEndpoint};
use milena_config::properties;
use milena_protocol::Uuid;

use super::argparse::{self, Command};
use super::options::{Flag, Options};
use super::table::table;
use super::{Ended, Thrown, ask, java, now_ms};
use crate::output::{print, print_error};

const COMMON: &[Flag] = &[
    Flag::value("bootstrap-controller", "A comma-separated list of host:port pairs of the KRaft controllers."),
    Flag::value("bootstrap-server", "A comma-separated list of host:port pairs to connect to."),
    Flag::value(
        "command-config",
        "Property file containing configs to be passed to Admin Client. For add-controller, the file is used to specify \
         the controller properties as well.",
    ),
    Flag::switch("help", "show this help message and exit").short("h"),
];

const HELP: Flag = Flag::switch("help", "show this help message and exit").short("h");
const DRY_RUN: Flag = Flag::switch("dry-run", "True if we should print what would be done, but not do it.");

const COMMANDS: &[Command] = &[
    Command {
        name: "describe",
        help: "Describe the metadata quorum info",
        flags: &[
            HELP,
            Flag::switch("status", "A short summary of the quorum status."),
            Flag::switch("replication", "Detailed information about the status of replication"),
            Flag::switch("human-readable", "Human-readable output"),
        ],
        required: &[],
    },
    Command {
        name: "add-controller",
        help: "Add a controller to the KRaft controller cluster",
        flags: &[HELP, DRY_RUN],
        required: &[],
    },
    Command {
        name: "remove-controller",
        help: "Remove a controller from the KRaft controller cluster",
        flags: &[
            HELP,
            Flag::value("controller-id", "The id of the controller to remove.").short("i"),
            Flag::value("controller-directory-id", "The directory ID of the controller to remove.").short("d"),
            DRY_RUN,
        ],
        required: &["controller-id", "controller-directory-id"],
    },
];

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    argparse::run("kafka-metadata-quorum", COMMON, COMMANDS, arguments, execute, |thrown| {
        print_error(&format!("{}\n", thrown.caught().0));
    })
}

/// What ends the tool with nothing but its message.
fn terse(message: impl Into<String>) -> Ended {
    Thrown::argument(message).into()
}

fn execute(command: &str, options: &Options) -> Result<(), Ended> {
    let names = ["--bootstrap-server", "--bootstrap-controller"];
    argparse::check_bootstrap(options, names).map_err(Ended::Usage)?;
    match command {
        "describe" => describe(options),
        "add-controller" => add(options),
        _ => remove(options),
    }
}

fn describe(options: &Options) -> Result<(), Ended> {
    let (status, replication) = (options.has("status"), options.has("replication"));
    let human = options.has("human-readable");
    match (status, replication) {
        (true, true) => {
            Err(terse("Only one of --status or --replication should be specified with describe sub-command"))
        }
        (false, false) => Err(terse("One of --status or --replication must be specified with describe sub-command")),
        (true, false) if human => Err(terse("The option --human-readable is only supported along with --replication")),
        (true, false) => ask(options, async |admin| {
            let id = admin.describe_cluster().await?.id;
            print(&summary(&id, &admin.describe_quorum().await?)?);
            Ok(())
        }),
        (false, true) => ask(options, async |admin| {
            print(&replicas(&admin.describe_quorum().await?, human)?);
            Ok(())
        }),
    }
}

/// The leader's own state.
fn leader(quorum: &QuorumDescription) -> Result<&QuorumReplica, Thrown> {
    let found = quorum.voters.iter().find(|voter| voter.id == quorum.leader);
    found.ok_or_else(|| Thrown::new("java.util.NoSuchElementException", "No value present"))
}

fn summary(cluster_id: &str, quorum: &QuorumDescription) -> Result<String, Thrown> {
    let leader = leader(quorum)?;
    let slowest = quorum.voters.iter().min_by_key(|voter| voter.log_end_offset).unwrap_or(leader);
    let lag_ms = match (leader.last_caught_up, slowest.last_caught_up) {
        _ if slowest == leader => 0,
        (Some(leader), Some(slowest)) => leader.saturating_sub(slowest),
        _ => -1,
    };
    Ok(format!(
        "ClusterId:              {cluster_id}\nLeaderId:               {}\nLeaderEpoch:            {}\n\
         HighWatermark:          {}\nMaxFollowerLag:         {}\nMaxFollowerLagTimeMs:   {lag_ms}\n\
         CurrentVoters:          {}\nCurrentObservers:       {}\n",
        quorum.leader,
        quorum.leader_epoch,
        quorum.high_watermark,
        leader.log_end_offset.saturating_sub(slowest.log_end_offset),
        nodes(quorum, &quorum.voters),
        nodes(quorum, &quorum.observers),
    ))
}

/// As a list of objects in JSON; what is not known is left out.
fn nodes(quorum: &QuorumDescription, replicas: &[QuorumReplica]) -> String {
    let node = |replica: &QuorumReplica| {
        let mut text = format!("{{\"id\": {}", replica.id);
        if !replica.directory_id.is_zero() {
            text += &format!(", \"directoryId\": \"{}\"", replica.directory_id);
        }
        let endpoints = quorum.endpoints.get(&replica.id).map(Vec::as_slice).unwrap_or_default();
        if !endpoints.is_empty() {
            let endpoints: Vec<String> = endpoints.iter().map(|endpoint| format!("\"{}\"", shown(endpoint))).collect();
            text += &format!(", \"endpoints\": [{}]", endpoints.join(", "));
        }
        text + "}"
    };
    format!("[{}]", replicas.iter().map(node).collect::<Vec<_>>().join(", "))
}

/// `CONTROLLER://host:9093`.
fn shown(endpoint: &VoterEndpoint) -> String {
    let host = if endpoint.host.contains(':') { format!("[{}]", endpoint.host) } else { endpoint.host.clone() };
    format!("{}://{host}:{}", endpoint.listener, endpoint.port)
}

fn replicas(quorum: &QuorumDescription, human: bool) -> Result<String, Thrown> {
    let leader = leader(quorum)?;
    let time = |timestamp: Option<i64>, what: &str| match timestamp {
        None => Ok("-1".to_owned()),
        Some(timestamp) if human => ago(timestamp, now_ms(), what),
        Some(timestamp) => Ok(timestamp.to_string()),
    };
    let row = |replica: &QuorumReplica, status: &str| {
        Ok(vec![
            replica.id.to_string(),
            replica.directory_id.to_string(),
            replica.log_end_offset.to_string(),
            leader.log_end_offset.saturating_sub(replica.log_end_offset).to_string(),
            time(replica.last_fetch, "last fetch")?,
            time(replica.last_caught_up, "last caught up")?,
            status.to_owned(),
        ])
    };
    let followers = quorum.voters.iter().filter(|voter| voter.id != leader.id).map(|voter| row(voter, "Follower"));
    let observers = quorum.observers.iter().map(|observer| row(observer, "Observer"));
    let rows = [row(leader, "Leader")].into_iter().chain(followers).chain(observers);
    const HEADERS: [&str; 7] =
        ["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"];
    Ok(table(&HEADERS, rows.collect::<Result<_, Thrown>>()?))
}

fn ago(timestamp: i64, now: i64, what: &str) -> Result<String, Thrown> {
    if timestamp > 0 && timestamp <= now {
        return Ok(format!("{} ms ago", now - timestamp));
    }
    let message = format!(
        "Error while computing relative time, possible drift in system clock.\nCurrent timestamp is {now}, {what} \
         timestamp is {timestamp}"
    );
    Err(Thrown::new(java::KAFKA_EXCEPTION, message))
}

/// A controller as its own configuration describes it.
struct Controller {
    id: i32,
    directory_id: Uuid,
    endpoints: Vec<VoterEndpoint>,
}

fn add(options: &Options) -> Result<(), Ended> {
    let Some(file) = options.value("command-config")? else {
        return Err(terse(
            "You must supply the configuration file of the controller you are adding when using add-controller.",
        ));
    };
    let controller = Controller::read(Path::new(file)).map_err(terse)?;
    let Controller { id, directory_id, endpoints } = &controller;
    let done = if options.has("dry-run") {
        "DRY RUN of adding"
    } else {
        ask(options, async |admin: &Admin| Ok(admin.add_raft_voter(*id, *directory_id, endpoints).await?))?;
        "Added"
    };
    let endpoints = endpoints.iter().map(shown).collect::<Vec<_>>().join(", ");
    print(&format!("{done} controller {id} with directory id {directory_id} and endpoints: {endpoints}\n"));
    Ok(())
}

impl Controller {
    fn read(file: &Path) -> Result<Self, String> {
        let missing = || format!("Properties file {} does not exist.", file.display());
        let text = std::fs::read_to_string(file).map_err(|_| missing())?;
        let pairs = properties::parse(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let pairs: BTreeMap<String, String> = pairs.into_iter().map(|pair| (pair.name, pair.value)).collect();
        let get = |name: &str| pairs.get(name).map(|value| value.trim());
        const HINT: &str = "Is this a valid controller configuration file?";
        let id = get("node.id").ok_or_else(|| format!("node.id not found in configuration file. {HINT}"))?;
        let id: i32 = id.parse().map_err(|_| format!("For input string: \"{id}\""))?;
        if id < 0 {
            return Err(format!("node.id was negative in configuration file. {HINT}"));
        }
        if !get("process.roles").unwrap_or_default().contains("controller") {
            return Err(format!("process.roles did not contain 'controller' in configuration file. {HINT}"));
        }
        let first = |dirs: &'_ str| dirs.split(',').next().unwrap_or_default().to_owned();
        let dir = get("metadata.log.dir").map(str::to_owned).or_else(|| get("log.dirs").map(first));
        let dir = dir.ok_or_else(|| format!("Neither metadata.log.dir nor log.dirs were found. {HINT}"))?;
        let directory_id = directory_id(&dir)?;
        let listeners = ["listeners", "advertised.listeners"].into_iter().filter_map(get).flat_map(endpoints);
        let listeners: BTreeMap<String, VoterEndpoint> =
            listeners.map(|endpoint| (endpoint.listener.clone(), endpoint)).collect();
        let names = get("controller.listener.names");
        let names = names.ok_or_else(|| format!("controller.listener.names was not found. {HINT}"))?;
        let named = names.split(',').map(|name| {
            let name = name.trim().to_uppercase();
            let found = listeners.get(&name).cloned();
            found.ok_or_else(|| format!("Cannot find information about controller listener name: {name}"))
        });
        Ok(Self { id, directory_id, endpoints: named.collect::<Result<_, _>>()? })
    }
}

fn directory_id(dir: &str) -> Result<Uuid, String> {
    let text = std::fs::read_to_string(Path::new(dir).join("meta.properties"));
    let pairs = text.ok().and_then(|text| properties::parse(&text).ok());
    let pairs = pairs.ok_or_else(|| format!("Unable to read meta.properties from {dir}"))?;
    let id = pairs.iter().find(|pair| pair.name == "directory.id").and_then(|pair| pair.value.parse().ok());
    id.ok_or_else(|| format!("No directory id found in {dir}"))
}

/// `NAME://host:port`, each; a host that is left out is this machine.
fn endpoints(text: &str) -> Vec<VoterEndpoint> {
    let endpoint = |text: &str| {
        let (listener, address) = text.trim().split_once("://")?;
        let (host, port) = address.rsplit_once(':')?;
        let host = host.trim_matches(['[', ']']);
        let host = if host.is_empty() { "localhost" } else { host };
        Some(VoterEndpoint { listener: listener.to_uppercase(), host: host.to_owned(), port: port.parse().ok()? })
    };
    text.split(',').filter_map(endpoint).collect()
}

fn remove(options: &Options) -> Result<(), Ended> {
    let id: i32 = options.number("controller-id")?.unwrap_or_default();
    if id < 0 {
        return Err(terse(format!("Invalid negative --controller-id: {id}")));
    }
    let text = options.value("controller-directory-id")?.unwrap_or_default();
    let directory_id: Uuid =
        text.parse().map_err(|error| terse(format!("Failed to parse --controller-directory-id: {error}")))?;
    let done = if options.has("dry-run") {
        "DRY RUN of removing "
    } else {
        ask(options, async |admin: &Admin| Ok(admin.remove_raft_voter(id, directory_id).await?))?;
        "Removed "
    };
    print(&format!("{done}KRaft controller {id} with directory id {directory_id}\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quorum() -> QuorumDescription {
        let replica = |id, log_end_offset, last_caught_up| QuorumReplica {
            id,
            directory_id: Uuid::ZERO,
            log_end_offset,
            last_fetch: last_caught_up,
            last_caught_up,
        };
        let endpoint = VoterEndpoint { listener: "C".to_owned(), host: "::1".to_owned(), port: 9093 };
        QuorumDescription {
            leader: 1,
            leader_epoch: 3,
            high_watermark: 20,
            voters: vec![replica(1, 21, Some(900)), replica(2, 15, Some(400))],
            observers: vec![replica(7, 9, None)],
            endpoints: BTreeMap::from([(1, vec![endpoint])]),
        }
    }

    #[test]
    fn the_summary_tells_how_far_behind_the_slowest_voter_is() {
        let expected = "ClusterId:              c\nLeaderId:               1\nLeaderEpoch:            3\n\
            HighWatermark:          20\nMaxFollowerLag:         6\nMaxFollowerLagTimeMs:   500\n\
            CurrentVoters:          [{\"id\": 1, \"endpoints\": [\"C://[::1]:9093\"]}, {\"id\": 2}]\n\
            CurrentObservers:       [{\"id\": 7}]\n";
        assert_eq!(summary("c", &quorum()), Ok(expected.to_owned()));
    }

    #[test]
    fn the_leader_is_the_first_of_the_replicas() {
        let text = replicas(&quorum(), false).unwrap();
        let statuses: Vec<&str> = text.lines().map(|line| line.trim_end().rsplit('\t').next().unwrap()).collect();
        assert_eq!(statuses, ["Status", "Leader", "Follower", "Observer"]);
        assert_eq!(ago(5, 7, "last fetch"), Ok("2 ms ago".to_owned()));
        assert!(ago(8, 7, "last fetch").is_err());
    }

    #[test]
    fn a_controllers_file_says_who_and_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.properties");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Controller::read(&file).map(|found| found.endpoints.iter().map(shown).collect::<Vec<_>>())
        };
        let hint = "Is this a valid controller configuration file?";
        assert_eq!(read("a=b"), Err(format!("node.id not found in configuration file. {hint}")));
        std::fs::write(dir.path().join("meta.properties"), "directory.id=AAAAAAAAAAAAAAAAAAAAAw\n").unwrap();
        let good = format!(
            "node.id=3\nprocess.roles=controller\nlog.dirs={}\nlisteners=CONTROLLER://:9093\ncontroller.listener.names=",
            dir.path().display()
        );
        assert_eq!(read(&format!("{good}CONTROLLER\n")), Ok(vec!["CONTROLLER://localhost:9093".to_owned()]));
        let none = "Cannot find information about controller listener name: OTHER";
        assert_eq!(read(&format!("{good}other\n")), Err(none.to_owned()));
    }
}
