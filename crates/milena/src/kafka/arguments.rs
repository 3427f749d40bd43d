//! The command line of tools that have no commands and read it with argparse4j, in that library's words.

use std::process::ExitCode;
use std::str::FromStr;

use crate::output::{print, print_error};

/// Columns of a usage.
const WIDTH: usize = 75;

/// From so many columns on, arguments stand below the name.
const LONG_NAME: usize = 30;

/// What an argument's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There is none.
    Switch,
    /// Text.
    Text,
    /// One of these.
    Choice(&'static [&'static str]),
    /// One of these numbers.
    IntChoice(&'static [&'static str]),
    /// Texts, up to the next argument.
    Many,
    /// A number of 32 bits.
    Integer,
    /// A number of 64 bits.
    Long,
    /// A number with a fraction.
    Double,
}

/// An argument of a tool.
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    /// Without dashes.
    pub name: &'static str,
    /// What its value is called.
    pub metavar: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Whether it must be there.
    pub required: bool,
    /// One line about it.
    pub help: &'static str,
}

impl Argument {
    /// An argument that may be left out.
    pub const fn new(name: &'static str, metavar: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { name, metavar, kind, required: false, help }
    }

    /// The same, if it must be there.
    pub const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    fn usage(&self) -> String {
        match self.kind {
            Kind::Switch => format!("--{}", self.name),
            Kind::Many => format!("--{} {m} [{m} ...]", self.name, m = self.metavar),
            _ => format!("--{} {}", self.name, self.metavar),
        }
    }
}

/// The command line of a tool.
pub struct Parser {
    /// The tool, as it calls itself.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Its arguments.
    pub arguments: &'static [Argument],
    /// Those of which exactly one must be there; empty if there are none.
    pub one_of: &'static [&'static str],
}

/// A command line that was read.
#[derive(Debug, Default)]
pub struct Values(Vec<(&'static str, String)>);

/// Why nothing more is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// The help was asked for.
    Help,
    /// The line makes no sense.
    Misuse(String),
}

impl Values {
    /// Whether the argument is there.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(given, _)| *given == name)
    }

    /// The last value of an argument.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rfind(|(given, _)| *given == name).map(|(_, value)| &**value)
    }

    /// All values of an argument.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(given, _)| *given == name).map(|(_, value)| &**value).collect()
    }

    /// A number, which was found to be one when the line was read.
    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }
}

impl Parser {
    /// Reads the arguments behind the tool's name.
    pub fn parse(&self, line: &[String]) -> Result<Values, Stop> {
        let mut values = Values::default();
        let mut rest = line.iter().map(String::as_str).peekable();
        while let Some(word) = rest.next() {
            if ["-h", "--help"].contains(&word) {
                return Err(Stop::Help);
            }
            let unknown = || Stop::Misuse(format!("unrecognized arguments: '{word}'"));
            let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let argument = name.strip_prefix("--").map(|name| self.find(name)).transpose()?.flatten();
            let argument = argument.ok_or_else(unknown)?;
            let expected = |what: &str| Stop::Misuse(format!("argument --{}: expected {what}", argument.name));
            match (argument.kind, value) {
                (Kind::Switch, _) => values.0.push((argument.name, String::new())),
                (Kind::Many, value) => {
                    let mut some = value.is_some();
                    values.0.extend(value.map(|value| (argument.name, value.to_owned())));
                    while let Some(value) = rest.next_if(|word| !is_option(word)) {
                        values.0.push((argument.name, value.to_owned()));
                        some = true;
                    }
                    if !some {
                        return Err(expected("at least one argument"));
                    }
                }
                (_, value) => {
                    let value = value.or_else(|| rest.next_if(|word| !is_option(word)));
                    let value = value.ok_or_else(|| expected("one argument"))?;
                    argument.check(value)?;
                    values.0.push((argument.name, value.to_owned()));
                }
            }
            self.check_one_of(&values, argument.name)?;
        }
        self.check_required(&values)?;
        Ok(values)
    }

