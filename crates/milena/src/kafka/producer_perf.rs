//! kafka-producer-perf-test.

mod stats;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use milena_client::{Error, Producer, Record};
use regex_lite::Regex;
use tokio::time::Instant;

use super::arguments::{Argument, Kind, Parser, Stop, Values};
use super::random::SplittableRandom;
use super::{Ended, Thrown, java, metrics};
use crate::connect::{Connection, Properties, properties_in, run_client};
use crate::deliveries::{Deliveries, Outcome};
use crate::input::Sink;
use crate::output::{print, print_error};
use crate::perf::Pace;
use stats::Stats;

const PARSER: Parser = Parser {
    name: "kafka-producer-perf-test",
    about: "This tool is used to verify the producer performance. To enable transactions, you can specify a transactional id or \
            set a transaction duration using --transaction-duration-ms.",
    arguments: &[
        Argument::new("bootstrap-server", "BOOTSTRAP-SERVER", Kind::Text, "The server(s) to connect to."),
        Argument::new("topic", "TOPIC", Kind::Text, "Produce records to this topic.").required(),
        Argument::new("num-records", "NUM-RECORDS", Kind::Long, "Number of records to produce.").required(),
        Argument::new(
            "payload-delimiter",
            "PAYLOAD-DELIMITER",
            Kind::Text,
            "Delimiter in the payload file. (default: \\n)",
        ),
        Argument::new("throughput", "THROUGHPUT", Kind::Double, "At most so many records/sec; -1 is no limit.")
            .required(),
        Argument::new("producer-props", "PROP-NAME=PROP-VALUE", Kind::Many, "(DEPRECATED) Use --command-property."),
        Argument::new("command-property", "PROP-NAME=PROP-VALUE", Kind::Many, "Properties of the producer."),
        Argument::new("producer.config", "CONFIG-FILE", Kind::Text, "(DEPRECATED) Use --command-config."),
        Argument::new("command-config", "CONFIG-FILE", Kind::Text, "Producer config properties file."),
        Argument::new("print-metrics", "", Kind::Switch, "Print out metrics at the end of the test."),
        Argument::new("transactional-id", "TRANSACTIONAL-ID", Kind::Text, "The transactional id to use."),
        Argument::new("transaction-duration-ms", "TRANSACTION-DURATION", Kind::Long, "How long a transaction is."),
        Argument::new(
            "warmup-records",
            "WARMUP-RECORDS",
            Kind::Long,
            "Records that steady-state statistics leave out.",
        ),
        Argument::new("reporting-interval", "INTERVAL-MS", Kind::Long, "Milliseconds between reports. (default: 5000)"),
        Argument::new("record-key-range", "KEY-RANGE", Kind::Integer, "Keys are integers in [0, KEY-RANGE)."),
        Argument::new(
            "key-distribution",
            "KEY-DISTRIBUTION",
            Kind::Choice(&["none", "range", "random"]),
            "Which keys records have. (default: none)",
        ),
        Argument::new("random-seed", "RANDOM-SEED", Kind::Long, "Seed of keys and payloads. (default: 0)"),
        Argument::new("record-size", "RECORD-SIZE", Kind::Integer, "Record size in bytes."),
        Argument::new("payload-file", "PAYLOAD-FILE", Kind::Text, "File to read the record payloads from."),
        Argument::new("payload-monotonic", "", Kind::Switch, "Payload is a monotonically increasing integer."),
    ],
    one_of: &["record-size", "payload-file", "payload-monotonic"],
};

