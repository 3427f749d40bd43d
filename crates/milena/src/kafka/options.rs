//! The command line as Kafka's tools read it: long options that may be shortened, with `=` or a blank before the value,
//! with one dash or two, in the words of the library that they use.

use std::fmt::Write as _;
use std::str::FromStr;

/// An option of a tool.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Without dashes.
    pub name: &'static str,
    /// Another name, of one letter; empty if there is none.
    pub short: &'static str,
    /// Whether a value follows.
    pub takes: Takes,
    /// One line for the usage.
    pub help: &'static str,
}

/// What follows an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// A value, always.
    Value,
    /// A value unless another option follows; a number below zero is a value.
    Maybe,
    /// Values with commas between them.
    List,
}

impl Flag {
    /// An option that is there or not.
    pub const fn switch(name: &'static str, help: &'static str) -> Self {
        Self { name, short: "", takes: Takes::Nothing, help }
    }

    /// An option with a value.
    pub const fn value(name: &'static str, help: &'static str) -> Self {
        Self { name, short: "", takes: Takes::Value, help }
    }

    /// An option whose value may be left out.
    pub const fn maybe(name: &'static str, help: &'static str) -> Self {
        Self { name, short: "", takes: Takes::Maybe, help }
    }

    /// An option with values between commas.
    pub const fn list(name: &'static str, help: &'static str) -> Self {
        Self { name, short: "", takes: Takes::List, help }
    }
}

impl Flag {
    /// The same with another name of one letter.
    pub const fn short(self, short: &'static str) -> Self {
        Self { short, ..self }
    }
}

/// What is wrong with a command line, in the library's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misuse {
    /// The library's exception.
    pub class: &'static str,
    /// What it says.
    pub message: String,
}

impl Misuse {
    fn new(class: &'static str, message: String) -> Self {
        Self { class, message }
    }

    /// An option that does not go with the others.
    pub fn unavailable(option: &str) -> Self {
        let message = format!("Option(s) [{option}] are unavailable given other options on the command line");
        Self::new("joptsimple.UnavailableOptionException", message)
    }
}

/// A command line that was read.
#[derive(Debug, Default)]
pub struct Options {
    given: Vec<(&'static str, Option<String>)>,
}

impl Options {
    /// Reads the arguments behind the tool's name. What is no option is passed over.
    ///
    /// # Errors
    /// An option that does not exist, or that lacks its value.
    pub fn parse(flags: &'static [Flag], arguments: &[String]) -> Result<Self, Misuse> {
        let mut options = Self::default();
        let mut rest = arguments;
        while !rest.is_empty() {
            let (front, behind) = Self::parse_front(flags, rest)?;
            options.given.extend(front.given);
            rest = behind.get(1..).unwrap_or_default();
            if behind.first().is_some_and(|argument| argument == "--") {
                break;
            }
        }
        Ok(options)
    }

    /// Reads the options at the beginning, up to the first argument that is none, which comes back with what follows.
    ///
    /// # Errors
    /// As [`Options::parse`].
    pub fn parse_front<'a>(flags: &'static [Flag], arguments: &'a [String]) -> Result<(Self, &'a [String]), Misuse> {
        let mut given = Vec::new();
        let mut rest = arguments.iter().peekable();
        let mut behind = arguments;
        while let Some(argument) = rest.next() {
            let Some(text) = name_of(argument) else { break };
            let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
            let Some(flag) = find(flags, name) else { return Err(unrecognized(argument, name)) };
            let mut add = |value: Option<&str>| given.push((flag.name, value.map(str::to_owned)));
            let value = value.filter(|value| !value.is_empty());
            let looks_like_option = |text: &&String| name_of(text).is_some() || text.as_str() == "--";
            match flag.takes {
                Takes::Nothing => add(None),
                Takes::Maybe if value.is_none() => {
                    let is_value = |text: &&String| !looks_like_option(text) || text.parse::<i64>().is_ok();
                    add(rest.next_if(is_value).map(String::as_str));
                }
                Takes::Maybe => add(value),
                Takes::Value | Takes::List => {
                    let value = value.or_else(|| rest.next().map(String::as_str));
                    let value = value.ok_or_else(|| {
                        let message = format!("Option {} requires an argument", flag.name);
                        Misuse::new("joptsimple.OptionMissingRequiredArgumentException", message)
                    })?;
                    let list = flag.takes == Takes::List;
                    let values = if list { value.split(',').collect() } else { vec![value] };
                    values.into_iter().for_each(|value| add(Some(value)));
                }
            }
            behind = &arguments[arguments.len() - rest.len()..];
        }
        Ok((Self { given }, behind))
    }

    /// These and others.
    pub fn and(mut self, others: Self) -> Self {
        self.given.extend(others.given);
        self
    }

