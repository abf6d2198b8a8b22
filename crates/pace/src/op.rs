//! The ops that are admitted, and the answers of a pacer.

/// One request that asks to be let through. 40 bytes, `Copy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// The drive (namespace, lane, file system) that will carry it: a small index below `Limits::drives`.
    pub drive: u32,
    /// The tenant that asked (host NQN, job, process): a small index below `Limits::tenants`.
    pub tenant: u32,
    /// The tenant's queue (connection, thread). Any number; ops of one queue to one drive stay in order within their
    /// lane.
    pub queue: u32,
    /// Bytes of buffer that it holds from admission to completion. Zero is allowed (a flush) and still counts as an op.
    pub bytes: u32,
    /// True if data flows to the drive. Reads and writes have latency classes of their own.
    pub write: bool,
    /// Ops that are never held and never counted: keep-alives, aborts, identify.
    pub admin: bool,
    /// The caller's name for it, handed back when it is released, aborted or purged.
    pub cookie: u64,
}

/// A tracked op: slot number and generation, so that a stale handle is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(pub(crate) u64);

impl OpId {
    /// The id of an admin op: completing it does nothing.
    pub const UNTRACKED: OpId = OpId(u64::MAX);

    pub(crate) fn new(slot: u32, generation: u32) -> OpId {
        OpId(u64::from(generation) << 32 | u64::from(slot))
    }

    pub(crate) fn slot(self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The handle as a number, for callers that keep it in a C structure.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The handle that [`OpId::to_bits`] gave. A made-up number is harmless: it matches no op.
    pub fn from_bits(bits: u64) -> OpId {
        OpId(bits)
    }
}

/// The answer to a request to be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Admit {
    /// Issue it now; call `complete` with this handle when its buffer is free again.
    Go(OpId),
    /// Wait: `poll` will return it. `abort` takes it back.
    Held(OpId),
    /// The pacer has not taken the op and remembers nothing of it.
    Refused(Refusal),
}

/// The reasons why the pacer did not take an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `Limits::ops` ops are held or in flight: try again after a completion.
    Full,
    /// The op is larger than the hard memory budget and could never be admitted. The caller must split it.
    TooLarge,
    /// `drive` or `tenant` is not below its limit.
    UnknownId,
}

/// An op that was held and may go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// The id to call `complete` with.
    pub id: OpId,
    /// The caller's name for the op.
    pub cookie: u64,
}

/// A choice of held ops to take back: those that match every field that is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purge {
    /// Only this drive's (a namespace is removed).
    pub drive: Option<u32>,
    /// Only this tenant's (a host no longer exists).
    pub tenant: Option<u32>,
    /// Only this queue's (a connection no longer exists).
    pub queue: Option<u32>,
}

impl Purge {
    pub(crate) fn matches(&self, op: &Op) -> bool {
        self.drive.is_none_or(|d| d == op.drive)
            && self.tenant.is_none_or(|t| t == op.tenant)
            && self.queue.is_none_or(|q| q == op.queue)
    }
}
