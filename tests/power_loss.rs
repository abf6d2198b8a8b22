//! A power failure at a random moment: data that the target acknowledged before a Flush or with Force Unit Access, and
//! what it keeps in `--state`, are on a disk that forgets its cache. `make test-power` fails a thousand times.

mod common;
#[path = "common/forgetful_disk.rs"]
mod forgetful_disk;
#[path = "../crates/nvme_target/tests/raw/mod.rs"]
mod raw;

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::Duration;

use common::loop_device::LoopDevice;
use common::served::{NQN, Served};
use common::*;
use forgetful_disk::ForgetfulDisk;
use nvme::pdu::{H2cData, Pdu};
use nvme::spec::opcode::io;
use nvme::spec::reservation::{RegisterAction, ReservationCommand};
use nvme::spec::{Command, CopySource, Range, Sgl, Status};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use raw::Host;

/// Blocks of the namespace that commands go to.
const BLOCKS: usize = 512;
/// The most bytes of one command, which a capsule takes.
const COMMAND_BYTES: usize = 4096;

/// The number of failures of a test: `POWER_FAILURES`, or few.
fn failures(few: u32) -> u32 {
    std::env::var("POWER_FAILURES").map_or(few, |text| text.parse().expect("POWER_FAILURES is a number"))
}

fn below(random: &mut Xoshiro256PlusPlus, limit: usize) -> usize {
    (random.next_u64() % limit as u64) as usize
}

/// The values of one thing that a failure may leave: the last durable one, and all that came later.
#[derive(Clone)]
struct Possible<T> {
    /// Oldest first. Those before `durable` are gone for good.
    values: Vec<T>,
    durable: usize,
    /// The place of the last one that was acknowledged.
    acknowledged: usize,
}

impl<T: Clone + PartialEq + std::fmt::Debug> Possible<T> {
    fn new(value: T) -> Possible<T> {
        Possible { values: vec![value], durable: 0, acknowledged: 0 }
    }

    fn current(&self) -> T {
        self.values.last().expect("at least one").clone()
    }

    fn begins(&mut self, value: T) {
        self.values.push(value);
    }

    /// The last value was acknowledged, and is durable if that was promised for it.
    fn is_acknowledged(&mut self, durable: bool) {
        self.acknowledged = self.values.len() - 1;
        if durable {
            self.is_durable(self.acknowledged);
        }
    }

    /// A Flush that began when `acknowledged` was that has ended.
    fn is_durable(&mut self, acknowledged: usize) {
        self.durable = self.durable.max(acknowledged);
    }

    /// The failure has left this value.
    fn is_left(&mut self, value: T, of: &str) {
        let may_be = &self.values[self.durable..];
        assert!(may_be.contains(&value), "{of}: the failure left {value:?}, not one of {may_be:?}");
        *self = Possible::new(value);
    }
}

/// The content of a block is one number, over and over.
fn block(value: u64, block_bytes: usize) -> Vec<u8> {
    value.to_le_bytes().repeat(block_bytes / 8)
}

/// The change that a command makes once it succeeds.
enum Effect {
    /// These blocks have the values that they are to have; durably, if the command said so.
    Changes { blocks: std::ops::Range<usize>, durable: bool },
    /// The places that were acknowledged when the Flush was sent are durable.
    Flush(Vec<usize>),
    /// The first half of a fused operation: its second half changes something, or both fail.
    Nothing,
    /// A comparison that has to fail, and the write fused with it.
    Refused,
}

/// Random commands to namespace 1, and what a failure may leave of each block.
struct Model {
    block_bytes: usize,
    blocks: Vec<Possible<u64>>,
    random: Xoshiro256PlusPlus,
    next_value: u64,
    /// Commands that succeeded.
    succeeded: u32,
}

impl Model {
    fn new(block_bytes: usize, seed: u64) -> Model {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Model { block_bytes, blocks: vec![Possible::new(0); BLOCKS], random, next_value: 1, succeeded: 0 }
    }

    /// A range that no command of the batch touches yet.
    fn range(&mut self, busy: &mut [bool]) -> Option<std::ops::Range<usize>> {
        let most = (COMMAND_BYTES / self.block_bytes).max(2);
        let length = 1 + below(&mut self.random, most);
        let start = below(&mut self.random, BLOCKS - length);
        let range = start..start + length;
        (!busy[range.clone()].contains(&true)).then(|| busy[range.clone()].fill(true)).map(|()| range)
    }

