//! kafka-cluster.

use std::fmt::Write as _;
use std::process::ExitCode;

use milena_client::Admin;
use milena_client::admin::{BrokerDescription, Endpoints};

use super::argparse::{self, Command};
use super::options::{Flag, Options};
use super::{Ended, Thrown, api_versions, ask};
use crate::output::{print, print_error};

const COMMON: [Flag; 4] = [
    Flag::value("bootstrap-server", "A list of host/port pairs to use for establishing the connection.").short("b"),
    Flag::value("command-config", "A property file containing configs for the Admin client."),
    Flag::value("config", "(DEPRECATED) A property file containing configs for the Admin client.").short("c"),
    Flag::switch("help", "show this help message and exit").short("h"),
];

const PLAIN: &[Flag] = &COMMON;
const WITH_ID: &[Flag] =
    &[COMMON[0], COMMON[1], COMMON[2], COMMON[3], Flag::value("id", "The ID of the broker to unregister.").short("i")];
const WITH_FENCED: &[Flag] = &[
    COMMON[0],
    COMMON[1],
    COMMON[2],
    COMMON[3],
    Flag::switch("include-fenced-brokers", "Whether to include fenced brokers when listing broker endpoints"),
];

const COMMANDS: &[Command] = &[
    Command { name: "cluster-id", help: "Get information about the ID of a cluster.", flags: PLAIN, required: &[] },
    Command { name: "unregister", help: "Unregister a broker.", flags: WITH_ID, required: &["id"] },
    Command { name: "list-endpoints", help: "List endpoints.", flags: WITH_FENCED, required: &[] },
    Command { name: "api-versions", help: "Retrieve broker version information", flags: PLAIN, required: &[] },
];

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    argparse::run("kafka-cluster", &[], COMMANDS, arguments, execute, |thrown| {
        print_error(&format!("{}\n", thrown.message));
    })
}

fn execute(command: &str, options: &Options) -> Result<(), Ended> {
    if !options.has("bootstrap-server") {
        let message = "One of --bootstrap-server or --bootstrap-controller must be specified.";
        return Err(Thrown::argument(message).into());
    }
    ask(options, async |admin| match command {
        "cluster-id" => {
            print(&format!("Cluster ID: {}\n", admin.describe_cluster().await?.id));
            Ok(())
        }
        "unregister" => unregister(admin, options).await,
        "list-endpoints" => {
            let fenced = options.has("include-fenced-brokers");
            let which = if fenced { Endpoints::WithFenced } else { Endpoints::Brokers };
            print(&endpoints(&admin.describe_endpoints(which).await?.brokers));
            Ok(())
        }
        _ => api_versions::print_all(admin).await,
    })
}

async fn unregister(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let id: i32 = options.number("id")?.unwrap_or_default();
    match admin.unregister_broker(id).await {
        Err(milena_client::Error::UnsupportedVersion { .. }) => {
            print("The target cluster does not support the broker unregistration API.\n");
        }
        other => {
            other?;
            print(&format!("Broker {id} is no longer registered.\n"));
        }
    }
    Ok(())
}

fn endpoints(brokers: &[BrokerDescription]) -> String {
    let widest =
        |least: usize, cell: fn(&BrokerDescription) -> usize| brokers.iter().map(cell).max().unwrap_or(0).max(least);
    let host_width = widest(9, |broker| broker.host.chars().count());
    let rack_width = widest(10, |broker| broker.rack.as_ref().map_or(4, |rack| rack.chars().count()));
    let mut text = String::new();
    let mut line = |id: &str, host: &str, port: &str, rack: &str, state: &str, kind: &str| {
        let _ = writeln!(text, "{id:<10} {host:<host_width$} {port:<10} {rack:<rack_width$} {state:<10} {kind:<15}");
    };
    line("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE");
    for broker in brokers {
        let state = if broker.fenced { "fenced" } else { "unfenced" };
        let rack = broker.rack.as_deref().unwrap_or("null");
        line(&broker.id.to_string(), &broker.host, &broker.port.to_string(), rack, state, "broker");
    }
    text
}
