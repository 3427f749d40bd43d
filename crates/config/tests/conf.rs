//! What starts without a file, what an error says about its place, quotas, and who wins among the layers.

use std::path::Path;

use milena_config::broker::DynamicConfig;
use milena_config::describe::{self, Options};
use milena_config::{BrokerConfig, Overrides, Settings, TopicConfig, quota, topic};

fn own_start() -> BrokerConfig {
    BrokerConfig::load(&Settings::new()).unwrap()
}

fn overrides(pairs: &[(&str, &str)]) -> Overrides {
    pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn without_settings_the_node_is_a_closed_quorum_of_one() {
    let config = own_start();
    assert_eq!(config.node_id(), 1);
    assert!(config.is_broker() && config.is_controller() && config.is_closed_quorum_of_one());
    assert_eq!(config.log_dirs(), ["./milena-data"]);
    let listeners: Vec<String> =
        config.listeners().iter().map(|l| format!("{}://{}:{}", l.name, l.host, l.port)).collect();
    assert_eq!(listeners, ["PLAINTEXT://localhost:9092"]);
}

#[test]
fn flags_change_directory_and_listener_of_the_own_start() {
    let mut settings = Settings::new();
    settings.data_dir_flag("/d");
    settings.listen_flag("127.0.0.1:1234").unwrap();
    let config = BrokerConfig::load(&settings).unwrap();
    assert_eq!((config.log_dirs()[0].as_str(), config.metadata_log_dir()), ("/d", "/d"));
    assert_eq!((config.listeners()[0].host.as_str(), config.listeners()[0].port), ("127.0.0.1", 1234));
    assert_eq!(config.advertised_listeners(), config.listeners());
}

/// Names and addresses of the listeners of a node that a file, `--listen` and `--override` configure.
fn listeners(file: &str, listen: &str, flags: &[&str]) -> Vec<String> {
    let mut settings = Settings::new();
    let rest = "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=c:9093\n";
    settings.file(Path::new("s.properties"), &format!("{rest}controller.listener.names=CONTROLLER\n{file}")).unwrap();
    settings.listen_flag(listen).unwrap();
    flags.iter().for_each(|flag| settings.override_flag(flag).unwrap());
    let config = BrokerConfig::load(&settings).unwrap();
    config.listeners().iter().map(|l| format!("{}://{}:{}", l.name, l.host, l.port)).collect()
}

#[test]
fn a_listen_flag_leaves_the_controllers_their_listeners() {
    let file = "listeners=PLAINTEXT://:9092,CONTROLLER://:9093";
    assert_eq!(listeners(file, "a:1", &[]), ["PLAINTEXT://a:1", "CONTROLLER://:9093"]);
    assert_eq!(listeners(file, "PLAINTEXT://a:1,CONTROLLER://a:2", &[]), ["PLAINTEXT://a:1", "CONTROLLER://a:2"]);
    let moved = ["controller.listener.names=C", "listener.security.protocol.map=C:PLAINTEXT,PLAINTEXT:PLAINTEXT"];
    let flags = [&moved[..], &["listeners=PLAINTEXT://:9,C://b:4"]].concat();
    assert_eq!(listeners(file, "a:1", &flags), ["PLAINTEXT://a:1", "C://b:4"]);
    // The only other one keeps its name, which further settings may use.
    let named = "listeners=OUTSIDE://:9092,CONTROLLER://:9093\ninter.broker.listener.name=OUTSIDE\n\
                 listener.security.protocol.map=OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT";
    assert_eq!(listeners(named, "a:1", &[]), ["OUTSIDE://a:1", "CONTROLLER://:9093"]);
}

#[test]
fn an_address_that_nobody_can_reach_is_refused_with_what_to_do() {
    let mut settings = Settings::new();
    settings.listen_flag("0.0.0.0:9092").unwrap();
    let errors = BrokerConfig::load(&settings).unwrap_err();
    let text = errors[0].to_string();
    let (what, advice) = text.split_once('\n').expect("advice");
    assert_eq!(
        what,
        "requirement failed: advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP \
         address. (--listen 0.0.0.0:9092)"
    );
    assert!(advice.contains("advertised.listeners is not set"), "{advice}");
    settings.listen_flag(":9092").unwrap();
    assert_eq!(BrokerConfig::load(&settings).unwrap().advertised_listeners()[0].host, "");
}

#[test]
fn every_bad_value_is_reported_with_its_place() {
    let mut settings = Settings::new();
    settings.file(Path::new("s.properties"), "process.roles=broker\n\nnum.partitions=0\nlog.roll.hours=x").unwrap();
    settings.environment([("KAFKA_LOG_RETENTION_MS".into(), "abc".into())]);
    let errors = BrokerConfig::load(&settings).unwrap_err();
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "Missing required configuration \"controller.listener.names\" which has no default value.",
            "Invalid value abc for configuration log.retention.ms: Not a number of type LONG (environment variable \
             KAFKA_LOG_RETENTION_MS)",
            "Invalid value x for configuration log.roll.hours: Not a number of type INT (s.properties, line 4)",
            "Missing required configuration \"node.id\" which has no default value.",
            "Invalid value 0 for configuration num.partitions: Value must be at least 1 (s.properties, line 3)",
        ]
    );
}

