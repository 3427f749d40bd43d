//! Sending records: [`Producer`].
//!
//! A record is written once, by whoever sends it, into the batch of its partition (`accumulator`); one task takes the batches
//! that are ready, sends them, and settles what is answered (`sender`). There is no task, no message and no allocation for a
//! record: those who wait for the records of a batch share what is known of it (`delivery`).

mod accumulator;
mod batch;
mod config;
mod delivery;
mod partitioner;
mod record;
mod sender;
mod sequences;
#[cfg(test)]
mod tests;
mod transaction;

pub use config::{Acks, ProducerBuilder};
pub use delivery::Delivery;
pub use partitioner::{Partitioner, RoundRobin, partition_of_key};
pub use record::{Header, Record, RecordMetadata};
pub use transaction::{GroupMetadata, Transaction};

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::Instrument;

use crate::client::Client;
use crate::error::Error;
use crate::metrics::ProducerMetrics;
use accumulator::{Accumulator, Refusal};
use config::ProducerConfig;
use sender::Sender;
use transaction::Transactions;

/// Sends records. Cheap to clone, and all clones share batches, memory and settings.
///
/// ```no_run
/// use milena_client::{Client, Record};
///
/// # async fn example() -> Result<(), milena_client::Error> {
/// let client = Client::builder().bootstrap_servers("localhost:9092").build()?;
/// let producer = client.producer().build()?;
///
/// // Wait for one record …
/// let written = producer.send(&Record::to("orders").key("42").value("apples")).await?.await?;
/// println!("partition {}, offset {:?}", written.partition, written.offset);
///
/// // … or send many, and wait for all of them together.
/// for number in 0..1000 {
///     producer.send(&Record::to("orders").value(&format!("order {number}"))).await?;
/// }
/// producer.flush().await;
/// producer.close(std::time::Duration::from_secs(10)).await;
/// # Ok(())
/// # }
/// ```
///
/// When the last clone is dropped, what was sent still goes out; [`close`](Self::close) waits for that.
#[derive(Debug, Clone)]
pub struct Producer(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    client: Client,
    config: Arc<ProducerConfig>,
    accumulator: Arc<Accumulator>,
    transactions: Option<Arc<Transactions>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.accumulator.end(Error::Closed);
    }
}

impl Producer {
    fn start(client: Client, config: ProducerConfig) -> Self {
        let config = Arc::new(config);
        let metrics = ProducerMetrics::new(&client.config().client_id);
        let accumulator = Arc::new(Accumulator::new(Arc::clone(&config), metrics));
        let transactions = config.transactional_id.as_ref().map(|_| Arc::new(Transactions::new()));
        let sender = Sender::new(client.clone(), Arc::clone(&config), Arc::clone(&accumulator), transactions.clone());
        let span = tracing::debug_span!("producer", transactional_id = config.transactional_id.as_deref());
        let task = Mutex::new(Some(tokio::spawn(sender.run().instrument(span))));
        Self(Arc::new(Handle { client, config, accumulator, transactions, task }))
    }

    /// Gives a record to the producer, and says how to hear of its end. Waits while `buffer.memory` is used up, and for a
    /// topic that is new to the producer, up to `max.block.ms`. A future that is dropped before has sent nothing.
    ///
    /// # Errors
    /// When the record is too large, the topic can't be had, or time is up. What goes wrong later is told by the
    /// [`Delivery`].
    pub async fn send(&self, record: &Record<'_>) -> Result<Delivery, Error> {
        if self.0.transactions.is_some() {
            return Err(Error::config("transactional.id", "records of this producer are sent in a transaction"));
        }
        self.send_any(record).await
    }

