//! Secured connections.

use std::ffi::{c_int, c_long, c_uchar, c_void};
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;

use crate::binder::proven_key;
use crate::library::{self, Context, Library, Session, Ssl, library};
use crate::{Error, Psk};

/// Bytes of content in one record at the most (RFC 8446, section 5.1).
const RECORD: usize = 16 << 10;
/// Bytes that one receive call takes once the handshake is over: some records, for fewer calls.
const READ_AHEAD: usize = 68 << 10;

/// Gives the keys for an identity: more than one if programs derive the key in different ways.
pub type Find = Arc<dyn Fn(&str) -> Vec<Psk> + Send + Sync>;

/// The progress of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Both ends have proven their keys: bytes can travel.
    Done,
    /// The peer has to send first.
    WantsRead,
    /// The socket has to take bytes first.
    WantsWrite,
}

/// The end that waits for clients.
pub struct Acceptor(Secured);

/// The end that begins.
pub struct Connector(Secured);

impl Acceptor {
    /// An acceptor for any number of connections.
    ///
    /// # Errors
    /// OpenSSL is missing, or has no memory.
    pub fn new() -> Result<Acceptor, Error> {
        let secured = Secured::new()?;
        let library = secured.library;
        // SAFETY: as declared; the context is alive, and the callback has the declared type.
        unsafe { (library.SSL_CTX_set_psk_find_session_callback)(secured.context, find_session) };
        // SAFETY: as declared; the context is alive, and the callback has the declared type.
        unsafe { (library.SSL_CTX_set_msg_callback)(secured.context, keep_hello) };
        // SAFETY: as declared; the context is alive, and the callback has the declared type and needs no argument.
        unsafe { (library.SSL_CTX_set_client_hello_cb)(secured.context, choose_key, null_mut()) };
        Ok(Acceptor(secured))
    }

    /// A connection that a client has begun; `find` gives the keys that the server knows. For clients that nobody
    /// trusts see [`Pending`](crate::Pending).
    ///
    /// # Errors
    /// OpenSSL has no memory.
    pub fn accept(&self, stream: TcpStream, find: Find) -> Result<Stream, Error> {
        self.accept_shared(Arc::new(stream), find)
    }

    pub(crate) fn accept_shared(&self, stream: Arc<TcpStream>, find: Find) -> Result<Stream, Error> {
        let peer = Peer { role: Role::Server { find, hello: Hello::Awaited }, key: None };
        let stream = Stream::new(&self.0, stream, peer)?;
        // SAFETY: as declared; the connection is alive.
        unsafe { (self.0.library.SSL_set_accept_state)(stream.ssl) };
        Ok(stream)
    }
}

impl Connector {
    /// A connector for any number of connections.
    ///
    /// # Errors
    /// OpenSSL is missing, or has no memory.
    pub fn new() -> Result<Connector, Error> {
        let secured = Secured::new()?;
        let library = secured.library;
        // SAFETY: as declared; the context is alive, and the callback has the declared type.
        unsafe { (library.SSL_CTX_set_psk_use_session_callback)(secured.context, use_session) };
        // Without a key in common a server would show a certificate: no certificate is good.
        // SAFETY: as declared; the context is alive, and a callback may be missing.
        unsafe { (library.SSL_CTX_set_verify)(secured.context, library::VERIFY_PEER, std::ptr::null()) };
        Ok(Connector(secured))
    }

    /// A connection to a server that knows `key`.
    ///
    /// # Errors
    /// OpenSSL has no memory.
    pub fn connect(&self, stream: TcpStream, key: Psk) -> Result<Stream, Error> {
        let cipher = key.cipher;
        let stream = Stream::new(&self.0, Arc::new(stream), Peer { role: Role::Client, key: Some(key) })?;
        // SAFETY: as declared; the connection is alive, and a NUL ends the name.
        unsafe { (self.0.library.SSL_set_ciphersuites)(stream.ssl, cipher.c_name().as_ptr()) };
        // SAFETY: as declared; the connection is alive.
        unsafe { (self.0.library.SSL_set_connect_state)(stream.ssl) };
        Ok(stream)
    }
}

/// A context of OpenSSL with the settings of both ends.
struct Secured {
    library: &'static Library,
    context: *mut Context,
}