#[test]
fn dynamic_values_win_over_static_ones_and_invalid_ones_are_ignored() {
    let mut settings = Settings::new();
    settings.override_flag("message.max.bytes=2000").unwrap();
    settings.override_flag("log.retention.hours=1").unwrap();
    let config = BrokerConfig::load(&settings).unwrap();
    assert_eq!((config.message_max_bytes(), config.log_retention_ms()), (2000, 3_600_000));
    let dynamic = DynamicConfig {
        default: overrides(&[("message.max.bytes", "3000"), ("log.retention.ms", "5")]),
        broker: overrides(&[("message.max.bytes", "4000"), ("num.io.threads", "none")]),
    };
    let (config, ignored) = config.with_dynamic(dynamic);
    assert_eq!((config.message_max_bytes(), config.log_retention_ms(), config.num_io_threads()), (4000, 5, 8));
    assert_eq!(ignored.len(), 1);
    let topic = TopicConfig::new(&config, &overrides(&[("max.message.bytes", "1"), ("segment.bytes", "x")]));
    assert_eq!((topic.max_message_bytes, topic.retention_ms, topic.segment_bytes), (1, 5, 1 << 30));
}

#[test]
fn a_listener_may_have_its_own_value() {
    let mut settings = Settings::new();
    settings.override_flag("listener.name.plaintext.max.connections=7").unwrap();
    let config = BrokerConfig::load(&settings).unwrap();
    let limit = |listener: &str| config.for_listener(listener, "max.connections").integer();
    assert_eq!((limit("PLAINTEXT"), limit("OTHER")), (Some(7), Some(i64::from(i32::MAX))));
}

#[test]
fn keys_filter_and_documentation_come_when_asked() {
    let keys = ["retention.ms", "no.such.key"].into();
    let options = Options { keys: Some(&keys), documentation: true, ..Options::default() };
    let entries = describe::topic(&own_start(), &Overrides::new(), options);
    assert_eq!(entries.len(), 1);
    assert!(entries[0].synonyms.is_empty() && entries[0].documentation.as_ref().is_some_and(|d| !d.is_empty()));
    let none = [].into();
    let all = Options { keys: Some(&none), ..Options::default() };
    assert_eq!(describe::topic(&own_start(), &Overrides::new(), all).len(), 37);
}

#[test]
fn loggers_are_described_with_their_levels() {
    let entries = describe::loggers([("root", "INFO")], Options::default());
    let entry = &entries[0];
    assert_eq!(
        (entry.name.as_str(), entry.value.as_deref(), entry.source.code(), entry.kind),
        ("root", Some("INFO"), 6, 0)
    );
}

