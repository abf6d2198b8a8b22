#![no_main]

#[path = "../targets/tls.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::client_hello(data));
