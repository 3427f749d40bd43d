//! What commands print: a table for people, JSON or YAML for programs.
//!
//! A command hands over rows of JSON values under named columns, or one value; the three forms say the same. Keys and
//! types of JSON and YAML are stable; the table may change.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

use serde_json::{Map, Value};

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// Columns for people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Where a command's results go.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    format: Format,
    colours: bool,
}

/// Rows under columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    columns: Vec<&'static str>,
    /// How many columns people see; programs get all.
    shown: usize,
    rows: Vec<Vec<Value>>,
}

impl Table {
    /// An empty table. A column's name is its key in JSON; its heading is the name in capitals.
    pub fn new(columns: impl Into<Vec<&'static str>>) -> Self {
        let columns = columns.into();
        Self { shown: columns.len(), columns, rows: Vec::new() }
    }

    /// The same with further columns that only programs get.
    #[must_use]
    pub fn and_for_programs(mut self, columns: &[&'static str]) -> Self {
        self.columns.extend(columns);
        self
    }

    /// Adds a row with a value for each column.
    pub fn row(&mut self, values: impl Into<Vec<Value>>) {
        let values = values.into();
        assert_eq!(values.len(), self.columns.len(), "a row has a value for each of {:?}", self.columns);
        self.rows.push(values);
    }

    /// The values of a column.
    pub fn column(&self, name: &str) -> impl Iterator<Item = &Value> {
        let place = self.columns.iter().position(|column| *column == name);
        self.rows.iter().filter_map(move |row| row.get(place?))
    }

    /// A list of objects.
    pub fn value(&self) -> Value {
        let object = |row: &Vec<Value>| -> Map<String, Value> {
            self.columns.iter().map(|name| (*name).to_owned()).zip(row.iter().cloned()).collect()
        };
        self.rows.iter().map(|row| Value::Object(object(row))).collect()
    }

    /// The columns, as wide as their widest value; numbers are on the right. Ends with a line feed.
    pub fn text(&self, colours: bool) -> String {
        let cells: Vec<Vec<String>> = self.rows.iter().map(|row| row.iter().map(plain).collect()).collect();
        let right = |column: usize| {
            !self.rows.is_empty() && self.rows.iter().all(|row| row[column].is_number() || row[column].is_null())
        };
        let width = |column: usize| {
            let cells = cells.iter().map(|row| row[column].chars().count());
            cells.chain([self.columns[column].len()]).max().unwrap_or(0)
        };
        let shape: Vec<(usize, bool)> = (0..self.shown).map(|column| (width(column), right(column))).collect();
        let headings: Vec<String> = self.columns.iter().map(|name| name.replace('_', "-").to_uppercase()).collect();
        let heading = line(&headings, &shape);
        let mut text = if colours { format!("\x1b[1m{heading}\x1b[0m\n") } else { format!("{heading}\n") };
        for row in &cells {
            text += &line(row, &shape);
            text.push('\n');
        }
        text
    }
}

/// Cells beside each other, two spaces between them, nothing behind the last.
fn line(cells: &[String], shape: &[(usize, bool)]) -> String {
    let mut text = String::new();
    for (cell, (width, right)) in cells.iter().zip(shape) {
        let _ = if *right { write!(text, "{cell:>width$}  ") } else { write!(text, "{cell:<width$}  ") };
    }
    text.trim_end().to_owned()
}

/// A value without quotes; what is absent is a dash, a list has commas.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}

impl Output {
    /// Colours are for terminals whose user does not set `NO_COLOR`.
    pub fn new(format: Format) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { format, colours: !unwanted && io::stdout().is_terminal() }
    }

    /// Whether people read.
    pub fn is_table(self) -> bool {
        self.format == Format::Table
    }

    /// Prints a table, or its rows for programs.
    pub fn table(self, table: &Table) {
        match self.format {
            Format::Table => print(&table.text(self.colours)),
            _ => self.value(&table.value()),
        }
    }

