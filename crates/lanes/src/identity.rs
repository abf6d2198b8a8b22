//! The question whether two descriptors are one file that is reached through different mounts: a proof, or the reason
//! why there is none.
//!
//! | file system | proof |
//! | --- | --- |
//! | the same superblock (`st_dev`) | the same inode number: inodes of one superblock have no other identity |
//! | NFS 3, both | the same file handle of the server, which name_to_handle_at(2) returns (`fs/nfs/export.c`) |
//! | NFS 4, both, where Linux returns no handles | the same FSID and inode number, and the same size and times |
//! | Gluster through FUSE, both | the same GFID, which is the volume's own identity of the file |
//! | anything else | none: the pool may say `trust-inode` |
//!
//! A server of NFS 4 identifies a file by FSID and inode number (RFC 7530, 5.8.1.9); size and times are asked of the
//! server again.
//!
//! A FUSE handle is an address inside one client process, and the handles of two disks that were copied from one
//! image are equal: neither proves anything. Nor does an inode number on two superblocks: it takes the administrator's
//! word, and then type, size and times must agree as well.
//!
//! No client can see that two servers are one: a volume and its clone have the same handles. An administrator who puts
//! two lanes into a pool says that they lead to one volume; `plimsoll lanes --write-probe` checks it.

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, Statx, StatxFlags};
use sys::handle::{self, FileHandle};

use crate::nfs;

/// Magic numbers of statfs(2).
const NFS: i64 = 0x6969;
const FUSE: i64 = 0x6573_5546;

/// The proof that two descriptors are one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Both descriptors are the same inode of one superblock. The lanes are not independent of each other.
    SameInode,
    /// Both descriptors have the same file handle of an NFS server.
    SameHandle,
    /// Both descriptors have the same FSID and inode number of an NFS server, and the same size and times.
    SameFileId,
    /// Both descriptors have the same GFID of a Gluster volume.
    SameGfid,
    /// Both descriptors have the same inode number, type, size and times, and the pool says that this will do.
    TrustedInode,
}

/// The reason why two descriptors are not taken for one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// At least one of the two is not a regular file.
    NotRegular,
    /// The two are different inodes of one file system.
    OtherInode,
    /// The two have different file handles.
    OtherHandle,
    /// The two have different GFIDs.
    OtherGfid,
    /// The two are on different file systems.
    OtherFileSystem,
    /// Attributes that one file would have in common differ: inode number, size or a time.
    OtherAttributes,
    /// The two may be one file, but their file system gives no proof.
    NoProof,
    /// At least one of the two cannot be examined.
    Unreadable,
}

impl Difference {
    /// The meaning of the difference, in the words of a list of reasons.
    pub const fn text(self) -> &'static str {
        match self {
            Difference::NotRegular => "not a regular file on every lane",
            Difference::OtherInode => "another file on another lane (inode)",
            Difference::OtherHandle => "another file on another lane (file handle)",
            Difference::OtherGfid => "another file on another lane (GFID)",
            Difference::OtherFileSystem => "another file system on another lane",
            Difference::OtherAttributes => "inode number, size or times differ between lanes",
            Difference::NoProof => "no proof that it is one file (trust-inode = true would do without)",
            Difference::Unreadable => "cannot be examined",
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Proves that two descriptors are one file. `trust_inode` has the meaning of [`crate::Pool::trust_inode`].
///
/// The function makes raw system calls and calls name_to_handle_at(3) only; `errno` may change.
///
/// # Errors
/// The reason why the two are different files, or why nothing proves that they are one.
pub fn same_file(a: BorrowedFd<'_>, b: BorrowedFd<'_>, trust_inode: bool) -> Result<Proof, Difference> {
    compare(&Facts::of(a)?, &Facts::of(b)?, trust_inode)
}

/// The facts about a descriptor: with them one descriptor can be compared with many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    regular: bool,
    device: (u32, u32),
    inode: u64,
    file_system: i64,
    size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
    handle: Option<FileHandle>,
    fsid: Option<(u64, u64)>,
    gfid: Option<[u8; 36]>,
}

impl Facts {
    /// The facts about a descriptor.
    ///
    /// # Errors
    /// [`Difference::Unreadable`] if its attributes or its file system cannot be asked.
    pub fn of(file: BorrowedFd<'_>) -> Result<Facts, Difference> {
        let file_system = rustix::fs::fstatfs(file).map_err(|_| Difference::Unreadable)?.f_type;
        #[allow(clippy::unnecessary_cast, reason = "narrower on some architectures")]
        Facts::on(file, file_system as i64)
    }