    /// Whether the option is there.
    pub fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// All values of an option, in order.
    pub fn values<'o>(&'o self, name: &str) -> Vec<&'o str> {
        self.given.iter().filter(|(given, _)| *given == name).filter_map(|(_, value)| value.as_deref()).collect()
    }

    /// The names of the options, in the order in which they were given.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.given.iter().map(|(name, _)| *name)
    }

    /// The value of an option that makes sense once.
    ///
    /// # Errors
    /// When it has several.
    pub fn value<'o>(&'o self, name: &str) -> Result<Option<&'o str>, Misuse> {
        match self.values(name)[..] {
            [] => Ok(None),
            [value] => Ok(Some(value)),
            _ => {
                let message = format!("Found multiple arguments for option {name}, but you asked for only one");
                Err(Misuse::new("joptsimple.MultipleArgumentsForOptionException", message))
            }
        }
    }

    /// A number.
    ///
    /// # Errors
    /// When it is none, or there are several.
    pub fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, Misuse> {
        let parse = |text: &str| {
            let message = || format!("Cannot parse argument '{text}' of option {name}");
            text.parse().map_err(|_| Misuse::new("joptsimple.OptionArgumentConversionException", message()))
        };
        self.value(name)?.map(parse).transpose()
    }
}

/// The text behind the dashes of an option.
fn name_of(argument: &str) -> Option<&str> {
    let text = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
    (!text.is_empty()).then_some(text)
}

/// The option of this name, or the only one that begins so.
fn find(flags: &'static [Flag], name: &str) -> Option<&'static Flag> {
    let exact = flags.iter().find(|flag| flag.name == name || flag.short == name);
    let mut beginning = flags.iter().filter(|flag| flag.name.starts_with(name));
    exact.or_else(|| beginning.next().filter(|_| beginning.next().is_none()))
}

/// Behind a single dash the library looks for options of one letter.
fn unrecognized(argument: &str, name: &str) -> Misuse {
    let one_letter = !argument.starts_with("--");
    let name: String = if one_letter { name.chars().take(1).collect() } else { name.to_owned() };
    Misuse::new("joptsimple.UnrecognizedOptionException", format!("{name} is not a recognized option"))
}

/// The options of a tool, one a line.
pub fn usage(flags: &[Flag]) -> String {
    let left = |flag: &Flag| match flag.takes {
        Takes::Nothing => format!("--{}", flag.name),
        Takes::Value => format!("--{} <value>", flag.name),
        Takes::Maybe => format!("--{} [value]", flag.name),
        Takes::List => format!("--{} <value,...>", flag.name),
    };
    let width = flags.iter().map(|flag| left(flag).len()).max().unwrap_or(0);
    let mut text = format!("{:<width$}  Description\n{:<width$}  -----------\n", "Option", "------");
    for flag in flags {
        let _ = writeln!(text, "{:<width$}  {}", left(flag), flag.help);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: &[Flag] = &[
        Flag::switch("list", "List."),
        Flag::value("topic", "Topic."),
        Flag::value("topic-id", "Id."),
        Flag::value("bootstrap-server", "Where."),
        Flag::maybe("state", "State."),
        Flag::list("delete-config", "Keys."),
    ];

    fn parse(line: &str) -> Result<Options, Misuse> {
        Options::parse(FLAGS, &line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn values_stand_behind_a_blank_or_an_equals_sign() {
        for line in ["--topic a --list", "--topic=a --list", "-topic a -list", "--topic= a -- --state"] {
            assert_eq!(parse(line).unwrap().value("topic"), Ok(Some("a")), "{line}");
        }
        assert_eq!(parse("--topic --list").unwrap().value("topic"), Ok(Some("--list")));
    }

    #[test]
    fn a_name_may_be_shortened_while_it_is_the_only_one() {
        let options = parse("--boot here --li --topic x").unwrap();
        assert!(options.has("bootstrap-server") && options.has("list") && options.has("topic"));
        assert_eq!(parse("--topi x").unwrap_err().message, "topi is not a recognized option");
        assert_eq!(parse("--nope").unwrap_err().message, "nope is not a recognized option");
        assert_eq!(parse("-nope").unwrap_err().message, "n is not a recognized option");
    }

    #[test]
    fn a_missing_or_second_value_is_told() {
        assert_eq!(parse("--topic").unwrap_err().message, "Option topic requires an argument");
        let twice = parse("--topic a --topic b").unwrap();
        assert_eq!(twice.values("topic"), ["a", "b"]);
        let expected = "Found multiple arguments for option topic, but you asked for only one";
        assert_eq!(twice.value("topic").unwrap_err().message, expected);
        let number = parse("--topic a").unwrap().number::<i32>("topic");
        assert_eq!(number.unwrap_err().message, "Cannot parse argument 'a' of option topic");
    }

    #[test]
    fn an_optional_value_is_no_other_option() {
        assert_eq!(parse("--state --list").unwrap().value("state"), Ok(None));
        assert_eq!(parse("--state Stable --list").unwrap().value("state"), Ok(Some("Stable")));
        assert_eq!(parse("--delete-config a,b").unwrap().values("delete-config"), ["a", "b"]);
    }
}
