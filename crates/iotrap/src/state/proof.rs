//! The proof that a descriptor number still means the open file that it was tracked for.
//!
//! A program can close and open files where no hook sees it: by requests of an io_uring, or by system calls of its own
//! code. A number may then mean another file than the one that was opened under it. So the table says what a number
//! meant, and the library does nothing on the word of the table alone: it asks the kernel before a request leaves the
//! opened lane, and before it syncs, measures or closes a lane because of a number.
//!
//! - The **witness** of a [`Group`](crate::state::group::Group) is a private duplicate of the program's open file
//!   description, made when the file was opened. `fcntl(witness, F_DUPFD_QUERY, number)` (Linux 6.10) says whether both
//!   are one description; kcmp(2) says so on older kernels. Where neither is permitted, equal inodes have to do: the
//!   witness keeps its inode in use, so the kernel gives its number to no other file.
//! - A **lane's file** carries a mark: a signal number (F_SETSIG) that follows from its group and lane. The library
//!   opened the file, so nobody else sets it, and a regular file sends no signals. A descriptor without the mark is not
//!   the lane's file.
//!
//! The kernel answers for the table of descriptors of the calling thread, also after unshare(2).
//!
//! **After the proof** another thread may close the number, and open another file under it, before the request is
//! submitted. The request then goes to the file that the number meant at the proof, which lies between the program's
//! call and its return: the program cannot tell that from a close that came after the call, because nothing orders the
//! two.

use core::ffi::c_int;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

use crate::abi::raw;
use crate::state::group::GroupRef;
use crate::state::process;
use crate::state::reason::Reason;
use crate::state::table::{self, Entry, Name};

/// Proofs that are remembered within one call; a batch over more files asks again.
const ROOM: usize = 16;

/// Proofs that were made for one call of the program: a batch asks once for each descriptor.
pub struct Proofs {
    made: [(c_int, Name); ROOM],
    used: usize,
    /// The proofs of `made` whose descriptors were found to have the flags of their group, a bit each.
    same_flags: u16,
    /// The last descriptor whose size the kernel was asked for, and the size.
    size: (c_int, u64),
}

impl Proofs {
    /// A set without proofs, for a call that begins.
    pub const fn none() -> Proofs {
        Proofs { made: [(-1, Name { index: 0, generation: 0 }); ROOM], used: 0, same_flags: 0, size: (-1, 0) }
    }

    /// True if `fd` means the file of this group. If not, the number is tracked no longer.
    #[inline]
    pub fn hold(&mut self, group: &GroupRef, fd: c_int) -> bool {
        self.remembered(fd, group.name(), || {
            let holds = means(group, fd);
            if !holds {
                forget(group, fd);
            }
            holds
        })
    }

    /// True if a descriptor that means the file of this group has the flags that the group knows. Flags that were
    /// changed where no hook sees it (O_DIRECT, O_APPEND) end the spreading of the file.
    #[inline]
    pub fn hold_flags(&mut self, group: &GroupRef, fd: c_int) -> bool {
        let place = self.made.iter().take(self.used).position(|&made| made == (fd, group.name()));
        let bit = place.map_or(0, |place| 1u16 << place);
        if self.same_flags & bit != 0 {
            return true;
        }
        let same = same_flags(group, fd);
        if same {
            self.same_flags |= bit;
        } else {
            group.node().end(Reason::Flags);
        }
        same
    }

    /// True if `file` is the group's file on a lane. If not, the group has no file on that lane from now on.
    #[inline]
    pub fn hold_lane(&mut self, group: &GroupRef, lane: usize, file: c_int) -> bool {
        self.remembered(file, group.name(), || {
            let holds = is_file_of_lane(group.name(), lane, file);
            if !holds {
                group.lose(file);
            }
            holds
        })
    }

    /// True if the file reaches up to `end` by the word of the opened lane's client. The caller has counted its request
    /// as in flight, and keeps it so if this is true: then no thread of the program cuts the file meanwhile, and the
    /// size holds for the rest of the batch.
    pub fn reaches(&mut self, group: &GroupRef, fd: c_int, end: u64) -> bool {
        if self.size.0 == fd && end <= self.size.1 {
            return true;
        }
        let Ok(size) = raw::size(fd) else { return false };
        if end > size {
            group.node().cut(size);
            return false;
        }
        self.size = (fd, size);
        true
    }

