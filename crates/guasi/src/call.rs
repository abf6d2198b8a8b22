//! The calls that a request can ask for: the blocking form of each, which any worker can carry out, and its form for
//! the ring.
//!
//! **The submitter's promise**: the pointers in a call are valid until the request completes, and a function of the
//! program accepts its parameters. SAFETY comments refer to this promise by its name.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use sys::ring::{opcode, squeue, types};

use crate::interrupt;
use crate::request::Outcome;

/// A function of the program: `guasi_syscall_t`.
pub(crate) type Function = unsafe extern "C" fn(*mut c_void, *const isize) -> isize;
/// A function of the program that cleans up after a call: `guasi_cleanup_t`.
pub(crate) type Cleanup = unsafe extern "C" fn(*mut c_void, *const isize);

/// The most parameters of a function (GUASI_MAX_PARAMS).
pub(crate) const MAX_PARAMS: usize = 16;

/// The most bytes that one read or write transfers (MAX_RW_COUNT of Linux, read(2)): a longer one is cut, as read(2)
/// does.
const MAX_TRANSFER: usize = 0x7fff_f000;

/// One call. Its pointers are the submitter's promise: valid until the request completes.
#[cfg_attr(not(feature = "c-abi"), allow(dead_code, reason = "so far only C programs ask for all of it"))]
pub(crate) enum Call {
    /// A call that does nothing, for tests of the queues.
    #[allow(dead_code, reason = "constructed by the tests only")]
    Nothing,
    /// A function of the program, which runs with the signal mask of the thread that submitted it. Without `mask` it is
    /// a call of libc, which runs with the mask of the worker.
    Function {
        function: Function,
        cleanup: Option<Cleanup>,
        params: [isize; MAX_PARAMS],
        mask: Option<interrupt::Mask>,
    },
    Closure(Option<Box<dyn FnOnce() -> Outcome + Send>>),
    /// pread(2), pwrite(2) and, with offset -1, read(2), write(2). `seekable`: the descriptor is known to be a regular
    /// file or a block device without O_NONBLOCK, and need not be looked up.
    Transfer {
        write: bool,
        fd: i32,
        buffer: *mut u8,
        len: usize,
        offset: i64,
        seekable: bool,
    },
    /// preadv2(2), pwritev2(2).
    Vector {
        write: bool,
        fd: i32,
        iov: *const libc::iovec,
        count: i32,
        offset: i64,
        flags: i32,
    },
    /// fsync(2), fdatasync(2).
    Sync {
        fd: i32,
        data_only: bool,
    },
    /// fallocate(2).
    Allocate {
        fd: i32,
        mode: i32,
        offset: i64,
        len: i64,
    },
    /// Socket calls, with their time limit.
    Socket(Box<SocketCall>),
}

/// A call on a socket.
pub(crate) struct SocketCall {
    pub fd: i32,
    pub kind: SocketKind,
    /// Milliseconds from the beginning of the call; a negative number means no limit.
    pub timeout_ms: i64,
    /// In the ring: the deadline on CLOCK_MONOTONIC, set when the call begins.
    deadline: types::Timespec,
    begun: bool,
    /// In the ring: true while the call waits for readiness because the call itself would not wait (O_NONBLOCK).
    polling: bool,
    /// In the ring: true if the call has waited for readiness at least once.
    polled: bool,
    message: libc::msghdr,
    iov: libc::iovec,
}

/// The kind of a call on a socket, with its parameters.
#[cfg_attr(not(feature = "c-abi"), allow(dead_code, reason = "so far only C programs ask for all of it"))]
pub(crate) enum SocketKind {
    Receive { buffer: *mut u8, len: usize, flags: i32, from: *mut libc::sockaddr, from_len: *mut libc::socklen_t },
    Send { buffer: *const u8, len: usize, flags: i32, to: *const libc::sockaddr, to_len: libc::socklen_t },
    Accept { address: *mut libc::sockaddr, len: *mut libc::socklen_t },
    Connect { address: *const libc::sockaddr, len: libc::socklen_t },
}

