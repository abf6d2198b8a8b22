//! Connections whose client has not said its ClientHello whole: nothing is kept for them but the socket.
//!
//! OpenSSL takes memory for all of a ClientHello as soon as the client has told its length, up to 128 KiB. A client
//! that sends no more than that would cost that much. The message therefore waits in the socket until all of it is
//! there.

use std::io;
use std::mem::size_of;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::{Acceptor, Error, Find, Stream};

/// Bytes of a ClientHello at the most. Those of NVMe/TCP hosts have some hundred, up to two thousand with shares of
/// post-quantum groups.
const MOST: usize = 8 << 10;
/// The header of a record, and of a handshake message in it (RFC 8446, sections 5.1 and 4).
const HEADERS: usize = 5 + 4;
/// The type of records with handshake messages.
const HANDSHAKE: u8 = 22;

/// A connection to which OpenSSL has given nothing yet. The socket may be non-blocking.
pub struct Pending {
    acceptor: Arc<Acceptor>,
    find: Find,
    tcp: Arc<TcpStream>,
}

impl Pending {
    /// A connection that came in; `find` gives the keys that the server knows.
    pub fn new(acceptor: Arc<Acceptor>, tcp: TcpStream, find: Find) -> Pending {
        Pending { acceptor, find, tcp: Arc::new(tcp) }
    }

    /// The socket.
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// True if the client has sent something that does not begin a handshake of TLS.
    ///
    /// # Errors
    /// Those of recv(2).
    pub fn begins_plainly(&self) -> io::Result<bool> {
        let mut first = [0];
        match peek(&self.tcp, &mut first) {
            Ok(waiting) => Ok(waiting > 0 && first[0] != HANDSHAKE),
            Err(Error::Io(error)) => Err(error),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// The socket, to be used without TLS: it is readable from one byte on.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn plain(&self) -> Result<Arc<TcpStream>, Error> {
        wake_at(&self.tcp, 1)?;
        Ok(Arc::clone(&self.tcp))
    }

    /// The secured stream as soon as the whole ClientHello waits in the socket; `None` before. The socket becomes
    /// readable when it is worth to ask again (SO_RCVLOWAT, socket(7)).
    ///
    /// # Errors
    /// [`Error::Handshake`] if the client sends another message, or a ClientHello of more than 8 KiB or of several
    /// records; [`Error::Io`] if the connection is broken.
    pub fn accept(&self) -> Result<Option<Stream>, Error> {
        let mut headers = [0; HEADERS];
        let waiting = peek(&self.tcp, &mut headers)?;
        let whole = whole(&headers[..waiting])?;
        let is_whole = waiting == HEADERS && waiting_bytes(&self.tcp)? >= whole;
        if !is_whole && has_ended(&self.tcp)? {
            return Err(Error::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        wake_at(&self.tcp, if is_whole { 1 } else { whole })?;
        match is_whole {
            true => self.acceptor.accept_shared(Arc::clone(&self.tcp), Arc::clone(&self.find)).map(Some),
            false => Ok(None),
        }
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pending({:?})", self.tcp)
    }
}

/// Bytes of the record that begins so and holds a whole ClientHello; those of its headers while these are not there.
fn whole(headers: &[u8]) -> Result<usize, Error> {
    const FIRST: [(usize, u8); 3] = [(0, HANDSHAKE), (1, 3), (5, 1)]; // a record of a handshake, of TLS; a ClientHello
    if FIRST.iter().any(|(at, byte)| headers.get(*at).is_some_and(|sent| sent != byte)) {
        return Err(Error::Handshake("the client does not begin with a ClientHello".into()));
    }
    let &[_, _, _, high, low, _, top, middle, bottom] = headers else { return Ok(HEADERS) };
    let record = usize::from(u16::from_be_bytes([high, low]));
    let message = u32::from_be_bytes([0, top, middle, bottom]) as usize;
    match record == 4 + message && message <= MOST {
        true => Ok(5 + record),
        false => Err(Error::Handshake(format!("a ClientHello of {message} bytes in a record of {record}"))),
    }
}

/// Reads the beginning of what waits in the socket, and leaves it there: the number of bytes.
fn peek(tcp: &TcpStream, bytes: &mut [u8]) -> Result<usize, Error> {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: the buffer has the given number of bytes.
    let read = unsafe { libc::recv(tcp.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), flags) };
    match usize::try_from(read) {
        Ok(read) => Ok(read),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            error => Err(Error::Io(error)),
        },
    }
}

/// Bytes that wait in the socket (FIONREAD, tcp(7)).
fn waiting_bytes(tcp: &TcpStream) -> Result<usize, Error> {
    let mut waiting: libc::c_int = 0;
    // SAFETY: the request writes one int.
    match unsafe { libc::ioctl(tcp.as_raw_fd(), libc::FIONREAD, &raw mut waiting) } {
        0 => Ok(usize::try_from(waiting).unwrap_or(0)),
        _ => Err(Error::Io(io::Error::last_os_error())),
    }
}

/// True if the client sends no more.
fn has_ended(tcp: &TcpStream) -> Result<bool, Error> {
    let mut socket = libc::pollfd { fd: tcp.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one entry, as the count says; the call does not wait.
    match unsafe { libc::poll(&raw mut socket, 1, 0) } {
        -1 => Err(Error::Io(io::Error::last_os_error())),
        ended => Ok(ended > 0),
    }
}

/// Lets the socket be readable from this number of bytes on.
fn wake_at(tcp: &TcpStream, bytes: usize) -> Result<(), Error> {
    let bytes = bytes as libc::c_int; // of at most a record
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    let value = (&raw const bytes).cast();
    // SAFETY: the value is an int, as its size says.
    match unsafe { libc::setsockopt(tcp.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, value, size) } {
        0 => Ok(()),
        _ => Err(Error::Io(io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(record: u16, message: u32) -> Vec<u8> {
        [&[22, 3, 1][..], &record.to_be_bytes(), &[1], &message.to_be_bytes()[1..]].concat()
    }

    #[test]
    fn the_headers_tell_how_much_is_to_come() {
        let whole_head = head(304, 300);
        for length in 0..HEADERS {
            assert_eq!(whole(&whole_head[..length]).unwrap(), HEADERS, "{length}");
        }
        assert_eq!(whole(&whole_head).unwrap(), 309);
        assert_eq!(whole(&head(4 + MOST as u16, MOST as u32)).unwrap(), 9 + MOST);
    }

    #[test]
    fn what_is_not_one_small_clienthello_is_refused() {
        let mut others = vec![head(304, 301), head(305, 300), head(5 + MOST as u16, 1 + MOST as u32)];
        others.push(head(16384, 131_000)); // in several records
        for (at, byte) in [(0, 23), (1, 2), (5, 2)] {
            let mut other = head(304, 300);
            other[at] = byte;
            others.push(other);
        }
        for other in others {
            assert!(matches!(whole(&other), Err(Error::Handshake(_))), "{other:?}");
        }
        assert!(whole(&[0]).is_err(), "the first byte of a plain host");
    }
}
