//! Status of commands: one table of codes, with their names and the error numbers that they mean.

use std::fmt;

use libc::{
    EACCES, EBADE, EBUSY, ECANCELED, ECONNREFUSED, EEXIST, EILSEQ, EINVAL, EIO, ENODEV, ENOSPC, ENXIO, EOPNOTSUPP,
    EPERM, EROFS, ETIMEDOUT,
};

/// The status field of a completion without its phase bit: SC in bits 7:0, SCT in 10:8, CRD 12:11, M 13, DNR 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(u16);

impl Status {
    const DNR: u16 = 1 << 14;
    const CODE: u16 = 0x7ff;

    /// Command Size Limit Exceeded, of Dataset Management: its number is that of another status, of Connect.
    pub const COMMAND_SIZE_LIMIT_EXCEEDED: Status = Status::CONNECT_RESTART_DISCOVERY;

    /// A status from the bits 15:1 of the field.
    #[inline(always)]
    pub const fn from_bits(bits: u16) -> Status {
        Status(bits & 0x7fff)
    }

    /// The bits, to be put into 15:1 of the field.
    #[inline(always)]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// SCT and SC alone, as `0xTCC`: 0x002 is Invalid Field in Command.
    #[inline]
    pub const fn code(self) -> u16 {
        self.0 & Status::CODE
    }

    /// True if the command succeeded.
    #[inline(always)]
    pub const fn is_ok(self) -> bool {
        self.0 & Status::CODE == 0
    }

    /// True if both have the same code, whatever their flags.
    #[inline]
    pub const fn is(self, other: Status) -> bool {
        self.code() == other.code()
    }

    /// The status with Do Not Retry set: the command would fail again.
    #[must_use]
    #[inline]
    pub const fn do_not_retry(self) -> Status {
        Status(self.0 | Status::DNR)
    }

    /// The status without Do Not Retry: the command may succeed at another time.
    #[must_use]
    #[inline]
    pub const fn may_retry(self) -> Status {
        Status(self.0 & !Status::DNR)
    }

    /// True if repeating the command is in vain.
    #[inline]
    pub const fn is_do_not_retry(self) -> bool {
        self.0 & Status::DNR != 0
    }

    /// True if the path to the namespace has failed, and not the command (SCT 3h).
    #[inline]
    pub const fn is_path_error(self) -> bool {
        self.code() >> 8 == 3
    }

    /// The name of the status in the specification.
    pub fn name(self) -> &'static str {
        TABLE.iter().find(|row| row.0.0 == self.code()).map_or("unknown status", |row| row.1)
    }

    /// The positive error number that a system call on such a device would give; 0 for success, EIO for a status that
    /// is not known.
    pub fn errno(self) -> i32 {
        if self.is_ok() {
            return 0;
        }
        TABLE.iter().find(|row| row.0.0 == self.code()).map_or(EIO, |row| row.2)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} (SCT {:x}h, SC {:02x}h)", self.name(), self.0 >> 8 & 7, self.0 & 0xff)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{self}{}", if self.is_do_not_retry() { ", do not retry" } else { "" })
    }
}

macro_rules! statuses {
    ($($constant:ident = $type:literal, $code:literal, $errno:ident, $name:literal;)*) => {
        impl Status { $(
            #[doc = $name]
            pub const $constant: Status = Status($type << 8 | $code);
        )* }

        static TABLE: &[(Status, &str, i32)] = &[$((Status::$constant, $name, $errno)),*];
    };
}

const OK: i32 = 0;

