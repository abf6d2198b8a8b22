//! The work that transports give to a queue pair, and how it ends: the vocabulary above the C interface.

use crate::numbers;

/// The uses that a region allows, beside reading by its owner's queue pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The owner's receives and RDMA READs may store into it.
    pub local_write: bool,
    /// A peer that knows the key may read it.
    pub remote_read: bool,
    /// A peer that knows the key may store into it.
    pub remote_write: bool,
}

/// A piece of registered memory of this side: its layout is that of struct ibv_sge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Part {
    /// Virtual address of the first byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// Key of the region.
    pub key: u32,
}

/// The kind of a work request of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A message for the peer's next receive.
    Send {
        /// The peer's key that ends with this message.
        invalidate: Option<u32>,
    },
    /// RDMA READ of the peer's memory.
    Read {
        /// Virtual address at the peer.
        address: u64,
        /// The peer's key.
        key: u32,
    },
    /// RDMA WRITE into the peer's memory.
    Write {
        /// Virtual address at the peer.
        address: u64,
        /// The peer's key.
        key: u32,
    },
}

/// The bit of numbers of work and receives that belongs to the stack.
pub const RESERVED_ID: u64 = 1 << 63;

/// A work request of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work<'a> {
    /// The number that comes back in the completion, without [`RESERVED_ID`].
    pub id: u64,
    /// The operation, with the memory of the peer.
    pub request: Request,
    /// Memory of this side: the data in order.
    pub parts: &'a [Part],
    /// True if success makes a completion. Failure always makes one.
    pub signaled: bool,
}

/// A receive: room for one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive<'a> {
    /// The number that comes back in the completion, without [`RESERVED_ID`].
    pub id: u64,
    /// Memory for the message.
    pub parts: &'a [Part],
}

/// Declares the outcomes with their numbers in infiniband/verbs.h.
macro_rules! outcomes {
    ($($(#[$document:meta])* $name:ident = $number:ident;)*) => {
        /// The outcome of work.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Status {
            $($(#[$document])* $name,)*
            /// Another failure: the number of enum ibv_wc_status.
            Other(u32),
        }

        impl Status {
            /// The outcome with that number of enum ibv_wc_status.
            pub fn of(number: u32) -> Status {
                match number {
                    $(numbers::$number => Status::$name,)*
                    other => Status::Other(other),
                }
            }
        }
    };
}

outcomes! {
    /// The data have moved.
    Success = IBV_WC_SUCCESS;
    /// The message was longer than the receive.
    LocalLength = IBV_WC_LOC_LEN_ERR;
    /// A part lies outside its region, or the region does not allow the access.
    LocalProtection = IBV_WC_LOC_PROT_ERR;
    /// The queue pair was in error before the work began.
    Flushed = IBV_WC_WR_FLUSH_ERR;
    /// The peer found the message too long for its receive.
    RemoteInvalidRequest = IBV_WC_REM_INV_REQ_ERR;
    /// The peer's key does not allow the access.
    RemoteAccess = IBV_WC_REM_ACCESS_ERR;
    /// The peer could not carry out the request: its own receive was at fault.
    RemoteOperation = IBV_WC_REM_OP_ERR;
    /// The peer does not answer.
    RetriesExceeded = IBV_WC_RETRY_EXC_ERR;
    /// The peer had no receive for too long.
    NoReceive = IBV_WC_RNR_RETRY_EXC_ERR;
}

/// The end of a work request or a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number of the work or the receive.
    pub id: u64,
    /// Number of the queue pair on this side.
    pub pair: u32,
    /// True for a receive.
    pub received: bool,
    /// The outcome.
    pub status: Status,
    /// Bytes of the message of a receive that succeeded; 0 otherwise.
    pub length: u32,
    /// The key that the peer has invalidated with its message.
    pub invalidated: Option<u32>,
}
