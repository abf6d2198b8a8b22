//! The output of one connection, in order: headers gathered in one place, data where they are, all of it sent in as few
//! calls as the kernel takes.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use sys::buffer::Buffer;
use sys::zeros::zeros;

use nvme::Wire;

/// Parts handed to the kernel in one call (the kernel's own limit is 1024).
const PARTS: usize = 256;
/// Sent headers are dropped from the front once they are this many bytes, and at least half of all that are kept.
const COMPACT: usize = 4 << 10;
/// Room for headers grows by half, and by at least this many bytes.
const GROWTH: usize = 512;

enum Part {
    Head {
        len: usize,
    },
    Zeros {
        len: usize,
    },
    Data {
        buffer: Buffer,
        start: usize,
        len: usize,
    },
    /// A part of a page that several connections send.
    Shared {
        page: Arc<[u8]>,
        start: usize,
        len: usize,
    },
}

#[derive(Default)]
pub(super) struct Output {
    /// Bytes of all `Head` parts one after another; the first `sent_heads` bytes have been sent.
    heads: Vec<u8>,
    sent_heads: usize,
    parts: VecDeque<Part>,
    queued: u64,
    sent: u64,
    /// For each response, the number of sent bytes at which it ends, and the slot of its command (or `NO_SLOT`).
    ends: VecDeque<(u64, u16)>,
    /// The system had no memory for something to be sent: the connection cannot go on.
    has_failed: bool,
    /// Buffers that could not be queued for want of memory.
    unsent: Vec<Buffer>,
}

impl Output {
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes that wait to be sent.
    pub fn len(&self) -> u64 {
        self.queued - self.sent
    }

    /// Bytes of memory that the queue takes, data buffers excepted: those belong to a pool.
    #[inline]
    pub fn memory(&self) -> usize {
        self.heads.len() + self.parts.len() * size_of::<Part>() + self.ends.len() * size_of::<(u64, u16)>()
    }

    /// Queues up to `most` bytes of header: `write` writes them and returns their number.
    #[inline]
    pub fn head(&mut self, most: usize, write: impl FnOnce(&mut [u8]) -> usize) {
        let at = self.heads.len();
        if self.heads.capacity() - at < most && self.heads.try_reserve_exact(most.max(GROWTH).max(at / 2)).is_err()
            || self.parts.try_reserve(1).is_err()
        {
            self.has_failed = true;
            return;
        }
        self.heads.resize(at + most, 0);
        let len = write(&mut self.heads[at..]);
        self.heads.truncate(at + len);
        self.queued += len as u64;
        match self.parts.back_mut() {
            Some(Part::Head { len: before }) => *before += len,
            _ => self.parts.push_back(Part::Head { len }),
        }
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.head(bytes.len(), |room| {
            room.copy_from_slice(bytes);
            bytes.len()
        });
    }

    /// Queues `len` zeros, which take no memory.
    #[inline]
    pub fn zeros(&mut self, len: usize) {
        self.push(Part::Zeros { len }, len);
    }

    /// Queues the first `len` bytes of a buffer, which comes back from [`Output::send`] when they are sent.
    pub fn data(&mut self, buffer: Buffer, len: usize) {
        self.push(Part::Data { buffer, start: 0, len }, len);
    }

    /// Queues `len` bytes of a page from `start` on. Pages that do not change are kept once, however many connections
    /// send them.
    pub fn shared(&mut self, page: Arc<[u8]>, start: usize, len: usize) {
        self.push(Part::Shared { page, start, len }, len);
    }

    #[inline]
    fn push(&mut self, part: Part, len: usize) {
        if self.parts.try_reserve(1).is_ok() {
            self.queued += len as u64;
            return self.parts.push_back(part);
        }
        self.has_failed = true;
        if let Part::Data { buffer, .. } = part {
            self.unsent.push(buffer);
        }
    }

    /// Marks the end of a command: it ends when everything queued so far is sent. `slot` is the command's slot, or
    /// `NO_SLOT`.
    #[inline]
    pub fn end(&mut self, slot: u16) {
        match self.ends.try_reserve(1) {
            Ok(()) => self.ends.push_back((self.queued, slot)),
            Err(_) => self.has_failed = true,
        }
    }