/// The meaning of a ring's completion for a call.
pub(crate) enum Step {
    /// The call has ended with this outcome.
    Done(Outcome),
    /// The call has to be given to the ring again.
    Again,
}

impl Call {
    /// True if the kernel can carry this call out by itself, given the right descriptor.
    pub fn is_io(&self) -> bool {
        !matches!(self, Call::Nothing | Call::Function { .. } | Call::Closure(_))
    }

    /// True if the ring carries this call out with the meaning that its blocking form has, and without a thread of the
    /// kernel for it.
    ///
    /// The ring passes syncs, allocations and buffered writes to a regular file on to such threads (io-wq), and those
    /// carry out the writes to one file one after the other. The pool carries them out side by side.
    pub fn fits_ring(&self) -> bool {
        match self {
            // The ring may give two read(2)s the same bytes, where the second one should go on after the first.
            Call::Transfer { fd, offset: -1, seekable: false, .. } => {
                kind_of(*fd) == Some(DescriptorKind::Stream) && flags_of(*fd) & libc::O_NONBLOCK == 0
            }
            Call::Transfer { write, fd, offset, seekable: true, .. } => {
                *offset >= 0
                    && (!write || flags_of(*fd) & libc::O_DIRECT != 0 || kind_of(*fd) != Some(DescriptorKind::File))
            }
            // The ring refuses it with EINVAL unless it polls for all of its requests.
            Call::Vector { flags, .. } if flags & libc::RWF_HIPRI != 0 => false,
            Call::Transfer { write, fd, offset, .. } | Call::Vector { write, fd, offset, .. } => {
                let flags = flags_of(*fd);
                // The ring waits by itself until a descriptor with O_NONBLOCK is ready, where read(2) and write(2)
                // return EAGAIN. It returns EAGAIN for files of some file systems, where read(2) and write(2) wait.
                *offset >= 0
                    && flags & libc::O_NONBLOCK == 0
                    && match kind_of(*fd) {
                        Some(DescriptorKind::File) => !write || flags & libc::O_DIRECT != 0,
                        Some(DescriptorKind::BlockDevice) => true,
                        Some(DescriptorKind::Stream) | None => false,
                    }
            }
            Call::Socket(_) => true,
            Call::Sync { .. } | Call::Allocate { .. } => false,
            Call::Nothing | Call::Function { .. } | Call::Closure(_) => false,
        }
    }

    /// True if the kernel may raise SIGPIPE in the thread that carries this call out: a write that is not to a file.
    pub fn may_raise_sigpipe(&self) -> bool {
        matches!(self, Call::Transfer { write: true, offset, seekable: false, .. } if *offset < 0)
    }

    /// The entries of the submission queue: the call, and its time limit if it has one.
    pub fn entries(&mut self) -> (squeue::Entry, Option<squeue::Entry>) {
        let entry = match self {
            Call::Transfer { write, fd, buffer, len, offset, .. } => {
                let len = (*len).min(MAX_TRANSFER) as u32;
                match write {
                    false => opcode::Read::new(types::Fd(*fd), *buffer, len).offset(*offset as u64).build(),
                    true => opcode::Write::new(types::Fd(*fd), *buffer, len).offset(*offset as u64).build(),
                }
            }
            Call::Vector { write: false, fd, iov, count, offset, flags } => {
                let entry = opcode::Readv::new(types::Fd(*fd), *iov, *count as u32);
                entry.offset(*offset as u64).rw_flags(*flags as _).build()
            }
            Call::Vector { write: true, fd, iov, count, offset, flags } => {
                let entry = opcode::Writev::new(types::Fd(*fd), *iov, *count as u32);
                entry.offset(*offset as u64).rw_flags(*flags as _).build()
            }
            Call::Socket(socket) => return socket.entries(),
            Call::Nothing | Call::Function { .. } | Call::Closure(_) | Call::Sync { .. } | Call::Allocate { .. } => {
                opcode::Nop::new().build()
            }
        };
        (entry, None)
    }

