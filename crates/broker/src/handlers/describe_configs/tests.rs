use milena_config::Settings;

use super::*;
use crate::test_image::{broker, image, topic, topic_config};

fn resource(kind: i8, name: &'static str, keys: &[&'static str]) -> DescribeConfigsResource<'static> {
    DescribeConfigsResource {
        resource_type: kind,
        resource_name: name.into(),
        configuration_keys: (!keys.is_empty()).then(|| keys.iter().map(|&key| key.into()).collect()),
    }
}

/// For each resource its error, then its entries as `name=value@source`.
fn ask(resources: Vec<DescribeConfigsResource<'static>>) -> Vec<String> {
    let image = image([broker(1, false)].into_iter().chain(topic("t", 1, &[&[1]])).chain([topic_config(
        "t",
        "retention.ms",
        "777",
    )]));
    let config = BrokerConfig::load(&Settings::new()).unwrap();
    let described = Described { image: &image, config: &config, node: 1 };
    let request = DescribeConfigsRequest { resources, ..Default::default() };
    let response = response(&request, &described, Room::default()).unwrap();
    let told = |result: &DescribeConfigsResult<'_>| {
        let entry = |entry: &DescribeConfigsResourceResult<'_>| {
            format!(" {}={}@{}", entry.name, entry.value.as_deref().unwrap_or("null"), entry.config_source)
        };
        format!("{}{}", result.error_code, result.configs.iter().map(entry).collect::<String>())
    };
    response.results.iter().map(told).collect()
}

#[test]
fn a_topic_has_its_overrides_and_the_brokers_defaults() {
    let asked = vec![resource(2, "t", &["retention.ms", "segment.bytes", "nope"])];
    assert_eq!(ask(asked), ["0 retention.ms=777@1 segment.bytes=1073741824@5"]);
}

#[test]
fn what_does_not_exist_has_no_configuration() {
    let asked = vec![
        resource(2, "no", &[]),
        resource(2, "x y", &[]),
        resource(4, "7", &[]),
        resource(4, "abc", &[]),
        resource(8, "", &[]),
        resource(16, "", &[]),
        resource(32, "", &[]),
    ];
    assert_eq!(ask(asked), ["3", "17", "42", "42", "42", "42", "42"]);
}

#[test]
fn an_unknown_type_refuses_the_whole_request() {
    assert_eq!(ask(vec![resource(2, "t", &["retention.ms"]), resource(3, "x", &[])]), ["42", "42"]);
}

#[test]
fn groups_and_client_metrics_have_defaults_whatever_their_name() {
    let asked = vec![resource(16, "m", &["interval.ms"]), resource(32, "g", &["consumer.heartbeat.interval.ms"])];
    assert_eq!(ask(asked), ["0 interval.ms=300000@5", "0 consumer.heartbeat.interval.ms=5000@5"]);
}

#[test]
fn a_broker_has_its_settings_and_one_logger() {
    assert_eq!(ask(vec![resource(4, "1", &["auto.create.topics.enable"])]), ["0 auto.create.topics.enable=true@5"]);
    assert_eq!(ask(vec![resource(4, "", &[])]), ["0"]);
    assert!(ask(vec![resource(8, "1", &[])])[0].starts_with("0 root="));
}

#[test]
fn every_version_can_say_an_answer() {
    let config = BrokerConfig::load(&Settings::new()).unwrap();
    let image = Image::default();
    let described = Described { image: &image, config: &config, node: 1 };
    for version in API.versions.clone() {
        let asked = vec![resource(4, "1", &[])];
        let request =
            DescribeConfigsRequest { resources: asked, include_synonyms: true, include_documentation: version >= 3 };
        let mut writer = milena_protocol::Writer::new();
        let response = response(&request, &described, Room::default()).unwrap();
        milena_protocol::Message::encode(&response, &mut writer, version).unwrap();
    }
}

#[test]
fn an_answer_that_would_be_too_long_is_refused_before_it_is_made() {
    let config = BrokerConfig::load(&Settings::new()).unwrap();
    let image = Image::default();
    let described = Described { image: &image, config: &config, node: 1 };
    for (kind, name) in [(4, "1"), (16, "m"), (32, "g"), (2, "no")] {
        let resources = vec![resource(kind, name, &[]); 1000];
        let request = DescribeConfigsRequest { resources, include_synonyms: true, include_documentation: true };
        let described = response(&request, &described, Room::of(1 << 20));
        assert!(matches!(described, Err(Refusal::TooLong)), "{kind} {name}");
    }
}
