//! kafka-e2e-latency.

use std::process::ExitCode;
use std::time::Duration;

use milena_client::admin::NewTopic;
use milena_client::{Client, ConsumerRecord, ConsumerRecords, Error, Header, Record};

use super::options::{Flag, Options};
use super::random::SplittableRandom;
use super::{Ended, Thrown, end, java, need, now_ms, properties, read_with};
use crate::connect::{Connection, run_client};
use crate::java_text;
use crate::output::{print, print_error};
use crate::perf::RoundTrips;

const ABOUT: &str = "This tool measures end-to-end latency in Kafka by sending messages and timing their reception.";

const FLAGS: &[Flag] = &[
    Flag::value("bootstrap-server", "REQUIRED: The Kafka broker list string in the form HOST1:PORT1,HOST2:PORT2."),
    Flag::maybe("command-config", "Optional: A property file for producer, consumer and admin client."),
    Flag::switch("help", "Print usage information."),
    Flag::maybe("num-headers", "Optional: The number of headers to include in each message. (default: 0)"),
    Flag::value("num-records", "REQUIRED: The number of messages to send."),
    Flag::value("producer-acks", "REQUIRED: Producer acknowledgements. Must be '1' or 'all'."),
    Flag::maybe("record-header-key-size", "Optional: The size of the message header key in bytes. (default: 0)"),
    Flag::maybe("record-header-size", "Optional: The size of message header value in bytes; -1 for null. (default: 0)"),
    Flag::maybe("record-key-size", "Optional: The size of the message key in bytes. (default: 0)"),
    Flag::value("record-size", "REQUIRED: The size of each message payload in bytes."),
    Flag::value("topic", "REQUIRED: The topic to use for the test."),
    Flag::switch("version", "Display Kafka version."),
];

const REQUIRED: [&str; 5] = ["bootstrap-server", "topic", "num-records", "producer-acks", "record-size"];
/// How long a message may take to come back.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many messages there are between two lines.
const STEP: usize = 1000;
/// How long the end of a producer and of a consumer is waited for.
const CLOSING: Duration = Duration::from_secs(1);

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    end(execute(arguments), FLAGS, |thrown| {
        print_error(&format!("{}\n", thrown.caught().0));
        1
    })
}

fn execute(arguments: &[String]) -> Result<(), Ended> {
    let options = read_with(&[], FLAGS, ABOUT, &named(arguments)?)?;
    need(&options, &REQUIRED)?;
    let test = Test::new(&options)?;
    let mut settings = properties(&options, &["command-config"], &[])?;
    let mut set = |key: &str, value: &str| settings.push((key.to_owned(), value.to_owned()));
    set("bootstrap.servers", options.value("bootstrap-server")?.unwrap_or_default());
    // No waiting for more than one message.
    set("linger.ms", "0");
    set("fetch.max.wait.ms", "0");
    set("max.block.ms", &i64::MAX.to_string());
    set("acks", &test.acks);
    set("group.id", &format!("test-group-{}", now_ms()));
    set("enable.auto.commit", "false");
    set("auto.offset.reset", "latest");
    let connection = Connection::of_properties("milena-tool", settings).map_err(|error| java::config(&error))?;
    run_client(&connection, async |client| test.run(client, &connection).await)
}

/// The arguments by their names; Kafka's deprecated form gives them by their places.
fn named(arguments: &[String]) -> Result<Vec<String>, Ended> {
    let by_name = |argument: &String| REQUIRED.iter().any(|name| argument.strip_prefix("--") == Some(name));
    if arguments.is_empty() || arguments.iter().any(by_name) {
        return Ok(arguments.to_vec());
    }
    if ![5, 6].contains(&arguments.len()) {
        return Err(Thrown::argument(format!(
            "Invalid number of arguments. Expected 5 or 6 positional arguments, but got {}. Usage: bootstrap-server topic \
             num-records producer-acks record-size [optional] command-config",
            arguments.len()
        ))
        .into());
    }
    print(
        "WARNING: Positional argument usage is deprecated and will be removed in Apache Kafka 5.0. Please use named \
         arguments instead: --bootstrap-server, --topic, --num-records, --producer-acks, --record-size, --command-config\n",
    );
    let names = REQUIRED.into_iter().chain(["command-config"]);
    Ok(names.zip(arguments).flat_map(|(name, value)| [format!("--{name}"), value.clone()]).collect())
}

/// What is to be sent.
struct Test {
    topic: String,
    records: usize,
    acks: String,
    value: usize,
    key: usize,
    headers: usize,
    header_key: usize,
    /// Null without.
    header_value: Option<usize>,
}

