//! What consuming costs: receives records of a topic from its beginning as fast as they come, and says how many a second and
//! how much of a processor each takes. `consume BOOTSTRAP TOPIC COUNT [KEY=VALUE]…`, where the settings are a consumer's.

use std::time::{Duration, Instant};

use milena_client::{Client, Error, OffsetReset, TopicPartition};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bootstrap, topic, count, settings @ ..] = &*arguments else {
        return Err("usage: consume BOOTSTRAP TOPIC COUNT [KEY=VALUE]…".into());
    };
    let settings = settings.iter().filter_map(|setting| setting.split_once('='));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let begun = Instant::now();
    let (count, bytes) = runtime.block_on(consume(bootstrap, topic, count.parse()?, settings))?;
    let elapsed = begun.elapsed().as_secs_f64();
    let cpu = processor_seconds();
    println!("{count} records, {bytes} bytes in {elapsed:.2} s: {:.0} records/s", count as f64 / elapsed);
    println!("processor: {cpu:.2} s, {:.0} ns a record", cpu * 1e9 / count as f64);
    Ok(())
}

async fn consume<'a>(
    bootstrap: &str,
    topic: &str,
    wanted: u64,
    settings: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(u64, u64), Error> {
    let client = Client::builder().bootstrap_servers(bootstrap).build()?;
    let mut consumer = client.consumer().offset_reset(OffsetReset::Earliest).properties(settings)?.build()?;
    let partitions = client.topic(topic, false).await?.partitions.len();
    consumer.assign((0..).take(partitions).map(|partition| TopicPartition::new(topic, partition)));
    let (mut count, mut bytes) = (0, 0);
    while count < wanted {
        let records = consumer.recv().await?;
        for record in &records {
            count += 1;
            bytes += record.value.map_or(0, |value| value.len() as u64);
        }
    }
    consumer.close(Duration::from_secs(10)).await?;
    Ok((count, bytes))
}

/// Time of the processor that this process has taken, from the system's own accounting in hundredths of a second.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}
