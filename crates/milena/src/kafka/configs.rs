//! kafka-configs, for topics, brokers, loggers, groups and client metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use milena_client::admin::{ConfigChange, ConfigEntry, ConfigResource, ConfigSource, ResourceType};
use milena_client::{Admin, Error};
use milena_config::properties;

use super::options::{Flag, Options};
use super::{Ended, Thrown, ask, end, java, read, refuse};
use crate::output::{print, print_error};

const ABOUT: &str = "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, \
                     client-metrics or group";

const FLAGS: &[Flag] = &[
    Flag::value("add-config", "Key Value pairs of configs to add. Square brackets group values which contain commas."),
    Flag::value("add-config-file", "Path to a properties file with configs to add."),
    Flag::switch("all", "List all configs for the given entity (includes static configuration)."),
    Flag::switch("alter", "Alter the configuration for the entity."),
    Flag::value("bootstrap-controller", "The Kafka controllers to connect to."),
    Flag::value("bootstrap-server", "The Kafka servers to connect to."),
    Flag::value("broker", "The broker's ID."),
    Flag::switch("broker-defaults", "The config defaults for all brokers."),
    Flag::value("broker-logger", "The broker's ID for its logger config."),
    Flag::value("client", "The client's ID."),
    Flag::switch("client-defaults", "The config defaults for all clients."),
    Flag::value("client-metrics", "The client metrics config resource name."),
    Flag::value("command-config", "Property file containing configs to be passed to Admin Client."),
    Flag::list("delete-config", "config keys to remove 'k1,k2'"),
    Flag::switch("describe", "List configs for the given entity."),
    Flag::switch("entity-default", "Default entity name for clients/users/brokers/ips."),
    Flag::value("entity-name", "Name of entity."),
    Flag::value("entity-type", "Type of entity: topics/clients/users/brokers/broker-loggers/ips/client-metrics/groups"),
    Flag::value("group", "The group's ID."),
    Flag::switch("help", "Print usage information."),
    Flag::value("ip", "The IP address."),
    Flag::switch("ip-defaults", "The config defaults for all IPs."),
    Flag::value("topic", "The topic's name."),
    Flag::value("user", "The user's principal name."),
    Flag::switch("user-defaults", "The config defaults for all users."),
    Flag::switch("version", "Display Kafka version."),
];

/// The types in the order in which a wrong one is answered.
const TYPES: [&str; 8] = ["broker-loggers", "topics", "clients", "users", "brokers", "ips", "client-metrics", "groups"];
/// Options that name a thing and its type.
const NAMED: [(&str, &str); 8] = [
    ("topic", "topics"),
    ("client", "clients"),
    ("user", "users"),
    ("broker", "brokers"),
    ("broker-logger", "broker-loggers"),
    ("ip", "ips"),
    ("client-metrics", "client-metrics"),
    ("group", "groups"),
];
/// Options that stand for the defaults of a type.
const DEFAULTS: [(&str, &str); 4] = [
    ("client-defaults", "clients"),
    ("user-defaults", "users"),
    ("broker-defaults", "brokers"),
    ("ip-defaults", "ips"),
];

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    end(execute(arguments), FLAGS, |thrown| {
        let plain = [java::ILLEGAL_ARGUMENT, java::INVALID_CONFIG, java::UNSUPPORTED_VERSION];
        let is_plain = plain.contains(&thrown.class.as_ref()) || thrown.class.starts_with(java::OPTIONS);
        if is_plain && !thrown.of_future {
            print_error(&format!("{}\n", thrown.message));
        } else {
            let line = arguments.join(" ");
            let (_, text) = thrown.caught();
            print_error(&format!("Error while executing config command with args '{line}'\n{text}\n"));
        }
        1
    })
}

/// What to look at: types, and names, where an empty one stands for the defaults.
struct Entity {
    types: Vec<String>,
    names: Vec<String>,
}

impl Entity {
    fn new(options: &Options) -> Result<Self, Ended> {
        let flags = || NAMED.iter().chain(&DEFAULTS).filter(|(flag, _)| options.has(flag));
        let mut types: Vec<String> = options.values("entity-type").into_iter().map(str::to_owned).collect();
        types.extend(flags().map(|(_, kind)| (*kind).to_owned()));
        let mut given = options.values("entity-name").into_iter();
        let in_order = options.names().filter(|name| ["entity-name", "entity-default"].contains(name));
        let mut names: Vec<String> = in_order
            .map(|name| if name == "entity-name" { given.next().unwrap_or_default().to_owned() } else { String::new() })
            .collect();
        for (flag, _) in NAMED.iter().filter(|(flag, _)| options.has(flag)) {
            names.push(options.value(flag)?.unwrap_or_default().to_owned());
        }
        names.extend(DEFAULTS.iter().filter(|(flag, _)| options.has(flag)).map(|_| String::new()));
        Ok(Self { types, names })
    }