impl Test {
    fn new(options: &Options) -> Result<Self, Ended> {
        let number = |name| Ok::<i32, Ended>(options.number(name)?.unwrap_or_default());
        let wrong = |message: String| Ended::Usage(message);
        let size = |name: &'static str| {
            let size = number(name)?;
            usize::try_from(size).map_err(|_| wrong(format!("Value for --{name} must be a non-negative integer.")))
        };
        let acks = options.value("producer-acks")?.unwrap_or_default().to_owned();
        if !["1", "all"].contains(&&*acks) {
            return Err(wrong(
                "Invalid value for --producer-acks. Latency testing requires synchronous acknowledgement. Please use '1' \
                 or 'all'."
                    .to_owned(),
            ));
        }
        let records = usize::try_from(number("num-records")?).ok().filter(|records| *records > 0);
        let records = records.ok_or_else(|| wrong("Value for --num-records must be a positive integer.".to_owned()))?;
        let (value, key, header_key) =
            (size("record-size")?, size("record-key-size")?, size("record-header-key-size")?);
        let header_value = match number("record-header-size")? {
            -1 => None,
            size => Some(usize::try_from(size).map_err(|_| {
                let message =
                    "Value for --record-header-size must be a non-negative integer or -1 for null header value.";
                wrong(message.to_owned())
            })?),
        };
        let topic = options.value("topic")?.unwrap_or_default().to_owned();
        Ok(Self { topic, records, acks, value, key, headers: size("num-headers")?, header_key, header_value })
    }

    async fn run(&self, client: &Client, connection: &Connection) -> Result<(), Ended> {
        let topics = client.admin().list_topics().await.map_err(of_consumer)?;
        if !topics.iter().any(|topic| topic.name == self.topic) {
            self.create(client).await?;
        }
        let consumer = client.consumer().properties(connection.properties())?.build()?;
        let producer = client.producer().properties(connection.properties())?.build()?;
        let mut trips = RoundTrips::begin(client, producer, consumer, &self.topic).await.map_err(of_consumer)?;
        let outcome = self.measure(&mut trips).await;
        trips.close(CLOSING).await;
        outcome
    }

    async fn create(&self, client: &Client) -> Result<(), Ended> {
        print(&format!(
            "Topic \"{}\" does not exist. Will create topic with 1 partition(s) and replication factor = 1\n",
            self.topic
        ));
        let topic = NewTopic { partitions: Some(1), replication_factor: Some(1), ..NewTopic::named(&self.topic) };
        let created = client.admin().create_topics(vec![topic], false).await;
        let created = created.and_then(|outcomes| outcomes.into_iter().try_for_each(|(_, outcome)| outcome.map(drop)));
        created.map_err(|error| {
            print(&format!("Creation of topic {} failed\n", self.topic));
            Thrown::new(java::RUNTIME, java::thrown(&error).caught().1).into()
        })
    }

    async fn measure(&self, trips: &mut RoundTrips) -> Result<(), Ended> {
        let mut random = SplittableRandom::new(0);
        let (mut total, mut latencies) = (0.0, Vec::new());
        for number in 0..self.records {
            let (key, value) = (letters(&mut random, self.key), letters(&mut random, self.value));
            let headers: Vec<(String, Option<String>)> = (0..self.headers)
                .map(|_| {
                    let key = letters(&mut random, self.header_key);
                    (key, self.header_value.map(|size| letters(&mut random, size)))
                })
                .collect();
            let headers: Vec<Header<'_>> =
                headers.iter().map(|(key, value)| (&**key, value.as_deref().map(str::as_bytes))).collect();
            let record = Record::to(&self.topic).key(&key).value(&value).headers(&headers);
            let (latency, records) =
                trips.send(&record, PATIENCE, |_| true).await.map_err(|error| java::send_error(&error, &self.topic))?;
            if let Err(message) = check(records.as_ref(), &key, &value, &headers) {
                trips.commit().await?;
                return Err(Thrown::new(java::RUNTIME, message).into());
            }
            let millis = latency.as_nanos() as f64 / 1000.0 / 1000.0;
            if number.is_multiple_of(STEP) {
                print(&format!("{number}\t{}\n", java_text::double(millis)));
            }
            total += millis;
            latencies.push(latency.as_millis());
        }
        latencies.sort_unstable();
        let percentile = |part: f64| latencies[(latencies.len() as f64 * part) as usize];
        print(&format!(
            "Avg latency: {} ms\nPercentiles: 50th = {}, 99th = {}, 99.9th = {}\n",
            java::fixed(total / self.records as f64, 4),
            percentile(0.5),
            percentile(0.99),
            percentile(0.999),
        ));
        Ok(trips.commit().await?)
    }
}

