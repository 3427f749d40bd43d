//! kafka-verifiable-producer: sends numbers, and says in JSON what became of each.

use std::cell::Cell;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use milena_client::{Error, Producer, Record};
use serde::Serialize;
use tokio::time::Instant;

use super::arguments::{Argument, Kind, Parser, Stop, Values};
use super::{Ended, java, now_ms};
use crate::connect::{Connection, Properties, properties_in, run_client};
use crate::deliveries::{Deliveries, Outcome};
use crate::output::print;
use crate::perf::Pace;
use crate::signal::Signal;

const PARSER: Parser = Parser {
    name: "verifiable-producer",
    about: "This tool produces increasing integers to the specified topic and prints JSON metadata to stdout on each \"send\" \
            request, making externally visible which messages have been acked and which have not.",
    arguments: &[
        Argument::new("topic", "TOPIC", Kind::Text, "Produce messages to this topic.").required(),
        Argument::new("max-messages", "MAX-MESSAGES", Kind::Integer, "So many; -1 is no end. (default: -1)"),
        Argument::new(
            "throughput",
            "THROUGHPUT",
            Kind::Integer,
            "At most so many a second; -1 is no limit. (default: -1)",
        ),
        Argument::new("acks", "ACKS", Kind::IntChoice(&["0", "1", "-1"]), "Acks of each message. (default: -1)"),
        Argument::new("producer.config", "CONFIG-FILE", Kind::Text, "(DEPRECATED) Use --command-config instead."),
        Argument::new("message-create-time", "CREATE-TIME", Kind::Long, "Time of the first message. (default: -1)"),
        Argument::new("value-prefix", "VALUE-PREFIX", Kind::Integer, "Stands before each value, with a dot behind it."),
        Argument::new(
            "repeating-keys",
            "REPEATING-KEYS",
            Kind::Integer,
            "Keys are numbers below this, again and again.",
        ),
        Argument::new("command-config", "CONFIG-FILE", Kind::Text, "Config properties file."),
        Argument::new("bootstrap-server", "HOST1:PORT1[,HOST2:PORT2[...]]", Kind::Text, "The server(s) to connect to."),
    ],
    one_of: &["bootstrap-server"],
};

/// How long the end of a producer is waited for whose records have theirs.
const CLOSING: Duration = Duration::from_secs(1);

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    let values = match PARSER.parse(arguments) {
        Ok(values) => values,
        Err(Stop::Misuse(message)) if !arguments.is_empty() => return PARSER.refuse(&message),
        Err(stop) => {
            PARSER.print_help();
            return if stop == Stop::Help { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let settings = match properties(&values) {
        Ok(settings) => settings,
        Err(message) => return PARSER.refuse(&message),
    };
    execute(&values, settings).map_or_else(java::uncaught, |()| ExitCode::SUCCESS)
}

/// The producer's settings: those of a file win over the command line's.
fn properties(values: &Values) -> Result<Properties, String> {
    let text = |name: &str, default: &str| values.get(name).unwrap_or(default).to_owned();
    let mut properties = vec![
        ("bootstrap.servers".to_owned(), text("bootstrap-server", "")),
        ("acks".to_owned(), text("acks", "-1")),
        ("retries".to_owned(), "0".to_owned()),
    ];
    if values.has("producer.config") && values.has("command-config") {
        return Err("Options --producer.config and --command-config are mutually exclusive.".to_owned());
    }
    if values.has("producer.config") {
        print(
            "Option --producer.config has been deprecated and will be removed in a future version. Use --command-config \
             instead.\n",
        );
    }
    if let Some(file) = values.get("producer.config").or_else(|| values.get("command-config")) {
        properties.extend(properties_in(Path::new(file)).map_err(|error| format!("{error:#}"))?);
    }
    Ok(properties)
}

fn execute(values: &Values, settings: Properties) -> Result<(), Ended> {
    let connection = Connection::of_properties("producer-1", settings).map_err(|error| java::config(&error))?;
    run_client(&connection, async |client| {
        let producer = client.producer().properties(connection.properties())?.build()?;
        let run = Run::new(values, &producer);
        let outcome = run.send_all().await;
        producer.close(CLOSING).await;
        tell("shutdown_complete", ());
        run.summarize();
        outcome
    })
}

/// One run.
struct Run<'r> {
    topic: &'r str,
    producer: &'r Producer,
    /// No end, if negative.
    messages: i64,
    throughput: i64,
    prefix: Option<i32>,
    keys: Option<u64>,
    created: Option<i64>,
    start: Instant,
    sent: Cell<u64>,
    acked: Cell<u64>,
}

/// A line of what the tool prints.
#[derive(Serialize)]
struct Event<T: Serialize> {
    timestamp: i64,
    name: &'static str,
    #[serde(flatten)]
    what: T,
}

#[derive(Serialize)]
struct Success<'e> {
    key: Option<&'e str>,
    value: &'e str,
    offset: i64,
    topic: &'e str,
    partition: i32,
}

