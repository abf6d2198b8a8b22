//! The engine `io_uring_cmd`: NVMe commands to a namespace, past the block layer, through a ring (IORING_OP_URING_CMD,
//! Linux 5.19).

use std::io;
use std::os::fd::RawFd;

use job::Job;
use job::workload::OpKind;
use measure::Direction;
use sys::ring::{cqueue, opcode::UringCmd80, squeue, types};

use super::blocking::option_is_set;
use super::nvme::{self, Command, Namespace, opcode};
use super::ringed::{self, Form, Registered, Ringed};
use super::{Engine, Request, Setup, Slots};
use crate::Error;

/// Makes the engine.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    let ring = ringed::open::<Commands>(setup)?;
    Ok(Box::new(Ringed::new(setup, ring, Commands::new(setup))?))
}

/// Refuses a verified job whose writes do not store their data.
pub(super) fn check(job: &Job) -> Result<(), Error> {
    if job.verify.is_some() && job.rw.directions.write && write_opcode(job) != opcode::WRITE {
        let hint = "its writes do not store their data: there is nothing to compare; leave verify= or write_mode= out";
        return Err(Error::usage("cannot verify", format!("job {}", job.name), hint));
    }
    Ok(())
}

fn write_opcode(job: &Job) -> u8 {
    match job.ring.option("write_mode").unwrap_or("write") {
        "uncor" => opcode::WRITE_UNCORRECTABLE,
        "zeroes" => opcode::WRITE_ZEROES,
        "verify" => opcode::VERIFY,
        _ => opcode::WRITE,
    }
}

/// Ops as NVMe commands.
struct Commands {
    write: u8,
    /// Command dword 12 of reads and of writes, without the number of blocks.
    read_flags: u32,
    write_flags: u32,
    /// `fixedbufs`: the buffers are registered.
    registered: Option<Registered>,
    register_files: bool,
    files: Vec<File>,
    /// By slot: the iovec that a vectored command points to. Empty if commands are not vectored.
    vectors: Vec<libc::iovec>,
    /// By slot: the range of a trim.
    ranges: Vec<[u8; 16]>,
    /// By slot: the bytes that the op transfers if it succeeds, which the completion does not say.
    lengths: Vec<u32>,
}

#[derive(Clone, Copy)]
struct File {
    fd: RawFd,
    nsid: u32,
    block_shift: u32,
}

const CLOSED: File = File { fd: -1, nsid: 0, block_shift: 0 };

// SAFETY: the iovecs are the only field that is not Send; they point into slots, which the engine owns a share of.
unsafe impl Send for Commands {}

impl Commands {
    fn new(setup: &Setup) -> Commands {
        let (job, slots) = (setup.job, setup.slots.count() as usize);
        let force = |name| if option_is_set(job, name) { nvme::FORCE_UNIT_ACCESS } else { 0 };
        let write = write_opcode(job);
        let write_flags = match write {
            opcode::WRITE => force("writefua"),
            opcode::WRITE_ZEROES => force("writefua") | if option_is_set(job, "deac") { nvme::DEALLOCATE } else { 0 },
            _ => 0,
        };
        let vectored = !job.ring.fixed_buffers && job.ring.nonvectored == Some(false);
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Commands {
            write,
            read_flags: force("readfua"),
            write_flags,
            registered: job.ring.fixed_buffers.then(|| Registered::of(&setup.slots)),
            register_files: job.ring.register_files,
            files: vec![CLOSED; setup.files as usize],
            vectors: if vectored { vec![none; slots] } else { Vec::new() },
            ranges: vec![[0; 16]; slots],
            lengths: vec![0; slots],
        }
    }

