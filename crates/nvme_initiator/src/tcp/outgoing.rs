//! The bytes to be sent: headers, which are kept here, and data, which stay where they are.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::ops::Range;

use crate::Buffers;

/// Pieces of one system call.
const PIECES: usize = 64;
/// Bytes that were sent and may stay in memory.
const KEPT_BYTES: usize = 64 << 10;

/// A stream of bytes on its way out.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Headers and digests, one after the other.
    bytes: Vec<u8>,
    /// The number of these bytes that have been sent.
    sent: usize,
    pieces: VecDeque<Piece>,
}

#[derive(Debug)]
enum Piece {
    /// The next bytes, this number of them, of `bytes`.
    Bytes(usize),
    /// Data of an op.
    Data { tag: u32, at: usize, len: usize },
    /// Data of an op that has ended before they were sent.
    Own(Vec<u8>, usize),
}

impl Outgoing {
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Appends what `write` puts into `room` bytes; it says how many.
    #[inline]
    pub fn bytes(&mut self, room: usize, write: impl FnOnce(&mut [u8]) -> usize) {
        let start = self.bytes.len();
        self.bytes.resize(start + room, 0);
        let written = write(&mut self.bytes[start..]);
        self.bytes.truncate(start + written);
        match self.pieces.back_mut() {
            Some(Piece::Bytes(len)) => *len += written,
            _ => self.pieces.push_back(Piece::Bytes(written)),
        }
    }

    /// Appends `len` bytes of the data of op `tag`, from `at`.
    pub fn data(&mut self, tag: u32, at: usize, len: usize) {
        self.pieces.push_back(Piece::Data { tag, at, len });
    }

    /// The command with this range of the op's data has ended: a copy holds the rest of them that is not sent yet. True
    /// if there is any.
    pub fn keep(&mut self, tag: u32, range: Range<usize>, buffers: &impl Buffers) -> bool {
        let mut has_unsent = false;
        for piece in &mut self.pieces {
            if let Piece::Data { tag: its, at, len } = *piece
                && its == tag
                && range.contains(&at)
            {
                *piece = Piece::Own(buffers.bytes(tag)[at..at + len].to_vec(), 0);
                has_unsent = true;
            }
        }
        has_unsent
    }

    /// Sends until all is sent or the sink takes no more. Returns true if all is sent.
    ///
    /// # Errors
    /// Those of the sink; that it would block is none.
    pub fn send(&mut self, sink: &mut impl Write, buffers: &impl Buffers) -> io::Result<bool> {
        while !self.pieces.is_empty() {
            let sent = match (self.pieces.len(), &self.pieces[0]) {
                (1, Piece::Bytes(len)) => sink.write(&self.bytes[self.sent..self.sent + len]),
                _ => self.send_pieces(sink, buffers),
            };
            match sent {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.advance(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.forget_sent();
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(true)
    }

    /// A sink that is never empty must not make the headers grow forever.
    fn forget_sent(&mut self) {
        if self.sent >= KEPT_BYTES {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    fn send_pieces(&self, sink: &mut impl Write, buffers: &impl Buffers) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); PIECES];
        let mut from = self.sent;
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(match piece {
                Piece::Bytes(len) => {
                    from += len;
                    &self.bytes[from - len..from]
                }
                Piece::Data { tag, at, len } => &buffers.bytes(*tag)[*at..*at + *len],
                Piece::Own(bytes, from) => &bytes[*from..],
            });
            count += 1;
        }
        sink.write_vectored(&slices[..count])
    }

    fn advance(&mut self, mut sent: usize) {
        while let Some(piece) = self.pieces.front_mut() {
            let left = match piece {
                Piece::Bytes(len) | Piece::Data { len, .. } => *len,
                Piece::Own(bytes, from) => bytes.len() - *from,
            };
            let part = left.min(sent);
            sent -= part;
            match piece {
                Piece::Bytes(len) => {
                    *len -= part;
                    self.sent += part;
                }
                Piece::Data { at, len, .. } => (*at, *len) = (*at + part, *len - part),
                Piece::Own(_, from) => *from += part,
            }
            if part < left {
                return;
            }
            self.pieces.pop_front();
        }
    }
}
