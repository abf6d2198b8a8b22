#![no_main]

#[path = "../targets/control.rs"]
#[allow(dead_code)]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::saved_state(data));