    /// The argument of this name, or the only one that begins so.
    fn find(&self, name: &str) -> Result<Option<&'static Argument>, Stop> {
        if let Some(exact) = self.arguments.iter().find(|argument| argument.name == name) {
            return Ok(Some(exact));
        }
        let matching: Vec<&Argument> =
            self.arguments.iter().filter(|argument| argument.name.starts_with(name)).collect();
        match matching[..] {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            _ => {
                let names: Vec<String> = matching.iter().map(|argument| format!("--{}", argument.name)).collect();
                Err(Stop::Misuse(format!("ambiguous option: --{name} could match {}", names.join(", "))))
            }
        }
    }

    fn check_one_of(&self, values: &Values, name: &'static str) -> Result<(), Stop> {
        let is_one = self.one_of.contains(&name);
        let other = self.one_of.iter().find(|other| is_one && **other != name && values.has(other));
        match other {
            Some(other) => Err(Stop::Misuse(format!("argument --{name}: not allowed with argument --{other}"))),
            None => Ok(()),
        }
    }

    fn check_required(&self, values: &Values) -> Result<(), Stop> {
        let missing = self.arguments.iter().find(|argument| argument.required && !values.has(argument.name));
        if let Some(missing) = missing {
            return Err(Stop::Misuse(format!("argument --{} is required", missing.name)));
        }
        if self.one_of.is_empty() || self.one_of.iter().any(|name| values.has(name)) {
            return Ok(());
        }
        let names: Vec<String> = self.one_of.iter().map(|name| format!("--{name}")).collect();
        Err(Stop::Misuse(format!("one of the arguments {} is required", names.join(" "))))
    }

    /// Says what is wrong.
    pub fn refuse(&self, message: &str) -> ExitCode {
        print_error(&format!("{}{}: error: {message}\n", self.usage(), self.name));
        ExitCode::FAILURE
    }

    /// The arguments, in as many lines as they take.
    fn usage(&self) -> String {
        let front = format!("usage: {}", self.name);
        // Behind a name that is not too long the arguments begin beside it.
        let beside = front.len() < LONG_NAME;
        let indent = if beside { front.len() + 1 } else { "usage: ".len() };
        let of_group = |argument: &&Argument| self.one_of.contains(&argument.name);
        let items = self.arguments.iter().filter(|argument| !of_group(argument)).map(|argument| {
            let usage = argument.usage();
            if argument.required { usage } else { format!("[{usage}]") }
        });
        let group: Vec<String> = self.arguments.iter().filter(of_group).map(Argument::usage).collect();
        let last = group.len().saturating_sub(1);
        let group = group.iter().enumerate().map(|(place, usage)| {
            let open = if place == 0 && last > 0 { "(" } else { "" };
            let close = if last == 0 { "" } else { ")" };
            format!("{open}{usage}{}", if place == last { close } else { " |" })
        });
        let items: Vec<String> = ["[-h]".to_owned()].into_iter().chain(items).chain(group).collect();
        let between = if beside { " ".to_owned() } else { format!("\n{:indent$}", "") };
        let (mut text, mut column) = (front + &between, indent);
        for (place, item) in items.iter().enumerate() {
            if place > 0 && column + 1 + item.len() > WIDTH {
                text += &format!("\n{:indent$}", "");
                column = indent;
            } else if place > 0 {
                text.push(' ');
                column += 1;
            }
            text += item;
            column += item.len();
        }
        text + "\n"
    }

    /// Prints the help.
    pub fn print_help(&self) {
        let width = self.arguments.iter().map(|argument| argument.usage().len()).max().unwrap_or(0);
        let line = |argument: &Argument| format!("  {:<width$}  {}\n", argument.usage(), argument.help);
        let lines: String = self.arguments.iter().map(line).collect();
        print(&format!("{}\n{}\n\nnamed arguments:\n{lines}", self.usage(), self.about));
    }
}

