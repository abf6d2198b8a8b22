//! The structures that libaio's callers and the kernel share (linux/aio_abi.h).

use core::ffi::c_int;

/// `struct iocb` (linux/aio_abi.h), little-endian.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Iocb {
    /// aio_data
    pub data: u64,
    /// aio_key
    pub key: u32,
    /// aio_rw_flags
    pub flags: c_int,
    /// aio_lio_opcode
    pub opcode: u16,
    /// aio_reqprio
    pub priority: i16,
    /// aio_fildes
    pub file: c_int,
    /// aio_buf
    pub buffer: u64,
    /// aio_nbytes
    pub count: u64,
    /// aio_offset
    pub offset: i64,
    reserved: u64,
    /// aio_flags
    pub options: u32,
    /// aio_resfd
    pub event_file: c_int,
}

#[cfg(target_endian = "big")]
compile_error!("aio_key and aio_rw_flags lie the other way round");

const _: () = assert!(size_of::<Iocb>() == 64, "as linux/aio_abi.h has it");

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Event {
    /// aio_data of the iocb
    pub data: u64,
    /// address of the iocb
    pub obj: u64,
    /// bytes or `-errno`
    pub res: i64,
    /// secondary result
    pub res2: i64,
}

/// IOCB_CMD_*.
pub mod opcode {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const PREAD: u16 = 0;
    pub const PWRITE: u16 = 1;
    pub const FSYNC: u16 = 2;
    pub const FDSYNC: u16 = 3;
    pub const PREADV: u16 = 7;
    pub const PWRITEV: u16 = 8;
}

impl Iocb {
    /// An iocb whose bytes are all zero.
    pub const fn empty() -> Iocb {
        Iocb {
            data: 0,
            key: 0,
            flags: 0,
            opcode: 0,
            priority: 0,
            file: 0,
            buffer: 0,
            count: 0,
            offset: 0,
            reserved: 0,
            options: 0,
            event_file: 0,
        }
    }

    /// A request that ends at once: a write of no bytes.
    pub fn write_of_nothing(file: c_int, data: u64) -> Iocb {
        Iocb { data, file, opcode: opcode::PWRITE, ..Iocb::empty() }
    }

    /// True if the fields that have to be zero are zero.
    pub fn is_unreserved(&self) -> bool {
        self.reserved == 0
    }

    /// Changes the descriptor, and nothing else.
    ///
    /// # Safety
    /// The iocb is valid, and nobody else uses it.
    pub unsafe fn set_file(iocb: *mut Iocb, file: c_int) {
        // SAFETY: the program's contract.
        let place = unsafe { &raw mut (*iocb).file };
        // SAFETY: the program's contract; volatile because the kernel and other threads look at it.
        unsafe { place.write_volatile(file) };
    }
}
