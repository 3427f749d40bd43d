//! kafka-console-producer.

use std::io::{IsTerminal, stdin, stdout};
use std::process::ExitCode;
use std::time::Duration;

use milena_client::{Error, Producer};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::line_reader;
use super::options::{Flag, Options};
use super::{Ended, Thrown, check_servers, end, java, need, properties, read_with};
use crate::connect::{Connection, Properties, run_client};
use crate::deliveries::{Deliveries, Outcome};
use crate::input::lines::Layout;
use crate::input::{Draft, Sink};
use crate::output::{print, print_error};
use crate::signal::Signal;

const ABOUT: &str = "This tool helps to read data from standard input and publish it to Kafka.";

const FLAGS: &[Flag] = &[
    Flag::value("batch-size", "Bytes of a batch. (default: 16384)"),
    Flag::value("bootstrap-server", "REQUIRED: The server(s) to connect to, HOST1:PORT1,HOST2:PORT2."),
    Flag::value("command-config", "Producer config properties file."),
    Flag::value("command-property", "Producer config properties in the form key=value."),
    Flag::maybe("compression-codec", "none, gzip, snappy, lz4 or zstd; gzip without a value."),
    Flag::switch("help", "Print usage information."),
    Flag::value("line-reader", "The class that reads lines. (default: org.apache.kafka.tools.LineMessageReader)"),
    Flag::value("max-block-ms", "How long a send may block. (default: 60000)"),
    Flag::value("max-memory-bytes", "buffer.memory of the producer. (default: 33554432)"),
    Flag::value("max-partition-memory-bytes", "(Deprecated) Use --batch-size instead."),
    Flag::value("message-send-max-retries", "retries of the producer. (default: 3)"),
    Flag::value("metadata-expiry-ms", "metadata.max.age.ms of the producer. (default: 300000)"),
    Flag::value("producer-property", "(DEPRECATED) Use --command-property instead."),
    Flag::value("producer.config", "(DEPRECATED) Use --command-config instead."),
    Flag::value("property", "(DEPRECATED) Use --reader-property instead."),
    Flag::value("reader-config", "Config properties file for the message reader."),
    Flag::value(
        "reader-property",
        "parse.key=false, parse.headers=false, ignore.error=false, key.separator=\\t, headers.delimiter=\\t, \
         headers.separator=,, headers.key.separator=:, null.marker=",
    ),
    Flag::value("request-required-acks", "The required acks of the producer requests. (default: -1)"),
    Flag::value("request-timeout-ms", "The ack timeout of the producer requests. (default: 1500)"),
    Flag::value("retry-backoff-ms", "retry.backoff.ms of the producer. (default: 100)"),
    Flag::value("socket-buffer-size", "send.buffer.bytes of the producer. (default: 102400)"),
    Flag::switch("sync", "Send one record at a time, as they arrive."),
    Flag::value("timeout", "linger.ms of the producer. (default: 1000)"),
    Flag::value("topic", "REQUIRED: The topic name to produce messages to."),
    Flag::switch("version", "Display Kafka version."),
];

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// How long the end of a producer is waited for whose records have theirs.
const CLOSING: Duration = Duration::from_secs(1);

/// Options with a setting of the producer, and its value when neither is given.
const SETTINGS: [(&str, &str, &str); 11] = [
    ("timeout", "linger.ms", "1000"),
    ("request-required-acks", "acks", "-1"),
    ("request-timeout-ms", "request.timeout.ms", "1500"),
    ("message-send-max-retries", "retries", "3"),
    ("retry-backoff-ms", "retry.backoff.ms", "100"),
    ("socket-buffer-size", "send.buffer.bytes", "102400"),
    ("max-memory-bytes", "buffer.memory", "33554432"),
    ("batch-size", "batch.size", "16384"),
    ("max-partition-memory-bytes", "batch.size", "16384"),
    ("metadata-expiry-ms", "metadata.max.age.ms", "300000"),
    ("max-block-ms", "max.block.ms", "60000"),
];