    /// Prints a value: names and plain values in two columns for people.
    pub fn value(self, value: &Value) {
        match (self.format, value) {
            (Format::Table, Value::Object(fields)) => print(&names_and_values(fields)),
            (Format::Table, other) => print(&format!("{}\n", plain(other))),
            (Format::Json, value) => print(&format!("{value:#}\n")),
            (Format::Yaml, value) => print(&yaml(value)),
        }
    }

    /// A line for people, who do not see JSON.
    pub fn note(self, line: &str) {
        if self.is_table() {
            print(&format!("{line}\n"));
        }
    }
}

/// One field a line.
fn names_and_values(fields: &Map<String, Value>) -> String {
    let width = fields.keys().map(String::len).max().unwrap_or(0);
    fields.iter().map(|(name, value)| format!("{:<width$}  {}\n", name.replace('_', " "), plain(value))).collect()
}

/// Text on standard output. Where nobody reads it any more there is nothing to say; where it does not fit, the process ends.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            print_error(&format!("milena: standard output: {error}\n"));
            std::process::exit(1);
        }
        _ => {}
    }
}

/// Text on standard error.
pub fn print_error(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// The value as a YAML document.
fn yaml(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

/// A value that stands on lines of its own, indented by so many spaces.
fn block(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let start = text.len();
                block(item, indent + 2, text);
                // The item's first line begins with a dash in place of two of its spaces.
                text.replace_range(start + indent..=start + indent, "-");
            }
        }
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let _ = write!(text, "{:indent$}{}:", "", scalar(&Value::String(name.clone())));
                if is_block(value) {
                    text.push('\n');
                    block(value, indent + 2, text);
                } else {
                    let _ = writeln!(text, " {}", scalar(value));
                }
            }
        }
        other => {
            let _ = writeln!(text, "{:indent$}{}", "", scalar(other));
        }
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => false,
    }
}

/// A value on one line. JSON is YAML; only text that cannot be taken for anything else goes without its quotes.
fn scalar(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let reserved = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/');
    if begins && text.chars().all(is_plain) && !reserved.contains(&text.to_ascii_lowercase().as_str()) {
        text.clone()
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn topics() -> Table {
        let mut table = Table::new(["topic", "partitions", "in_sync"]);
        table.row([json!("orders"), json!(12), json!([1, 2])]);
        table.row([json!("a"), json!(1), Value::Null]);
        table
    }

    #[test]
    fn a_table_has_capitals_above_it_and_numbers_on_the_right() {
        let expected = "TOPIC   PARTITIONS  IN-SYNC\norders          12  1,2\na                1  -\n";
        assert_eq!(topics().text(false), expected);
        assert_eq!(topics().text(true).lines().next(), Some("\x1b[1mTOPIC   PARTITIONS  IN-SYNC\x1b[0m"));
        assert_eq!(Table::new(["topic"]).text(false), "TOPIC\n");
    }

    #[test]
    fn programs_get_the_rows_as_objects() {
        let expected = json!([
            { "topic": "orders", "partitions": 12, "in_sync": [1, 2] },
            { "topic": "a", "partitions": 1, "in_sync": null },
        ]);
        assert_eq!(topics().value(), expected);
    }

    #[test]
    fn yaml_is_quoted_where_it_could_be_taken_for_something_else() {
        let value = json!([{ "name": "a.b-c", "n": 1, "nested": { "x": [1, "no", "1.5", ""], "y": [] } }, "z: \n", {}]);
        let expected = "- name: a.b-c\n  \"n\": 1\n  nested:\n    x:\n      - 1\n      - \"no\"\n      - \"1.5\"\n      - \"\"\n    \
            \"y\": []\n- \"z: \\n\"\n- {}\n";
        assert_eq!(yaml(&value), expected);
        assert_eq!(yaml(&json!([])), "[]\n");
    }

    #[test]
    fn a_single_value_is_a_list_of_names() {
        let value = json!({ "cluster_id": "abc", "controller": 1 });
        let Value::Object(fields) = &value else { unreachable!("it is an object") };
        assert_eq!(names_and_values(fields), "cluster id  abc\ncontroller  1\n");
    }
}
