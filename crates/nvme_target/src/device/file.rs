//! A regular file or block device, through the reactor's ring.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::uring::{Ends, Held, Uring};
use super::{Channel, Device, DeviceSpec, Done, Error, FileLock, Io, Local};

pub(super) struct File {
    path: PathBuf,
    file: Arc<fs::File>,
    /// The lock that the file is taken by; `None` if the file is locked for good.
    shared: Option<FileLock>,
    block_bytes: u32,
    bytes: AtomicU64,
    direct: bool,
    read_only: bool,
    /// True if no range of the file is deallocated.
    pub(super) keeps_allocated: bool,
    identity: String,
}

impl File {
    pub fn open(
        spec: &DeviceSpec,
        path: &Path,
        create_bytes: Option<u64>,
        direct: bool,
        read_only: bool,
        shared: bool,
    ) -> Result<File, Error> {
        let at = |what: &str| format!("device {}: {what} {}", spec.name, path.display());
        let wrong_kind = || Error::invalid(at("neither a regular file nor a block device:"));
        // Before it is opened: the open of a pipe that nobody writes to never ends.
        if fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.file_type().is_block_device()) {
            return Err(wrong_kind());
        }
        let is_new = create_bytes.is_some() && !path.exists();
        let open = |direct: bool| {
            fs::File::options()
                .read(true)
                .write(!read_only)
                .create(create_bytes.is_some() && !read_only)
                .truncate(false)
                .custom_flags(if direct { libc::O_DIRECT } else { 0 })
                .open(path)
        };
        let (file, direct) = match open(direct) {
            // The file system has no direct I/O: I/O goes through its cache then, and `direct` of the device's
            // description tells so.
            Err(error) if direct && error.raw_os_error() == Some(libc::EINVAL) => (open(false), false),
            opened => (opened, direct),
        };
        let file = file.map_err(|e| Error::system(at("cannot open"), e))?;
        let kind = file.metadata().map_err(|e| Error::system(at("cannot look at"), e))?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(wrong_kind());
        }
        if shared && read_only {
            return Err(Error::invalid(at("readonly and shared:") + "; readers share a file without taking turns"));
        }
        let locked = if shared { Ok(true) } else { sys::file::lock_after_others(&file, !read_only) };
        match locked {
            Ok(true) => {}
            Ok(false) => {
                let who = match sys::file::lock_holder(&file) {
                    Some(pid) if pid == std::process::id() => "another device of this process serves".into(),
                    Some(pid) => format!("process {pid} serves"),
                    None => "another process, or another device of this one, serves".to_string(),
                };
                return Err(Error::new(super::ErrorKind::Busy, at(&who) + "; two writers would destroy it"));
            }
            Err(error) => return Err(Error::system(at("cannot lock"), error)),
        }
        if let Some(bytes) = create_bytes
            && kind.is_file()
            && file.metadata().is_ok_and(|meta| meta.len() == 0)
        {
            file.set_len(bytes).map_err(|e| Error::system(at("cannot set the size of"), e))?;
        }
        if is_new {
            // A host's Flush is an fsync(2) of the file, which need not keep the name of the file.
            let lasting = file.sync_all().and_then(|()| sys::replace::sync_name(path));
            lasting.map_err(|e| Error::system(at("cannot sync"), e))?;
        }
        let least = alignment(&file, direct, kind.is_block_device());
        let block_bytes = spec.block_bytes.unwrap_or(least.max(512));
        if block_bytes < least {
            return Err(Error::invalid(format!(
                "{} has direct I/O in units of {least} bytes; blocks of {block_bytes} need direct I/O off",
                at("")
            )));
        }
        let identity = crate::identity::file(&file).map_err(|e| Error::system(at("cannot look at"), e))?;
        let file = Arc::new(file);
        let device = File {
            path: path.to_path_buf(),
            shared: shared.then(|| FileLock::new(path.to_path_buf(), Arc::clone(&file))),
            file,
            block_bytes,
            bytes: AtomicU64::new(0),
            direct,
            read_only,
            keeps_allocated: false,
            identity,
        };
        device.rescan().map_err(|e| Error::system(at("cannot tell the size of"), e))?;
        if device.bytes() == 0 {
            return Err(Error::invalid(at("not even one block in")));
        }
        Ok(device)
    }

    fn rescan(&self) -> io::Result<()> {
        let meta = self.file.metadata()?;
        let bytes = if meta.file_type().is_block_device() { sys::block::bytes(&self.file)? } else { meta.len() };
        let block = u64::from(self.block_bytes);
        self.bytes.store(bytes / block * block, Ordering::Relaxed);
        Ok(())
    }
}

/// The smallest unit of I/O that the file takes.
fn alignment(file: &fs::File, direct: bool, is_block_device: bool) -> u32 {
    let logical = if is_block_device { sys::block::logical_block_bytes(file).unwrap_or(512) } else { 1 };
    if !direct {
        return 1;
    }
    let told = sys::file::direct_alignment(file).map_or(512, |alignment| alignment.offset);
    told.max(logical)
}

impl Device for File {
    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn open(&self, local: &Local) -> io::Result<Box<dyn Channel>> {
        let mut ring = local.uring.borrow_mut();
        if ring.is_none() {
            *ring = Some(Uring::new()?);
        }
        drop(ring);
        Ok(Box::new(FileChannel {
            file: Rc::new(Arc::clone(&self.file)),
            keeps_allocated: self.keeps_allocated,
            ring: Rc::clone(&local.uring),
            ends: Ends::default(),
        }))
    }

    fn resize(&self, bytes: Option<u64>) -> Result<(), Error> {
        let at = |what: &str| format!("{what} {}", self.path.display());
        if let Some(bytes) = bytes {
            if !bytes.is_multiple_of(u64::from(self.block_bytes)) || bytes == 0 {
                let block = self.block_bytes;
                return Err(Error::invalid(format!("{}: {bytes} bytes are not whole blocks of {block}", at("resize"))));
            }
            if self.file.metadata().is_ok_and(|meta| meta.is_file()) {
                // From here on no command reaches beyond the new end.
                self.bytes.fetch_min(bytes, Ordering::Relaxed);
                self.file.set_len(bytes).map_err(|e| Error::system(at("cannot set the size of"), e))?;
            }
        }
        self.rescan().map_err(|e| Error::system(at("cannot tell the size of"), e))
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn shared(&self) -> Option<&FileLock> {
        self.shared.as_ref()
    }

    fn identity(&self) -> Option<String> {
        Some(self.identity.clone())
    }

    fn direct(&self) -> bool {
        self.direct
    }
}

struct FileChannel {
    file: Held,
    keeps_allocated: bool,
    ring: Rc<RefCell<Option<Uring>>>,
    ends: Ends,
}

impl Channel for FileChannel {
    fn submit(&mut self, _now_ns: u64, io: Io, done: &mut Vec<Done>) {
        match &mut *self.ring.borrow_mut() {
            Some(ring) => ring.queue(&self.file, self.keeps_allocated, io, &self.ends),
            None => done.push(Done { tag: io.tag, result: Err(libc::EIO), buffer: io.buffer }),
        }
    }

    /// The reactor reaps the ring for all files at once; here each takes its own.
    fn poll(&mut self, _now_ns: u64, done: &mut Vec<Done>) {
        done.append(&mut self.ends.borrow_mut());
    }
}
