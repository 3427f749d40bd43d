//! Arbitrary bytes into every message decoder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| milena_protocol::fuzz::fuzz_decode(data));
