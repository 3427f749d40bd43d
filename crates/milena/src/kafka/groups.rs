//! kafka-groups.

use std::fmt::Write as _;
use std::process::ExitCode;

use milena_client::admin::GroupListing;

use super::options::{Flag, Options};
use super::{Ended, Thrown, ask, end, java, read_with, refuse};
use crate::output::{print, print_error};

const ABOUT: &str = "This tool helps to list groups of all types.";
const TYPES: [&str; 4] = ["classic", "consumer", "share", "streams"];

const FLAGS: &[Flag] = &[
    Flag::value("bootstrap-server", "REQUIRED: The Kafka server to connect to."),
    Flag::value("command-config", "Property file containing configs to be passed to Admin Client."),
    Flag::switch("consumer", "Show all kinds of consumer groups, including classic and simple consumer groups."),
    Flag::value("group-type", "Filter the groups based on group type: 'classic', 'consumer', 'share' and 'streams'."),
    Flag::switch("help", "Print usage information."),
    Flag::switch("list", "List the groups."),
    Flag::value("protocol", "Filter the groups based on protocol type."),
    Flag::switch("share", "Filter the groups to show share groups."),
    Flag::switch("streams", "Filter the groups to show streams groups."),
    Flag::switch("version", "Display Kafka version."),
];

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    end(execute(arguments), FLAGS, |thrown| {
        if thrown.class == java::ILLEGAL_ARGUMENT {
            print_error(&format!("{}\n", thrown.message));
        } else {
            print(&format!("Error while executing groups command : {}\n", thrown.message));
        }
        1
    })
}

fn execute(arguments: &[String]) -> Result<(), Ended> {
    let options = read_with(&["bootstrap-server"], FLAGS, ABOUT, arguments)?;
    if !options.has("list") {
        return Err(Ended::Usage("Command must include exactly one action: --list.".to_owned()));
    }
    let filter = Filter::new(&options)?;
    refuse(&options, "consumer", &["group-type", "protocol", "share", "streams"])?;
    refuse(&options, "share", &["consumer", "group-type", "protocol", "streams"])?;
    refuse(&options, "streams", &["consumer", "group-type", "protocol", "share"])?;
    ask(&options, async |admin| {
        let mut groups = admin.list_groups(&[], &[]).await?;
        groups.retain(|group| filter.takes(group));
        print(&table(&groups));
        Ok(())
    })
}

/// Which groups to show.
struct Filter {
    kind: Option<String>,
    protocol: Option<String>,
    consumers: bool,
    shares: bool,
    streams: bool,
}

impl Filter {
    fn new(options: &Options) -> Result<Self, Ended> {
        let kind = options.value("group-type")?.map(str::to_lowercase);
        if kind.as_deref().is_some_and(|kind| !TYPES.contains(&kind)) {
            return Err(Thrown::argument("--group-type must be a valid group type.").into());
        }
        Ok(Self {
            kind,
            protocol: options.value("protocol")?.map(str::to_owned),
            consumers: options.has("consumer"),
            shares: options.has("share"),
            streams: options.has("streams"),
        })
    }

    fn takes(&self, group: &GroupListing) -> bool {
        let is = |kind: &str| group.kind.eq_ignore_ascii_case(kind);
        let speaks = |protocol: &String| group.protocol_type == *protocol;
        match (&self.kind, &self.protocol) {
            (Some(kind), protocol) => is(kind) && protocol.as_ref().is_none_or(speaks),
            (None, Some(protocol)) => speaks(protocol),
            _ if self.consumers => {
                group.protocol_type == "consumer" || group.protocol_type.is_empty() || is("consumer")
            }
            _ if self.shares => is("share"),
            _ if self.streams => is("streams"),
            _ => true,
        }
    }
}

fn table(groups: &[GroupListing]) -> String {
    let rows: Vec<[String; 3]> = groups
        .iter()
        .map(|group| [group.id.clone(), java::group_type(&group.kind), group.protocol_type.clone()])
        .collect();
    let width = rows.iter().flatten().map(|cell| cell.chars().count()).max().unwrap_or(0).max(20);
    let mut text = format!("{:<width$} {:<width$} {:<width$}\n", "GROUP", "TYPE", "PROTOCOL");
    for [id, kind, protocol] in rows {
        let _ = writeln!(text, "{id:<width$} {kind:<width$} {protocol:<width$} ");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(kind: &str, protocol_type: &str) -> GroupListing {
        GroupListing { id: "g".into(), protocol_type: protocol_type.into(), state: "Empty".into(), kind: kind.into() }
    }

    #[test]
    fn all_columns_are_as_wide_as_the_widest() {
        let expected =
            format!("{:<20} {:<20} {:<20}\n{:<20} {:<20} {:<20} \n", "GROUP", "TYPE", "PROTOCOL", "g", "Classic", "");
        assert_eq!(table(&[group("classic", "")]), expected);
    }

    #[test]
    fn consumer_groups_are_of_any_type_that_consumers_are_in() {
        let consumers = Filter { kind: None, protocol: None, consumers: true, shares: false, streams: false };
        let taken = [("classic", ""), ("classic", "consumer"), ("classic", "connect"), ("share", "share")];
        assert_eq!(taken.map(|(kind, protocol)| consumers.takes(&group(kind, protocol))), [true, true, false, false]);
    }
}