const DEFAULT_TRANSACTION_MS: i64 = 3000;
/// How long the end of a producer is waited for whose records have theirs.
const CLOSING: Duration = Duration::from_secs(1);

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    let values = match PARSER.parse(arguments) {
        Ok(values) => values,
        Err(Stop::Misuse(message)) if !arguments.is_empty() => return PARSER.refuse(&message),
        Err(stop) => {
            PARSER.print_help();
            return if arguments.is_empty() || stop != Stop::Help { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
    };
    let test = match Test::new(&values) {
        Ok(test) => test,
        Err(Ended::Usage(message)) => return PARSER.refuse(&message),
        Err(other) => return java::uncaught(other),
    };
    test.run().map_or_else(java::uncaught, |()| ExitCode::SUCCESS)
}

/// What is to be done.
struct Test {
    topic: String,
    records: u64,
    warmup: u64,
    throughput: f64,
    interval: Duration,
    payloads: Payloads,
    keys: Keys,
    seed: i64,
    properties: Properties,
    /// How long a transaction is, if there are any.
    transactions: Option<Duration>,
    print_metrics: bool,
}

/// What the records hold.
enum Payloads {
    /// Letters, so many.
    Random(usize),
    /// One of these.
    Given(Vec<String>),
    /// The record's number.
    Monotonic,
}

/// Which keys they have.
enum Keys {
    None,
    /// Numbers below this, one after the other.
    Range(i32),
    /// Numbers below this, at random.
    Random(i32),
}

impl Test {
    fn new(values: &Values) -> Result<Self, Ended> {
        let wrong = |message: &str| Ended::Usage(message.to_owned());
        let records: i64 = values.number("num-records").unwrap_or_default();
        let warmup: i64 = values.number("warmup-records").unwrap_or_default();
        let positive = |name: &str| match values.number::<i64>(name) {
            Some(number) if number <= 0 => Err(Ended::Usage(format!("--{name} should be greater than zero."))),
            other => Ok(other),
        };
        positive("num-records")?;
        if warmup >= records {
            let message = "The value for --warmup-records must be strictly fewer than the number of records in the test, \
                           --num-records.";
            return Err(wrong(message));
        }
        positive("record-size")?;
        let sources = ["bootstrap-server", "command-property", "producer-props", "producer.config", "command-config"];
        if !sources.iter().any(|name| values.has(name)) {
            return Err(wrong(
                "At least one of --bootstrap-server, --command-property, --producer-props, --producer.config or \
                 --command-config must be specified.",
            ));
        }
        for (new, old) in [("command-property", "producer-props"), ("command-config", "producer.config")] {
            if values.has(new) && values.has(old) {
                return Err(wrong(&format!("--{new} and --{old} cannot be specified together.")));
            }
        }
        let duration = positive("transaction-duration-ms")?;
        let interval = positive("reporting-interval")?.unwrap_or(5000);
        positive("record-key-range")?;
        let keys = keys(values.get("key-distribution").unwrap_or("none"), values.number("record-key-range"))?;
        let payloads = payloads(values)?;
        for (old, new) in [("producer-props", "command-property"), ("producer.config", "command-config")] {
            if values.has(old) {
                print(&format!(
                    "Option --{old} has been deprecated and will be removed in a future version. Use --{new} instead.\n"
                ));
            }
        }
        let mut properties = properties(values)?;
        let has_id = properties.iter().any(|(key, _)| key == "transactional.id");
        let given_id = values.get("transactional-id").map(str::to_owned);
        let transactional = has_id || given_id.is_some() || duration.is_some();
        let random = || format!("performance-producer-{}", java::random_uuid());
        if let Some(id) = given_id.or_else(|| (transactional && !has_id).then(random)) {
            properties.push(("transactional.id".to_owned(), id));
        }
        let millis = |ms: i64| Duration::from_millis(ms.unsigned_abs());
        Ok(Self {
            topic: values.get("topic").unwrap_or_default().to_owned(),
            records: records.unsigned_abs(),
            warmup: warmup.try_into().unwrap_or(0),
            throughput: values.number("throughput").unwrap_or(-1.0),
            interval: millis(interval),
            payloads,
            keys,
            seed: values.number("random-seed").unwrap_or_default(),
            properties,
            transactions: transactional.then(|| millis(duration.unwrap_or(DEFAULT_TRANSACTION_MS))),
            print_metrics: values.has("print-metrics"),
        })
    }

    fn run(&self) -> Result<(), Ended> {
        let connection = Connection::of_properties("perf-producer-client", self.properties.clone())
            .map_err(|error| java::config(&error))?;
        run_client(&connection, async |client| {
            let producer = client.producer().properties(connection.properties())?.build()?;
            if self.warmup > 0 {
                print(&format!(
                    "Warmup first {} records. Steady state results will print after the complete test summary.\n",
                    self.warmup
                ));
            }
            let all = RefCell::new(Stats::new(self.interval, false));
            let run = Run { test: self, producer: &producer, all, steady: RefCell::default(), failed: Cell::new(0) };
            run.send_all().await?;
            producer.close(CLOSING).await;
            run.all.borrow().print_total();
            if let Some(steady) = &*run.steady.borrow() {
                steady.print_total();
            }
            if self.print_metrics {
                let (sent, failed) = (run.all.borrow().records(), run.failed.get());
                print(&metrics::text(&[
                    ("producer-metrics:record-error-total:{}", failed),
                    ("producer-metrics:record-send-total:{}", sent),
                ]));
            }
            Ok(())
        })
    }
}

fn keys(distribution: &str, range: Option<i32>) -> Result<Keys, Ended> {
    match (distribution, range) {
        ("none", None) => Ok(Keys::None),
        ("none", Some(_)) => Err(Ended::Usage(
            "--key-distribution must be 'range' or 'random' when --record-key-range is specified.".to_owned(),
        )),
        ("range", Some(range)) => Ok(Keys::Range(range)),
        (_, Some(range)) => Ok(Keys::Random(range)),
        (_, None) => Err(Ended::Usage(
            "--record-key-range is required when --key-distribution is 'range' or 'random'.".to_owned(),
        )),
    }
}

fn payloads(values: &Values) -> Result<Payloads, Ended> {
    if let Some(size) = values.number("record-size") {
        return Ok(Payloads::Random(size));
    }
    let Some(file) = values.get("payload-file") else { return Ok(Payloads::Monotonic) };
    let path = std::path::absolute(file).unwrap_or_else(|_| Path::new(file).to_owned());
    print(&format!("Reading payloads from: {}\n", path.display()));
    let bytes = std::fs::read(&path).ok().filter(|bytes| !bytes.is_empty());
    let bytes = bytes.ok_or_else(|| Thrown::argument("File does not exist or empty file provided."))?;
    let delimiter = values.get("payload-delimiter").filter(|text| *text != "\\n").unwrap_or("\n");
    let payloads = split(&String::from_utf8_lossy(&bytes), delimiter)?;
    print(&format!("Number of records read: {}\n", payloads.len()));
    Ok(Payloads::Given(payloads))
}

/// As a `Scanner` splits: a delimiter at the beginning or at the end has nothing before or behind it.
fn split(text: &str, delimiter: &str) -> Result<Vec<String>, Thrown> {
    let pattern = Regex::new(delimiter)
        .map_err(|error| Thrown::new("java.util.regex.PatternSyntaxException", error.to_string()))?;
    let mut parts: Vec<&str> = pattern.split(text).collect();
    if parts.len() > 1 && parts.first().is_some_and(|part| part.is_empty()) {
        parts.remove(0);
    }
    if parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    Ok(parts.into_iter().map(str::to_owned).collect())
}

/// Settings from a file and from the command line.
fn properties(values: &Values) -> Result<Properties, Ended> {
    let mut properties = Properties::new();
    if let Some(file) = values.get("command-config").or_else(|| values.get("producer.config")) {
        properties = properties_in(Path::new(file)).map_err(|error| java::config(&error))?;
    }
    for text in values.all("command-property").into_iter().chain(values.all("producer-props")) {
        match text.split('=').collect::<Vec<_>>()[..] {
            [key, value] if !value.is_empty() => properties.push((key.to_owned(), value.to_owned())),
            _ => return Err(Thrown::argument(format!("Invalid property: {text}")).into()),
        }
    }
    let server = values.get("bootstrap-server").map(|servers| ("bootstrap.servers".to_owned(), servers.to_owned()));
    properties.extend(server);
    Ok(properties)
}

/// A record on its way: when it was sent, its bytes, and whether it is after the warmup.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Instant,
    bytes: u64,
    steady: bool,
}