impl Argument {
    /// Whether the value is of the argument's kind.
    fn check(&self, value: &str) -> Result<(), Stop> {
        let convert = |is_one: bool, class: &str| match is_one {
            true => Ok(()),
            false => {
                let name = self.name;
                let why = format!("could not convert '{value}' to {class} (For input string: \"{value}\")");
                Err(Stop::Misuse(format!("argument --{name}: {why}")))
            }
        };
        let chosen = |choices: &[&str]| match choices.contains(&value) {
            true => Ok(()),
            false => {
                let (name, choices) = (self.name, choices.join(","));
                Err(Stop::Misuse(format!("argument --{name}: invalid choice: '{value}' (choose from {{{choices}}})")))
            }
        };
        match self.kind {
            Kind::Integer => convert(value.parse::<i32>().is_ok(), "Integer"),
            Kind::Long => convert(value.parse::<i64>().is_ok(), "Long"),
            Kind::Double => convert(value.parse::<f64>().is_ok(), "Double"),
            Kind::Choice(choices) => chosen(choices),
            Kind::IntChoice(choices) => {
                convert(value.parse::<i32>().is_ok(), "Integer")?;
                chosen(choices)
            }
            Kind::Switch | Kind::Text | Kind::Many => Ok(()),
        }
    }
}

/// Whether a word is the name of an argument rather than a value; `-1` is a value.
fn is_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && word.parse::<f64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARSER: Parser = Parser {
        name: "tool",
        about: "Does it.",
        arguments: &[
            Argument::new("topic", "TOPIC", Kind::Text, "a topic").required(),
            Argument::new("count", "COUNT", Kind::Long, "how many"),
            Argument::new("props", "PROP", Kind::Many, "settings"),
            Argument::new("acks", "ACKS", Kind::IntChoice(&["0", "1", "-1"]), "acks"),
            Argument::new("size", "SIZE", Kind::Integer, "size"),
            Argument::new("file", "FILE", Kind::Text, "file"),
            Argument::new("flag", "", Kind::Switch, "flag"),
        ],
        one_of: &["size", "file"],
    };

    fn parse(line: &str) -> Result<Values, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        PARSER.parse(&words).map_err(|stop| match stop {
            Stop::Help => "help".to_owned(),
            Stop::Misuse(message) => message,
        })
    }

    #[test]
    fn negative_numbers_are_values_and_lists_end_at_the_next_argument() {
        let values = parse("--topic t --count -1 --props a=1 b=2 --size=3 --flag").unwrap();
        assert_eq!(values.number::<i64>("count"), Some(-1));
        assert_eq!(values.all("props"), ["a=1", "b=2"]);
        assert_eq!(values.number::<i32>("size"), Some(3));
        assert!(values.has("flag") && !values.has("file"));
    }

    #[test]
    fn what_is_wrong_is_told_in_the_librarys_words() {
        let refused = |line: &str| parse(line).unwrap_err();
        assert_eq!(refused("--size 1"), "argument --topic is required");
        assert_eq!(refused("--topic t"), "one of the arguments --size --file is required");
        assert_eq!(refused("--topic t --size 1 --file f"), "argument --file: not allowed with argument --size");
        assert_eq!(refused("--topic"), "argument --topic: expected one argument");
        assert_eq!(refused("--props --topic t"), "argument --props: expected at least one argument");
        assert_eq!(refused("--count x"), "argument --count: could not convert 'x' to Long (For input string: \"x\")");
        assert_eq!(refused("--acks 5"), "argument --acks: invalid choice: '5' (choose from {0,1,-1})");
        assert_eq!(refused("--nope 1"), "unrecognized arguments: '--nope'");
        assert_eq!(refused("--f x"), "ambiguous option: --f could match --file, --flag");
        assert_eq!(refused("-h"), "help");
    }

    #[test]
    fn a_usage_is_not_wider_than_its_columns() {
        let expected = "usage: tool [-h] --topic TOPIC [--count COUNT] [--props PROP [PROP ...]]\n            \
                        [--acks ACKS] [--flag] (--size SIZE | --file FILE)\n";
        assert_eq!(PARSER.usage(), expected);
    }
}
