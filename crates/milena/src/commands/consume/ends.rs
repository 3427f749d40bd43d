//! Where partitions ended when the reading began, and whether it has come so far.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use milena_client::{Consumer, TopicPartition};

/// The partitions that have not been read to where they ended.
#[derive(Debug, Default)]
pub struct Ends(BTreeMap<TopicPartition, i64>);

impl Ends {
    /// Where each partition ends.
    pub async fn of(consumer: &mut Consumer, partitions: &[TopicPartition]) -> Result<Self> {
        let mut ends = BTreeMap::new();
        for (partition, end) in consumer.end_offsets(partitions).await {
            let end = end.with_context(|| format!("partition {partition}"))?;
            ends.insert(partition, end);
        }
        Ok(Self(ends))
    }

    /// The partitions.
    pub fn partitions(&self) -> Vec<TopicPartition> {
        self.0.keys().cloned().collect()
    }

    /// Where one of the partitions ended.
    pub fn of_partition(&self, partition: &TopicPartition) -> i64 {
        self.0[partition]
    }

    /// Whether all partitions were read to where they ended. Behind the last record there may be others that nobody gets, such
    /// as the end of a transaction.
    pub async fn reached(&mut self, consumer: &mut Consumer) -> Result<bool> {
        while let Some((partition, end)) = self.0.first_key_value() {
            if consumer.position(partition).await? < *end {
                return Ok(false);
            }
            self.0.pop_first();
        }
        Ok(true)
    }
}
