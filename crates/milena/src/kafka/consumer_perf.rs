//! kafka-consumer-perf-test.

mod dates;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use milena_client::{Consumer, RebalanceListener, SeekTo, TopicPartition};
use milena_io::{RealRng, Rng};
use parking_lot::Mutex;

use super::options::{Flag, Options};
use super::{Ended, Thrown, end, java, metrics, need, now_ms, one_of, properties, read_with, refuse};
use crate::connect::{Connection, Properties, run_client};
use crate::output::{print, print_error};
use dates::DateFormat;
use java::fixed;

const ABOUT: &str = "This tool is used to verify the consumer performance.";

const FLAGS: &[Flag] = &[
    Flag::value("bootstrap-server", "REQUIRED: The server(s) to connect to."),
    Flag::value("command-config", "Config properties file."),
    Flag::value("command-property", "Consumer config properties in the form key=value."),
    Flag::value("consumer.config", "(DEPRECATED) Use --command-config instead."),
    Flag::value(
        "date-format",
        "How times are printed, as java.text.SimpleDateFormat. (default: yyyy-MM-dd HH:mm:ss:SSS)",
    ),
    Flag::value("fetch-size", "The maximum amount of data to fetch from a partition per request. (default: 1048576)"),
    Flag::switch(
        "from-latest",
        "Start with the latest record rather than the earliest, without an established offset.",
    ),
    Flag::value("group", "The group id to consume on. (default: perf-consumer-<random>)"),
    Flag::switch("help", "Print usage information."),
    Flag::switch("hide-header", "Skip printing the header for the stats."),
    Flag::value("include", "Regular expression specifying list of topics to include for consumption."),
    Flag::value("messages", "(DEPRECATED) Use --num-records instead."),
    Flag::value("num-records", "REQUIRED: The number of records to consume."),
    Flag::switch("print-metrics", "Print out the metrics."),
    Flag::value("reporting-interval", "Milliseconds between two lines of detailed stats. (default: 5000)"),
    Flag::switch("show-detailed-stats", "Report stats for each reporting interval."),
    Flag::value("socket-buffer-size", "The size of the tcp RECV size. (default: 2097152)"),
    Flag::maybe("timeout", "The maximum milliseconds between returned records. (default: 10000)"),
    Flag::value("topic", "The topic to consume from."),
    Flag::switch("version", "Display Kafka version."),
];

const MIB: f64 = 1024.0 * 1024.0;
/// How long one look for records is.
const LOOK: Duration = Duration::from_millis(100);
/// How long the consumer may take to commit and to leave its group.
const CLOSING: Duration = Duration::from_secs(30);

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    end(execute(arguments), FLAGS, |thrown| {
        print_error(&format!("{}\n", thrown.message));
        1
    })
}

fn execute(arguments: &[String]) -> Result<(), Ended> {
    let options = read_with(&[], FLAGS, ABOUT, arguments)?;
    need(&options, &["bootstrap-server"])?;
    one_of(&options, ["topic", "include"])?;
    one_of(&options, ["messages", "num-records"])?;
    refuse(&options, "consumer.config", &["command-config"])?;
    for (old, new) in [("messages", "num-records"), ("consumer.config", "command-config")] {
        if options.has(old) {
            print(&format!("Warning: --{old} is deprecated. Use --{new} instead.\n"));
        }
    }
    let detailed = options.has("show-detailed-stats");
    if !options.has("hide-header") {
        let first = if detailed { "time, threadId" } else { "start.time, end.time" };
        print(&format!(
            "{first}, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, \
             fetch.MB.sec, fetch.nMsg.sec\n"
        ));
    }
    let connection = Connection::of_properties("perf-consumer-client", consumer_properties(&options)?)
        .map_err(|error| java::config(&error))?;
    let test = Test::new(&options)?;
    run_client(&connection, async |client| {
        let consumer = client.consumer().properties(connection.properties())?.build()?;
        test.run(consumer, detailed, options.has("print-metrics")).await
    })
}

/// The consumer's settings: options win over all others.
fn consumer_properties(options: &Options) -> Result<Properties, Ended> {
    let mut properties = properties(options, &["command-config", "consumer.config"], &["command-property"])?;
    let group = match options.value("group")? {
        Some(group) => group.to_owned(),
        None => {
            let mut drawn = [0; 4];
            RealRng.fill(&mut drawn);
            format!("perf-consumer-{}", u32::from_be_bytes(drawn) % 100_000)
        }
    };
    let number = |name, default: i32| Ok::<_, Ended>(options.number(name)?.unwrap_or(default).to_string());
    let reset = if options.has("from-latest") { "latest" } else { "earliest" };
    let given = [
        ("bootstrap.servers", options.value("bootstrap-server")?.unwrap_or_default().to_owned()),
        ("group.id", group),
        ("receive.buffer.bytes", number("socket-buffer-size", 2 << 20)?),
        ("max.partition.fetch.bytes", number("fetch-size", 1 << 20)?),
        ("auto.offset.reset", reset.to_owned()),
        ("check.crcs", "false".to_owned()),
    ];
    properties.extend(given.map(|(key, value)| (key.to_owned(), value)));
    Ok(properties)
}