// SAFETY: OpenSSL counts the users of a context atomically, and nobody changes a context once connections use it.
unsafe impl Send for Secured {}
// SAFETY: as above: a shared context is only read, by SSL_new.
unsafe impl Sync for Secured {}

impl Secured {
    fn new() -> Result<Secured, Error> {
        let library = library()?;
        // SAFETY: as declared; the method is a constant of the library.
        let method = unsafe { (library.TLS_method)() };
        // SAFETY: as declared.
        let context = unsafe { (library.SSL_CTX_new)(method) };
        if context.is_null() {
            return Err(Error::Setup { what: "make a context", why: library.reason() });
        }
        let secured = Secured { library, context };
        let modes = library::MODE_ACCEPT_MOVING_WRITE_BUFFER | library::MODE_RELEASE_BUFFERS;
        let is_right = secured.control(library::CTRL_SET_MIN_PROTO_VERSION, c_long::from(library::TLS1_3)) == 1;
        secured.control(library::CTRL_MODE, modes);
        secured.control(library::CTRL_SET_READ_AHEAD, 1);
        secured.control(library::CTRL_SET_SESS_CACHE_MODE, 0);
        // With the kernel's TLS, OpenSSL answers a change of keys with records that the peer cannot read.
        let by_kernel = std::env::var_os("PLIMSOLL_KTLS").is_some_and(|asked| asked == "1");
        let options = if by_kernel { library::OP_ENABLE_KTLS } else { 0 } | library::OP_IGNORE_UNEXPECTED_EOF;
        // SAFETY: as declared; the context is alive.
        unsafe { (library.SSL_CTX_set_options)(context, options) };
        let suites = c"TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256";
        // SAFETY: as declared; the context is alive, and a NUL ends the text.
        let are_known = unsafe { (library.SSL_CTX_set_ciphersuites)(context, suites.as_ptr()) } == 1;
        // SAFETY: as declared; the context is alive.
        unsafe { (library.SSL_CTX_set_num_tickets)(context, 0) };
        match is_right && are_known {
            true => Ok(secured),
            false => Err(Error::Setup { what: "be held to TLS 1.3", why: library.reason() }),
        }
    }

    fn control(&self, command: c_int, value: c_long) -> c_long {
        // SAFETY: as declared; the context is alive, and the commands used here take no pointer.
        unsafe { (self.library.SSL_CTX_ctrl)(self.context, command, value, null_mut()) }
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        // SAFETY: as declared; connections hold the context by counts of their own.
        unsafe { (self.library.SSL_CTX_free)(self.context) };
    }
}

/// The part of a connection that callbacks see.
struct Peer {
    role: Role,
    /// The key: the one to offer, or the one that the client has proven.
    key: Option<Psk>,
}

enum Role {
    Client,
    Server {
        find: Find,
        /// The first ClientHello, until its binder is judged.
        hello: Hello,
    },
}

enum Hello {
    Awaited,
    Here(Vec<u8>),
    Judged,
}

impl Hello {
    fn take(&mut self) -> Option<Vec<u8>> {
        match std::mem::replace(self, Hello::Judged) {
            Hello::Here(text) => Some(text),
            Hello::Awaited | Hello::Judged => None,
        }
    }
}

/// The place of [`Peer`] among OpenSSL's data of a connection: the one that it leaves to programs.
const APP_DATA: c_int = 0;

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({:?}, {:?})", self.tcp, self.key())
    }
}

/// A connection whose bytes are secured. A process that uses it ignores SIGPIPE, as Rust's programs do.
///
/// The socket may be non-blocking: then calls end with `WouldBlock`. Received bytes may wait here although the socket
/// has none: see [`Stream::has_more`].
pub struct Stream {
    library: &'static Library,
    ssl: *mut Ssl,
    /// Belongs to this stream. OpenSSL hands the pointer to the callbacks, during calls of this stream's functions
    /// only.
    peer: *mut Peer,
    /// True if the last read found no whole record.
    is_drained: bool,
    /// Bytes of a record that the socket did not take yet: the next call has to bring them again.
    retried: Option<usize>,
    /// The place where a record is put together.
    record: Vec<u8>,
    tcp: Arc<TcpStream>,
}

