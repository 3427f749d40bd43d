//! What producing costs: sends records of one size as fast as they are taken, and says how many a second and how much of a
//! processor each takes. `produce BOOTSTRAP TOPIC COUNT SIZE [KEY=VALUE]…`, where the settings are a producer's.

use std::time::{Duration, Instant};

use milena_client::{Client, Error, Record};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bootstrap, topic, count, size, settings @ ..] = &*arguments else {
        return Err("usage: produce BOOTSTRAP TOPIC COUNT SIZE [KEY=VALUE]…".into());
    };
    let settings = settings.iter().filter_map(|setting| setting.split_once('='));
    let (count, size) = (count.parse::<u64>()?, size.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let begun = Instant::now();
    runtime.block_on(produce(bootstrap, topic, count, size, settings))?;
    let elapsed = begun.elapsed().as_secs_f64();
    let cpu = processor_seconds();
    println!("{count} records of {size} bytes in {elapsed:.2} s: {:.0} records/s", count as f64 / elapsed);
    println!("processor: {cpu:.2} s, {:.0} ns a record", cpu * 1e9 / count as f64);
    Ok(())
}

async fn produce<'a>(
    bootstrap: &str,
    topic: &str,
    count: u64,
    size: usize,
    settings: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), Error> {
    let client = Client::builder().bootstrap_servers(bootstrap).build()?;
    let producer = client.producer().properties(settings)?.build()?;
    let mut value = vec![b'x'; size];
    let mut last = None;
    for number in 0..count {
        // Not all alike, so that compression has something to do.
        let digits = number.to_be_bytes();
        let len = digits.len().min(size);
        value[..len].copy_from_slice(&digits[..len]);
        last = Some(producer.send(&Record::to(topic).value(&value)).await?);
    }
    producer.flush().await;
    if let Some(last) = last {
        last.await?;
    }
    producer.close(Duration::from_secs(10)).await;
    Ok(())
}

/// Time of the processor that this process has taken, from the system's own accounting in hundredths of a second.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}