/// One run.
struct Run<'r> {
    test: &'r Test,
    producer: &'r Producer,
    all: RefCell<Stats>,
    steady: RefCell<Option<Stats>>,
    failed: Cell<u64>,
}

impl Run<'_> {
    /// Sends all records, and waits until each is written or has failed.
    async fn send_all(&self) -> Result<(), Ended> {
        let deliveries = Deliveries::new();
        let mut arrived = |sent, outcome| self.arrived(sent, outcome);
        let outcome = deliveries.during(self.send(&deliveries), &mut arrived).await;
        deliveries.flush(self.producer, &mut arrived).await;
        outcome
    }

    async fn send(&self, deliveries: &Deliveries<Sent>) -> Result<(), Ended> {
        let test = self.test;
        let mut random = SplittableRandom::new(test.seed);
        let pace = Pace::new(test.throughput);
        let (mut payload, mut key) = (Vec::new(), String::new());
        let mut sink = Sink::Producer(self.producer.clone());
        let mut begun = None;
        for number in 0..test.records {
            test.payloads.next(&mut random, number, &mut payload);
            if let (Some(_), None) = (test.transactions, begun) {
                sink = Sink::Transaction(self.producer.begin().await?);
                begun = Some(Instant::now());
            }
            let mut record = Record::to(&test.topic).value(&payload);
            if test.keys.next(&mut random, number, &mut key) {
                record = record.key(&key);
            }
            let at = Instant::now();
            if test.warmup > 0 && number == test.warmup {
                self.steady.replace(Some(Stats::new(test.interval, true)));
                self.all.borrow_mut().reports = false;
            }
            let steady = test.warmup > 0 && number >= test.warmup;
            match sink.send(&record).await {
                Ok(delivery) => deliveries.add(delivery, Sent { at, bytes: payload.len() as u64, steady }),
                Err(error) => self.failed(&error),
            }
            if begun.is_some_and(|begun| Some(at - begun) >= test.transactions) {
                commit(std::mem::replace(&mut sink, Sink::Producer(self.producer.clone()))).await?;
                begun = None;
            }
            pace.wait(number + 1).await;
        }
        commit(sink).await
    }

    fn arrived(&self, sent: Sent, outcome: Outcome) {
        if let Err(error) = outcome {
            return self.failed(&error);
        }
        self.all.borrow_mut().add(sent.at, sent.bytes);
        if let Some(steady) = self.steady.borrow_mut().as_mut().filter(|_| sent.steady) {
            steady.add(sent.at, sent.bytes);
        }
    }

    /// As the callback tells; the test goes on.
    fn failed(&self, error: &Error) {
        self.failed.set(self.failed.get() + 1);
        print_error(&format!("{}\n", java::send_error(error, &self.test.topic).text()));
    }
}

