//! kafka-cluster.

use std::fmt::Write as _;
use std::process::ExitCode;

use milena_client::Error;
use milena_client::admin::{BrokerDescription, Endpoints};

use super::argparse::{self, Command};
use super::options::{Flag, Options};
use super::{Ended, Thrown, api_versions, ask_with};
use crate::output::{print, print_error};

const SERVER: Flag =
    Flag::value("bootstrap-server", "A list of host/port pairs to use for establishing the connection.").short("b");
const CONTROLLER: Flag =
    Flag::value("bootstrap-controller", "A list of host/port pairs of the KRaft controllers.").short("C");
const CONFIG: Flag = Flag::value("config", "(DEPRECATED) Use --command-config instead.");
const COMMAND_CONFIG: Flag = Flag::value("command-config", "Config properties file for the Admin client.").short("c");
const HELP: Flag = Flag::switch("help", "show this help message and exit").short("h");

const PLAIN: &[Flag] = &[SERVER, CONTROLLER, CONFIG, COMMAND_CONFIG, HELP];
const BROKER: Flag = Flag::value("id", "The ID of the broker to unregister.").short("i");
const WITH_BROKER: &[Flag] = &[SERVER, CONTROLLER, CONFIG, COMMAND_CONFIG, HELP, BROKER];
const VOTER: Flag = Flag::value("id", "The ID of the controller to unregister.").short("i");
const WITH_VOTER: &[Flag] = &[SERVER, CONTROLLER, CONFIG, COMMAND_CONFIG, HELP, VOTER];
const FENCED: Flag =
    Flag::switch("include-fenced-brokers", "Whether to include fenced brokers when listing broker endpoints");
const WITH_FENCED: &[Flag] = &[SERVER, CONTROLLER, CONFIG, COMMAND_CONFIG, HELP, FENCED];

const COMMANDS: &[Command] = &[
    Command { name: "cluster-id", help: "Get information about the ID of a cluster.", flags: PLAIN, required: &[] },
    Command { name: "unregister", help: "Unregister a broker.", flags: WITH_BROKER, required: &["id"] },
    Command { name: "unregister-controller", help: "Unregister a controller.", flags: WITH_VOTER, required: &["id"] },
    Command { name: "list-endpoints", help: "List endpoints", flags: WITH_FENCED, required: &[] },
    Command {
        name: "api-versions",
        help: "Get information about the api versions of the brokers or controllers.",
        flags: PLAIN,
        required: &[],
    },
];

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    argparse::run("kafka-cluster", &[], COMMANDS, arguments, execute, |thrown| {
        print_error(&format!("{}\n", thrown.caught().0));
    })
}

fn execute(command: &str, options: &Options) -> Result<(), Ended> {
    argparse::check_bootstrap(options, ["--bootstrap-server/-b", "--bootstrap-controller/-C"]).map_err(Ended::Usage)?;
    if options.has("config") && options.has("command-config") {
        return Err(Thrown::argument("--config and --command-config cannot be specified together.").into());
    }
    if options.has("config") {
        print(
            "Option --config has been deprecated and will be removed in a future version. Use --command-config instead.\n",
        );
    }
    let controllers = options.has("bootstrap-controller");
    let id: i32 = options.number("id")?.unwrap_or_default();
    let file = options.value("command-config")?.or(options.value("config")?);
    ask_with(options, file, async |admin| match command {
        "cluster-id" => {
            print(&format!("Cluster ID: {}\n", admin.describe_cluster().await?.id));
            Ok(())
        }
        "unregister" => unregistered("Broker", id, admin.unregister_broker(id).await),
        "unregister-controller" => unregistered("Controller", id, admin.unregister_controller(id).await),
        "list-endpoints" => {
            let fenced = options.has("include-fenced-brokers");
            if fenced && controllers {
                let message = "The option --include-fenced-brokers is only supported with --bootstrap-server option";
                return Err(Thrown::argument(message).into());
            }
            let which = if fenced { Endpoints::WithFenced } else { Endpoints::Brokers };
            print(&endpoints(&admin.describe_endpoints(which).await?.brokers, controllers));
            Ok(())
        }
        _ => api_versions::print_all(admin).await,
    })
}

fn unregistered(what: &str, id: i32, outcome: Result<(), Error>) -> Result<(), Ended> {
    match outcome {
        Err(Error::UnsupportedVersion { .. }) => {
            let what = what.to_lowercase();
            print(&format!("The target cluster does not support the {what} unregistration API.\n"));
        }
        other => {
            other?;
            print(&format!("{what} {id} is no longer registered.\n"));
        }
    }
    Ok(())
}

/// Brokers with their state, or controllers, which have none.
fn endpoints(nodes: &[BrokerDescription], controllers: bool) -> String {
    let widest =
        |least: usize, cell: fn(&BrokerDescription) -> usize| nodes.iter().map(cell).max().unwrap_or(0).max(least);
    let host_width = widest(9, |node| node.host.chars().count());
    let rack_width = widest(10, |node| node.rack.as_ref().map_or(4, |rack| rack.chars().count()));
    let mut text = String::new();
    let mut line = |id: &str, host: &str, port: &str, rack: &str, state: &str, kind: &str| {
        let state = if controllers { String::new() } else { format!("{state:<10} ") };
        let _ = writeln!(text, "{id:<10} {host:<host_width$} {port:<10} {rack:<rack_width$} {state}{kind:<15}");
    };
    line("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE");
    let kind = if controllers { "controller" } else { "broker" };
    for node in nodes {
        let state = if node.fenced { "fenced" } else { "unfenced" };
        let rack = node.rack.as_deref().unwrap_or("null");
        line(&node.id.to_string(), &node.host, &node.port.to_string(), rack, state, kind);
    }
    text
}