#[test]
fn remote_storage_rules_hold_between_values() {
    let mut settings = Settings::new();
    settings.override_flag("remote.log.storage.system.enable=true").unwrap();
    let config = BrokerConfig::load(&settings).unwrap();
    for line in include_str!("data/remote_storage.tsv").lines() {
        let (new, rest) = line.split_once('\t').unwrap();
        let (existing, expected) = rest.split_once('\t').unwrap();
        let parse = |text: &str| -> Overrides {
            text.split('|').filter_map(|p| p.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
        };
        let got =
            topic::validate(&config, &parse(new), &parse(existing)).map_or_else(|e| e.to_string(), |()| "ok".into());
        assert_eq!(got, expected, "{new}");
    }
}

#[test]
fn quotas_are_checked_by_entity_key_and_value() {
    let check = |entity: &[(&str, Option<&str>)], key: &str, value: f64| {
        quota::validate(entity, key, Some(value)).map_or_else(|e| e.to_string(), |()| "ok".to_owned())
    };
    let user = [("user", Some("u"))];
    let ip = [("ip", Some("1.2.3.4"))];
    assert_eq!(check(&user, "producer_byte_rate", 0.0), "Quota producer_byte_rate must be greater than 0");
    assert_eq!(check(&user, "producer_byte_rate", 1.5), "producer_byte_rate cannot be a fractional value.");
    assert_eq!(check(&user, "request_percentage", 0.5), "ok");
    assert_eq!(check(&user, "controller_mutation_rate", 0.5), "ok");
    assert_eq!(check(&user, "foo", 1.0), "Invalid configuration key foo");
    assert_eq!(check(&ip, "connection_creation_rate", 1.0), "ok");
    assert_eq!(check(&ip, "producer_byte_rate", 1.0), "Invalid configuration key producer_byte_rate");
    assert_eq!(
        check(&[("user", Some("u")), ("ip", Some("1.2.3.4"))], "connection_creation_rate", 1.0),
        "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
    );
    assert_eq!(
        check(&[("client-id", Some("c"))], "connection_creation_rate", 1.0),
        "Invalid configuration key connection_creation_rate"
    );
    assert_eq!(check(&[("foo", Some("c"))], "producer_byte_rate", 1.0), "Unhandled client quota entity type: foo");
    assert_eq!(check(&[("client-id", None), ("user", None)], "consumer_byte_rate", 10.0), "ok");
    assert_eq!(check(&[("user", Some(""))], "consumer_byte_rate", 10.0), "Empty user not supported");
}

#[test]
fn what_is_wrong_with_the_nodes_id_is_said_once_and_of_the_name_that_was_used() {
    for name in ["node.id", "broker.id"] {
        let mut settings = Settings::new();
        settings.override_flag(&format!("{name}=x")).unwrap();
        let errors = BrokerConfig::load(&settings).unwrap_err();
        let names: Vec<&str> = errors.iter().map(|error| error.error.name()).collect();
        assert_eq!(names, [name]);
    }
}

#[test]
fn without_a_file_a_listener_that_is_not_served_is_said_to_be_that() {
    let mut settings = Settings::new();
    settings.override_flag("listeners=SSL://localhost:1").unwrap();
    let error = BrokerConfig::load(&settings).unwrap_err().remove(0).error.to_string();
    assert_eq!(error, "listener SSL wants SSL: TLS and SASL are not served, only PLAINTEXT");
}

#[test]
fn replication_factors_above_the_number_of_brokers_are_told() {
    let config = BrokerConfig::load(&Settings::new()).unwrap();
    assert_eq!(config.unreachable_replicas(1), []);
    let mut settings = Settings::new();
    settings.override_flag("offsets.topic.replication.factor=3").unwrap();
    let config = BrokerConfig::load(&settings).unwrap();
    let told: Vec<String> = config.unreachable_replicas(1).iter().map(ToString::to_string).collect();
    let expected = "offsets.topic.replication.factor is 3, and there is 1 broker: __consumer_offsets can't be made, and no \
                    group works without it";
    assert_eq!(told, [expected]);
    assert_eq!(config.unreachable_replicas(3), []);
}