    /// The facts about a descriptor of a file that lies on this file system (`f_type` of statfs(2)): a client of NFS
    /// asks its server for each statfs(2), behind all other requests of the lane.
    ///
    /// # Errors
    /// [`Difference::Unreadable`] if its attributes cannot be asked.
    pub fn on(file: BorrowedFd<'_>, file_system: i64) -> Result<Facts, Difference> {
        let unreadable = |_| Difference::Unreadable;
        let ask = |how| rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH | how, StatxFlags::BASIC_STATS);
        let handle = if file_system == NFS { handle::of(file.as_raw_fd()).ok() } else { None };
        // Without a handle the attributes are a part of the proof: attributes in the cache may be of any age. With one
        // they matter to nothing, and asking the server for them takes as long as all requests of the lane before it.
        let by_attributes = file_system == NFS && handle.is_none();
        let how = match handle {
            Some(_) => AtFlags::STATX_DONT_SYNC,
            None if by_attributes => AtFlags::STATX_FORCE_SYNC,
            None => AtFlags::empty(),
        };
        let stat = ask(how).map_err(unreadable)?;
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        Ok(Facts {
            regular: is_regular(&stat),
            device,
            inode: stat.stx_ino,
            file_system,
            size: stat.stx_size,
            modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            handle,
            fsid: if by_attributes { nfs::fsid(device) } else { None },
            gfid: if file_system == FUSE { gfid(file) } else { None },
        })
    }

    /// These facts on another device: for tests of code that works on facts.
    #[cfg(test)]
    pub(crate) fn on_device(self, device: (u32, u32)) -> Facts {
        Facts { device, ..self }
    }

    /// These facts on FUSE.
    #[cfg(test)]
    pub(crate) fn on_fuse(self) -> Facts {
        Facts { file_system: FUSE, ..self }
    }

    /// True for a file of a FUSE file system: a program answers for it. That program may hold writes back and answer
    /// reads from a separate cache, O_DIRECT or not.
    pub fn is_fuse(&self) -> bool {
        self.file_system == FUSE
    }

    /// The type of the file system (`f_type` of statfs(2)).
    pub fn file_system(&self) -> i64 {
        self.file_system
    }

    /// The device number: lanes with the same device number are one superblock, and not independent.
    pub fn device(&self) -> (u32, u32) {
        self.device
    }
}

fn is_regular(stat: &Statx) -> bool {
    rustix::fs::FileType::from_raw_mode(stat.stx_mode.into()).is_file()
}

/// The identity that a Gluster volume gives to a file, as text (virtual attribute of the client).
fn gfid(file: BorrowedFd<'_>) -> Option<[u8; 36]> {
    let mut text = [0; 64];
    let length = rustix::fs::fgetxattr(file, c"glusterfs.gfid.string", &mut text[..]).ok()?;
    text.get(..length)?.get(..36)?.try_into().ok()
}

/// Proves that two regular files are one, as [`same_file`] does, from facts that are known.
///
/// # Errors
/// The errors of [`same_file`].
pub fn compare(a: &Facts, b: &Facts, trust_inode: bool) -> Result<Proof, Difference> {
    if !a.regular || !b.regular {
        return Err(Difference::NotRegular);
    }
    compare_inodes(a, b, trust_inode)
}

/// Proves that two files are one while the file may be written to: the attributes of one lane are old when the other
/// lane has answered. `one` and `other` are asked in turns, `turns` times at most, until two answers in a row
/// agree. The function never compares less than [`compare`] compares.
///
/// # Errors
/// The errors of [`same_file`].
pub fn compare_in_turns(
    mut one: impl FnMut() -> Result<Facts, Difference>,
    mut other: impl FnMut() -> Result<Facts, Difference>,
    turns: u32,
    trust_inode: bool,
) -> Result<Proof, Difference> {
    let mut last = one()?;
    let mut result = Err(Difference::OtherAttributes);
    for turn in 0..turns {
        let next = if turn % 2 == 0 { other()? } else { one()? };
        result = compare(&last, &next, trust_inode);
        if result != Err(Difference::OtherAttributes) {
            break;
        }
        last = next;
    }
    result
}

