//! MPI as the link between ranks: the handful of calls that are needed, from one thread.
#![allow(unsafe_code, reason = "calls of C")]

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};

use crate::link::Link;

// SAFETY: declared as defined in calls.c.
unsafe extern "C" {
    fn plimsoll_mpi_init(rank: *mut c_int, size: *mut c_int) -> c_int;
    fn plimsoll_mpi_send(to: c_int, bytes: *const c_void, length: c_int) -> *mut c_void;
    fn plimsoll_mpi_sent(handle: *mut c_void) -> c_int;
    fn plimsoll_mpi_waiting(from: *mut c_int) -> c_int;
    fn plimsoll_mpi_receive(from: c_int, bytes: *mut c_void, length: c_int) -> c_int;
    fn plimsoll_mpi_finalize();
}

/// A message longer than this goes in pieces: MPI counts in C's int.
const PIECE: usize = 1 << 30;

/// The link of a rank that mpirun or srun has started. It stays on the thread that made it.
#[derive(Debug)]
pub struct Mpi {
    rank: u32,
    size: u32,
    sending: VecDeque<Sending>,
    /// For each sender of whose message only a part has arrived: that part.
    begun: std::collections::BTreeMap<u32, Vec<u8>>,
    /// MPI's own thread rule, kept by the type: a raw pointer is neither Send nor Sync.
    _this_thread: std::marker::PhantomData<*const ()>,
}

#[derive(Debug)]
struct Sending {
    handle: *mut c_void,
    /// Must not move or go away before the message has left.
    _bytes: Box<[u8]>,
}

impl Mpi {
    /// Joins the ranks of this run.
    ///
    /// # Errors
    /// MPI's error code.
    pub fn join() -> Result<Mpi, i32> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: both are valid integers to fill.
        let error = unsafe { plimsoll_mpi_init(&mut rank, &mut size) };
        if error != 0 {
            return Err(error);
        }
        Ok(Mpi {
            rank: rank.unsigned_abs(),
            size: size.unsigned_abs(),
            sending: VecDeque::new(),
            begun: Default::default(),
            _this_thread: std::marker::PhantomData,
        })
    }

    fn let_go(&mut self) {
        // SAFETY: each handle came from plimsoll_mpi_send, and is forgotten as soon as this has said that it no longer
        // exists.
        self.sending.retain(|sending| unsafe { plimsoll_mpi_sent(sending.handle) } == 0);
    }

    fn send_piece(&mut self, to: u32, bytes: Box<[u8]>) {
        // SAFETY: the bytes are kept, unmoved on the heap, until plimsoll_mpi_sent says that they have left.
        let handle = unsafe { plimsoll_mpi_send(to as c_int, bytes.as_ptr().cast(), bytes.len() as c_int) };
        if !handle.is_null() {
            self.sending.push_back(Sending { handle, _bytes: bytes });
        }
    }
}

/// The last byte of a piece of a message after which more pieces follow.
const MORE: u8 = 1;

impl Link for Mpi {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn send(&mut self, to: u32, bytes: Vec<u8>) {
        let pieces = bytes.len().div_ceil(PIECE).max(1);
        for (index, piece) in bytes.chunks(PIECE).enumerate() {
            let mut piece = piece.to_vec();
            piece.push(if index + 1 < pieces { MORE } else { 0 });
            self.send_piece(to, piece.into());
        }
    }

    fn receive(&mut self) -> Option<(u32, Vec<u8>)> {
        self.let_go();
        loop {
            let mut from = 0;
            // SAFETY: from is a valid integer to fill.
            let length = unsafe { plimsoll_mpi_waiting(&mut from) };
            let mut bytes = vec![0u8; usize::try_from(length).ok()?];
            // SAFETY: bytes has room for the length of the message that waits from that rank.
            let error = unsafe { plimsoll_mpi_receive(from, bytes.as_mut_ptr().cast(), length) };
            if error != 0 {
                return None; // its sender is lost in the middle of it
            }
            let from = from.unsigned_abs();
            let more = bytes.pop() == Some(MORE);
            let message = match self.begun.remove(&from) {
                Some(begun) => [begun, bytes].concat(),
                None => bytes,
            };
            if !more {
                return Some((from, message));
            }
            self.begun.insert(from, message);
        }
    }

    fn close(&mut self) {
        while !self.sending.is_empty() {
            self.let_go();
            std::thread::yield_now();
        }
        // SAFETY: the thread that initialised MPI, with nothing under way.
        unsafe { plimsoll_mpi_finalize() };
    }
}
