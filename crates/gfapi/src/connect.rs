//! Connecting within a time that is known beforehand: libgfapi by itself waits for minutes where nothing answers.

use std::ffi::CString;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::library::{Glfs, Library};
use crate::{Address, Error, Transport};

/// The time in which a server must accept a connection.
const ACCEPT: Duration = Duration::from_secs(5);
/// The time between two looks at the stop flag.
const POLL: Duration = Duration::from_millis(50);

/// A glfs_t on its way between threads.
pub(crate) struct Handle(pub *mut Glfs);
// SAFETY: the handle is a pointer that libgfapi does not tie to a thread: glfs.h lets any thread call every function.
unsafe impl Send for Handle {}
// SAFETY: glfs.h lets several threads call every function of one glfs_t at the same time.
unsafe impl Sync for Handle {}

/// The initialised glfs_t.
pub(crate) fn connect(
    library: &'static Library,
    address: &Address,
    timeout: Duration,
    stop: &AtomicBool,
) -> Result<Handle, Error> {
    let began = Instant::now();
    let stopped = || Error::Stopped { volume: address.volume.clone() };
    let texts = Texts::of(address)?;

    // Everything that may block happens in separate threads, which are left alone when they take too long.
    let (reached, reaching) = mpsc::channel();
    let (host, port, transport) = (address.host.clone(), address.port, address.transport);
    start(move || drop(reached.send(reach(&host, port, transport))), address)?;
    let unreachable = |source| Error::Unreachable { server: address.server(), source };
    match wait(&reaching, began + timeout.min(ACCEPT + POLL), stop) {
        Waited::Value(result) => result.map_err(unreachable)?,
        Waited::TimedOut => return Err(unreachable(io::Error::from_raw_os_error(libc::ETIMEDOUT))),
        Waited::Stopped => return Err(stopped()),
    }

    let (made, making) = mpsc::channel();
    start(move || drop(made.send(initialise(library, &texts))), address)?;
    match wait(&making, began + timeout, stop) {
        Waited::Value(Ok(handle)) => Ok(handle),
        Waited::Value(Err(source)) => {
            let hint = match source.raw_os_error() {
                Some(libc::ENOENT) => "is there a volume of that name? `gluster volume info` lists them",
                Some(libc::EACCES | libc::EPERM) => "auth.allow of the volume, or allow-insecure, keeps this host out",
                _ => "are its bricks up, is it started? `gluster volume status` tells",
            };
            Err(Error::Refused { volume: address.volume.clone(), server: address.server(), source, hint })
        }
        Waited::TimedOut => {
            let seconds = timeout.as_secs();
            Err(Error::TimedOut { volume: address.volume.clone(), server: address.server(), seconds })
        }
        Waited::Stopped => Err(stopped()),
    }
}

enum Waited<T> {
    Value(T),
    TimedOut,
    Stopped,
}

fn wait<T>(receiver: &mpsc::Receiver<T>, until: Instant, stop: &AtomicBool) -> Waited<T> {
    loop {
        match receiver.recv_timeout(POLL.min(until.saturating_duration_since(Instant::now()))) {
            Ok(value) => return Waited::Value(value),
            Err(_) if stop.load(Ordering::Relaxed) => return Waited::Stopped,
            Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
            // It may have come while this thread stood still.
            Err(_) => return receiver.try_recv().map_or(Waited::TimedOut, Waited::Value),
        }
    }
}

fn start(work: impl FnOnce() + Send + 'static, address: &Address) -> Result<(), Error> {
    let thread = std::thread::Builder::new().name("gfapi-connect".into()).spawn(work);
    thread.map(drop).map_err(|source| Error::Refused {
        volume: address.volume.clone(),
        server: address.server(),
        source,
        hint: "no more threads: ulimit -u",
    })
}

/// Succeeds if a server accepts a connection at this address; for RDMA, if the name of the host resolves.
fn reach(host: &str, port: u16, transport: Transport) -> io::Result<()> {
    match transport {
        Transport::Unix => UnixStream::connect(host).map(drop),
        // The port is looked after by the adapter; only the name can be checked.
        Transport::Rdma => (host, port).to_socket_addrs().map(drop),
        Transport::Tcp => {
            let mut outcome = Err(io::Error::other("its name has no address"));
            for address in (host, port).to_socket_addrs()? {
                outcome = TcpStream::connect_timeout(&address, ACCEPT).map(drop);
                if outcome.is_ok() {
                    break;
                }
            }
            outcome
        }
    }
}

/// The address of a volume and the place of the log, as C texts and numbers for libgfapi.
struct Texts {
    volume: CString,
    transport: CString,
    host: CString,
    port: i32,
    log_file: CString,
    log_level: i32,
}

impl Texts {
    fn of(address: &Address) -> Result<Texts, Error> {
        let text = |text: &str, what: &str| {
            if text.is_empty() {
                return Err(Error::Address(format!("the {what} of the Gluster volume is missing")));
            }
            CString::new(text).map_err(|_| Error::Address(format!("the {what} of the Gluster volume holds a NUL byte")))
        };
        Ok(Texts {
            volume: text(&address.volume, "name")?,
            transport: text(address.transport.name(), "transport")?,
            host: text(&address.host, "host")?,
            port: i32::from(address.port),
            log_file: text(address.log_file.as_deref().unwrap_or("/dev/null"), "log file")?,
            log_level: i32::from(address.log_level),
        })
    }
}

fn initialise(library: &Library, texts: &Texts) -> io::Result<Handle> {
    // SAFETY: a NUL-terminated text.
    let fs = unsafe { (library.new)(texts.volume.as_ptr()) };
    if fs.is_null() {
        return Err(last_error());
    }
    let done = |result: i32| if result == 0 { Ok(()) } else { Err(last_error()) };
    // SAFETY: fs is new and not initialised; libgfapi copies the NUL-terminated texts.
    let set = done(unsafe { (library.set_logging)(fs, texts.log_file.as_ptr(), texts.log_level) });
    let set = set.and_then(|()| {
        let (transport, host) = (texts.transport.as_ptr(), texts.host.as_ptr());
        // SAFETY: fs is new and not initialised; libgfapi copies the NUL-terminated texts.
        done(unsafe { (library.set_volfile_server)(fs, transport, host, texts.port) })
    });
    // SAFETY: fs is alive, and set_volfile_server has given it a server.
    let outcome = set.and_then(|()| done(unsafe { (library.init)(fs) }));
    match outcome {
        Ok(()) => Ok(Handle(fs)),
        Err(error) => {
            // SAFETY: this function has made fs and has given it to nobody; glfs_fini also takes a glfs_t that is not
            // initialised.
            unsafe { (library.fini)(fs) };
            Err(error)
        }
    }
}

/// errno of the call just made; EIO where the library set none.
pub(crate) fn last_error() -> io::Error {
    let error = io::Error::last_os_error();
    if error.raw_os_error().is_none_or(|errno| errno <= 0) { io::Error::from_raw_os_error(libc::EIO) } else { error }
}
