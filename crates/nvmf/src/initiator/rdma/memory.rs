//! The registered memory of one queue: capsules on their way out, responses, and room for small data that are copied.

use std::io;

use verbs::either::Domain;
use verbs::work::{Access, Part};
use verbs::{Either, Memory};

use crate::spec::{Command, Completion};

/// The capsule of a command, without data.
const CAPSULE_BYTES: usize = 64;
/// The capsule of a response.
const RESPONSE_BYTES: usize = Completion::BYTES;
/// Data of one command that are copied, on the admin queue: log pages and messages of authentication.
const ADMIN_COPY_BYTES: usize = 8192;
/// Commands of the admin queue that have data at a time.
const ADMIN_COPIES: usize = 4;
/// Data of one command that are copied, on an I/O queue: those of Connect, and ranges of Dataset Management.
const COPY_BYTES: usize = 1024;

/// Capsules, responses and copies.
pub(super) struct QueueMemory {
    /// Capsules, then responses: their key gives the controller no access.
    own: Memory<Either>,
    responses_at: usize,
    /// Data that the controller reads and writes.
    copies: Memory<Either>,
    copy_bytes: usize,
    /// The places for copies that nobody has.
    free: Vec<u16>,
}

/// A place for a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied(u16);

impl QueueMemory {
    /// Memory for `sends` capsules and `depth` responses.
    pub fn new(stack: &Either, domain: &Domain, depth: u32, sends: u32, is_admin: bool) -> io::Result<QueueMemory> {
        let (depth, sends) = (depth as usize, sends as usize);
        let (copy_bytes, copies) = match is_admin {
            true => (ADMIN_COPY_BYTES, ADMIN_COPIES),
            false => (COPY_BYTES, depth),
        };
        let responses_at = sends * CAPSULE_BYTES;
        let local = Access { local_write: true, ..Access::default() };
        let own = Memory::new(stack, domain, responses_at + depth * RESPONSE_BYTES, local)?;
        let access = Access { local_write: true, remote_read: true, remote_write: true };
        let copied = Memory::new(stack, domain, copies * copy_bytes, access)?;
        let free = (0..copies as u16).rev().collect();
        Ok(QueueMemory { own, responses_at, copies: copied, copy_bytes, free })
    }

    /// Writes the capsule with that number, to be sent.
    pub fn write_capsule(&mut self, number: usize, command: &Command) {
        self.own.write(number * CAPSULE_BYTES, &command.write());
    }

    pub fn capsule(&self, number: usize) -> Part {
        part(&self.own, number * CAPSULE_BYTES, CAPSULE_BYTES)
    }

    /// Room for the response with that number.
    pub fn response(&self, number: usize) -> Part {
        part(&self.own, self.responses_at + number * RESPONSE_BYTES, RESPONSE_BYTES)
    }

    pub fn read_response(&self, number: usize) -> Completion {
        let mut bytes = [0; RESPONSE_BYTES];
        self.own.read(self.responses_at + number * RESPONSE_BYTES, &mut bytes);
        Completion::read(&bytes)
    }

    /// A place for `length` bytes; None if there is none.
    pub fn take_copy(&mut self, length: u32) -> Option<Copied> {
        if length as usize > self.copy_bytes { None } else { self.free.pop().map(Copied) }
    }

    pub fn give_back(&mut self, copy: Copied) {
        self.free.push(copy.0);
    }

    pub fn write_copy(&mut self, copy: Copied, bytes: &[u8]) {
        self.copies.write(self.start(copy), bytes);
    }

    pub fn read_copy(&self, copy: Copied, into: &mut [u8]) {
        self.copies.read(self.start(copy), into);
    }

    pub fn copy(&self, copy: Copied, length: u32) -> Part {
        part(&self.copies, self.start(copy), length as usize)
    }

    fn start(&self, copy: Copied) -> usize {
        usize::from(copy.0) * self.copy_bytes
    }
}

fn part(memory: &Memory<Either>, start: usize, length: usize) -> Part {
    memory.part(start..start + length)
}
