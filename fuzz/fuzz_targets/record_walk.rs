//! Arbitrary bytes as batches of records, walked over and read record by record.
#![no_main]

use milena_records::{Decompressor, batches, validate};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut decompressor = Decompressor::new(1 << 20);
    for batch in batches(data).map_while(Result::ok) {
        let _ = validate::walk(&batch, &mut decompressor);
        let Ok(records) = batch.records(&mut decompressor) else { continue };
        for record in records.map_while(Result::ok) {
            record.headers.iter().for_each(drop);
        }
    }
});