/// What is to be read, and how it is told.
struct Test {
    topic: Option<String>,
    include: Option<String>,
    records: i64,
    /// The longest time between two lots of records, ms.
    timeout: i64,
    /// Time between two reports, ms.
    interval: i64,
    dates: DateFormat,
}

/// What was read: records, and bytes of their keys and values.
#[derive(Debug, Clone, Copy, Default)]
struct Read {
    records: i64,
    bytes: i64,
}

impl Read {
    fn mib(self) -> f64 {
        self.bytes as f64 / MIB
    }

    fn since(self, before: Self) -> Self {
        Self { records: self.records - before.records, bytes: self.bytes - before.bytes }
    }
}

impl Test {
    fn new(options: &Options) -> Result<Self, Ended> {
        let text = |name| Ok::<_, Ended>(options.value(name)?.map(str::to_owned));
        let records = options.number("messages")?.or(options.number("num-records")?).unwrap_or_default();
        let timeout = options.number("timeout")?.unwrap_or(10_000);
        let interval = options.number("reporting-interval")?.unwrap_or(5000);
        if interval <= 0 {
            return Err(Thrown::argument("Reporting interval must be greater than 0.").into());
        }
        let dates = DateFormat::new(options.value("date-format")?.unwrap_or("yyyy-MM-dd HH:mm:ss:SSS"))?;
        let (topic, include) = (text("topic")?, text("include")?);
        Ok(Self { topic, include, records, timeout, interval, dates })
    }

    async fn run(&self, mut consumer: Consumer, detailed: bool, print_metrics: bool) -> Result<(), Ended> {
        let start = now_ms();
        let joins = Joins::new(start);
        consumer.on_rebalance(joins.clone());
        match (&self.topic, &self.include) {
            (None, Some(pattern)) => consumer.subscribe_pattern(pattern)?,
            (topic, _) => consumer.subscribe(topic)?,
        }
        let read = self.read(&mut consumer, &joins, detailed).await?;
        let stopped = now_ms();
        if let Err(error) = consumer.close(CLOSING).await {
            print_error(&format!("ERROR {}\n", java::send_error(&error, "").text()));
        }
        if !detailed {
            let (elapsed, joining) = (stopped - start, joins.millis());
            let rates = rates(read, elapsed, elapsed - joining);
            let (start, stopped) = (self.dates.format(start), self.dates.format(stopped));
            print(&format!("{start}, {stopped}, {}", line(read, rates, joining, elapsed - joining)));
        }
        if print_metrics {
            let id = "{client-id=perf-consumer-client}";
            let name = |metric: &str| format!("consumer-fetch-manager-metrics:{metric}:{id}");
            let (bytes, records) = (name("bytes-consumed-total"), name("records-consumed-total"));
            let number = |count: i64| count.unsigned_abs();
            print(&metrics::text(&[(&bytes, number(read.bytes)), (&records, number(read.records))]));
        }
        Ok(())
    }

    /// Reads until there are enough, or until nothing came for too long.
    async fn read(&self, consumer: &mut Consumer, joins: &Joins, detailed: bool) -> Result<Read, Ended> {
        let mut now = now_ms();
        let (mut consumed, mut reported) = (now, (now, Read::default()));
        let mut joining = None;
        let mut read = Read::default();
        while read.records < self.records && now - consumed <= self.timeout {
            let records = match consumer.poll(LOOK).await {
                Err(error) if error.is_retriable() => None,
                other => other.map_err(|error| java::send_error(&error, ""))?,
            };
            now = now_ms();
            let Some(records) = records else { continue };
            consumed = now;
            for record in records.iter() {
                read.records += 1;
                let length = |bytes: Option<&[u8]>| bytes.map_or(0, |bytes| bytes.len() as i64);
                read.bytes += length(record.key) + length(record.value);
                let elapsed = now - reported.0;
                if elapsed >= self.interval {
                    if detailed {
                        // Only the first line knows how long it took to join.
                        let joining = joining.unwrap_or_else(|| joins.millis());
                        let window = read.since(reported.1);
                        let mut rates = rates(window, elapsed, elapsed - joining);
                        if elapsed <= joining {
                            rates[2..].fill(0.0);
                        }
                        let time = self.dates.format(now);
                        print(&format!("{time}, 0, {}", line(read, rates, joining, elapsed - joining)));
                    }
                    (joining, reported) = (Some(0), (now, read));
                }
            }
        }
        if read.records < self.records {
            print(&format!(
                "WARNING: Exiting before consuming the expected number of records: timeout ({} ms) exceeded. You can use \
                 the --timeout option to increase the timeout.\n",
                self.timeout
            ));
        }
        Ok(read)
    }
}

