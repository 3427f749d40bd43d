//! What the client counts, by way of the crate `metrics`: to nobody until the program installs a recorder. Whoever counts has its
//! handles from its beginning on; nothing is looked up, and nothing is counted for each record.

use std::ops::Deref;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::topic_partition::TopicPartition;

/// Handles by field, each named by its prefix and its field.
macro_rules! handles {
    ($(#[$doc:meta])* $name:ident, $prefix:literal { $($field:ident: $kind:ident $make:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub(crate) struct $name {
            $(pub(crate) $field: $kind,)*
        }

        impl $name {
            pub(crate) fn new(client_id: &str) -> Self {
                let id = client_id.to_owned();
                Self { $($field: $make!(concat!($prefix, stringify!($field)), "client_id" => id.clone()),)* }
            }
        }
    };
}

handles! {
    /// Of connections.
    ConnectionMetrics, "kafka_client_" {
        connection_creation_total: Counter counter,
        connection_close_total: Counter counter,
        request_total: Counter counter,
        response_total: Counter counter,
        outgoing_byte_total: Counter counter,
        incoming_byte_total: Counter counter,
        request_latency_ms: Histogram histogram,
        throttle_time_ms: Histogram histogram,
    }
}

/// A connection while it is open: both its ends are counted, however they come.
#[derive(Debug)]
pub(crate) struct Open(ConnectionMetrics);

impl Open {
    pub(crate) fn new(metrics: ConnectionMetrics) -> Self {
        metrics.connection_creation_total.increment(1);
        Self(metrics)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connection_close_total.increment(1);
    }
}

impl Deref for Open {
    type Target = ConnectionMetrics;

    fn deref(&self) -> &ConnectionMetrics {
        &self.0
    }
}

handles! {
    /// Of a producer.
    ProducerMetrics, "kafka_producer_" {
        record_send_total: Counter counter,
        record_retry_total: Counter counter,
        record_error_total: Counter counter,
        batch_split_total: Counter counter,
        buffer_exhausted_total: Counter counter,
        buffer_available_bytes: Gauge gauge,
        batch_size: Histogram histogram,
        records_per_request: Histogram histogram,
        compression_rate: Histogram histogram,
        record_queue_time_ms: Histogram histogram,
        produce_throttle_time_ms: Histogram histogram,
    }
}

handles! {
    /// Of a consumer.
    ConsumerMetrics, "kafka_consumer_" {
        records_consumed_total: Counter counter,
        bytes_consumed_total: Counter counter,
        fetch_total: Counter counter,
        fetch_size: Histogram histogram,
        fetch_throttle_time_ms: Histogram histogram,
    }
}

/// How many records a consumer is behind in a partition.
pub(crate) fn lag(client_id: &str, partition: &TopicPartition) -> Gauge {
    gauge!(
        "kafka_consumer_records_lag",
        "client_id" => client_id.to_owned(),
        "topic" => partition.topic.to_string(),
        "partition" => partition.partition.to_string(),
    )
}

/// A time as histograms have it.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A recorder for tests: it has what the thread's code counts while its guard lives.
#[cfg(test)]
pub(crate) mod seen {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString,
        Unit,
    };
    use parking_lot::Mutex;

    /// What came, by name.
    #[derive(Debug, Default)]
    pub(crate) struct Seen(Mutex<BTreeMap<String, Arc<Values>>>);

    #[derive(Debug, Default)]
    struct Values(Mutex<Vec<f64>>);

    impl Seen {
        /// All that was counted, or shown one after the other, under a name.
        pub(crate) fn values(&self, name: &str) -> Vec<f64> {
            self.0.lock().get(name).map(|values| values.0.lock().clone()).unwrap_or_default()
        }

        pub(crate) fn sum(&self, name: &str) -> f64 {
            self.values(name).iter().sum()
        }

        fn of(&self, key: &Key) -> Arc<Values> {
            assert_eq!(key.labels().next().map(|label| label.key()), Some("client_id"));
            Arc::clone(self.0.lock().entry(key.name().to_owned()).or_default())
        }
    }

    impl CounterFn for Values {
        fn increment(&self, value: u64) {
            self.0.lock().push(value as f64);
        }

        fn absolute(&self, _: u64) {
            unreachable!("no counter is set")
        }
    }

    impl GaugeFn for Values {
        fn increment(&self, _: f64) {
            unreachable!("gauges are set")
        }

        fn decrement(&self, _: f64) {
            unreachable!("gauges are set")
        }

        fn set(&self, value: f64) {
            self.0.lock().push(value);
        }
    }

    impl HistogramFn for Values {
        fn record(&self, value: f64) {
            self.0.lock().push(value);
        }
    }

    impl Recorder for Seen {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.of(key))
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.of(key))
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(self.of(key))
        }
    }
}