    fn remembered(&mut self, fd: c_int, name: Name, prove: impl FnOnce() -> bool) -> bool {
        if self.made.iter().take(self.used).any(|&made| made == (fd, name)) {
            return true;
        }
        let holds = prove();
        if holds && let Some(place) = self.made.get_mut(self.used) {
            *place = (fd, name);
            self.used += 1;
        }
        holds
    }
}

/// True if `fd` means the open file of this group, by the kernel's word.
pub fn means(group: &GroupRef, fd: c_int) -> bool {
    match group.witness() {
        Some(witness) => table::get(witness) == Entry::Lane(group.name()) && is_one_description(fd, witness),
        // Nothing of the file is spread. A sync or a truncation is about the inode.
        None => is_inode(fd, group.node().identity()),
    }
}

/// Removes the entry of `fd`, and with it the number's reference to the group: `fd` means something else than the table
/// says.
#[cold]
pub fn forget(group: &GroupRef, fd: c_int) {
    if !process::is_own() {
        return; // a vfork child's descriptors are its own, the table is the parent's
    }
    let name = group.name();
    if table::remove(fd, Entry::File(name)) || table::remove(fd, Entry::Quiet(name)) {
        Reason::Stale.count();
        // The program has closed the file: the opened lane shows to others what the lanes have written.
        if let Some(witness) = group.witness() {
            group.node().revalidate(witness);
        }
        drop(GroupRef::again(name));
    }
}

const O_BY_WHICH_IT_SPREADS: c_int = libc::O_ACCMODE | libc::O_DIRECT | libc::O_APPEND;

/// True if the descriptor has the flags by which requests are spread that the file was opened with.
pub fn same_flags(group: &GroupRef, fd: c_int) -> bool {
    raw::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| (flags ^ group.flags()) & O_BY_WHICH_IT_SPREADS == 0)
}

/// The call that compares two open file descriptions: the best one that the kernel has not refused yet.
static WAY: AtomicU8 = AtomicU8::new(BY_QUERY);
const BY_QUERY: u8 = 0;
const BY_KCMP: u8 = 1;
const BY_INODE: u8 = 2;

/// True if two descriptors are one open file description.
fn is_one_description(fd: c_int, witness: c_int) -> bool {
    /// linux/fcntl.h, Linux 6.10. The libc crate does not know it.
    const F_DUPFD_QUERY: c_int = 1027;
    /// linux/kcmp.h
    const KCMP_FILE: usize = 0;
    let way = WAY.load(Relaxed);
    if way == BY_QUERY {
        match raw::fcntl(witness, F_DUPFD_QUERY, raw::arg(fd)) {
            Err(libc::EINVAL) => WAY.store(BY_KCMP, Relaxed),
            answer => return answer == Ok(1),
        }
    }
    if way <= BY_KCMP {
        let thread = raw::thread() as usize;
        // SAFETY: the system call takes integers only, so it accesses no memory of this process.
        let answer =
            unsafe { raw::call(libc::SYS_kcmp, thread, thread, KCMP_FILE, raw::arg(fd), raw::arg(witness), 0) };
        match raw::check(answer) {
            Ok(order) => return order == 0,
            Err(libc::EBADF) => return false,
            Err(_) => WAY.store(BY_INODE, Relaxed), // not built in, or a filter of system calls
        }
    }
    raw::identity(witness).is_ok_and(|known| is_inode(fd, (known.device, known.inode)))
}

/// True if a descriptor is of the file with this device and inode number.
pub fn is_inode(fd: c_int, known: (u64, u64)) -> bool {
    raw::identity(fd).is_ok_and(|found| (found.device, found.inode) == known)
}

/// linux/fcntl.h (asm-generic/fcntl.h). The libc crate does not know them.
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;

/// The signal number that marks a group's file on a lane.
fn mark_of(name: Name, lane: usize) -> usize {
    /// The number of signals (`_NSIG`).
    const SIGNALS: usize = 64;
    1 + (name.index as usize * 31 + name.generation as usize * 7 + lane) % SIGNALS
}

/// Marks a file that the library has opened as the group's file on a lane.
///
/// # Errors
/// The kernel does not have such marks: nothing can be proven, so nothing may be spread.
pub fn mark(name: Name, lane: usize, file: c_int) -> raw::Result<()> {
    raw::fcntl(file, F_SETSIG, mark_of(name, lane)).map(drop)
}

/// True if a descriptor is the file that the group has opened on a lane.
pub fn is_file_of_lane(name: Name, lane: usize, file: c_int) -> bool {
    table::get(file) == Entry::Lane(name) && raw::fcntl(file, F_GETSIG, 0) == Ok(mark_of(name, lane) as c_int)
}