    /// New values for these blocks, as the data of a write.
    fn data(&mut self, range: std::ops::Range<usize>) -> Vec<u8> {
        let mut data = Vec::new();
        for at in range {
            self.blocks[at].begins(self.next_value);
            data.extend(block(self.next_value, self.block_bytes));
            self.next_value += 1;
        }
        data
    }

    /// The next command of a batch, or the two of a fused operation.
    fn next(&mut self, busy: &mut [bool]) -> Vec<(Command, Vec<u8>, Effect)> {
        let kind = below(&mut self.random, 16);
        if kind == 0 {
            let acknowledged = self.blocks.iter().map(|block| block.acknowledged).collect();
            return vec![(Command::new(io::FLUSH, 1), Vec::new(), Effect::Flush(acknowledged))];
        }
        let Some(range) = self.range(busy) else { return Vec::new() };
        let durable = below(&mut self.random, 4) == 0;
        let fua = if durable { Command::FUA } else { 0 };
        let of = |opcode: u8, range: &std::ops::Range<usize>| {
            let command = Command::blocks(opcode, 1, range.start as u64, range.len() as u32);
            Command { cdw12: command.cdw12 | fua, ..command }
        };
        match kind {
            1 | 2 => {
                range.clone().for_each(|at| self.blocks[at].begins(0));
                let command = of(io::WRITE_ZEROES, &range);
                vec![(command, Vec::new(), Effect::Changes { blocks: range, durable })]
            }
            3 => {
                range.clone().for_each(|at| self.blocks[at].begins(0));
                let one = Range { attributes: 0, blocks: range.len() as u32, slba: range.start as u64 };
                let effect = Effect::Changes { blocks: range, durable: false };
                vec![(Range::deallocate(1, 1), one.write().to_vec(), effect)]
            }
            4 => {
                let Some(source) = self.range(busy) else { return Vec::new() };
                let blocks = range.start..range.start + range.len().min(source.len());
                for (from, to) in source.clone().zip(blocks.clone()) {
                    let value = self.blocks[from].current();
                    self.blocks[to].begins(value);
                }
                let command = CopySource::copy(1, blocks.start as u64, 1);
                let command = Command { cdw12: command.cdw12 | fua, ..command };
                let source = CopySource { slba: source.start as u64, nlb: (blocks.len() - 1) as u16 };
                vec![(command, source.write().to_vec(), Effect::Changes { blocks, durable })]
            }
            5 | 6 => {
                // AWUPF and ACWU: one block is what a target compares and writes as one.
                let one = range.start..range.start + 1;
                let half = |opcode: u8, fuse: u8| {
                    let command = of(opcode, &one);
                    Command { flags: command.flags | fuse, ..command }
                };
                let (compare, write) = (half(io::COMPARE, Command::FUSE_FIRST), half(io::WRITE, Command::FUSE_SECOND));
                let current = self.blocks[one.start].current();
                if kind == 5 {
                    let other = block(!current, self.block_bytes);
                    return vec![(compare, other.clone(), Effect::Refused), (write, other, Effect::Refused)];
                }
                let (compared, written) = (block(current, self.block_bytes), self.data(one.clone()));
                let effect = Effect::Changes { blocks: one, durable };
                vec![(compare, compared, Effect::Nothing), (write, written, effect)]
            }
            _ => {
                let data = self.data(range.clone());
                vec![(of(io::WRITE, &range), data, Effect::Changes { blocks: range, durable })]
            }
        }
    }