// SAFETY: OpenSSL ties a connection to no thread, and the callbacks' data are Send.
unsafe impl Send for Stream {}

impl Stream {
    fn new(secured: &Secured, tcp: Arc<TcpStream>, peer: Peer) -> Result<Stream, Error> {
        let library = secured.library;
        // SAFETY: as declared; the context is alive.
        let ssl = unsafe { (library.SSL_new)(secured.context) };
        if ssl.is_null() {
            return Err(Error::Setup { what: "make a connection", why: library.reason() });
        }
        let fd = tcp.as_raw_fd();
        let peer = Box::into_raw(Box::new(peer));
        let stream = Stream { library, ssl, peer, is_drained: false, retried: None, record: Vec::new(), tcp };
        // SAFETY: as declared; the socket stays open as long as the connection, which does not own it.
        let has_socket = unsafe { (library.SSL_set_fd)(ssl, fd) } == 1;
        // SAFETY: as declared; the pointer is good until the stream is dropped.
        let has_peer = unsafe { (library.SSL_set_ex_data)(ssl, APP_DATA, peer.cast()) } == 1;
        match has_socket && has_peer {
            true => Ok(stream),
            false => Err(Error::Setup { what: "use a socket", why: library.reason() }),
        }
    }

    /// The socket.
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Goes on with the handshake as far as the socket lets it.
    ///
    /// # Errors
    /// [`Error::Handshake`] if the peer has no key in common, or breaks the protocol; [`Error::Io`] if the connection
    /// is broken.
    pub fn handshake(&mut self) -> Result<Handshake, Error> {
        let outcome = self.call(|library, ssl| {
            // SAFETY: as declared; the connection is alive.
            unsafe { (library.SSL_do_handshake)(ssl) }
        });
        match outcome {
            Ok(()) => {}
            Err(Stop::WantsRead) => return Ok(Handshake::WantsRead),
            Err(Stop::WantsWrite) => return Ok(Handshake::WantsWrite),
            Err(Stop::Closed) => return Err(Error::Io(io::ErrorKind::UnexpectedEof.into())),
            Err(Stop::Broken(error)) => return Err(Error::Io(error)),
            Err(Stop::Protocol(why)) => return Err(Error::Handshake(why)),
        }
        // A key from outside counts as a resumed session.
        // SAFETY: as declared; the connection is alive.
        if unsafe { (self.library.SSL_session_reused)(self.ssl) } != 1 || self.key().is_none() {
            return Err(Error::Handshake("the peer did not prove a key".into()));
        }
        // SAFETY: as declared; the connection is alive. The length counts from the next buffer on.
        unsafe { (self.library.SSL_set_default_read_buffer_len)(self.ssl, READ_AHEAD) };
        Ok(Handshake::Done)
    }

    /// The key of this connection: once the handshake is done, both ends have proven it.
    pub fn key(&self) -> Option<&Psk> {
        // SAFETY: the pointer is good until the stream is dropped; callbacks use it during calls that borrow the stream
        // mutably, so not now.
        unsafe { &*self.peer }.key.as_ref()
    }