/// A text of one letter, so many times.
fn letters(random: &mut SplittableRandom, size: usize) -> String {
    char::from(b'A' + random.below(26) as u8).to_string().repeat(size)
}

/// Whether exactly what was sent came back; what did not, in Kafka's words.
fn check(records: Option<&ConsumerRecords>, key: &str, value: &str, headers: &[Header<'_>]) -> Result<(), String> {
    let Some((records, record)) = records.and_then(|records| Some((records, records.get(0)?))) else {
        let ms = PATIENCE.as_millis();
        return Err(format!("poll() timed out before finding a result (timeout:[{ms}ms])"));
    };
    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let same = |what: &str, read: String, sent: &str| match read == sent {
        true => Ok(()),
        false => Err(format!("The message {what} read [{read}] did not match the message {what} sent [{sent}]")),
    };
    same("value", text(record.value), value)?;
    if record.key.is_none() {
        return Err("Expected message key but received null".to_owned());
    }
    same("key", text(record.key), key)?;
    check_headers(&record, headers)?;
    match records.len() {
        1 => Ok(()),
        count => Err(format!("Only one result was expected during this test. We found [{count}]")),
    }
}

fn check_headers(record: &ConsumerRecord<'_>, sent: &[Header<'_>]) -> Result<(), String> {
    let read: Vec<(String, Option<&[u8]>)> =
        record.headers.iter().map(|header| (String::from_utf8_lossy(header.key).into_owned(), header.value)).collect();
    if read.is_empty() && !sent.is_empty() {
        return Err("Expected message headers but received none".to_owned());
    }
    if let Some((read, sent)) = read.iter().zip(sent).find(|((key, value), sent)| (&**key, *value) != **sent) {
        let shown = |value: Option<&[u8]>| value.map_or("null".to_owned(), |bytes| format!("{bytes:?}"));
        let (read, sent) = (format!("{}:{}", read.0, shown(read.1)), format!("{}:{}", sent.0, shown(sent.1)));
        return Err(format!("The message header read [{read}] did not match the message header sent [{sent}]"));
    }
    match sent.is_empty() || read.len() == sent.len() {
        true => Ok(()),
        false => Err("Header count mismatch between sent and received messages".to_owned()),
    }
}

/// What the consumer throws.
fn of_consumer(error: Error) -> Thrown {
    match error {
        Error::Timeout { .. } => Thrown::new(java::TIMEOUT, "Timeout expired while fetching topic metadata"),
        other => java::send_error(&other, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn places_stand_for_names() {
        let expected = "--bootstrap-server b:1 --topic t --num-records 5 --producer-acks 1 --record-size 20";
        assert_eq!(named(&words("b:1 t 5 1 20")).unwrap().join(" "), expected);
        assert_eq!(named(&words("b:1 t 5 1 20 f")).unwrap().join(" "), format!("{expected} --command-config f"));
        assert_eq!(named(&words(expected)).unwrap(), words(expected));
        let Err(Ended::Thrown(thrown)) = named(&words("--help")) else { panic!("it is one place") };
        assert!(
            thrown
                .message
                .starts_with("Invalid number of arguments. Expected 5 or 6 positional arguments, but got 1. ")
        );
    }

    #[test]
    fn sizes_and_acks_that_make_no_sense_are_refused() {
        let refused = |more: &str| {
            let line = format!("--bootstrap-server b:1 --topic t {more}");
            match execute(&words(&line)) {
                Err(Ended::Usage(message)) => message,
                other => panic!("{line}: {other:?}"),
            }
        };
        assert_eq!(refused("--num-records 1"), "Missing required argument \"[producer-acks]\"");
        let refused = |more: &str| refused(&format!("{more} --record-size 1"));
        assert!(refused("--num-records 1 --producer-acks 0").starts_with("Invalid value for --producer-acks."));
        let positive = "Value for --num-records must be a positive integer.";
        assert_eq!(refused("--num-records 0 --producer-acks all"), positive);
        let refused = |more: &str| refused(&format!("--num-records 1 --producer-acks all {more}"));
        let headers = "Value for --num-headers must be a non-negative integer.";
        assert_eq!(refused("--num-headers -1"), headers);
        let value = "Value for --record-header-size must be a non-negative integer or -1 for null header value.";
        assert_eq!(refused("--record-header-size -2"), value);
    }
}