/// Options that go by another name now, with that name, and since when.
const DEPRECATED: [(&str, &str, &str); 4] = [
    ("producer-property", "command-property", "a future version"),
    ("producer.config", "command-config", "a future version"),
    ("property", "reader-property", "a future version"),
    ("max-partition-memory-bytes", "batch-size", "Apache Kafka 5.0"),
];

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    end(execute(arguments), FLAGS, |thrown| {
        let (_, text) = thrown.caught();
        let of_options = thrown.class.starts_with(java::OPTIONS);
        print_error(&format!("{}\n", if of_options { thrown.message } else { text }));
        1
    })
}

fn execute(arguments: &[String]) -> Result<(), Ended> {
    let options = read_with(&[], FLAGS, ABOUT, arguments)?;
    need(&options, &["topic"])?;
    check_servers(options.value("bootstrap-server")?)?;
    check_deprecated(&options)?;
    let properties = client_properties(&options)?;
    let topic = options.value("topic")?.unwrap_or_default();
    let reader = options.value("line-reader")?.unwrap_or(line_reader::CLASS);
    if reader != line_reader::CLASS {
        return Err(Thrown::new("java.lang.ClassNotFoundException", reader).into());
    }
    let layout = line_reader::layout(&reader_properties(&options)?)?;
    let connection = Connection::of_properties("console-producer", properties).map_err(|error| java::config(&error))?;
    run_client(&connection, async |client| {
        let producer = client.producer().properties(connection.properties())?.build()?;
        let sink = Sink::Producer(producer.clone());
        let console = Console { sink, topic, layout, sync: options.has("sync"), waiting: Deliveries::new() };
        let outcome = console.all_lines(&producer).await;
        producer.close(CLOSING).await;
        outcome
    })
}

/// Refuses old and new names beside each other, and warns of the old ones.
fn check_deprecated(options: &Options) -> Result<(), Ended> {
    for (new, old) in [
        ("command-config", "producer.config"),
        ("command-property", "producer-property"),
        ("reader-property", "property"),
    ] {
        if options.has(new) && options.has(old) {
            return Err(Ended::Usage(format!("Options --{new} and --{old} cannot be specified together.")));
        }
    }
    for (old, new, until) in DEPRECATED.iter().filter(|(old, ..)| options.has(old)) {
        print(&format!("Warning: --{old} is deprecated and will be removed in {until}. Use --{new} instead.\n"));
    }
    Ok(())
}

fn reader_properties(options: &Options) -> Result<Properties, Ended> {
    properties(options, &["reader-config"], &["reader-property", "property"])
}

/// The producer's settings: an option wins over a setting, and a setting over the option's default.
fn client_properties(options: &Options) -> Result<Properties, Ended> {
    let mut properties =
        properties(options, &["command-config", "producer.config"], &["command-property", "producer-property"])?;
    let mut set = |key: &str, value: &str| properties.push((key.to_owned(), value.to_owned()));
    set("bootstrap.servers", options.value("bootstrap-server")?.unwrap_or_default());
    let codec = match options.has("compression-codec") {
        true => options.value("compression-codec")?.filter(|codec| !codec.is_empty()).unwrap_or("gzip"),
        false => "none",
    };
    set("compression.type", codec);
    for (option, key, default) in SETTINGS {
        let given = options.value(option)?;
        if given.is_some() && option != "request-required-acks" {
            options.number::<i64>(option)?;
        }
        if given.is_some() || !properties.iter().any(|(set, _)| set == key) {
            properties.push((key.to_owned(), given.unwrap_or(default).to_owned()));
        }
    }
    Ok(properties)
}

/// Bytes of a record's key and value, where it has them.
type Sizes = (Option<usize>, Option<usize>);

/// One run.
struct Console<'c> {
    sink: Sink,
    topic: &'c str,
    layout: Layout,
    /// Whether each record is waited for.
    sync: bool,
    waiting: Deliveries<Sizes>,
}