    /// Begins a transaction of a producer with a `transactional.id`. Waits until the one before has its end; the first time,
    /// also until transactions of an earlier producer with this id have.
    ///
    /// ```no_run
    /// use milena_client::{Client, Record};
    ///
    /// # async fn example() -> Result<(), milena_client::Error> {
    /// let client = Client::builder().bootstrap_servers("localhost:9092").build()?;
    /// let producer = client.producer().transactional_id("orders-1").build()?;
    /// let transaction = producer.begin().await?;
    /// transaction.send(&Record::to("orders").value("apples")).await?;
    /// transaction.send(&Record::to("stock").value("-3")).await?;
    /// // Without this, or after an error, both are aborted.
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Transaction`] when the producer can't have any more transactions.
    pub async fn begin(&self) -> Result<Transaction, Error> {
        Transaction::begin(self).await
    }

    fn transactions(&self) -> Result<&Transactions, Error> {
        let none = || Error::config("transactional.id", "is needed for transactions");
        self.0.transactions.as_deref().ok_or_else(none)
    }

    fn transactional_id(&self) -> &str {
        self.0.config.transactional_id.as_deref().unwrap_or_default()
    }

    fn client(&self) -> &Client {
        &self.0.client
    }

    /// Lets the sender see what has changed, and send what is there.
    fn wake_sender(&self) {
        drop(self.0.accumulator.flush());
    }

    async fn send_any(&self, record: &Record<'_>) -> Result<Delivery, Error> {
        // Who sends record after record must let the sender have its turn.
        consume_budget().await;
        let timestamp = record.timestamp.unwrap_or_else(now_ms);
        match self.0.accumulator.append(record, timestamp) {
            Ok(delivery) => Ok(delivery),
            Err(Refusal::Failed(error)) => Err(error),
            Err(_) => self.send_slowly(record, timestamp).await,
        }
    }

    async fn send_slowly(&self, record: &Record<'_>, timestamp: i64) -> Result<Delivery, Error> {
        let max_block = self.0.config.max_block;
        let until = Instant::now() + max_block;
        let mut last = None;
        let mut failures = 0;
        loop {
            let room = self.0.accumulator.room();
            let what = match self.0.accumulator.append(record, timestamp) {
                Ok(delivery) => return Ok(delivery),
                Err(Refusal::Failed(error)) => return Err(error),
                Err(Refusal::NoRoom) => {
                    if timeout_at(until, room).await.is_ok() {
                        continue;
                    }
                    self.0.accumulator.metrics.buffer_exhausted_total.increment(1);
                    "room in buffer.memory".to_owned()
                }
                Err(Refusal::Unknown) => {
                    match timeout_at(until, self.learn(record, failures)).await {
                        Ok(Ok(())) => continue,
                        Ok(Err(error)) if error.is_retriable() => {
                            failures += 1;
                            last = Some(error);
                            continue;
                        }
                        Ok(Err(error)) => return Err(error),
                        Err(_) => {}
                    }
                    format!("metadata of topic {}", record.topic)
                }
            };
            return Err(Error::timeout(what, max_block, last));
        }
    }

    /// Learns the record's topic; what was learnt before and was not enough is not looked at again.
    async fn learn(&self, record: &Record<'_>, failures: u32) -> Result<(), Error> {
        let client = &self.0.client;
        if failures > 0 {
            sleep(client.config().retry_backoff.after(failures)).await;
        }
        let topic = client.topic(record.topic, true).await?;
        let exists = |partition: i32| topic.partition(partition).is_some();
        let enough = record.partition.map_or(!topic.partitions.is_empty(), exists);
        if !enough {
            topic.expire();
        }
        self.0.accumulator.put_topic(topic);
        if enough { Ok(()) } else { Err(milena_protocol::ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.into()) }
    }

    /// The number of partitions of a topic, which is learnt if it is new to the producer.
    ///
    /// # Errors
    /// When the topic can't be had.
    pub async fn partitions(&self, topic: &str) -> Result<usize, Error> {
        Ok(self.0.client.topic(topic, true).await?.partitions.len())
    }

    /// Sends what is there without waiting for more, and waits until every record given so far has its end. What the end is,
    /// their [`Delivery`] tells.
    pub async fn flush(&self) {
        for completion in self.0.accumulator.flush() {
            completion.ended().await;
        }
    }

    /// Takes no more records from any clone, sends what is there, and waits for the ends of all. Records that have none when
    /// `patience` is over fail with [`Error::Closed`]; then the producer's task is gone.
    pub async fn close(&self, patience: Duration) {
        let until = Instant::now() + patience;
        self.0.accumulator.end(Error::Closed);
        let task = self.0.task.lock().take();
        let Some(mut task) = task else { return };
        if timeout_at(until, &mut task).await.is_err() {
            task.abort();
            // Ended, or was aborted; either way it is gone.
            let _ = task.await;
        }
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
