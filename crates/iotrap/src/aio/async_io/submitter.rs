//! The part of a write that depends on the thread that submits it: the thread's rights, and the process's limit of file
//! sizes.
//!
//! The engine's thread has the rights of the thread that has made it. A program may give rights up later (setuid(2),
//! setfsuid(2), capset(2)), for one thread or for all that libc knows. The kernel looks at the rights of the writing
//! thread when it takes S_ISUID from a file, and when it gives out reserved blocks and quota. It sends SIGXFSZ to the
//! writing thread (setrlimit(2)). So a write that may show a difference is the kernel's.

use crate::abi::raw;

/// _LINUX_CAPABILITY_VERSION_3 (linux/capability.h).
const VERSION_3: u32 = 0x2008_0522;

/// The effective capabilities of the calling thread, by capget(2); None if nobody may ask for them.
pub fn rights() -> Option<u64> {
    let header: [u32; 2] = [VERSION_3, 0];
    let mut words = [[0u32; 3]; 2]; // effective, permitted, inheritable; of the lower and the upper capabilities
    let (asked, told) = (header.as_ptr() as usize, words.as_mut_ptr() as usize);
    // SAFETY: one header is read, and two descriptions of three words are written.
    let result = unsafe { raw::call(libc::SYS_capget, asked, told, 0, 0, 0, 0) };
    let [[low, ..], [high, ..]] = words;
    (result == 0).then_some(u64::from(high) << 32 | u64::from(low))
}

/// The rights and limits of the calling thread.
#[derive(Clone, Copy)]
pub struct Submitter {
    same_rights: bool,
    largest: u64,
}

impl Submitter {
    /// The calling thread, compared with the rights of the engine's thread.
    pub fn here(engine: Option<u64>) -> Submitter {
        Submitter { same_rights: rights() == engine, largest: raw::largest_file() }
    }

    /// True if the engine's thread has the rights of this one.
    pub fn has_same_rights(&self) -> bool {
        self.same_rights
    }

    /// True if a write that ends there (in bytes) meets no limit.
    pub fn may_reach(&self, end: u64) -> bool {
        end <= self.largest || self.largest == u64::MAX
    }
}
