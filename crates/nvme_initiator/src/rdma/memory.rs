//! The registered memory of one queue: capsules on their way out, responses, and room for small data that are copied.

use std::io;

use verbs::either::Domain;
use verbs::work::{Access, Part};
use verbs::{Either, Memory};

use nvme::spec::{Command, Completion};

/// The capsule of a command, without data.
const CAPSULE_BYTES: usize = 64;
/// The capsule of a response.
const RESPONSE_BYTES: usize = Completion::BYTES;
/// Bytes of a large copy: data of Connect, messages of authentication, log pages.
const LARGE_BYTES: usize = 8192;
/// Commands of the admin queue that have data at a time.
const ADMIN_COPIES: usize = 4;
/// Bytes of a small copy, which each command of an I/O queue may have: ranges of Dataset Management.
const SMALL_BYTES: usize = 256;

/// Capsules, responses and copies.
pub(super) struct QueueMemory {
    /// Capsules, then responses: their key gives the controller no access.
    own: Memory<Either>,
    responses_at: usize,
    /// Data that the controller reads and writes.
    copies: Memory<Either>,
    /// The number of large places. Small ones follow them, and have the next numbers.
    large: usize,
    /// The places that nobody has.
    free_large: Vec<u32>,
    free_small: Vec<u32>,
}

/// A place for a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied(u32);

impl QueueMemory {
    /// Memory for `sends` capsules and `depth` responses.
    pub fn new(stack: &Either, domain: &Domain, depth: u32, sends: u32, is_admin: bool) -> io::Result<QueueMemory> {
        let (depth, sends) = (depth as usize, sends as usize);
        // An I/O queue begins with commands that have large data, one at a time.
        let (large, small) = if is_admin { (ADMIN_COPIES, 0) } else { (1, depth) };
        let responses_at = sends * CAPSULE_BYTES;
        let local = Access { local_write: true, ..Access::default() };
        let own = Memory::new(stack, domain, responses_at + depth * RESPONSE_BYTES, local)?;
        let access = Access { local_write: true, remote_read: true, remote_write: true };
        let copies = Memory::new(stack, domain, large * LARGE_BYTES + small * SMALL_BYTES, access)?;
        let free_large = (0..large as u32).rev().collect();
        let free_small = (large as u32..(large + small) as u32).rev().collect();
        Ok(QueueMemory { own, responses_at, copies, large, free_large, free_small })
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
        let small = if length as usize <= SMALL_BYTES { self.free_small.pop() } else { None };
        let place = match small {
            None if length as usize <= LARGE_BYTES => self.free_large.pop(),
            small => small,
        };
        place.map(Copied)
    }

    pub fn give_back(&mut self, copy: Copied) {
        let free = if (copy.0 as usize) < self.large { &mut self.free_large } else { &mut self.free_small };
        free.push(copy.0);
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
        let number = copy.0 as usize;
        number.min(self.large) * LARGE_BYTES + number.saturating_sub(self.large) * SMALL_BYTES
    }
}

fn part(memory: &Memory<Either>, start: usize, length: usize) -> Part {
    memory.part(start..start + length)
}
