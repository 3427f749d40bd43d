//! kafka-broker-api-versions.

use std::process::ExitCode;

use milena_client::Admin;
use milena_client::admin::{ApiRange, BrokerDescription};
use milena_protocol::{api_info, apis};

use super::options::Flag;
use super::{Ended, ask, end, java, need, read};
use crate::output::{print, print_error};

const ABOUT: &str = "This tool helps to retrieve broker version information.";

const FLAGS: &[Flag] = &[
    Flag::value("bootstrap-server", "REQUIRED: The server to connect to."),
    Flag::value("command-config", "A property file containing configs to be passed to Admin Client."),
    Flag::switch("help", "Print usage information."),
    Flag::switch("version", "Display Kafka version."),
];

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    end(execute(arguments), FLAGS, |thrown| {
        print_error(&format!("{}\n", thrown.message));
        1
    })
}

fn execute(arguments: &[String]) -> Result<(), Ended> {
    let options = read(FLAGS, ABOUT, arguments)?;
    need(&options, &["bootstrap-server"])?;
    ask(&options, print_all)
}

/// What each broker serves.
pub async fn print_all(admin: &Admin) -> Result<(), Ended> {
    for broker in admin.describe_cluster().await?.brokers {
        let told = match admin.api_versions(broker.id).await {
            Ok(served) => versions(&served),
            Err(error) => format!("ERROR: {}", java::thrown(&error).text()),
        };
        print(&format!("{} -> {told}\n", node(&broker)));
    }
    Ok(())
}

fn node(broker: &BrokerDescription) -> String {
    let rack = broker.rack.as_deref().unwrap_or("null");
    let BrokerDescription { id, host, port, fenced, .. } = broker;
    format!("{host}:{port} (id: {id} rack: {rack} isFenced: {fenced})")
}

fn versions(served: &[ApiRange]) -> String {
    let unserved = apis().filter(|info| info.on_broker && !served.iter().any(|api| api.key == info.key));
    let mut lines: Vec<(i16, String)> =
        unserved.map(|info| (info.key.0, format!("{}({}): UNSUPPORTED", info.name, info.key.0))).collect();
    lines.extend(served.iter().map(|api| (api.key.0, line(api))));
    lines.sort();
    let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    format!("(\n\t{}\n)", lines.join(",\n\t"))
}

fn line(api: &ApiRange) -> String {
    let range = if api.min == api.max { api.min.to_string() } else { format!("{} to {}", api.min, api.max) };
    let Some(info) = api_info(api.key) else { return format!("UNKNOWN({}): {range}", api.key.0) };
    let usable = if api.min > info.stable_max() {
        "unusable: node too new".to_owned()
    } else if api.max < info.min {
        "unusable: node too old".to_owned()
    } else {
        format!("usable: {}", api.max.min(info.stable_max()))
    };
    format!("{}({}): {range} [{usable}]", info.name, info.key.0)
}

#[cfg(test)]
mod tests {
    use milena_protocol::ApiKey;

    use super::*;

    #[test]
    fn versions_are_lines_by_key() {
        let api = |key, min, max| ApiRange { key: ApiKey(key), min, max };
        let text = versions(&[api(1, 4, 30), api(0, 0, 0), api(999, 1, 2)]);
        assert!(
            text.starts_with("(\n\tProduce(0): 0 [unusable: node too old],\n\tFetch(1): 4 to 30 [usable: "),
            "{text}"
        );
        assert!(text.contains(",\n\tListOffsets(2): UNSUPPORTED,\n"), "{text}");
        assert!(text.ends_with(",\n\tUNKNOWN(999): 1 to 2\n)"), "{text}");
    }
}