#[derive(Serialize)]
struct Failure<'e> {
    key: Option<&'e str>,
    value: &'e str,
    topic: &'e str,
    exception: String,
    message: String,
}

#[derive(Serialize)]
struct Data {
    sent: u64,
    acked: u64,
    target_throughput: i64,
    avg_throughput: f64,
}

fn tell(name: &'static str, what: impl Serialize) {
    let event = Event { timestamp: now_ms(), name, what };
    print(&format!("{}\n", serde_json::to_string(&event).expect("names and plain values")));
}

/// A record on its way: its key and its value.
type Sent = (Option<String>, String);

impl<'r> Run<'r> {
    fn new(values: &'r Values, producer: &'r Producer) -> Self {
        Self {
            topic: values.get("topic").unwrap_or_default(),
            producer,
            messages: values.number("max-messages").unwrap_or(-1),
            throughput: values.number("throughput").unwrap_or(-1),
            prefix: values.number("value-prefix"),
            keys: values.number("repeating-keys"),
            created: values.number("message-create-time").filter(|time| *time != -1),
            start: Instant::now(),
            sent: Cell::new(0),
            acked: Cell::new(0),
        }
    }

    /// Sends all of them, until a signal says to stop, and waits until each is written or has failed.
    async fn send_all(&self) -> Result<(), Ended> {
        tell("startup_complete", ());
        let deliveries = Deliveries::new();
        let mut arrived = |sent, outcome| self.arrived(sent, outcome);
        let work = async {
            tokio::select! {
                () = self.send(&deliveries) => Ok(()),
                signal = Signal::to_end() => Err(Ended::Stopped(signal)),
            }
        };
        let outcome = deliveries.during(work, &mut arrived).await;
        deliveries.flush(self.producer, &mut arrived).await;
        outcome
    }

    async fn send(&self, deliveries: &Deliveries<Sent>) {
        let pace = Pace::new(self.throughput as f64);
        let end = u64::try_from(self.messages).unwrap_or(u64::MAX);
        let mut created = self.created;
        for number in 0..end {
            let value = self.prefix.map_or_else(|| number.to_string(), |prefix| format!("{prefix}.{number}"));
            let key = self.keys.map(|keys| number.checked_rem(keys).unwrap_or(number).to_string());
            let mut record = Record::to(self.topic).value(&value);
            if let Some(key) = &key {
                record = record.key(key);
            }
            if let Some(time) = &mut created {
                record = record.timestamp(*time);
                *time += i64::try_from(self.start.elapsed().as_millis()).unwrap_or(0);
            }
            self.sent.set(number + 1);
            match self.producer.send(&record).await {
                Ok(delivery) => deliveries.add(delivery, (key, value)),
                Err(error) => self.failed(key.as_deref(), &value, &error),
            }
            pace.wait(number + 1).await;
        }
    }

    fn arrived(&self, (key, value): Sent, outcome: Outcome) {
        match outcome {
            Ok(written) => {
                self.acked.set(self.acked.get() + 1);
                let (offset, partition) = (written.offset.unwrap_or(-1), written.partition);
                let what = Success { key: key.as_deref(), value: &value, offset, topic: self.topic, partition };
                tell("producer_send_success", what);
            }
            Err(error) => self.failed(key.as_deref(), &value, &error),
        }
    }

    fn failed(&self, key: Option<&str>, value: &str, error: &Error) {
        let thrown = java::send_error(error, self.topic);
        let (exception, message) = (format!("class {}", thrown.class), thrown.message);
        tell("producer_send_error", Failure { key, value, topic: self.topic, exception, message });
    }

    fn summarize(&self) {
        let (sent, acked) = (self.sent.get(), self.acked.get());
        let avg_throughput = 1000.0 * acked as f64 / self.start.elapsed().as_millis() as f64;
        tell("tool_data", Data { sent, acked, target_throughput: self.throughput, avg_throughput });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_its_time_and_name_before_the_rest() {
        let what = Success { key: None, value: "1", offset: 7, topic: "t", partition: 0 };
        let event = Event { timestamp: 5, name: "producer_send_success", what };
        let expected = r#"{"timestamp":5,"name":"producer_send_success","key":null,"value":"1","offset":7,"topic":"t","partition":0}"#;
        assert_eq!(serde_json::to_string(&event).unwrap(), expected);
        let bare = Event { timestamp: 5, name: "startup_complete", what: () };
        assert_eq!(serde_json::to_string(&bare).unwrap(), r#"{"timestamp":5,"name":"startup_complete"}"#);
    }
}
