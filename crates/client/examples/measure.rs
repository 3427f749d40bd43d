//! What the client costs, beside the same programs on top of librdkafka and of the Java client: `bench/clients/README.md` says what each
//! command does, and `cargo xtask bench --clients` runs all of them.

use std::error::Error;
use std::time::Duration;

use milena_client::{Client, Delivery, OffsetReset, Producer, Record, TopicPartition};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

const BLOCK: usize = 1 << 20;

type Outcome<T> = Result<T, Box<dyn Error>>;
type Settings<'a> = Vec<(&'a str, &'a str)>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (settings, plain): (Vec<_>, Vec<_>) = arguments.iter().map(String::as_str).partition(|text| text.contains('='));
    let settings = settings.into_iter().filter_map(|setting| setting.split_once('=')).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        match *plain {
            ["produce", bootstrap, topic, count, warm_up, size] => {
                let producer = producer(bootstrap, settings)?;
                produce(&producer, topic, count.parse()?, warm_up.parse()?, size.parse()?).await
            }
            ["consume", bootstrap, topic, count, warm_up] => {
                consume(bootstrap, topic, count.parse()?, warm_up.parse()?, settings).await
            }
            ["pace", bootstrap, topic, rate, seconds, size] => {
                let producer = producer(bootstrap, settings)?;
                pace(&producer, topic, rate.parse()?, seconds.parse()?, size.parse()?).await
            }
            _ => Err("bench/clients/README.md has the arguments".into()),
        }
    })?;
    println!("{result:.1}");
    Ok(())
}

fn producer(bootstrap: &str, settings: Settings<'_>) -> Outcome<Producer> {
    let client = Client::builder().bootstrap_servers(bootstrap).build()?;
    Ok(client.producer().properties(settings)?.build()?)
}

/// Nanoseconds that a record takes of the processor.
async fn produce(producer: &Producer, topic: &str, count: usize, warm_up: usize, size: usize) -> Outcome<f64> {
    let values = Values::new();
    send_many(producer, topic, &values, warm_up, size).await?;
    let before = processor();
    send_many(producer, topic, &values, count, size).await?;
    Ok((processor() - before) / count as f64)
}

async fn send_many(producer: &Producer, topic: &str, values: &Values, count: usize, size: usize) -> Outcome<()> {
    let mut last = None;
    for number in 0..count {
        last = Some(producer.send(&Record::to(topic).value(values.get(number, size))).await?);
    }
    producer.flush().await;
    if let Some(last) = last {
        last.await?;
    }
    Ok(())
}

/// Nanoseconds that a record takes of the processor.
async fn consume(bootstrap: &str, topic: &str, count: usize, warm_up: usize, settings: Settings<'_>) -> Outcome<f64> {
    let client = Client::builder().bootstrap_servers(bootstrap).build()?;
    let mut consumer = client.consumer().offset_reset(OffsetReset::Earliest).properties(settings)?.build()?;
    consumer.assign([TopicPartition::new(topic, 0)]);
    let (mut seen, mut bytes, mut before) = (0, 0, 0.0);
    while seen < warm_up + count {
        for record in &consumer.recv().await? {
            bytes += record.value.map_or(0, <[u8]>::len);
            seen += 1;
            if seen == warm_up {
                before = processor();
            }
        }
    }
    let result = (processor() - before) / count as f64;
    if bytes == 0 { Err("the records have no values".into()) } else { Ok(result) }
}

/// The 99th percentile of the time from sending to acknowledgement, in microseconds.
async fn pace(producer: &Producer, topic: &str, rate: u32, seconds: u32, size: usize) -> Outcome<f64> {
    let count = (rate * seconds) as usize;
    let values = Values::new();
    let (sender, receiver) = mpsc::channel(count);
    let heard = tokio::spawn(hear(receiver, count));
    let begun = Instant::now();
    for number in 0..count {
        let due = begun + Duration::from_secs(1) / rate * number as u32;
        if Instant::now() < due {
            sleep_until(due).await;
        }
        let sent = Instant::now();
        let delivery = producer.send(&Record::to(topic).value(values.get(number, size))).await?;
        sender.send((sent, delivery)).await?;
    }
    let mut latencies = heard.await??;
    let later = &mut latencies[count / 2..];
    later.sort_unstable();
    Ok(later[later.len() * 99 / 100].as_nanos() as f64 / 1000.0)
}

/// Acknowledgements in the order of their records, which is that of one partition.
async fn hear(
    mut receiver: mpsc::Receiver<(Instant, Delivery)>,
    count: usize,
) -> Result<Vec<Duration>, milena_client::Error> {
    let mut latencies = Vec::with_capacity(count);
    while latencies.len() < count
        && let Some((sent, delivery)) = receiver.recv().await
    {
        delivery.await?;
        latencies.push(sent.elapsed());
    }
    Ok(latencies)
}

/// Values of records: pieces of one block of letters.
struct Values(Vec<u8>);

impl Values {
    fn new() -> Self {
        let mut state = 1_u32;
        let letter = |_| {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12345);
            b'a' + ((state >> 16) % 26) as u8
        };
        Self((0..BLOCK).map(letter).collect())
    }

    fn get(&self, number: usize, size: usize) -> &[u8] {
        &self.0[number * 37 % (BLOCK - size)..][..size]
    }
}

/// Nanoseconds of the processor that this process has taken.
fn processor() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
