//! Arbitrary bytes as compressed bodies: the first byte chooses the codec. No more than the limit may come out.
#![no_main]

use milena_records::{Compression, Decompressor};

/// Most bytes that may come out.
const LIMIT: usize = 1 << 20;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((codec, body)) = data.split_first() else { return };
    let Some(codec) = Compression::from_id(i16::from(*codec) % 5) else { return };
    if let Ok(bytes) = Decompressor::new(LIMIT).decompress(codec, body) {
        assert!(codec == Compression::None || bytes.len() <= LIMIT);
    }
});
