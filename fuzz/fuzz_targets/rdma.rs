#![no_main]

#[path = "../targets/rdma.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::rdma(data));