    /// Sends a batch of commands, and learns from the answers. `failed` tells if the power has failed: nothing else
    /// excuses a command that does not succeed.
    fn batch(&mut self, queue: &mut Host, failed: impl Fn() -> bool) {
        let mut busy = vec![false; BLOCKS];
        let mut sent = HashMap::new();
        for _ in 0..1 + below(&mut self.random, 16) {
            for (command, data, effect) in self.next(&mut busy) {
                let in_capsule = data.len() <= COMMAND_BYTES && below(&mut self.random, 2) == 0;
                let sgl = match (data.len() as u32, in_capsule) {
                    (0, _) => command.sgl,
                    (bytes, true) => Sgl::in_capsule(bytes),
                    (bytes, false) => Sgl::transport(bytes),
                };
                let cid = queue.send_command(Command { sgl, ..command }, if in_capsule { &data } else { &[] });
                sent.insert(cid, (command.opcode, data, effect));
            }
        }
        while !sent.is_empty() {
            match queue.unit().expect("an R2T or a response").pdu {
                Pdu::R2t(ready) => {
                    let (cid, ttag, length) = (ready.cid, ready.ttag, ready.length);
                    let header = H2cData { cid, ttag, offset: 0, length, last: true };
                    let bytes = queue.h2c(&header, &sent[&cid].1);
                    queue.send(&bytes);
                }
                Pdu::CapsuleResp(done) => {
                    let (opcode, _, effect) = sent.remove(&done.cid).expect("a command that was sent");
                    let succeeds = !matches!(effect, Effect::Refused);
                    if done.status.is_ok() {
                        assert!(succeeds, "a comparison with other data succeeded");
                        self.learn(effect);
                    } else {
                        assert!(!succeeds || failed(), "opcode {opcode:02x}h: {}", done.status);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn learn(&mut self, effect: Effect) {
        self.succeeded += 1;
        match effect {
            Effect::Changes { blocks, durable } => {
                self.blocks[blocks].iter_mut().for_each(|block| block.is_acknowledged(durable));
            }
            Effect::Flush(acknowledged) => {
                self.blocks.iter_mut().zip(acknowledged).for_each(|(block, at)| block.is_durable(at));
            }
            Effect::Nothing | Effect::Refused => {}
        }
    }

    /// Holds what the failure has left against what it may have left.
    fn judge(&mut self, content: &[u8]) {
        for (at, (possible, bytes)) in self.blocks.iter_mut().zip(content.chunks(self.block_bytes)).enumerate() {
            let value = u64::from_le_bytes(*bytes.first_chunk().expect("a block"));
            assert!(bytes == block(value, self.block_bytes), "block {at} is torn");
            possible.is_left(value, &format!("block {at}"));
        }
    }
}

fn address(target: &Served) -> SocketAddr {
    format!("127.0.0.1:{}", target.port()).parse().expect("an address")
}

#[test]
fn a_file_keeps_what_was_flushed_when_the_power_fails() {
    let place = directory();
    const BLOCK: usize = 512;
    let Some(disk) = ForgetfulDisk::below(place.path(), BLOCKS * BLOCK, BLOCK) else { return };
    let mut model = Model::new(BLOCK, 1);
    let path = disk.path.to_str().expect("text");
    let mut lost = 0;
    for _ in 0..failures(40) {
        let mut target = Served::one_line(place.path(), &["--file", path, "--block-size", "512"]);
        let (_admin, mut queue) = Host::pair(address(&target));
        disk.fail_after(1 + below(&mut model.random, 200) as u32);
        while !disk.has_failed() {
            model.batch(&mut queue, || disk.has_failed());
        }
        target.kill();
        lost += disk.comes_back(&mut model.random);
        model.judge(&disk.content());
    }
    // The failures came when there was something to lose.
    assert!(model.succeeded > 0 && lost > 0, "{} commands succeeded, {lost} sectors were lost", model.succeeded);
}

/// An ext4 file system on the disk, through a loop device; unmounted when dropped.
struct Ext4 {
    place: PathBuf,
    _device: LoopDevice,
}

impl Ext4 {
    fn mounted(disk: &Path, place: &Path) -> Option<Ext4> {
        let device = LoopDevice::over(disk)?;
        let mount = Program::new("mount").args(["-t", "ext4", &device.path]).arg(place).output().expect("mount");
        assert!(mount.status.success(), "after a failure: {}", stderr(&mount));
        Some(Ext4 { place: place.to_path_buf(), _device: device })
    }

    /// Unmounts it. A killed target's ring may hold its files for a moment.
    fn unmount(&self) {
        for _ in 0..600 {
            if Program::new("umount").arg(&self.place).output().expect("umount").status.success() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// The devices of the target but the one of the test's file.
fn devices(target: &Served) -> BTreeSet<String> {
    let all = target.rpc(&["bdev_get_bdevs"]);
    let names = all.as_array().expect("a list").iter().map(|device| device["name"].as_str().expect("a name"));
    names.filter(|name| name.starts_with("Null")).map(str::to_string).collect()
}

/// The key that the host has registered, or 0.
fn registered(queue: &mut Host) -> u64 {
    queue.reservation().1.iter().map(|registrant| registrant.key).max().unwrap_or(0)
}

fn register(queue: &mut Host, new: u64) -> Status {
    let (action, ignores_key, persists) = (RegisterAction::Replace, true, Some(true));
    queue.reserve(ReservationCommand::Register { action, ignores_key, persists, current: 0, new })
}

#[test]
fn a_file_system_keeps_what_was_flushed_and_the_state_when_the_power_fails() {
    let place = directory();
    const BLOCK: usize = 4096;
    let Some(disk) = ForgetfulDisk::below(place.path(), 32 << 20, BLOCK) else { return };
    if !has_program("mkfs.ext4") {
        return;
    }
    tool("mkfs.ext4", &["-q", "-b", "4096", disk.path.to_str().expect("text")], place.path());
    let mounted = place.path().join("mounted");
    std::fs::create_dir(&mounted).expect("a new directory");
    let (file, state) = (mounted.join("data"), mounted.join("state"));
    let path = |path: &Path| path.to_str().expect("text").to_string();

    let mut model = Model::new(BLOCK, 2);
    let (mut names, mut key) = (Possible::new(BTreeSet::new()), Possible::new(0));
    let (mut lost, mut number, mut changes) = (0, 0, 0);
    let file_name = path(&file);
    let create = format!("filename={file_name}");
    for round in 0..failures(12) {
        let Some(file_system) = Ext4::mounted(&disk.path, &mounted) else { return };
        if round > 0 {
            model.judge(&std::fs::read(&file).expect("the file is there"));
        }
        let mut target = if round == 0 {
            std::fs::write(&file, vec![0; BLOCKS * BLOCK]).expect("room");
            std::fs::File::open(&file).and_then(|file| file.sync_all()).expect("the disk is well");
            let target =
                Served::start(place.path(), &["--state", &path(&state), "--null", "8g", "--listen", "127.0.0.1:0"]);
            let uuid = "uuid=00000000-0000-4000-8000-000000000001";
            target.rpc(&["bdev_aio_create", "name=Data", &create, "block_size=4096", uuid]);
            target.rpc(&["nvmf_subsystem_remove_ns", &format!("nqn={NQN}"), "nsid=1"]);
            target.rpc(&[
                "nvmf_subsystem_add_ns",
                &format!("nqn={NQN}"),
                "namespace.bdev_name=Data",
                "namespace.nsid=1",
            ]);
            names = Possible::new(devices(&target));
            target
        } else {
            Served::start(place.path(), &["--state", &path(&state)])
        };
        names.is_left(devices(&target), "devices");
        let (_admin, mut queue) = Host::pair(address(&target));
        key.is_left(registered(&mut queue), "the host's key");
        disk.fail_after(1 + below(&mut model.random, 300) as u32);
        while !disk.has_failed() {
            model.batch(&mut queue, || disk.has_failed());
            match below(&mut model.random, 4) {
                0 => {
                    number += 1;
                    let name = format!("Null{number}x");
                    names.begins(names.current().into_iter().chain([name.clone()]).collect());
                    let made = target.try_rpc(&[
                        "bdev_null_create",
                        &format!("name={name}"),
                        "num_blocks=8",
                        "block_size=512",
                    ]);
                    assert!(made.status.success() || disk.has_failed(), "{}", stderr(&made));
                    if made.status.success() {
                        names.is_acknowledged(true);
                        changes += 1;
                    }
                }
                1 => {
                    number += 1;
                    key.begins(number);
                    let status = register(&mut queue, number);
                    assert!(status.is_ok() || disk.has_failed(), "{status}");
                    if status.is_ok() {
                        key.is_acknowledged(true);
                        changes += 1;
                    }
                }
                _ => {}
            }
        }
        target.kill();
        drop(file_system);
        lost += disk.comes_back(&mut model.random);
    }
    assert!(model.succeeded > 0 && changes > 0 && lost > 0, "{}, {changes}, {lost}", model.succeeded);
}
