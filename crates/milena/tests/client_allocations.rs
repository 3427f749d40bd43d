//! What sending a record costs in memory, counted and not timed: the bytes of a batch, and nothing for each record.

use std::alloc::System;
use std::time::Duration;

use milena::testing::Broker;
use milena_client::{Client, Record};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const RECORDS: usize = 10_000;
/// A batch grows by doubling; threads in the background allocate now and then.
const MOST: usize = 200;

#[tokio::test]
async fn a_record_is_sent_without_an_allocation_of_its_own() {
    let broker = Broker::start();
    let client = Client::builder().bootstrap_servers(&broker.bootstrap_servers()).build().unwrap();
    let builder = client.producer().linger(Duration::from_secs(3600)).batch_size(16 << 20);
    let producer = builder.set("max.request.size", "33554432").unwrap().build().unwrap();
    let headers = [("trace", Some(&b"abc"[..]))];
    let record = Record::to("t").key("key").value(&[7; 100]).headers(&headers);
    producer.send(&record).await.unwrap();
    let region = Region::new(MEMORY);
    for _ in 0..RECORDS {
        producer.send(&record).await.unwrap();
    }
    let change = region.change();
    let allocations = change.allocations + change.reallocations;
    assert!(allocations <= MOST, "{allocations} allocations for {RECORDS} records");
}