impl Console<'_> {
    /// Sends each line of standard input, until it ends or a signal says to stop, and waits until all are written or have
    /// failed.
    async fn all_lines(&self, producer: &Producer) -> Result<(), Ended> {
        let mut arrived = |sizes, outcome: Outcome| {
            if let Err(error) = outcome {
                self.log(&error, sizes);
            }
        };
        let work = async {
            tokio::select! {
                outcome = self.lines() => outcome,
                signal = Signal::to_end() => Err(Ended::Stopped(signal)),
            }
        };
        let outcome = self.waiting.during(work, &mut arrived).await;
        self.waiting.flush(producer, &mut arrived).await;
        outcome
    }

    async fn lines(&self) -> Result<(), Ended> {
        let prompt = stdin().is_terminal() && stdout().is_terminal();
        let mut input = BufReader::with_capacity(CHUNK, tokio::io::stdin());
        let (mut bytes, mut number) = (Vec::new(), 0);
        loop {
            if prompt {
                print(">");
            }
            bytes.clear();
            let length = input.read_until(b'\n', &mut bytes).await;
            let length = length.map_err(|error| Thrown::new(java::KAFKA_EXCEPTION, error.to_string()))?;
            if length == 0 {
                return Ok(());
            }
            for line in line_reader::lines(&String::from_utf8_lossy(&bytes)) {
                number += 1;
                let draft = self.layout.read(line.as_bytes());
                self.send(draft.map_err(|flaw| line_reader::thrown(flaw, &self.layout, line, number))?).await?;
            }
        }
    }

    async fn send(&self, draft: Draft<'_>) -> Result<(), Ended> {
        let length = |bytes: &Option<std::borrow::Cow<'_, [u8]>>| bytes.as_ref().map(|bytes| bytes.len());
        let sizes = (length(&draft.key), length(&draft.value));
        let sent = draft.send(&self.sink, self.topic).await;
        let thrown = |error: Error| Thrown { of_future: true, ..java::send_error(&error, self.topic) };
        match sent {
            Ok(delivery) if self.sync => drop(delivery.await.map_err(thrown)?),
            Ok(delivery) => self.waiting.add(delivery, sizes),
            Err(error @ Error::Config { .. }) => return Err(java::config(&error.into()).into()),
            Err(error) if self.sync => return Err(thrown(error).into()),
            Err(error) => self.log(&error, sizes),
        }
        Ok(())
    }

    /// As the producer's callback logs it; the tool goes on.
    fn log(&self, error: &Error, (key, value): Sizes) {
        let size = |bytes: Option<usize>| bytes.map_or("null".to_owned(), |bytes| format!("{bytes} bytes"));
        print_error(&format!(
            "ERROR Error when sending message to topic {} with key: {}, value: {} with error: {}\n",
            self.topic,
            size(key),
            size(value),
            java::send_error(error, self.topic).text()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Options {
        Options::parse(FLAGS, &line.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    /// The value of a setting that wins.
    fn setting(line: &str, key: &str) -> String {
        let properties = client_properties(&options(line)).ok().unwrap();
        properties.into_iter().rfind(|(set, _)| set == key).map(|(_, value)| value).unwrap_or_default()
    }

    #[test]
    fn an_option_wins_over_a_setting_and_that_over_the_default() {
        assert_eq!(setting("--topic t", "acks"), "-1");
        assert_eq!(setting("--command-property acks=1", "acks"), "1");
        assert_eq!(setting("--command-property acks=1 --request-required-acks 0", "acks"), "0");
        assert_eq!(setting("--max-partition-memory-bytes 7 --batch-size 9", "batch.size"), "7");
        assert_eq!(setting("--batch-size 9", "batch.size"), "9");
    }

    #[test]
    fn a_codec_without_a_name_is_gzip() {
        let codec = |line: &str| setting(line, "compression.type");
        assert_eq!(codec("--topic t"), "none");
        assert_eq!(codec("--compression-codec --topic t"), "gzip");
        assert_eq!(codec("--compression-codec zstd"), "zstd");
    }
}