    /// The meaning of the ring's result. `broken_off`: the program wanted to break the call off.
    pub fn step(&mut self, result: i32, broken_off: bool) -> Step {
        if broken_off && result == -libc::ECANCELED {
            return Step::Done(Outcome::failed(libc::EINTR));
        }
        match self {
            Call::Socket(socket) => socket.step(result),
            _ => Step::Done(Outcome::from_kernel(result.into())),
        }
    }

    /// Carries the call out here and now.
    ///
    /// # Safety
    /// The submitter's promise holds: all pointers are valid.
    pub unsafe fn block(&mut self, private: *mut c_void) -> Outcome {
        set_errno(0);
        let result = match self {
            Call::Nothing => 0,
            Call::Function { function, params, mask, .. } => {
                let outcome = interrupt::with(*mask, || {
                    set_errno(0);
                    // SAFETY: by the submitter's promise the function accepts its parameters.
                    let result = unsafe { function(private, params.as_ptr()) };
                    Outcome { result, error: errno() }
                });
                if outcome.result < 0 && outcome.error == libc::EPIPE {
                    interrupt::forget_sigpipe();
                }
                return outcome;
            }
            Call::Closure(closure) => match closure.take() {
                Some(closure) => return closure(),
                None => 0,
            },
            Call::Transfer { write: false, fd, buffer, len, offset: -1, .. } => {
                // SAFETY: the buffer is valid by the submitter's promise.
                unsafe { libc::read(*fd, buffer.cast(), *len) }
            }
            Call::Transfer { write: true, fd, buffer, len, offset: -1, .. } => {
                // SAFETY: the buffer is valid by the submitter's promise.
                unsafe { libc::write(*fd, buffer.cast(), *len) }
            }
            Call::Transfer { write: false, fd, buffer, len, offset, .. } => {
                // SAFETY: the buffer is valid by the submitter's promise.
                unsafe { libc::pread64(*fd, buffer.cast(), *len, *offset) }
            }
            Call::Transfer { write: true, fd, buffer, len, offset, .. } => {
                // SAFETY: the buffer is valid by the submitter's promise.
                unsafe { libc::pwrite64(*fd, buffer.cast(), *len, *offset) }
            }
            Call::Vector { write: false, fd, iov, count, offset, flags } => {
                // SAFETY: the vector and its buffers are valid by the submitter's promise.
                unsafe { libc::preadv2(*fd, *iov, *count, *offset, *flags) }
            }
            Call::Vector { write: true, fd, iov, count, offset, flags } => {
                // SAFETY: the vector and its buffers are valid by the submitter's promise.
                unsafe { libc::pwritev2(*fd, *iov, *count, *offset, *flags) }
            }
            // SAFETY: fsync takes no pointer.
            Call::Sync { fd, data_only: false } => (unsafe { libc::fsync(*fd) }) as isize,
            // SAFETY: fdatasync takes no pointer.
            Call::Sync { fd, data_only: true } => (unsafe { libc::fdatasync(*fd) }) as isize,
            Call::Allocate { fd, mode, offset, len } => {
                // SAFETY: fallocate takes no pointer.
                (unsafe { libc::fallocate64(*fd, *mode, *offset, *len) }) as isize
            }
            // SAFETY: the caller of this function passes the submitter's promise on: all pointers are valid.
            Call::Socket(socket) => unsafe { socket.block() },
        };
        let error = if result < 0 { errno() } else { 0 };
        if error == libc::EPIPE {
            interrupt::forget_sigpipe();
        }
        Outcome { result, error }
    }

    /// Calls the program's cleanup function on a worker, as [`Call::clean_up`] does, with the signal mask that the
    /// program's function had.
    ///
    /// # Safety
    /// The submitter's promise holds: the function accepts its parameters.
    pub unsafe fn clean_up_on_worker(&mut self, private: *mut c_void) {
        if let Call::Function { cleanup: Some(_), mask, .. } = self {
            let mask = *mask;
            // SAFETY: the caller of this function passes the submitter's promise on.
            interrupt::with(mask, || unsafe { self.clean_up(private) });
        }
    }

