#![no_main]

#[path = "../targets/lanes.rs"]
#[allow(dead_code)]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::mounts(data));
