//! The byte stream under a queue: a socket, plain or secured by TLS.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// A connected socket. Reads and writes as a [`TcpStream`] does.
#[derive(Debug)]
pub enum Wire {
    /// Bytes travel as they are.
    Plain(TcpStream),
    /// TLS 1.3. Reads and writes go on with the handshake until it is done.
    Secured(Box<Secured>),
}

/// A secured socket, and how far its handshake has come.
#[derive(Debug)]
pub struct Secured(Stage);

#[derive(Debug)]
enum Stage {
    /// The client has not sent its first message whole. True if it may begin without TLS.
    Pending(tls::Pending, bool),
    /// The client has begun without TLS, as it may.
    Plain(Arc<TcpStream>),
    /// The ends agree on keys; bytes travel once that is done.
    Begun { stream: tls::Stream, is_done: bool },
}

impl Wire {
    /// A socket whose handshake is yet to come.
    pub fn secured(stream: tls::Stream) -> Wire {
        Wire::Secured(Box::new(Secured(Stage::Begun { stream, is_done: false })))
    }

    /// A socket whose client is yet to begin: with the handshake, or where it may without.
    pub fn pending(pending: tls::Pending, may_be_plain: bool) -> Wire {
        Wire::Secured(Box::new(Secured(Stage::Pending(pending, may_be_plain))))
    }

    /// The socket.
    #[inline]
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Wire::Plain(tcp) => tcp,
            Wire::Secured(secured) => match &secured.0 {
                Stage::Pending(pending, _) => pending.tcp(),
                Stage::Plain(tcp) => tcp,
                Stage::Begun { stream, .. } => stream.tcp(),
            },
        }
    }

    /// The identity of the key that both ends have proven; `None` for a plain socket and before the handshake is done.
    pub fn identity(&self) -> Option<&str> {
        match self {
            Wire::Plain(_) => None,
            Wire::Secured(secured) => secured.open().and_then(tls::Stream::key).map(|key| key.identity.as_str()),
        }
    }

    /// True if received bytes wait in the process, where poll(2) does not see them.
    #[inline]
    pub fn has_more(&self) -> bool {
        match self {
            Wire::Plain(_) => false,
            Wire::Secured(secured) => match &secured.0 {
                Stage::Pending(..) | Stage::Plain(_) => false,
                Stage::Begun { stream, .. } => stream.has_more(),
            },
        }
    }

    /// True if nothing can be read before bytes have been written ([`tls::Stream::reads_after_write`]).
    #[inline]
    pub fn reads_after_write(&self) -> bool {
        match self {
            Wire::Plain(_) => false,
            Wire::Secured(secured) => secured.open().is_some_and(tls::Stream::reads_after_write),
        }
    }

    /// Tells the peer that no more bytes come.
    pub fn finish(&mut self) {
        if let Wire::Secured(secured) = self
            && let Stage::Begun { stream, is_done: true } = &mut secured.0
        {
            stream.close();
        }
        // The peer may be gone already.
        let _ = self.tcp().shutdown(std::net::Shutdown::Write);
    }
}

/// A stream on which bytes can travel.
enum Ready<'a> {
    Plain(&'a TcpStream),
    Secured(&'a mut tls::Stream),
}

impl Secured {
    fn open(&self) -> Option<&tls::Stream> {
        match &self.0 {
            Stage::Begun { stream, is_done: true } => Some(stream),
            _ => None,
        }
    }

    /// Goes on with the handshake. `WouldBlock` while it is not done.
    fn ready(&mut self) -> io::Result<Ready<'_>> {
        if let Stage::Pending(pending, may_be_plain) = &self.0 {
            self.0 = match *may_be_plain && pending.begins_plainly()? {
                true => Stage::Plain(pending.plain().map_err(broken)?),
                false => {
                    let stream = pending.accept().map_err(broken)?.ok_or(io::ErrorKind::WouldBlock)?;
                    Stage::Begun { stream, is_done: false }
                }
            };
        }
        match &mut self.0 {
            Stage::Plain(tcp) => Ok(Ready::Plain(tcp)),
            Stage::Begun { stream, is_done } => {
                if !*is_done {
                    *is_done = stream.handshake().map_err(broken)? == tls::Handshake::Done;
                }
                if *is_done { Ok(Ready::Secured(stream)) } else { Err(io::ErrorKind::WouldBlock.into()) }
            }
            Stage::Pending(..) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

fn broken(error: tls::Error) -> io::Error {
    match error {
        tls::Error::Io(error) => error,
        error => io::Error::new(io::ErrorKind::PermissionDenied, error),
    }
}

impl Read for Wire {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(tcp) => tcp.read(buffer),
            Wire::Secured(secured) => match secured.ready()? {
                Ready::Plain(mut tcp) => tcp.read(buffer),
                Ready::Secured(stream) => stream.read(buffer),
            },
        }
    }

    #[inline]
    fn read_vectored(&mut self, buffers: &mut [IoSliceMut]) -> io::Result<usize> {
        let secured = match self {
            Wire::Plain(tcp) => return tcp.read_vectored(buffers),
            Wire::Secured(secured) => match secured.ready()? {
                Ready::Plain(mut tcp) => return tcp.read_vectored(buffers),
                Ready::Secured(stream) => stream,
            },
        };
        let mut filled = 0;
        for buffer in buffers.iter_mut().filter(|buffer| !buffer.is_empty()) {
            if filled > 0 && !secured.has_more() {
                break;
            }
            match secured.read(buffer) {
                Ok(read) => {
                    filled += read;
                    if read < buffer.len() {
                        break;
                    }
                }
                Err(_) if filled > 0 => break, // the next call tells
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

impl Write for Wire {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(tcp) => tcp.write(bytes),
            Wire::Secured(_) => self.write_vectored(&[IoSlice::new(bytes)]),
        }
    }

    #[inline]
    fn write_vectored(&mut self, slices: &[IoSlice]) -> io::Result<usize> {
        match self {
            Wire::Plain(tcp) => tcp.write_vectored(slices),
            Wire::Secured(secured) => match secured.ready()? {
                Ready::Plain(mut tcp) => tcp.write_vectored(slices),
                Ready::Secured(stream) => stream.write_vectored(slices),
            },
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp().as_fd()
    }
}