    /// Reads until the buffer is full or nothing is at hand; zero bytes mean that the peer has ended the connection.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is there, or while [`Stream::reads_after_write`]; `InvalidData` if a record is not the
    /// peer's; the errors of recv(2).
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            if self.reads_after_write() {
                if filled > 0 {
                    break;
                }
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let room = &mut buffer[filled..];
            let mut read = 0;
            let outcome = self.call(|library, ssl| {
                // SAFETY: as declared; the room has the given number of bytes, and the count is written back.
                unsafe { (library.SSL_read_ex)(ssl, room.as_mut_ptr().cast(), room.len(), &raw mut read) }
            });
            self.is_drained = matches!(outcome, Err(Stop::WantsRead));
            match outcome {
                Ok(()) => filled += read,
                Err(_) if filled > 0 => break, // the next call tells
                Err(Stop::Closed) => return Ok(0),
                Err(stop) => return Err(stop.into()),
            }
            // A blocking socket must not wait for more than it has.
            if !self.has_more() {
                break;
            }
        }
        Ok(filled)
    }

    /// True if received bytes wait here: the socket may be empty, and yet [`Stream::read`] would give some.
    pub fn has_more(&self) -> bool {
        // The beginning of a record counts as waiting too, and yet gives nothing.
        // SAFETY: as declared; the connection is alive.
        !self.is_drained && unsafe { (self.library.SSL_has_pending)(self.ssl) == 1 } && !self.reads_after_write()
    }

    /// True if nothing is read before the socket has taken the record that the last write has begun. The peer has asked
    /// for new keys (RFC 8446, section 4.6.3), which the next record brings. If OpenSSL 3 read another request now, it
    /// would answer in the middle of the record that is under way, and end the connection with "bad length". (It does
    /// so still for two requests that come one after the other, without content between them.)
    pub fn reads_after_write(&self) -> bool {
        // SAFETY: as declared; the connection is alive.
        let scheduled = || unsafe { (self.library.SSL_get_key_update_type)(self.ssl) };
        self.retried.is_some() && scheduled() != library::KEY_UPDATE_NONE
    }

    /// Sends the slices as records, as far as the socket takes them. Bytes count as sent when the socket has taken all
    /// of their record. After fewer bytes than asked, or `WouldBlock`, the next call has to begin with the bytes that
    /// follow.
    ///
    /// # Errors
    /// `WouldBlock` if the socket takes nothing now; the errors of send(2).
    pub fn write_vectored(&mut self, slices: &[IoSlice]) -> io::Result<usize> {
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        // Each record is a call to send(2). Corked, the socket sends segments as large as it can and not one a record.
        let corked = bytes > RECORD;
        if corked {
            self.cork(true);
        }
        let mut from = Place { slice: 0, at: 0 };
        let mut sent = 0;
        let outcome = loop {
            if sent == bytes {
                break Ok(());
            }
            match self.write_from(slices, &mut from) {
                Ok(now) => sent += now,
                Err(stop) => break Err(stop),
            }
        };
        if corked {
            self.cork(false);
        }
        match outcome {
            Err(stop) if sent == 0 => Err(stop.into()),
            // The next call tells.
            _ => Ok(sent),
        }
    }

    /// Holds small segments back, or sends what was held back: TCP_CORK of tcp(7). A socket of another kind has none.
    fn cork(&self, is_held: bool) {
        let value = c_int::from(is_held);
        // SAFETY: the option's value has the given number of bytes.
        unsafe {
            libc::setsockopt(
                self.tcp.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_CORK,
                (&raw const value).cast(),
                size_of::<c_int>() as libc::socklen_t,
            )
        };
    }

    /// Sends one record of the bytes at `from`, moves on, and returns how many they are.
    fn write_from(&mut self, slices: &[IoSlice], from: &mut Place) -> Result<usize, Stop> {
        let most = self.retried.unwrap_or(RECORD);
        while from.at == slices[from.slice].len() {
            *from = Place { slice: from.slice + 1, at: 0 };
        }
        let mut record = std::mem::take(&mut self.record);
        let first = &slices[from.slice][from.at..];
        let mut end = Place { slice: from.slice, at: from.at + most };
        let content = match first.len() >= most {
            true => &first[..most],
            false => {
                record.clear();
                record.extend_from_slice(first);
                end = Place { slice: from.slice, at: slices[from.slice].len() };
                while record.len() < most && end.slice + 1 < slices.len() {
                    let next = &slices[end.slice + 1];
                    let part = next.len().min(most - record.len());
                    record.extend_from_slice(&next[..part]);
                    end = Place { slice: end.slice + 1, at: part };
                }
                &record[..]
            }
        };
        let outcome = self.write_record(content).map(|()| content.len());
        self.retried = matches!(&outcome, Err(Stop::WantsWrite | Stop::WantsRead)).then_some(content.len());
        self.record = record;
        if outcome.is_ok() {
            *from = end;
        }
        outcome
    }

    fn write_record(&mut self, content: &[u8]) -> Result<(), Stop> {
        let mut written = 0;
        self.call(|library, ssl| {
            // SAFETY: as declared; the content has the given number of bytes. After a refusal the same bytes come
            // again, maybe at another place, which the connection's mode allows.
            unsafe { (library.SSL_write_ex)(ssl, content.as_ptr().cast(), content.len(), &raw mut written) }
        })
    }

    /// Carries out one call, and says why it did not succeed.
    fn call(&mut self, act: impl FnOnce(&Library, *mut Ssl) -> c_int) -> Result<(), Stop> {
        // SAFETY: as declared.
        unsafe { (self.library.ERR_clear_error)() };
        let result = act(self.library, self.ssl);
        if result == 1 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // SAFETY: as declared; the connection is alive, and its last call was made by this thread.
        Err(match unsafe { (self.library.SSL_get_error)(self.ssl, result) } {
            library::ERROR_WANT_READ => Stop::WantsRead,
            library::ERROR_WANT_WRITE => Stop::WantsWrite,
            library::ERROR_ZERO_RETURN => Stop::Closed,
            library::ERROR_SYSCALL if error.raw_os_error().unwrap_or(0) != 0 => Stop::Broken(error),
            library::ERROR_SYSCALL => Stop::Closed,
            _ => Stop::Protocol(self.library.reason()),
        })
    }

    /// Tells the peer that no more bytes come, as far as the socket takes the word at once.
    pub fn close(&mut self) {
        let _ = self.call(|library, ssl| {
            // SAFETY: as declared; the connection is alive.
            unsafe { (library.SSL_shutdown)(ssl) }
        });
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: as declared; nobody uses the connection any more.
        unsafe { (self.library.SSL_free)(self.ssl) };
        // SAFETY: the pointer comes from Box::into_raw, and no callback can come any more.
        drop(unsafe { Box::from_raw(self.peer) });
    }
}