    /// The command of a request, and the kernel's name for its form. None for a request that is not of whole blocks.
    fn command(&mut self, request: &Request, slots: &Slots) -> Option<(Command, u32)> {
        let File { nsid, block_shift, .. } = self.files[request.file as usize];
        let direction = match request.kind {
            OpKind::Io(direction) => direction,
            OpKind::Sync | OpKind::DataSync | OpKind::SyncRange => {
                return Some((Command { opcode: opcode::FLUSH, nsid, ..Command::default() }, nvme::URING_IO));
            }
        };
        let unit = 1_u64 << block_shift;
        if !request.offset.is_multiple_of(unit) || !u64::from(request.len).is_multiple_of(unit) || request.len == 0 {
            return None;
        }
        let (first, blocks) = (request.offset >> block_shift, request.len >> block_shift);
        let index = request.slot.index() as usize;
        let of_blocks = |opcode, flags| Command {
            opcode,
            nsid,
            cdw10: first as u32,
            cdw11: (first >> 32) as u32,
            cdw12: (blocks - 1) | flags,
            ..Command::default()
        };
        let mut command = match direction {
            Direction::Trim => {
                self.ranges[index] = nvme::range(first, blocks);
                let command = Command {
                    opcode: opcode::DATASET_MANAGEMENT,
                    nsid,
                    addr: self.ranges[index].as_mut_ptr() as u64,
                    data_len: self.ranges[index].len() as u32,
                    cdw11: nvme::DATASET_DEALLOCATE,
                    ..Command::default()
                };
                return Some((command, nvme::URING_IO));
            }
            // The number of blocks has 16 bits.
            _ if blocks > 1 << 16 => return None,
            Direction::Read => of_blocks(opcode::READ, self.read_flags),
            Direction::Write => of_blocks(self.write, self.write_flags),
        };
        if !matches!(command.opcode, opcode::READ | opcode::WRITE) {
            return Some((command, nvme::URING_IO));
        }
        let memory = slots.place(request);
        if let Some(vector) = self.vectors.get_mut(index) {
            *vector = libc::iovec { iov_base: memory.cast(), iov_len: request.len as usize };
            (command.addr, command.data_len) = (std::ptr::from_mut(vector) as u64, 1);
            return Some((command, nvme::URING_IO_VEC));
        }
        (command.addr, command.data_len) = (memory as u64, request.len);
        Some((command, nvme::URING_IO))
    }
}

impl Form for Commands {
    type Entry = squeue::Entry128;
    type Completed = cqueue::Entry32;

    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        let Namespace { nsid, block_shift, .. } = nvme::namespace(fd)?;
        self.files[file as usize] = File { fd, nsid, block_shift };
        Ok(())
    }

    fn close(&mut self, file: u32) {
        self.files[file as usize] = CLOSED;
    }

    #[inline]
    fn put(
        &mut self,
        request: &Request,
        slots: &Slots,
        to_worker: bool,
        push: impl FnOnce(&squeue::Entry128) -> bool,
    ) -> Option<bool> {
        let index = request.slot.index();
        let (command, form) = self.command(request, slots)?;
        self.lengths[index as usize] = if matches!(request.kind, OpKind::Io(_)) { request.len } else { 0 };
        let moves_slot = matches!(command.opcode, opcode::READ | opcode::WRITE);
        let buffer = self.registered.filter(|_| moves_slot).map(|registered| registered.buffer(index));
        let entry = match self.register_files {
            true => UringCmd80::new(types::Fixed(request.file), form),
            false => UringCmd80::new(types::Fd(self.files[request.file as usize].fd), form),
        };
        let entry = entry.cmd(command.bytes()).buf_index(buffer).build().user_data(u64::from(index));
        Some(push(&if to_worker { entry.flags(squeue::Flags::ASYNC) } else { entry }))
    }

    /// Only a request that is not of whole blocks comes here: the ring carries out all others.
    fn carry_out(&mut self, _request: &Request) -> i64 {
        -i64::from(libc::EINVAL)
    }

    #[inline]
    fn result(&mut self, data: u64, result: i32) -> i64 {
        match result {
            0 => i64::from(self.lengths[data as usize]),
            errno if errno < 0 => i64::from(errno),
            _ => -i64::from(libc::EIO), // the status of the command
        }
    }

    fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.vectors));
        std::mem::forget(std::mem::take(&mut self.ranges));
    }
}
