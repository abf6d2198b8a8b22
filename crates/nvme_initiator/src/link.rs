//! One queue of a controller on its connection: the interface of the transports. The controller's thread, discovery,
//! authentication and the engines know a queue as a [`Link`], and not which transport it is.
//!
//! ```text
//! issue(tag, command, transfer) ─► send ─► the controller ─► receive ─► Done { tag, status }
//!                                            nothing came: may_sleep ─► poll(2) on the descriptors of watch
//! ```
//!
//! The rules that hold for each transport:
//!
//! - A command that has been issued is *outstanding* until `receive` gives its [`Done`]. Until then its op's memory
//!   belongs to the command: nobody else reads or writes it. Afterwards the transport does not touch it again.
//! - `receive` believes a response when all data of the command are in their place, and not before.
//! - After an error the link is of no use. Its outstanding commands may have been carried out or not, and their data
//!   may move until the link is dropped: whoever issues them again drops the link first.
//! - Only `Link::wait` blocks.

use std::io;
use std::time::Duration;

use nvme::pdu::{self, Fault};
use nvme::spec::{Command, IdentifyController, Status};
use rustix::event::{PollFd, Timespec};

use super::rdma::RdmaLink;
use super::tcp::TcpLink;

/// The memory of ops, lent for the time of a call. A tag stands for an op.
pub trait Buffers {
    /// The memory of an op, to be sent.
    fn bytes(&self, tag: u32) -> &[u8];
    /// The memory of an op, to be received into.
    fn bytes_mut(&mut self, tag: u32) -> &mut [u8];
    /// False if nobody will look at the data that are received: the queue does not copy them.
    fn keeps_data(&self) -> bool {
        true
    }
    /// The slot of the [`Arena`](super::Arena) that is the memory of the op; None if the memory is elsewhere. RDMA
    /// moves data to and from slots without a copy, and small data elsewhere with one.
    fn slot(&self, _tag: u32) -> Option<u32> {
        None
    }
}

/// The data that a command moves: that part of its op's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The command has no data.
    None,
    /// The data go to the controller.
    Out {
        /// Offset of the first byte in the op's memory.
        at: u32,
        /// Length in bytes.
        len: u32,
    },
    /// The data go to the host.
    In {
        /// Offset of the first byte in the op's memory.
        at: u32,
        /// Length in bytes.
        len: u32,
    },
}

/// A command that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The caller's name for the command, as given to [`Link::issue`].
    pub tag: u32,
    /// The status with which the command ended.
    pub status: Status,
    /// Dwords 0 and 1 of its completion.
    pub result: u64,
    /// The command of a failure, so that the caller can issue it again; None after a success.
    pub failed: Option<Box<Issued>>,
}

impl Done {
    #[inline]
    pub(super) fn new(status: Status, result: u64, issued: Issued) -> Done {
        Done { tag: issued.0, status, result, failed: (!status.is_ok()).then(|| Box::new(issued)) }
    }
}

/// The reason why a connection is of no use any more. The controller may have carried out its outstanding commands or
/// not.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The controller closed the connection.
    #[error("the controller closed the connection")]
    Closed,
    /// The system reports an error of the connection.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The controller violated the protocol of TCP's units.
    #[error("the controller violates the protocol: {0}")]
    Fault(#[from] Fault),
    /// The controller violated the protocol in a response.
    #[error("the controller violates the protocol: {0}")]
    Violation(String),
    /// The card reports that work of this side failed.
    #[error("RDMA failed: {0}")]
    Work(&'static str),
    /// The controller says that the host violated the protocol.
    #[error(
        "the controller ended the connection: {} (FES {status:#x}, FEI {info:#x})",
        pdu::FatalStatus::name(*.status)
    )]
    Terminated {
        /// FES: the fatal error status of the TermReq PDU.
        status: u16,
        /// FEI: the fatal error information of the TermReq PDU.
        info: u32,
    },
}

impl Broken {
    /// The positive error number that stands for the error in a program.
    pub fn errno(&self) -> i32 {
        match self {
            Broken::Closed | Broken::Work(_) => libc::ECONNRESET,
            Broken::Io(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => libc::ETIMEDOUT,
                Some(errno) => errno,
                None if error.kind() == io::ErrorKind::TimedOut => libc::ETIMEDOUT,
                None => libc::ECONNRESET,
            },
            Broken::Fault(_) | Broken::Violation(_) | Broken::Terminated { .. } => libc::EPROTO,
        }
    }
}

/// The amount that one call of [`Link::receive`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arrived {
    /// Nothing.
    Nothing,
    /// Less than there was room for.
    Something,
    /// As much as there was room for: more may be there.
    Full,
}

/// A command as it was given to [`Link::issue`]: its tag, the command, and its data.
pub type Issued = (u32, Command, Transfer);

/// One queue of a controller on its connection.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a host has few links, and looks at each of them all the time")]
pub enum Link {
    /// A TCP connection, plain or secured.
    Tcp(TcpLink),
    /// A queue pair.
    Rdma(RdmaLink),
}

/// Calls the transport.
macro_rules! of {
    ($link:expr, $it:ident => $call:expr) => {
        match $link {
            Link::Tcp($it) => $call,
            Link::Rdma($it) => $call,
        }
    };
}