/// Proves that two inodes of any type are one, as [`compare`] does for regular files: the same proofs hold for
/// directories.
///
/// # Errors
/// The errors of [`same_file`].
pub fn compare_inodes(a: &Facts, b: &Facts, trust_inode: bool) -> Result<Proof, Difference> {
    if a.device == b.device && a.file_system == b.file_system {
        return if a.inode == b.inode { Ok(Proof::SameInode) } else { Err(Difference::OtherInode) };
    }
    if a.file_system != b.file_system {
        return Err(Difference::OtherFileSystem);
    }
    match (a.handle, b.handle) {
        (Some(one), Some(other)) if one == other => return Ok(Proof::SameHandle),
        (Some(_), Some(_)) => return Err(Difference::OtherHandle),
        _ => {}
    }
    let attributes = |facts: &Facts| (facts.inode, facts.size, facts.modified, facts.changed);
    let same_attributes = attributes(a) == attributes(b);
    match (a.fsid, b.fsid) {
        (Some(one), Some(other)) if one != other => return Err(Difference::OtherFileSystem),
        (Some(_), Some(_)) if a.inode != b.inode => return Err(Difference::OtherInode),
        // A file that is written to at this moment is not recognised either: later, perhaps.
        (Some(_), Some(_)) if same_attributes => return Ok(Proof::SameFileId),
        (Some(_), Some(_)) => return Err(Difference::OtherAttributes),
        _ => {}
    }
    match (a.gfid, b.gfid) {
        (Some(one), Some(other)) if one == other => return Ok(Proof::SameGfid),
        (Some(_), Some(_)) => return Err(Difference::OtherGfid),
        _ => {}
    }
    if !trust_inode {
        return Err(Difference::NoProof);
    }
    if same_attributes { Ok(Proof::TrustedInode) } else { Err(Difference::OtherAttributes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    fn facts() -> Facts {
        Facts {
            regular: true,
            device: (0, 40),
            inode: 7,
            file_system: NFS,
            size: 4096,
            modified: (1, 2),
            changed: (3, 4),
            handle: FileHandle::new(1, b"seven"),
            fsid: None,
            gfid: None,
        }
    }

    #[test]
    fn one_superblock_needs_no_handle() {
        let bare = Facts { handle: None, file_system: 0xef53, ..facts() };
        assert_eq!(compare(&bare, &bare, false), Ok(Proof::SameInode));
        assert_eq!(compare(&bare, &Facts { inode: 8, ..bare }, true), Err(Difference::OtherInode));
    }

    #[test]
    fn two_superblocks_of_nfs_need_the_same_handle() {
        let there = Facts { device: (0, 41), ..facts() };
        assert_eq!(compare(&facts(), &there, false), Ok(Proof::SameHandle));
        let other = Facts { handle: FileHandle::new(1, b"eight"), ..there };
        assert_eq!(compare(&facts(), &other, true), Err(Difference::OtherHandle), "whatever the inode number says");
        let other = Facts { handle: FileHandle::new(2, b"seven"), ..there };
        assert_eq!(compare(&facts(), &other, false), Err(Difference::OtherHandle));
    }

    #[test]
    fn an_attribute_cache_that_lags_behind_is_no_difference() {
        let there = Facts { device: (0, 41), size: 0, modified: (0, 0), ..facts() };
        assert_eq!(compare(&facts(), &there, false), Ok(Proof::SameHandle));
    }

    #[test]
    fn nfs_4_goes_by_fsid_inode_number_and_fresh_attributes() {
        let here = Facts { handle: None, fsid: Some((1, 2)), ..facts() };
        let there = Facts { device: (0, 41), ..here };
        assert_eq!(compare(&here, &there, false), Ok(Proof::SameFileId));
        assert_eq!(compare(&here, &Facts { fsid: Some((1, 3)), ..there }, true), Err(Difference::OtherFileSystem));
        assert_eq!(compare(&here, &Facts { inode: 8, ..there }, true), Err(Difference::OtherInode));
        // Two servers that both call their root 0:0, with inodes of the same number.
        assert_eq!(compare(&here, &Facts { changed: (3, 5), ..there }, true), Err(Difference::OtherAttributes));
        assert_eq!(compare(&here, &Facts { fsid: None, ..there }, false), Err(Difference::NoProof));
    }

    #[test]
    fn a_file_that_is_being_written_is_recognised_when_it_holds_still() {
        // Every question is answered later than the one before: `changes` says what has been written by then.
        let ask = |changes: &'static [i64], foreign: u64| {
            let asked = std::cell::Cell::new(0);
            let answer = |device, inode| {
                let at = asked.replace(asked.get() + 1);
                let written = changes[at.min(changes.len() - 1)];
                let facts = Facts { handle: None, fsid: Some((1, 2)), ..facts() };
                Ok(Facts { device, inode, changed: (written, 0), ..facts })
            };
            let found = compare_in_turns(|| answer((0, 40), 7), || answer((0, 41), foreign), 5, false);
            (found, asked.get())
        };
        assert_eq!(ask(&[1], 7), (Ok(Proof::SameFileId), 2));
        assert_eq!(ask(&[1, 2, 3, 3], 7), (Ok(Proof::SameFileId), 4));
        assert_eq!(ask(&[1, 2, 2], 7), (Ok(Proof::SameFileId), 3), "in either order");
        assert_eq!(ask(&[1, 2, 3, 4, 5, 6, 7, 8], 7), (Err(Difference::OtherAttributes), 6), "never on less than that");
        assert_eq!(ask(&[1, 2, 3, 3], 8), (Err(Difference::OtherInode), 2), "and asked again for no other reason");
    }

    #[test]
    fn an_inode_number_is_no_proof_unless_the_pool_says_so() {
        let here = Facts { handle: None, file_system: FUSE, ..facts() };
        let there = Facts { device: (0, 41), ..here };
        assert_eq!(compare(&here, &there, false), Err(Difference::NoProof));
        assert_eq!(compare(&here, &there, true), Ok(Proof::TrustedInode));
        for other in [Facts { inode: 8, ..there }, Facts { size: 0, ..there }, Facts { changed: (3, 5), ..there }] {
            assert_eq!(compare(&here, &other, true), Err(Difference::OtherAttributes));
        }
    }

    #[test]
    fn a_gfid_is_a_proof() {
        let here = Facts { handle: None, file_system: FUSE, gfid: Some([b'a'; 36]), ..facts() };
        let there = Facts { device: (0, 41), ..here };
        assert_eq!(compare(&here, &there, false), Ok(Proof::SameGfid));
        assert_eq!(compare(&here, &Facts { gfid: Some([b'b'; 36]), ..there }, true), Err(Difference::OtherGfid));
    }

    #[test]
    fn a_disk_and_its_copy_are_not_one() {
        let here = Facts { handle: None, file_system: 0xef53, ..facts() };
        assert_eq!(compare(&here, &Facts { device: (8, 17), ..here }, false), Err(Difference::NoProof));
        assert_eq!(
            compare(&here, &Facts { file_system: 0x6969, device: (8, 17), ..here }, true),
            Err(Difference::OtherFileSystem)
        );
    }

    #[test]
    fn real_files_of_one_directory() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("a"), "x").unwrap();
        std::fs::write(at("b"), "x").unwrap();
        std::fs::hard_link(at("a"), at("link")).unwrap();
        let open = |name: &str| File::open(at(name)).unwrap();
        let (a, b, link) = (open("a"), open("b"), open("link"));
        assert_eq!(same_file(a.as_fd(), link.as_fd(), false), Ok(Proof::SameInode));
        assert_eq!(same_file(a.as_fd(), b.as_fd(), true), Err(Difference::OtherInode));
        let directory = File::open(directory.path()).unwrap();
        assert_eq!(same_file(a.as_fd(), directory.as_fd(), true), Err(Difference::NotRegular));
    }
}
