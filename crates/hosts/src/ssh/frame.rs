//! The frames that travel through ssh, and between an agent and its rank.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};

/// The longest frame: a part of a result with the distributions of every interval has some megabytes.
const LONGEST: u64 = 1 << 31;

/// One thing that travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message between ranks: the other rank, and the bytes. The other rank is the sender on the way to a rank, and
    /// the receiver on the way from it.
    Message(u32, Vec<u8>),
    /// A piece of a rank's standard output.
    Output(Vec<u8>),
    /// A signal for the rank.
    Signal(u32),
    /// The rank has ended, with this exit status.
    Ended(u32),
}

impl Frame {
    /// The frame in bytes: its kind, a number, the length of what follows (little-endian), and that.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (kind, number, rest): (u8, u32, &[u8]) = match self {
            Frame::Message(rank, bytes) => (0, *rank, bytes),
            Frame::Output(bytes) => (1, 0, bytes),
            Frame::Signal(number) => (2, *number, &[]),
            Frame::Ended(status) => (3, *status, &[]),
        };
        let mut bytes = vec![kind];
        bytes.extend(number.to_le_bytes());
        bytes.extend((rest.len() as u64).to_le_bytes());
        bytes.extend(rest);
        bytes
    }

    /// The next frame; None at the end of the stream.
    ///
    /// # Errors
    /// The error of a read. [`io::ErrorKind::InvalidData`]: another kind, or a length beyond the longest.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
        let mut head = [0; 13];
        match from.read(&mut head[..1])? {
            0 => return Ok(None),
            _ => from.read_exact(&mut head[1..])?,
        }
        let [kind, a, b, c, d, length @ ..] = head;
        let (number, length) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(length));
        if length > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // The bytes that come decide how much memory they take, not the length that the head claims.
        let mut bytes = Vec::new();
        if from.take(length).read_to_end(&mut bytes)? as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match kind {
            0 => Ok(Some(Frame::Message(number, bytes))),
            1 => Ok(Some(Frame::Output(bytes))),
            2 => Ok(Some(Frame::Signal(number))),
            3 => Ok(Some(Frame::Ended(number))),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Writes the frame at once.
    ///
    /// # Errors
    /// The error of a write.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.to_bytes())?;
        to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn frames_come_back_and_nothing_else_is_one(rank: u32, bytes: Vec<u8>, noise: Vec<u8>) {
            let frames = [Frame::Message(rank, bytes.clone()), Frame::Output(bytes), Frame::Signal(rank), Frame::Ended(rank)];
            let written: Vec<u8> = frames.iter().flat_map(Frame::to_bytes).collect();
            let mut stream = &written[..];
            for frame in frames {
                assert_eq!(Frame::read(&mut stream).unwrap(), Some(frame));
            }
            assert_eq!(Frame::read(&mut stream).unwrap(), None);
            // Cut anywhere, and noise: an error, the end, or a frame, and no panic.
            let cut = rank as usize % written.len();
            let mut stream = &written[..cut];
            while let Ok(Some(_)) = Frame::read(&mut stream) {}
            let mut stream = &noise[..];
            while let Ok(Some(_)) = Frame::read(&mut stream) {}
        }
    }
}