impl Link {
    /// Queues a command for [`Link::send`], and sets its CID and SGL. False if as many commands are outstanding as the
    /// queue can have, or if the data are too long to be copied where the transport has to.
    #[inline]
    pub fn issue(&mut self, tag: u32, command: Command, transfer: Transfer, buffers: &impl Buffers) -> bool {
        of!(self, it => it.issue(tag, command, transfer, buffers))
    }

    /// Sends the queued commands, as far as the connection takes them. Returns true if that was all.
    ///
    /// # Errors
    /// The connection is of no use any more.
    #[inline]
    pub fn send(&mut self, buffers: &impl Buffers) -> Result<bool, Broken> {
        of!(self, it => it.send(buffers))
    }

    /// Takes in what came, once: ended commands are appended to `done`. A controller that violates the protocol is told
    /// so, where the transport has words for it.
    ///
    /// # Errors
    /// The connection is of no use any more. Commands that ended before that are in `done`.
    #[inline]
    pub fn receive(&mut self, buffers: &mut impl Buffers, done: &mut Vec<Done>) -> Result<Arrived, Broken> {
        of!(self, it => it.receive(buffers, done))
    }

    /// The number of commands that the queue takes at once.
    pub fn depth(&self) -> usize {
        of!(self, it => it.depth())
    }

    /// Commands that have not ended.
    #[inline]
    pub fn outstanding(&self) -> usize {
        of!(self, it => it.outstanding())
    }

    /// True while [`Link::receive`] may find more than the end of the connection.
    #[inline]
    pub fn is_expecting(&self) -> bool {
        of!(self, it => it.is_expecting())
    }

    /// The commands that have not ended, in no order: of a broken connection, nobody knows whether they have been
    /// carried out. Their data may move until the link has been dropped.
    pub fn outstanding_commands(&self) -> Vec<Issued> {
        of!(self, it => it.outstanding_commands())
    }

    /// True if a thread that has nothing to do may sleep on the descriptors of [`Link::watch`]: what comes from now on
    /// wakes it. False if something is there already: [`Link::receive`] takes it.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn may_sleep(&mut self) -> Result<bool, Broken> {
        of!(self, it => it.may_sleep())
    }

    /// Appends the descriptors to sleep on: when one of them is ready, [`Link::send`] or [`Link::receive`] has work.
    pub fn watch<'a>(&'a self, descriptors: &mut Vec<PollFd<'a>>) {
        of!(self, it => it.watch(descriptors));
    }

    /// Takes what Identify Controller says about capsules.
    pub(super) fn learn(&mut self, identify: &IdentifyController) {
        of!(self, it => it.learn(identify));
    }

    /// Sleeps until [`Link::send`] or [`Link::receive`] has work, or for `most`.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub(super) fn wait(&mut self, most: Duration) -> Result<(), Broken> {
        if self.may_sleep()? {
            let mut descriptors = Vec::new();
            self.watch(&mut descriptors);
            sleep(&mut descriptors, most);
        }
        Ok(())
    }
}

/// Sleeps until a descriptor is ready, or for `most`. A signal may end the sleep, too: the caller looks again.
pub(super) fn sleep(descriptors: &mut [PollFd], most: Duration) {
    let timeout = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    let _ = rustix::event::poll(descriptors, Some(&timeout));
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use nvme::Wire;
    use nvme::pdu::Agreement;
    use nvme::spec::opcode::admin;

    use super::super::tcp::Queue;
    use super::*;

    /// A bound that only a wait that hangs meets.
    const PATIENCE: Duration = Duration::from_secs(60);

    struct Nothing;

    impl Buffers for Nothing {
        fn bytes(&self, _: u32) -> &[u8] {
            &[]
        }

        fn bytes_mut(&mut self, _: u32) -> &mut [u8] {
            &mut []
        }
    }

    /// The controller says nothing: that there is room in the socket is what ends the wait.
    #[test]
    fn a_wait_ends_when_there_is_room_for_a_command_that_did_not_fit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let (mut filled, mut before) = (0, 1);
        // Bytes on their way make room when they arrive.
        while filled != std::mem::replace(&mut before, filled) {
            thread::sleep(Duration::from_millis(20));
            while let Ok(written) = (&stream).write(&[0; 4096]) {
                filled += written;
            }
        }
        let queue = Queue::new(4, Agreement::default(), 0, 0);
        let mut link = Link::Tcp(TcpLink { queue, stream: Wire::Plain(stream) });
        assert!(link.issue(1, Command::new(admin::KEEP_ALIVE, 0), Transfer::None, &Nothing));
        assert!(!link.send(&Nothing).unwrap(), "a command fits into a full socket");
        let reader = thread::spawn(move || {
            let mut bytes = vec![0; filled + Command::BYTES + 8];
            peer.read_exact(&mut bytes).unwrap();
            (peer, bytes.split_off(filled))
        });
        let begin = std::time::Instant::now();
        while !link.send(&Nothing).unwrap() {
            link.wait(PATIENCE).unwrap();
            assert!(begin.elapsed() < PATIENCE, "the wait does not end by room");
        }
        let (_peer, capsule) = reader.join().unwrap();
        assert_eq!((capsule.len(), capsule[8]), (72, admin::KEEP_ALIVE));
    }
}