    /// Calls the program's cleanup function, if it gave one: once, when the call has ended or never will begin.
    ///
    /// # Safety
    /// The submitter's promise holds: the function accepts its parameters.
    pub unsafe fn clean_up(&mut self, private: *mut c_void) {
        if let Call::Function { cleanup, params, .. } = self
            && let Some(cleanup) = cleanup.take()
        {
            // SAFETY: the caller of this function passes the submitter's promise on: the function accepts its
            // parameters.
            unsafe { cleanup(private, params.as_ptr()) };
        }
    }
}

impl SocketCall {
    #[cfg_attr(not(feature = "c-abi"), allow(dead_code, reason = "so far only C programs ask for all of it"))]
    /// The call of that kind on socket `fd`, limited to `timeout_ms` if that is not negative.
    pub fn new(fd: i32, kind: SocketKind, timeout_ms: i64) -> SocketCall {
        // SAFETY: all-zero is a valid msghdr: no address, no vector, no control data.
        let message = unsafe { MaybeUninit::<libc::msghdr>::zeroed().assume_init() };
        let iov = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        SocketCall {
            fd,
            kind,
            timeout_ms,
            deadline: types::Timespec::new(),
            begun: false,
            polling: false,
            polled: false,
            message,
            iov,
        }
    }

    /// True if the call waits in the ring for its socket to be ready.
    #[cfg(all(test, not(loom)))]
    pub fn waits_for_readiness(&self) -> bool {
        self.polling
    }

    /// The event that poll(2) has to report before the call can go on.
    fn events(&self) -> i16 {
        match self.kind {
            SocketKind::Receive { .. } | SocketKind::Accept { .. } => libc::POLLIN,
            SocketKind::Send { .. } | SocketKind::Connect { .. } => libc::POLLOUT,
        }
    }

    fn entries(&mut self) -> (squeue::Entry, Option<squeue::Entry>) {
        if !self.begun {
            self.begun = true;
            let end_ns = {
                // A deadline beyond the kernel's clock never comes.
                let limit_ns = (self.timeout_ms.max(0) as u64).saturating_mul(1_000_000);
                sys::clock::monotonic_ns().saturating_add(limit_ns).min(i64::MAX as u64)
            };
            self.deadline = types::Timespec::new().sec(end_ns / 1_000_000_000).nsec((end_ns % 1_000_000_000) as u32);
        }
        let fd = types::Fd(self.fd);
        let events = self.events();
        let entry = match self.kind {
            _ if self.polling => opcode::PollAdd::new(fd, events as u32).build(),
            SocketKind::Receive { buffer, len, flags, from, .. } if from.is_null() => {
                opcode::Recv::new(fd, buffer, len.min(MAX_TRANSFER) as u32).flags(flags).build()
            }
            SocketKind::Receive { buffer, len, flags, from, from_len } => {
                // SAFETY: by the submitter's promise an address comes with the place of its length.
                self.message.msg_namelen = unsafe { *from_len };
                self.address(from.cast(), buffer, len);
                opcode::RecvMsg::new(fd, &raw mut self.message).flags(flags as u32).build()
            }
            SocketKind::Send { buffer, len, flags, to, .. } if to.is_null() => {
                opcode::Send::new(fd, buffer, len.min(MAX_TRANSFER) as u32).flags(flags | self.whole()).build()
            }
            SocketKind::Send { buffer, len, flags, to, to_len } => {
                self.message.msg_namelen = to_len;
                self.address(to.cast_mut().cast(), buffer.cast_mut(), len);
                let flags = flags | self.whole();
                opcode::SendMsg::new(fd, &raw const self.message).flags(flags as u32).build()
            }
            SocketKind::Accept { address, len } => opcode::Accept::new(fd, address, len).build(),
            SocketKind::Connect { address, len } => opcode::Connect::new(fd, address, len).build(),
        };
        if self.timeout_ms < 0 {
            return (entry, None);
        }
        let limit = opcode::LinkTimeout::new(&raw const self.deadline).flags(types::TimeoutFlags::ABS).build();
        (entry.flags(squeue::Flags::IO_LINK), Some(limit))
    }