/// A place in a list of slices.
struct Place {
    /// The number of the slice.
    slice: usize,
    /// The bytes of that slice that lie before the place.
    at: usize,
}

/// The reason why a call did not succeed.
enum Stop {
    WantsRead,
    WantsWrite,
    Closed,
    Broken(io::Error),
    Protocol(String),
}

impl From<Stop> for io::Error {
    fn from(stop: Stop) -> io::Error {
        match stop {
            Stop::WantsRead | Stop::WantsWrite => io::ErrorKind::WouldBlock.into(),
            Stop::Closed => io::ErrorKind::UnexpectedEof.into(),
            Stop::Broken(error) => error,
            Stop::Protocol(why) => io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {why}")),
        }
    }
}

/// The peer of the connection that a callback is for.
///
/// # Safety
/// `ssl` is a connection of a [`Stream`], and a call of that stream's functions is under way in this thread. The
/// reference is gone before the callback returns.
unsafe fn peer_of<'a>(library: &Library, ssl: *mut Ssl) -> Option<&'a mut Peer> {
    // SAFETY: as declared; the caller vouches for the connection.
    let peer = unsafe { (library.SSL_get_ex_data)(ssl, APP_DATA) };
    // SAFETY: the pointer is that of Stream::new; the stream's function under way does not look at the peer.
    unsafe { peer.cast::<Peer>().as_mut() }
}

/// Keeps the client's first message: its binder tells which key the client has.
unsafe extern "C" fn keep_hello(
    is_sent: c_int,
    _version: c_int,
    kind: c_int,
    text: *const c_void,
    bytes: usize,
    ssl: *mut Ssl,
    _argument: *mut c_void,
) {
    if is_sent != 0 || kind != library::CONTENT_HANDSHAKE || bytes == 0 {
        return;
    }
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let Ok(library) = library() else { return };
        // SAFETY: OpenSSL calls back for a connection whose stream's function is under way.
        let Some(peer) = (unsafe { peer_of(library, ssl) }) else { return };
        if let Role::Server { hello: hello @ Hello::Awaited, .. } = &mut peer.role {
            // SAFETY: OpenSSL promises `bytes` bytes at `text` during this call.
            *hello = Hello::Here(unsafe { std::slice::from_raw_parts(text.cast::<u8>(), bytes) }.to_vec());
        }
    }));
}