/// MB and records a second, of all the time and of that in which records were fetched.
fn rates(read: Read, elapsed: i64, fetching: i64) -> [f64; 4] {
    let seconds = |ms: i64| ms as f64 / 1000.0;
    let (mib, records) = (read.mib(), read.records as f64);
    [mib / seconds(elapsed), records / seconds(elapsed), mib / seconds(fetching), records / seconds(fetching)]
}

fn line(read: Read, rates: [f64; 4], joining: i64, fetching: i64) -> String {
    let [mib, records, fetched_mib, fetched_records] = rates.map(|rate| fixed(rate, 4));
    let (read_mib, count) = (fixed(read.mib(), 4), read.records);
    format!("{read_mib}, {mib}, {count}, {records}, {joining}, {fetching}, {fetched_mib}, {fetched_records}\n")
}

/// How long it took until there were partitions to read.
#[derive(Debug, Clone)]
struct Joins(Arc<Mutex<Joining>>);

#[derive(Debug)]
struct Joining {
    /// Since when there are none.
    since: i64,
    millis: i64,
    partitions: Vec<TopicPartition>,
}

impl Joins {
    fn new(since: i64) -> Self {
        Self(Arc::new(Mutex::new(Joining { since, millis: 0, partitions: Vec::new() })))
    }

    fn millis(&self) -> i64 {
        self.0.lock().millis
    }

    fn gone(&self, partitions: &[TopicPartition]) {
        let mut joining = self.0.lock();
        joining.partitions.retain(|partition| !partitions.contains(partition));
        if joining.partitions.is_empty() {
            joining.since = now_ms();
        }
    }
}

impl RebalanceListener for Joins {
    fn assigned(&mut self, partitions: &[TopicPartition]) -> Vec<(TopicPartition, SeekTo)> {
        let mut joining = self.0.lock();
        if joining.partitions.is_empty() {
            joining.millis += now_ms() - joining.since;
        }
        joining.partitions.extend_from_slice(partitions);
        Vec::new()
    }

    fn revoked(
        &mut self,
        partitions: &[TopicPartition],
    ) -> Vec<(TopicPartition, milena_client::admin::CommittedOffset)> {
        self.gone(partitions);
        Vec::new()
    }

    fn lost(&mut self, partitions: &[TopicPartition]) {
        self.gone(partitions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        match execute(&words) {
            Err(Ended::Usage(message)) => message,
            Err(Ended::Thrown(thrown)) => thrown.message,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_line_that_lacks_something_or_contradicts_itself_is_refused() {
        assert_eq!(refused("--topic t"), "Missing required argument \"[bootstrap-server]\"");
        let refused = |more: &str| refused(&format!("--hide-header --bootstrap-server b:1 {more}"));
        let one = |names: &str| format!("Exactly one of the following arguments is required: {names}");
        assert_eq!(refused("--num-records 1"), one("[topic], [include]"));
        assert_eq!(refused("--topic t"), one("[messages], [num-records]"));
        assert_eq!(refused("--topic t --num-records 1 --messages 1"), one("[messages], [num-records]"));
        let both = "Option \"[consumer.config]\" can't be used with option \"[command-config]\"";
        assert_eq!(refused("--topic t --num-records 1 --consumer.config a --command-config b"), both);
        let interval = "--topic t --num-records 1 --reporting-interval";
        assert_eq!(refused(&format!("{interval} 0")), "Reporting interval must be greater than 0.");
        assert_eq!(refused(&format!("{interval} x")), "Cannot parse argument 'x' of option reporting-interval");
    }

    #[test]
    fn no_time_for_fetching_is_told_as_by_java() {
        let read = Read { records: 10, bytes: 1 << 20 };
        assert_eq!(
            line(read, rates(read, 2000, 1000), 1000, 1000),
            "1.0000, 0.5000, 10, 5.0000, 1000, 1000, 1.0000, 10.0000\n"
        );
        let infinite = line(read, rates(read, 2000, 0), 2000, 0);
        assert!(infinite.ends_with(", 2000, 0, Infinity, Infinity\n"), "{infinite}");
    }
}