    fn kind(&self) -> &str {
        self.types.first().map_or("", String::as_str)
    }

    /// Without the `s` at its end.
    fn singular(&self) -> &str {
        let kind = self.kind();
        &kind[..kind.len().saturating_sub(1)]
    }

    fn resource_type(&self) -> Result<ResourceType, Thrown> {
        Ok(match self.kind() {
            "topics" => ResourceType::Topic,
            "brokers" => ResourceType::Broker,
            "broker-loggers" => ResourceType::BrokerLogger,
            "client-metrics" => ResourceType::ClientMetrics,
            "groups" => ResourceType::Group,
            other => {
                let message = format!("The configurations of {other} are not among those that this tool knows");
                return Err(Thrown::new(java::UNSUPPORTED_VERSION, message));
            }
        })
    }
}

fn execute(arguments: &[String]) -> Result<(), Ended> {
    let options = read(FLAGS, ABOUT, arguments)?;
    let entity = check(&options)?;
    let kind = entity.resource_type()?;
    if options.has("describe") {
        return ask(&options, async |admin| describe(admin, &options, &entity, kind).await);
    }
    if entity.types.len() != entity.names.len() {
        return Err(Thrown::argument("An entity name must be specified for every entity type").into());
    }
    let added = added(&options)?;
    ask(&options, async |admin| alter(admin, &options, &entity, kind, added).await)
}

fn check(options: &Options) -> Result<Entity, Ended> {
    if ["alter", "describe"].iter().filter(|action| options.has(action)).count() != 1 {
        return Err(Ended::Usage("Command must include exactly one action: --describe, --alter".to_owned()));
    }
    refuse(options, "describe", &["alter", "add-config", "delete-config"])?;
    let entity = Entity::new(options)?;
    let argument = |message: String| Err(Thrown::argument(message).into());
    let mut seen = BTreeSet::new();
    let twice: Vec<&str> = entity.types.iter().filter(|kind| !seen.insert(*kind)).map(String::as_str).collect();
    if !twice.is_empty() {
        return argument(format!("Duplicate entity type(s) specified: {}", twice.join(",")));
    }
    match (options.has("bootstrap-server"), options.has("bootstrap-controller")) {
        (true, true) => {
            return argument("Only one of --bootstrap-server or --bootstrap-controller can be specified".to_owned());
        }
        (false, false) => {
            return argument("Either --bootstrap-server or --bootstrap-controller must be specified.".to_owned());
        }
        _ => {}
    }
    if let Some(wrong) = entity.types.iter().find(|kind| !TYPES.contains(&kind.as_str())) {
        return argument(format!(
            "Invalid entity type {wrong}, the entity type must be one of {} with a --bootstrap-server or \
             --bootstrap-controller argument",
            TYPES.join(", ")
        ));
    }
    match &entity.types[..] {
        [] => return argument("At least one entity type must be specified".to_owned()),
        [_] => {}
        [one, other] if BTreeSet::from([one.as_str(), other]) == BTreeSet::from(["users", "clients"]) => {}
        _ => return argument("Only 'users' and 'clients' entity types may be specified together".to_owned()),
    }
    let by_type = ["entity-name", "entity-type", "entity-default"].iter().any(|option| options.has(option));
    if by_type && NAMED.iter().chain(&DEFAULTS).any(|(flag, _)| options.has(flag)) {
        let message = "--entity-{type,name,default} should not be used in conjunction with specific entity flags";
        return argument(message.to_owned());
    }
    check_names(options, &entity)?;
    Ok(entity)
}