/// Finds the key that the client has, and holds the connection to the key's suite: OpenSSL chooses the suite before it
/// looks at keys.
unsafe extern "C" fn choose_key(ssl: *mut Ssl, _alert: *mut c_int, _argument: *mut c_void) -> c_int {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let library = library().ok()?;
        // SAFETY: OpenSSL calls back for a connection whose stream's function is under way.
        let peer = unsafe { peer_of(library, ssl) }?;
        let Role::Server { find, hello } = &mut peer.role else { return None };
        // After a HelloRetryRequest the choice stays: the second binder covers more than the second message.
        let key = proven_key(&hello.take()?, &**find)?;
        // SAFETY: as declared; the connection is alive, and a NUL ends the name.
        unsafe { (library.SSL_set_ciphersuites)(ssl, key.cipher.c_name().as_ptr()) };
        peer.key = Some(key);
        Some(())
    }));
    library::CLIENT_HELLO_SUCCESS // without a key OpenSSL goes on, and finds no certificate
}

/// Gives OpenSSL the key that [`choose_key`] has found.
unsafe extern "C" fn find_session(
    ssl: *mut Ssl,
    identity: *const c_uchar,
    bytes: usize,
    session: *mut *mut Session,
) -> c_int {
    // SAFETY: OpenSSL gives a place for the answer.
    unsafe { session.write(null_mut()) };
    let found = catch_unwind(AssertUnwindSafe(|| {
        let library = library().ok()?;
        // SAFETY: OpenSSL calls back for a connection whose stream's function is under way.
        let peer = unsafe { peer_of(library, ssl) }?;
        // SAFETY: OpenSSL promises `bytes` bytes at `identity` during this call.
        let identity = unsafe { std::slice::from_raw_parts(identity, bytes) };
        let key = peer.key.as_ref().filter(|key| key.identity.as_bytes() == identity)?;
        // SAFETY: the connection is alive: OpenSSL calls back for it.
        unsafe { session_of(library, ssl, key) }
    }));
    if let Ok(Some(found)) = found {
        // SAFETY: OpenSSL gives a place for the answer, and owns the session from here on.
        unsafe { session.write(found) };
    }
    1 // OpenSSL goes on after an unknown identity
}

/// Gives OpenSSL the key to offer.
unsafe extern "C" fn use_session(
    ssl: *mut Ssl,
    _hash: *const c_void,
    identity: *mut *const c_uchar,
    bytes: *mut usize,
    session: *mut *mut Session,
) -> c_int {
    let offered = catch_unwind(AssertUnwindSafe(|| {
        let library = library().ok()?;
        // SAFETY: OpenSSL calls back for a connection whose stream's function is under way.
        let key = unsafe { peer_of(library, ssl) }?.key.as_ref()?;
        // SAFETY: the connection is alive: OpenSSL calls back for it.
        let session = unsafe { session_of(library, ssl, key) }?;
        Some((key.identity.as_ptr(), key.identity.len(), session))
    }));
    let Ok(Some((text, length, offered))) = offered else { return 0 };
    // SAFETY: OpenSSL gives a place for the identity, which lives as long as the stream.
    unsafe { identity.write(text) };
    // SAFETY: OpenSSL gives a place for the number of bytes.
    unsafe { bytes.write(length) };
    // SAFETY: OpenSSL gives a place for the session, and owns it from here on.
    unsafe { session.write(offered) };
    1
}

/// The key as a session of OpenSSL.
///
/// # Safety
/// `ssl` is a connection that is alive.
unsafe fn session_of(library: &Library, ssl: *mut Ssl, key: &Psk) -> Option<*mut Session> {
    // SAFETY: as declared; the caller vouches for the connection, and the code has two bytes.
    let cipher = unsafe { (library.SSL_CIPHER_find)(ssl, key.cipher.code().as_ptr()) };
    if cipher.is_null() {
        return None;
    }
    // SAFETY: as declared.
    let session = unsafe { (library.SSL_SESSION_new)() };
    if session.is_null() {
        return None;
    }
    // SAFETY: as declared; the session copies the key.
    let has_key = unsafe { (library.SSL_SESSION_set1_master_key)(session, key.secret.as_ptr(), key.secret.len()) } == 1;
    // SAFETY: as declared; the suite is a constant of the library.
    let has_cipher = unsafe { (library.SSL_SESSION_set_cipher)(session, cipher) } == 1;
    // SAFETY: as declared.
    let has_version = unsafe { (library.SSL_SESSION_set_protocol_version)(session, library::TLS1_3) } == 1;
    if has_key && has_cipher && has_version {
        return Some(session);
    }
    // SAFETY: as declared; nobody else knows the session.
    unsafe { (library.SSL_SESSION_free)(session) };
    None
}
