//! Data that a target has acknowledged after a Flush, or with Force Unit Access, is in the file whatever happens to the
//! target.

mod common;
#[path = "../crates/nvme_target/tests/raw/mod.rs"]
mod raw;

use std::collections::BTreeMap;
use std::io::Write;

use common::directory;
use common::served::Served;
use nvme::spec::opcode::io::FLUSH;
use nvme::spec::{Command, Sgl};
use raw::Host;

const BLOCK: usize = 4096;
const BATCH: u64 = 48;

fn content(block: u64) -> Vec<u8> {
    let seed = (block + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..BLOCK / 8).flat_map(|word| (seed ^ (word as u64)).to_le_bytes()).collect()
}

fn write(block: u64, lbas: u64) -> Command {
    Command { sgl: Sgl::in_capsule(BLOCK as u32), ..Command::blocks(1, 1, block * lbas, lbas as u32) }
}

#[test]
fn what_was_flushed_survives_a_kill_in_the_middle_of_writes() {
    let place = directory();
    let disk = "disk.img";
    let mut serving =
        Served::one_to_restart(place.path(), &["--file", disk, "--create", "64m", "--block-size", "4096"]);
    let lbas = 1;
    let mut durable: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut next = 0;
    for round in 0..4 {
        let address = format!("127.0.0.1:{}", serving.port()).parse().unwrap();
        let (_admin, mut queue) = Host::pair(address);
        for batch in 0..6 {
            let blocks = next..next + BATCH;
            next += BATCH;
            let mut bytes = Vec::new();
            for block in blocks.clone() {
                let fua = if batch == 0 { Command::FUA } else { 0 };
                let command = write(block, lbas);
                let command = Command { cid: block as u16, cdw12: command.cdw12 | fua, ..command };
                bytes.extend_from_slice(&queue.capsule(&command, &content(block)));
            }
            if batch == 5 {
                // Some of them are on their way into the file when the target dies.
                let _ = queue.stream.write_all(&bytes[..bytes.len() - 1000 * (round + 1)]);
                queue.response();
                break;
            }
            queue.send(&bytes);
            for _ in blocks.clone() {
                let done = queue.response();
                assert!(done.status.is_ok(), "{}", done.status);
            }
            if batch > 0 {
                assert!(queue.command(Command::new(FLUSH, 1), &[]).status.is_ok());
            }
            durable.extend(blocks.map(|block| (block, content(block))));
        }
        serving.kill();
        let file = std::fs::read(place.path().join(disk)).unwrap();
        for (block, content) in &durable {
            let at = *block as usize * BLOCK;
            assert!(file[at..at + BLOCK] == content[..], "round {round}: block {block} was acknowledged and flushed");
        }
        serving.restart();
    }
    assert!(durable.len() as u64 == 4 * 5 * BATCH);
    serving.end();
}