// Base specification 2.0, figures 93 to 98. Errors of the medium are EIO, as every device gives them.
statuses! {
    SUCCESS = 0, 0x00, OK, "Successful Completion";
    INVALID_OPCODE = 0, 0x01, EOPNOTSUPP, "Invalid Command Opcode";
    INVALID_FIELD = 0, 0x02, EINVAL, "Invalid Field in Command";
    COMMAND_ID_CONFLICT = 0, 0x03, EINVAL, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0, 0x04, EIO, "Data Transfer Error";
    INTERNAL_ERROR = 0, 0x06, EIO, "Internal Error";
    ABORTED_BY_REQUEST = 0, 0x07, ECANCELED, "Command Abort Requested";
    ABORTED_SQ_DELETION = 0, 0x08, ECANCELED, "Command Aborted due to SQ Deletion";
    ABORTED_FAILED_FUSED = 0, 0x09, ECANCELED, "Command Aborted due to Failed Fused Command";
    ABORTED_MISSING_FUSED = 0, 0x0a, EINVAL, "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE = 0, 0x0b, ENODEV, "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = 0, 0x0c, EINVAL, "Command Sequence Error";
    INVALID_SGL_SEGMENT = 0, 0x0d, EINVAL, "Invalid SGL Segment Descriptor";
    INVALID_SGL_COUNT = 0, 0x0e, EINVAL, "Invalid Number of SGL Descriptors";
    DATA_SGL_LENGTH_INVALID = 0, 0x0f, EINVAL, "Data SGL Length Invalid";
    SGL_DESCRIPTOR_TYPE_INVALID = 0, 0x11, EINVAL, "SGL Descriptor Type Invalid";
    ATOMIC_WRITE_UNIT_EXCEEDED = 0, 0x14, EINVAL, "Atomic Write Unit Exceeded";
    OPERATION_DENIED = 0, 0x15, EPERM, "Operation Denied";
    SGL_OFFSET_INVALID = 0, 0x16, EINVAL, "SGL Offset Invalid";
    HOST_ID_INCONSISTENT = 0, 0x18, EINVAL, "Host Identifier Inconsistent Format";
    KEEP_ALIVE_EXPIRED = 0, 0x19, ETIMEDOUT, "Keep Alive Timer Expired";
    KEEP_ALIVE_INVALID = 0, 0x1a, EINVAL, "Keep Alive Timeout Invalid";
    ABORTED_PREEMPT = 0, 0x1b, ECANCELED, "Command Aborted due to Preempt and Abort";
    SANITIZE_FAILED = 0, 0x1c, EIO, "Sanitize Failed";
    SANITIZE_IN_PROGRESS = 0, 0x1d, EBUSY, "Sanitize In Progress";
    NAMESPACE_WRITE_PROTECTED = 0, 0x20, EROFS, "Namespace is Write Protected";
    COMMAND_INTERRUPTED = 0, 0x21, EBUSY, "Command Interrupted";
    TRANSIENT_TRANSPORT_ERROR = 0, 0x22, EIO, "Transient Transport Error";
    LBA_OUT_OF_RANGE = 0, 0x80, ENOSPC, "LBA Out of Range";
    CAPACITY_EXCEEDED = 0, 0x81, ENOSPC, "Capacity Exceeded";
    NAMESPACE_NOT_READY = 0, 0x82, EBUSY, "Namespace Not Ready";
    RESERVATION_CONFLICT = 0, 0x83, EBADE, "Reservation Conflict";
    INVALID_QUEUE_ID = 1, 0x01, EINVAL, "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = 1, 0x02, EINVAL, "Invalid Queue Size";
    ABORT_LIMIT_EXCEEDED = 1, 0x03, EBUSY, "Abort Command Limit Exceeded";
    ASYNC_EVENT_LIMIT_EXCEEDED = 1, 0x05, EBUSY, "Asynchronous Event Request Limit Exceeded";
    INVALID_LOG_PAGE = 1, 0x09, EINVAL, "Invalid Log Page";
    INVALID_FORMAT = 1, 0x0a, EINVAL, "Invalid Format";
    FEATURE_NOT_SAVEABLE = 1, 0x0d, EINVAL, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = 1, 0x0e, EPERM, "Feature Not Changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = 1, 0x0f, EINVAL, "Feature Not Namespace Specific";
    INSUFFICIENT_CAPACITY = 1, 0x15, ENOSPC, "Namespace Insufficient Capacity";
    NAMESPACE_ALREADY_ATTACHED = 1, 0x18, EEXIST, "Namespace Already Attached";
    NAMESPACE_NOT_ATTACHED = 1, 0x1a, ENXIO, "Namespace Not Attached";
    THIN_PROVISIONING_NOT_SUPPORTED = 1, 0x1b, EOPNOTSUPP, "Thin Provisioning Not Supported";
    CONTROLLER_LIST_INVALID = 1, 0x1c, EINVAL, "Controller List Invalid";
    INVALID_CONTROLLER_ID = 1, 0x1f, EINVAL, "Invalid Controller Identifier";
    ATTACHMENT_LIMIT_EXCEEDED = 1, 0x27, ENOSPC, "Namespace Attachment Limit Exceeded";
    COMMAND_SET_NOT_SUPPORTED = 1, 0x29, EOPNOTSUPP, "I/O Command Set Not Supported";
    CONNECT_INCOMPATIBLE_FORMAT = 1, 0x80, EINVAL, "Connect Incompatible Format";
    CONNECT_CONTROLLER_BUSY = 1, 0x81, EBUSY, "Connect Controller Busy";
    CONNECT_INVALID_PARAMETERS = 1, 0x82, EINVAL, "Connect Invalid Parameters";
    CONNECT_RESTART_DISCOVERY = 1, 0x83, ECONNREFUSED, "Connect Restart Discovery";
    CONNECT_INVALID_HOST = 1, 0x84, EACCES, "Connect Invalid Host";
    INVALID_QUEUE_TYPE = 1, 0x85, EINVAL, "Invalid Queue Type";
    DISCOVER_RESTART = 1, 0x90, EBUSY, "Discover Restart";
    AUTHENTICATION_REQUIRED = 1, 0x91, EACCES, "Authentication Required";
    WRITE_FAULT = 2, 0x80, EIO, "Write Fault";
    UNRECOVERED_READ_ERROR = 2, 0x81, EIO, "Unrecovered Read Error";
    GUARD_CHECK_ERROR = 2, 0x82, EILSEQ, "End-to-end Guard Check Error";
    COMPARE_FAILURE = 2, 0x85, EILSEQ, "Compare Failure";
    ACCESS_DENIED = 2, 0x86, EACCES, "Access Denied";
    DEALLOCATED_BLOCK = 2, 0x87, EIO, "Deallocated or Unwritten Logical Block";
    INTERNAL_PATH_ERROR = 3, 0x00, EIO, "Internal Path Error";
    ANA_PERSISTENT_LOSS = 3, 0x01, ENXIO, "Asymmetric Access Persistent Loss";
    ANA_INACCESSIBLE = 3, 0x02, ENXIO, "Asymmetric Access Inaccessible";
    ANA_TRANSITION = 3, 0x03, EBUSY, "Asymmetric Access Transition";
    CONTROLLER_PATHING_ERROR = 3, 0x60, EIO, "Controller Pathing Error";
    HOST_PATHING_ERROR = 3, 0x70, EIO, "Host Pathing Error";
    ABORTED_BY_HOST = 3, 0x71, ECANCELED, "Command Aborted By Host";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_only_success_is_no_error() {
        for (index, row) in TABLE.iter().enumerate() {
            assert!(TABLE[..index].iter().all(|other| other.0 != row.0), "{:?}", row.0);
            assert_eq!(row.2 == 0, row.0.is_ok());
        }
    }

    #[test]
    fn a_status_knows_its_name_number_and_flags() {
        let status = Status::INVALID_FIELD.do_not_retry();
        assert_eq!(status.bits(), 0x4002);
        assert!(!status.is_ok() && status.is_do_not_retry() && status.is(Status::INVALID_FIELD));
        assert_eq!(status.to_string(), "Invalid Field in Command (SCT 0h, SC 02h)");
        assert_eq!((status.errno(), Status::from_bits(0x7123).errno()), (EINVAL, EIO));
        assert_eq!(Status::SUCCESS.do_not_retry().errno(), 0);
    }
}