    fn address(&mut self, name: *mut c_void, buffer: *mut u8, len: usize) {
        self.iov = libc::iovec { iov_base: buffer.cast(), iov_len: len };
        self.message.msg_name = name;
        self.message.msg_iov = &raw mut self.iov;
        self.message.msg_iovlen = 1;
    }

    /// MSG_WAITALL for a blocking socket, else 0. A blocking socket sends everything before send(2) returns; the ring
    /// does so only with this flag.
    fn whole(&self) -> i32 {
        // SAFETY: fcntl with F_GETFL takes no pointer.
        let flags = unsafe { libc::fcntl(self.fd, libc::F_GETFL) };
        if flags >= 0 && flags & libc::O_NONBLOCK == 0 { libc::MSG_WAITALL } else { 0 }
    }

    fn step(&mut self, result: i32) -> Step {
        let not_yet = [-libc::EAGAIN, -libc::EINPROGRESS, -libc::EALREADY];
        match (&self.kind, result) {
            (_, result) if result == -libc::ECANCELED && self.timeout_ms >= 0 => {
                Step::Done(Outcome::failed(libc::ETIMEDOUT))
            }
            (_, result) if self.polling && result >= 0 => {
                self.polling = false;
                Step::Again
            }
            (_, result) if !self.polling && not_yet.contains(&result) => {
                self.polling = true;
                self.polled = true;
                Step::Again
            }
            // This is the second connect(2), after a first one that went on by itself.
            (SocketKind::Connect { .. }, result) if result == -libc::EISCONN && self.polled => {
                Step::Done(Outcome { result: 0, error: 0 })
            }
            (SocketKind::Receive { from, from_len, .. }, result) => {
                if !from.is_null() && result >= 0 {
                    // SAFETY: by the submitter's promise an address comes with the place of its length.
                    unsafe { **from_len = self.message.msg_namelen };
                }
                Step::Done(Outcome::from_kernel(result.into()))
            }
            (_, result) => Step::Done(Outcome::from_kernel(result.into())),
        }
    }

    /// Carries the call out here and now, as the ring does it. The call itself comes first. If it would have to wait, a
    /// wait for as long as the limit allows follows, and then the rest of the call.
    ///
    /// # Safety
    /// The submitter's promise holds: all pointers are valid.
    unsafe fn block(&mut self) -> isize {
        // SAFETY: the caller of this function passes the submitter's promise on: all pointers are valid.
        if let Some(result) = unsafe { self.at_once() } {
            return result;
        }
        let mut wanted = libc::pollfd { fd: self.fd, events: self.events(), revents: 0 };
        let limit = self.timeout_ms.clamp(-1, i32::MAX.into()) as i32;
        // SAFETY: `wanted` is one valid pollfd.
        match unsafe { libc::poll(&mut wanted, 1, limit) } {
            0 => {
                set_errno(libc::ETIMEDOUT);
                return -1;
            }
            -1 => return -1,
            _ => {}
        }
        match self.kind {
            SocketKind::Receive { buffer, len, flags, from, from_len } => {
                // SAFETY: the buffer and the address are valid by the submitter's promise.
                unsafe { libc::recvfrom(self.fd, buffer.cast(), len, flags, from, from_len) }
            }
            SocketKind::Send { buffer, len, flags, to, to_len } => {
                // SAFETY: the buffer and the address are valid by the submitter's promise.
                unsafe { libc::sendto(self.fd, buffer.cast(), len, flags | libc::MSG_NOSIGNAL, to, to_len) }
            }
            // SAFETY: the address and its length are valid by the submitter's promise.
            SocketKind::Accept { address, len } => (unsafe { libc::accept(self.fd, address, len) }) as isize,
            SocketKind::Connect { .. } => {
                let error = self.option(libc::SO_ERROR).unwrap_or_else(|errno| errno);
                set_errno(error);
                if error == 0 { 0 } else { -1 }
            }
        }
    }

