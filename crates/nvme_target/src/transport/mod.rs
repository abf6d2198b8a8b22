//! The way between a connection and its host. Controllers, namespaces, pacing, authentication and the control plane are
//! above it, and do not know which transport it is.
//!
//! ```text
//! received: transport ─► Connection::capsule ─► (Sink) data ─► Connection::capsule_data_over, host_data_over
//! to send: commands ─► Transport::{ask_for_data, send_data, send_zeros, send_answer, respond, end} ─► Connection::send
//! ```
//!
//! Both ways are calls that the compiler knows: a connection owns its transport, and nothing is dispatched or allocated
//! for a command. docs/decisions/transports.md gives the reasons.

mod link;
mod progress;
mod rdma;
mod tcp;

use std::net::IpAddr;

use sys::buffer::Buffer;

use nvme::spec::{Completion, Data, Sgl, Status};
use pace::OpId;

use super::answer::Answer;
use super::core::Core;
pub(super) use link::Link;
pub(super) use rdma::{Adapter, Asked, Devices, EndedWork, Owner, Rdma, cannot_listen};
pub(super) use tcp::{Moving, Tcp};

/// The number in place of a slot: for a response to a command that has no slot, or has given its slot back already.
pub(super) const NO_SLOT: u16 = u16::MAX;

/// The place that arriving data of a capsule go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sink {
    Nothing,
    /// The data go into the buffer of the command in this slot.
    Command(u16),
    /// The data belong to an admin or Fabrics command. It uses this number of the first bytes, and
    /// [`Connection::carry_out`](super::connection::Connection::carry_out) takes it with them.
    Admin(u32),
}

/// The requests that the commands of a connection make of its transport. A call queues something; it leaves in the
/// order of the calls, when the reactor sends ([`Connection::mark_dirty`](super::connection::Connection::mark_dirty)).
pub(super) trait Transport {
    /// Queues a response.
    fn respond(&mut self, completion: &Completion);

    /// Marks the end of a command: it ends when everything queued so far is sent. `slot` is the command's slot, or
    /// [`NO_SLOT`].
    fn end(&mut self, slot: u16);

    /// True if data that end a command well say so themselves, and no response follows the data. A host that has not
    /// disabled SQ flow control needs the response: it learns from it how far its queue has been read.
    fn omits_response(&self, no_flow_control: bool) -> bool;

    /// Asks the host for all the data of the command in a slot. They go into `buffer`, the slot's: a transport whose
    /// card stores them by itself takes the buffer, and puts it back when the data are whole. `is_pooled` is true for a
    /// buffer of the reactor's pool.
    fn ask_for_data(&mut self, cid: u16, slot: u16, length: u32, buffer: &mut Option<Buffer>, is_pooled: bool);

    /// True if the data of Connect may have to be asked for. Otherwise they come in the capsule.
    fn asks_before_connect(&self) -> bool;

    /// Queues the first `length` bytes of a buffer as all the data of a read. `ends` is true if no response follows.
    fn send_data(&mut self, cid: u16, buffer: Buffer, length: u32, ends: bool);

    /// Queues zeros as all the data of a read.
    fn send_zeros(&mut self, cid: u16, length: u32, ends: bool);

    /// Queues the data of an admin or Fabrics command.
    fn send_answer(&mut self, cid: u16, answer: &Answer, ends: bool);

    /// The place of a command's data that its descriptor gives.
    ///
    /// # Errors
    /// The status for a descriptor that the transport does not have.
    fn place_of_data(&self, sgl: &Sgl) -> Result<Data, Status>;

    /// The kinds of descriptors that hosts may use on the transport: SGLS of Identify Controller (Base specification
    /// 2.0, figure 275).
    fn sgl_support(&self) -> u32;

    /// True if nothing waits to be sent, and everything sent has left the target's memory.
    fn is_empty(&self) -> bool;

    /// Bytes that wait to be sent, or have not left the target's memory.
    fn unsent_bytes(&self) -> u64;

    /// Bytes of memory that the output takes, data buffers excepted.
    fn output_memory(&self) -> u64;

    /// Bytes of memory that the peer makes the transport hold, data buffers excepted.
    fn memory(&self) -> u64;

    /// Forgets the output that is not sent; its buffers are appended to `free`.
    fn abandon(&mut self, free: &mut Vec<Buffer>);

    /// True if the transport goes on to use the buffer of the command in that slot, although the command ends: then the
    /// transport has the op, which ends with that use.
    fn keeps(&mut self, slot: u16, op: OpId) -> bool;

    /// Forgets what has been received and not been acted on.
    fn forget_received(&mut self);

    /// Gives memory back that bursts have left unused.
    fn shrink(&mut self);

    /// The target's address of the connection.
    fn local_ip(&self) -> Option<IpAddr>;

    /// The identity that the peer has proven on the transport, before Connect.
    fn identity(&self) -> Option<&str>;

    /// Makes room for I/O: the connection has become an I/O queue.
    fn becomes_io_queue(&mut self, core: &Core);
}