/// Commits the transaction, if it is one.
async fn commit(sink: Sink) -> Result<(), Ended> {
    match sink {
        Sink::Transaction(transaction) => Ok(transaction.commit().await?),
        Sink::Producer(_) => Ok(()),
    }
}

impl Payloads {
    fn next(&self, random: &mut SplittableRandom, number: u64, payload: &mut Vec<u8>) {
        payload.clear();
        match self {
            Self::Random(size) => payload.extend((0..*size).map(|_| b'A' + random.below(26) as u8)),
            Self::Given(payloads) => {
                let place = random.below(i32::try_from(payloads.len()).unwrap_or(i32::MAX));
                payload.extend_from_slice(payloads[place as usize].as_bytes());
            }
            Self::Monotonic => payload.extend_from_slice(number.to_string().as_bytes()),
        }
    }
}

impl Keys {
    /// Whether there is a key.
    fn next(&self, random: &mut SplittableRandom, number: u64, key: &mut String) -> bool {
        let drawn = match *self {
            Self::None => return false,
            Self::Range(range) => number % u64::from(range.unsigned_abs()),
            Self::Random(range) => u64::from(random.below(range).unsigned_abs()),
        };
        *key = drawn.to_string();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(line: &str) -> Result<Test, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let values = PARSER.parse(&words).map_err(|stop| format!("{stop:?}"))?;
        Test::new(&values).map_err(|ended| format!("{ended:?}"))
    }

    #[test]
    fn a_line_that_contradicts_itself_is_refused() {
        let refused = |more: &str| test(&format!("--topic t --num-records 10 --throughput -1 {more}")).err().unwrap();
        assert!(refused("--record-size 1").contains("At least one of --bootstrap-server"));
        let refused = |more: &str| refused(&format!("--bootstrap-server b:1 {more}"));
        assert!(refused("--record-size 0").contains("--record-size should be greater than zero."));
        assert!(refused("--record-size 1 --warmup-records 10").contains("must be strictly fewer"));
        assert!(refused("--record-size 1 --key-distribution range").contains("--record-key-range is required"));
        assert!(refused("--record-size 1 --record-key-range 2").contains("must be 'range' or 'random'"));
        assert!(refused("--record-size 1 --command-property a").contains("Invalid property: a"));
        assert!(refused("--record-size 1 --command-property a=b --producer-props c=d").contains("cannot be specified"));
    }

    #[test]
    fn any_mention_of_transactions_makes_them() {
        let line = "--topic t --num-records 1 --throughput 1 --payload-monotonic --bootstrap-server b:1";
        let of = |more: &str| test(&format!("{line}{more}")).unwrap();
        let id =
            |test: &Test| test.properties.iter().rfind(|(key, _)| key == "transactional.id").map(|(_, id)| id.clone());
        assert_eq!((of("").transactions, id(&of(""))), (None, None));
        let timed = of(" --transaction-duration-ms 7");
        assert_eq!(timed.transactions, Some(Duration::from_millis(7)));
        assert!(id(&timed).unwrap().starts_with("performance-producer-"));
        let named = of(" --command-property transactional.id=a --transactional-id b");
        assert_eq!((named.transactions, id(&named)), (Some(Duration::from_millis(3000)), Some("b".to_owned())));
    }

    #[test]
    fn payloads_of_a_file_are_split_as_java_scans() {
        assert_eq!(split("a\n\nb\n", "\n").unwrap(), ["a", "", "b"]);
        assert_eq!(split("\na", "\n").unwrap(), ["a"]);
        assert_eq!(split("a1b22c", "[0-9]+").unwrap(), ["a", "b", "c"]);
    }
}