    /// The result of the call if it need not wait, else None. Without this, poll(2) would let a call that fails at once
    /// wait forever.
    ///
    /// # Safety
    /// The submitter's promise holds: all pointers are valid.
    unsafe fn at_once(&self) -> Option<isize> {
        let failed = |errno| {
            set_errno(errno);
            Some(-1)
        };
        match self.kind {
            // With MSG_WAITALL this receive would take a part of the bytes away.
            SocketKind::Receive { flags, .. } if flags & libc::MSG_WAITALL != 0 => {
                self.option(libc::SO_TYPE).err().and_then(failed)
            }
            SocketKind::Receive { buffer, len, flags, from, from_len } => {
                let flags = flags | libc::MSG_DONTWAIT;
                // SAFETY: the buffer and the address are valid by the submitter's promise.
                let result = unsafe { libc::recvfrom(self.fd, buffer.cast(), len, flags, from, from_len) };
                (result >= 0 || errno() != libc::EAGAIN).then_some(result)
            }
            SocketKind::Send { buffer, len, flags, to, to_len } => match self.option(libc::SO_ACCEPTCONN) {
                Ok(0) => None,
                Ok(_) => {
                    // SAFETY: the buffer and the address are valid by the submitter's promise. The socket listens, so
                    // the call fails.
                    Some(unsafe { libc::sendto(self.fd, buffer.cast(), len, flags | libc::MSG_NOSIGNAL, to, to_len) })
                }
                Err(errno) => failed(errno),
            },
            SocketKind::Accept { address, len } => match self.option(libc::SO_ACCEPTCONN) {
                Ok(0) => {
                    // SAFETY: the address and its length are valid by the submitter's promise. The socket does not
                    // listen, so the call fails.
                    Some((unsafe { libc::accept(self.fd, address, len) }) as isize)
                }
                Ok(_) => None,
                Err(errno) => failed(errno),
            },
            SocketKind::Connect { address, len } => {
                // SAFETY: the address is valid by the submitter's promise.
                let result = unsafe { libc::connect(self.fd, address, len) };
                (result == 0 || errno() != libc::EINPROGRESS).then_some(result as isize)
            }
        }
    }

    /// The value of an option of the socket (SOL_SOCKET), or the errno of getsockopt(2).
    fn option(&self, name: i32) -> Result<i32, i32> {
        let (mut value, mut len) = (0i32, size_of::<i32>() as libc::socklen_t);
        let place = (&raw mut value).cast();
        // SAFETY: `place` points to an integer, and `len` is its size.
        let result = unsafe { libc::getsockopt(self.fd, libc::SOL_SOCKET, name, place, &mut len) };
        if result == 0 { Ok(value) } else { Err(errno()) }
    }
}

/// The kinds of descriptor on which the ring does what read(2) and pread(2) do.
#[derive(PartialEq, Eq)]
enum DescriptorKind {
    /// A regular file: it has contents, and transfers at offsets.
    File,
    /// A block device: it has contents, as a regular file has.
    BlockDevice,
    /// A pipe or a socket: it has no position.
    Stream,
}

/// The kind of a descriptor; None for other descriptors, and for those that are not valid. (The ring waits until an
/// epoll instance is ready that pread(2) refuses; terminals and devices have rules of their own.)
fn kind_of(fd: i32) -> Option<DescriptorKind> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills one stat, which this function owns.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zeroed is a valid stat, and the call filled it in.
    match unsafe { stat.assume_init() }.st_mode & libc::S_IFMT {
        libc::S_IFREG => Some(DescriptorKind::File),
        libc::S_IFBLK => Some(DescriptorKind::BlockDevice),
        libc::S_IFIFO | libc::S_IFSOCK => Some(DescriptorKind::Stream),
        _ => None,
    }
}

/// The status flags of a descriptor (O_NONBLOCK, O_DIRECT, ...); none of one that is not valid.
fn flags_of(fd: i32) -> i32 {
    // SAFETY: fcntl with F_GETFL takes no pointer.
    (unsafe { libc::fcntl(fd, libc::F_GETFL) }).max(0)
}

pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

pub(crate) fn set_errno(value: i32) {
    // SAFETY: __errno_location takes no argument.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the place always is this thread's errno.
    unsafe { *place = value }
}
