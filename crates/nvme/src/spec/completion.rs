//! The completion queue entry.

use super::Status;
use crate::layout::Field;

layout! {
    /// A completion queue entry (Base specification 2.0, figure 90).
    pub struct Completion: 16 {
        /// Dwords 0 and 1: the result of the command.
        result: u64 = 0,
        /// SQ head pointer: how far the controller has come; 0 where flow control is off.
        sqhd: u16 = 8,
        /// SQ identifier: unused over Fabrics.
        sqid: u16 = 10,
        /// The identifier of the command that is complete.
        cid: u16 = 12,
        /// The status with which the command ended.
        status: Status = 14,
    }
}

impl Field for Status {
    const BYTES: usize = 2;
    #[inline(always)]
    fn get(bytes: &[u8]) -> Status {
        Status::from_bits(u16::get(bytes) >> 1)
    }
    #[inline(always)]
    fn put(&self, bytes: &mut [u8]) {
        (self.bits() << 1).put(bytes);
    }
}

/// An event, which completes an Asynchronous Event Request (Base specification 2.0, figure 147).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Type: 0 error, 1 health, 2 notice, 6 of the I/O command set.
    pub kind: u8,
    /// The event within the type.
    pub info: u8,
    /// The log page to read.
    pub log_page: u8,
}

impl AsyncEvent {
    /// Namespaces were added, removed or resized: log page 04h names them.
    pub const NAMESPACE_CHANGED: AsyncEvent = AsyncEvent { kind: 2, info: 0, log_page: 0x04 };
    /// The ANA state or group of a namespace has changed: log page 0Ch tells.
    pub const ANA_CHANGED: AsyncEvent = AsyncEvent { kind: 2, info: 3, log_page: 0x0c };
    /// The discovery log page has changed.
    pub const DISCOVERY_CHANGED: AsyncEvent = AsyncEvent { kind: 2, info: 0xf0, log_page: 0x70 };

    /// A notification of a reservation waits in log page 80h.
    pub const RESERVATION_NOTICE: AsyncEvent = AsyncEvent { kind: 6, info: 0, log_page: 0x80 };

    /// The result of the completion.
    pub fn result(self) -> u64 {
        u64::from(self.kind & 7) | u64::from(self.info) << 8 | u64::from(self.log_page) << 16
    }

    /// Reads the event from a completion's result.
    pub fn of(result: u64) -> AsyncEvent {
        AsyncEvent { kind: result as u8 & 7, info: (result >> 8) as u8, log_page: (result >> 16) as u8 }
    }
}