fn check_names(options: &Options, entity: &Entity) -> Result<(), Ended> {
    let argument = |message: String| Err(Thrown::argument(message).into());
    let kind = entity.kind();
    let named = entity.names.iter().find(|name| !name.is_empty());
    let defaults = entity.names.iter().any(String::is_empty);
    if let Some(name) = named
        && ["brokers", "broker-loggers"].contains(&kind)
        && name.parse::<i32>().is_err()
    {
        return argument(format!("The entity name for {kind} must be a valid integer broker id, but it is: {name}"));
    }
    let has_defaults = ["users", "clients", "brokers", "ips"].contains(&kind);
    let types = entity.types.join(",");
    if options.has("describe") {
        if options.has("entity-default") && !has_defaults {
            return argument(format!("--entity-default must not be specified with --describe of {types}"));
        }
        if kind == "broker-loggers" && named.is_none() {
            return argument(format!("An entity name must be specified with --describe of {types}"));
        }
        return Ok(());
    }
    if has_defaults && named.is_none() && !defaults {
        let message =
            "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips";
        return argument(message.to_owned());
    }
    if !has_defaults && named.is_none() {
        return argument(format!("An entity name must be specified with --alter of {types}"));
    }
    match (options.has("add-config"), options.has("add-config-file"), options.has("delete-config")) {
        (true, true, _) => argument("Only one of --add-config or --add-config-file must be specified".to_owned()),
        (false, false, false) => argument(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

/// The values to be set, by name.
fn added(options: &Options) -> Result<BTreeMap<String, String>, Ended> {
    let mut added = BTreeMap::new();
    if let Some(path) = options.value("add-config-file")? {
        let text = std::fs::read_to_string(path).map_err(|_| Thrown::new(java::NO_SUCH_FILE, path))?;
        let properties = properties::parse(&text).map_err(|error| Thrown::argument(error.to_string()))?;
        added.extend(properties.into_iter().map(|property| (property.name, property.value)));
    }
    if let Some(text) = options.value("add-config")? {
        added.extend(pairs(text)?);
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "$._-".contains(c);
    match added.keys().find(|key| !key.chars().all(fits)) {
        Some(key) => Err(Thrown::argument(format!("Invalid character found for config key: {key}")).into()),
        None => Ok(added),
    }
}

/// `a=1,b=[2,3]`: commas within brackets are part of a value.
fn pairs(text: &str) -> Result<Vec<(String, String)>, Thrown> {
    let mut pairs = vec![String::new()];
    let mut inside = false;
    for c in text.chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            ',' if !inside => pairs.push(String::new()),
            c => {
                // An equals sign within brackets does not part a name from its value.
                let c = if inside && c == '=' { '\0' } else { c };
                pairs.last_mut().expect("there is always one").push(c);
            }
        }
    }
    let pair = |text: &String| match text.split('=').collect::<Vec<_>>()[..] {
        [name, value] => Some((name.trim().to_owned(), value.trim().replace('\0', "="))),
        _ => None,
    };
    pairs.iter().map(pair).collect::<Option<Vec<_>>>().ok_or_else(|| {
        Thrown::argument(
            "Invalid entity config: all configs to be added must be in the format \"key=val\" or  \"key=[val1,val2]\" to \
             group values which contain commas.",
        )
    })
}

async fn entries(admin: &Admin, kind: ResourceType, name: &str, all: bool) -> Result<Vec<ConfigEntry>, Ended> {
    let resource = ConfigResource { kind, name: name.to_owned() };
    let mut entries = Vec::new();
    for (_, described) in admin.describe_configs(vec![resource], true).await? {
        entries.extend(described?);
    }
    let own = match (kind, name.is_empty()) {
        (ResourceType::Topic, _) => Some(ConfigSource::DynamicTopic),
        (ResourceType::Broker, true) => Some(ConfigSource::DynamicDefaultBroker),
        (ResourceType::Broker, false) => Some(ConfigSource::DynamicBroker),
        (ResourceType::BrokerLogger, _) => None,
        (ResourceType::ClientMetrics, _) => Some(ConfigSource::ClientMetrics),
        (ResourceType::Group, _) => Some(ConfigSource::Group),
    };
    entries.retain(|entry| all || own.is_none_or(|own| entry.source == own));
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// Names of one type that exist, in order.
async fn names(admin: &Admin, kind: ResourceType) -> Result<BTreeSet<String>, Ended> {
    let resources = async |kind| {
        let found = admin.list_config_resources(kind).await;
        found.map(|found| found.into_iter().map(|resource| resource.name))
    };
    Ok(match kind {
        ResourceType::Topic => admin.list_topics().await?.into_iter().map(|topic| topic.name).collect(),
        ResourceType::Broker | ResourceType::BrokerLogger => {
            admin.describe_cluster().await?.brokers.iter().map(|broker| broker.id.to_string()).collect()
        }
        ResourceType::ClientMetrics => resources(kind).await?.collect(),
        ResourceType::Group => {
            let mut names: BTreeSet<String> =
                admin.list_groups(&[], &[]).await?.into_iter().map(|group| group.id).collect();
            match resources(kind).await {
                Err(Error::UnsupportedVersion { .. }) => {}
                found => names.extend(found?),
            }
            names
        }
    })
}

async fn describe(admin: &Admin, options: &Options, entity: &Entity, kind: ResourceType) -> Result<(), Ended> {
    let all = options.has("all");
    let asked = match entity.names.first() {
        Some(name) => {
            if !all && !name.is_empty() && !names(admin, kind).await?.contains(name) {
                let singular = entity.singular();
                print(&format!("The {singular} '{name}' doesn't exist and doesn't have dynamic config.\n"));
                return Ok(());
            }
            vec![name.clone()]
        }
        None => {
            let mut names: Vec<String> = names(admin, kind).await?.into_iter().collect();
            if matches!(kind, ResourceType::Broker | ResourceType::BrokerLogger) {
                names.push(String::new());
            }
            names
        }
    };
    for name in asked {
        let text = if name.is_empty() {
            format!("Default configs for {} in the cluster are:\n", entity.kind())
        } else {
            let which = if all { "All" } else { "Dynamic" };
            format!("{which} configs for {} {name} are:\n", entity.singular())
        };
        let lines: String = entries(admin, kind, &name, all).await?.iter().map(line).collect();
        print(&(text + &lines));
    }
    Ok(())
}

fn line(entry: &ConfigEntry) -> String {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "null".to_owned());
    let synonyms: Vec<String> = entry
        .synonyms
        .iter()
        .map(|synonym| format!("{}:{}={}", synonym.source.name(), synonym.name, value(&synonym.value)))
        .collect();
    format!(
        "  {}={} sensitive={} synonyms={{{}}}\n",
        entry.name,
        value(&entry.value),
        entry.sensitive,
        synonyms.join(", ")
    )
}

async fn alter(
    admin: &Admin,
    options: &Options,
    entity: &Entity,
    kind: ResourceType,
    added: BTreeMap<String, String>,
) -> Result<(), Ended> {
    let name = entity.names.first().cloned().unwrap_or_default();
    let deleted: Vec<&str> = options.values("delete-config").into_iter().map(str::trim).collect();
    let existing: BTreeSet<String> = entries(admin, kind, &name, true).await?.into_iter().map(|e| e.name).collect();
    let is_logger = kind == ResourceType::BrokerLogger;
    let mut wrong: Vec<&str> = deleted.iter().copied().filter(|name| !existing.contains(*name)).collect();
    if is_logger {
        wrong.extend(added.keys().map(String::as_str).filter(|name| !existing.contains(*name)));
    }
    if !wrong.is_empty() {
        let what = if is_logger { "broker logger" } else { "config" };
        return Err(Thrown::new(java::INVALID_CONFIG, format!("Invalid {what}(s): {}", wrong.join(","))).into());
    }
    let deleted = deleted.into_iter().map(|name| ConfigChange::Delete(name.to_owned()));
    let changes = deleted.chain(added.into_iter().map(|(name, value)| ConfigChange::Set(name, value))).collect();
    let resource = ConfigResource { kind, name: name.clone() };
    for (_, changed) in admin.alter_configs(vec![(resource, changes)], false).await? {
        changed?;
    }
    if name.is_empty() {
        print(&format!("Completed updating default config for {} in the cluster.\n", entity.kind()));
    } else {
        print(&format!("Completed updating config for {} {name}.\n", entity.singular()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use milena_client::admin::{ConfigSynonym, ConfigType};

    use super::*;

    #[test]
    fn brackets_keep_commas_together() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(pairs("a = 1,b=[2,3],c="), Ok(vec![pair("a", "1"), pair("b", "2,3"), pair("c", "")]));
        assert_eq!(pairs("a=[b=1,c=2]"), Ok(vec![pair("a", "b=1,c=2")]));
        assert!(pairs("a").unwrap_err().message.starts_with("Invalid entity config: "));
        assert!(pairs("a=1=2").is_err());
    }

    #[test]
    fn an_entry_tells_where_its_value_comes_from() {
        let entry = ConfigEntry {
            name: "cleanup.policy".into(),
            value: Some("delete".into()),
            source: ConfigSource::Default,
            read_only: false,
            sensitive: false,
            kind: ConfigType::List,
            synonyms: vec![ConfigSynonym {
                name: "log.cleanup.policy".into(),
                value: Some("delete".into()),
                source: ConfigSource::Default,
            }],
        };
        let expected = "  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}\n";
        assert_eq!(line(&entry), expected);
    }

    #[test]
    fn a_thing_is_named_by_its_own_option_or_by_its_type() {
        let check = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let entity = Options::parse(FLAGS, &words).map_err(Ended::from).and_then(|options| check(&options));
            entity.map(|entity| (entity.types, entity.names)).map_err(|ended| match ended {
                Ended::Thrown(thrown) => thrown.message,
                other => format!("{other:?}"),
            })
        };
        let here = "--bootstrap-server a --describe";
        let expected = Ok((vec!["topics".to_owned()], vec!["t".to_owned()]));
        assert_eq!(check(&format!("{here} --topic t")), expected);
        assert_eq!(check(&format!("{here} --entity-type topics --entity-name t")), expected);
        let defaults = Ok((vec!["brokers".to_owned()], vec![String::new()]));
        assert_eq!(check(&format!("{here} --broker-defaults")), defaults);
        assert_eq!(check(&format!("{here} --entity-type brokers --entity-default")), defaults);
        assert_eq!(check(here), Err("At least one entity type must be specified".to_owned()));
        let expected = "The entity name for brokers must be a valid integer broker id, but it is: x";
        assert_eq!(check(&format!("{here} --broker x")), Err(expected.to_owned()));
    }
}