    /// Sends as much as the socket takes now; false when it takes no more although there is more. Buffers that are free
    /// and commands that have ended are appended.
    ///
    /// # Errors
    /// The connection is broken, or memory for the bytes to send is missing.
    pub fn send(&mut self, to: &mut Wire, free: &mut Vec<Buffer>, ended: &mut Vec<u16>) -> io::Result<bool> {
        if self.has_failed {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        while !self.parts.is_empty() {
            let (asked, sent) = self.send_once(to)?;
            self.advance(sent, free);
            while self.ends.front().is_some_and(|(at, _)| *at <= self.sent) {
                ended.extend(self.ends.pop_front().map(|(_, slot)| slot));
            }
            if sent < asked {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends parts in one call. Returns the bytes given to the kernel and the bytes taken.
    fn send_once(&self, to: &mut Wire) -> io::Result<(usize, usize)> {
        let mut slices = [IoSlice::new(&[]); PARTS];
        let (mut count, mut asked, mut head) = (0, 0, self.sent_heads);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        'parts: for part in &self.parts {
            let slice = match part {
                Part::Head { len } => {
                    head += len;
                    &self.heads[head - len..head]
                }
                Part::Data { buffer, start, len } => &buffer.as_slice()[*start..*start + *len],
                Part::Shared { page, start, len } => &page[*start..*start + *len],
                Part::Zeros { len } => {
                    let (zeros, mut left) = (zeros(), *len);
                    while left > zeros.len() {
                        if count == PARTS {
                            break 'parts;
                        }
                        slices[count] = IoSlice::new(zeros);
                        (count, asked, left) = (count + 1, asked + zeros.len(), left - zeros.len());
                    }
                    &zeros[..left]
                }
            };
            if count == PARTS {
                break;
            }
            slices[count] = IoSlice::new(slice);
            (count, asked) = (count + 1, asked + slice.len());
        }
        let to: &TcpStream = match to {
            Wire::Plain(tcp) => tcp,
            Wire::Secured(_) => return send_records(to, &slices[..count]).map(|sent| (asked, sent)),
        };
        loop {
            match sendmsg(to, &slices[..count], &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => return Ok((asked, sent)),
                Err(rustix::io::Errno::AGAIN) => return Ok((asked, 0)),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn advance(&mut self, mut sent: usize, free: &mut Vec<Buffer>) {
        self.sent += sent as u64;
        while sent > 0 {
            let Some(part) = self.parts.front_mut() else { break };
            let (Part::Head { len } | Part::Zeros { len } | Part::Data { len, .. } | Part::Shared { len, .. }) = part;
            let now = sent.min(*len);
            *len -= now;
            sent -= now;
            let is_over = *len == 0;
            match part {
                Part::Head { .. } => self.sent_heads += now,
                Part::Data { start, .. } | Part::Shared { start, .. } => *start += now,
                Part::Zeros { .. } => {}
            }
            if is_over && let Some(Part::Data { buffer, .. }) = self.parts.pop_front() {
                free.push(buffer);
            }
        }
        if self.parts.is_empty() {
            self.heads.clear();
            self.sent_heads = 0;
        } else if self.sent_heads >= COMPACT.max(self.heads.len() / 2) {
            self.heads.drain(..self.sent_heads);
            self.sent_heads = 0;
        }
    }

    /// Forgets the output that is not sent; its buffers are appended to `free`.
    pub fn abandon(&mut self, free: &mut Vec<Buffer>) {
        for part in self.parts.drain(..) {
            if let Part::Data { buffer, .. } = part {
                free.push(buffer);
            }
        }
        free.append(&mut self.unsent);
        self.ends.clear();
        self.heads = Vec::new();
        (self.sent_heads, self.sent) = (0, self.queued);
    }

    /// Gives memory back that bursts have left, when nothing waits.
    pub fn shrink(&mut self) {
        if self.parts.is_empty() {
            self.heads.shrink_to(0);
            self.parts.shrink_to(0);
            self.ends.shrink_to(0);
        }
    }
}

/// Sends the slices as records of TLS. Returns the bytes whose records the socket has taken.
fn send_records(to: &mut Wire, slices: &[IoSlice]) -> io::Result<usize> {
    match to.write_vectored(slices) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        sent => sent,
    }
}
