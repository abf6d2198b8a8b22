//! File handles: a file system's name for a file, the same across renames and mounts (name_to_handle_at(2)).

use std::fmt;
use std::io;
use std::os::fd::RawFd;

/// Bytes of the longest handle (MAX_HANDLE_SZ).
pub const BYTES_MAX: usize = 128;

/// The handle by which a file system knows a file. Equal handles of one file system mean one file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FileHandle {
    kind: i32,
    length: u32,
    bytes: [u8; BYTES_MAX],
}

impl FileHandle {
    /// The handle of that type with these bytes; None if they are too many.
    pub fn new(kind: i32, bytes: &[u8]) -> Option<FileHandle> {
        let mut handle = FileHandle { kind, length: bytes.len() as u32, bytes: [0; BYTES_MAX] };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    /// The bytes of the handle; only the file system knows their meaning.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length as usize).unwrap_or_default()
    }

    /// The type of the handle; only the file system knows its meaning.
    pub fn kind(&self) -> i32 {
        self.kind
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}:", self.kind)?;
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// struct file_handle with room for the longest handle.
#[repr(C)]
struct Room {
    handle_bytes: u32,
    handle_type: i32,
    bytes: [u8; BYTES_MAX],
}

/// The handle of an open file. Allocates nothing, and makes the system call without libc.
///
/// # Errors
/// EOPNOTSUPP where the file system has none, EOVERFLOW where one is too long for this interface.
pub fn of(fd: RawFd) -> io::Result<FileHandle> {
    let mut room = Room { handle_bytes: BYTES_MAX as u32, handle_type: 0, bytes: [0; BYTES_MAX] };
    let mut mount: i32 = 0;
    let (empty, start, mount) = (c"".as_ptr() as usize, &raw mut room as usize, &raw mut mount as usize);
    let (file, flags) = (fd as isize as usize, libc::AT_EMPTY_PATH as usize);
    // SAFETY: an empty path with AT_EMPTY_PATH names the descriptor; room is a struct file_handle followed by as many
    // bytes as it says.
    let status = unsafe { crate::raw::call(libc::SYS_name_to_handle_at, file, empty, start, mount, flags, 0) };
    if status < 0 {
        return Err(io::Error::from_raw_os_error(-status as i32));
    }
    let bytes =
        room.bytes.get(..room.handle_bytes as usize).ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    FileHandle::new(room.handle_type, bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn one_file_has_one_handle() {
        let here = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let again = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let other = std::fs::File::open("/proc/self/exe").unwrap();
        match (of(here.as_raw_fd()), of(again.as_raw_fd()), of(other.as_raw_fd())) {
            (Ok(one), Ok(two), Ok(three)) => assert!(one == two && one == three && !one.bytes().is_empty()),
            (Err(error), ..) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(of(-1).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
