//! The effect of each operation on one object.

use std::ffi::{CStr, CString};
use std::io;

use job::workload::random::{Random, mix};
use sys::clock::monotonic_ns;

use super::{DIR_MODE, FILE_MODE, Files};
use crate::smallfiles::failure::{Bad, Failure};
use crate::smallfiles::fs::{EntryKind, Stat};
use crate::smallfiles::listing::Holdings;
use crate::smallfiles::operation::Operation;
use crate::smallfiles::tally::Call;
use crate::smallfiles::tree::Object;

impl Files<'_> {
    /// Carries out an operation on object `number`, which has the name `object` if it is a file.
    pub(super) fn attempt(
        &mut self,
        operation: Operation,
        object: Object,
        number: u64,
        mixed: bool,
    ) -> Result<(), Failure> {
        match operation {
            Operation::Create => self.create(object, number),
            Operation::Append => self.append(object, number, mixed),
            Operation::Overwrite => self.overwrite(object, number, 0),
            Operation::TruncateOverwrite => self.overwrite(object, number, libc::O_TRUNC),
            Operation::Read => self.read_whole(object, number),
            Operation::Mknod => self.mknod(object, number),
            Operation::Stat => self.stat(object, number),
            Operation::Chmod => {
                let mode = if number.is_multiple_of(2) { 0o640 } else { 0o644 };
                let path = self.names.path(object, number);
                self.tally.time(Call::Chmod, || self.fs.chmod(path, mode))
            }
            Operation::Truncate => {
                let half = self.size(number) / 2;
                let path = self.names.path(object, number);
                self.tally.time(Call::Truncate, || self.fs.truncate(path, half))
            }
            Operation::Setxattr => self.set_xattrs(object, number),
            Operation::Getxattr => self.get_xattrs(object, number),
            Operation::SwiftPut => self.swift_put(number),
            Operation::SwiftGet => self.read_whole(object, number).and_then(|()| self.get_xattrs(object, number)),
            Operation::AwaitCreate => self.await_create(number),
            Operation::Rename => self.rename(object, number, mixed),
            Operation::Unlink => self.unlink(object, number),
            Operation::DeleteRenamed => self.unlink(Object::Renamed, number),
            Operation::Symlink => {
                let content = self.other_names.path(object, number);
                let path = self.names.path(Object::Symlink, number);
                self.tally.time(Call::Symlink, || self.fs.symlink(content, path))
            }
            Operation::Readlink => {
                let mut content = [0; 4096];
                let path = self.names.path(Object::Symlink, number);
                self.tally.time(Call::Readlink, || self.fs.readlink(path, &mut content)).map(drop)
            }
            Operation::Link => {
                let existing = self.other_names.path(object, number);
                let path = self.names.path(Object::Link, number);
                self.tally.time(Call::Link, || self.fs.link(existing, path))
            }
            Operation::Mkdir => {
                let path = self.names.path(Object::Directory, number);
                self.tally.time(Call::Mkdir, || self.fs.mkdir(path, DIR_MODE))
            }
            Operation::StatDir => {
                let path = self.names.path(Object::Directory, number);
                let stat = self.tally.time(Call::Stat, || self.fs.stat(path))?;
                self.expect(stat.kind == EntryKind::Directory, || "not a directory".into())
            }
            Operation::Rmdir => {
                let path = self.names.path(Object::Directory, number);
                self.tally.time(Call::Rmdir, || self.fs.rmdir(path))
            }
            Operation::Readdir => self.list(number, mixed),
            Operation::LsL => self.list_with_attributes(number, mixed),
            Operation::MakeTree => self.make_part_of_the_tree(number),
            Operation::RemoveTree => self.remove_part_of_the_tree(number),
            Operation::Cleanup => self.clean(number),
        }
    }

    fn create(&mut self, object: Object, number: u64) -> Result<(), Failure> {
        let mut handle = self.open(object, number, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)?;
        self.write(&mut *handle, number, 0, self.size(number), self.written.known_newest(), false)?;
        self.close(handle, true)
    }

    fn append(&mut self, object: Object, number: u64, mixed: bool) -> Result<(), Failure> {
        let mut handle = self.open(object, number, libc::O_WRONLY | libc::O_APPEND)?;
        let size = self.size(number);
        let end = match mixed || self.written.truncated || !self.written.here {
            true if !self.plan.checkable => 0,
            true => self.tally.time(Call::Fstat, || handle.fstat())?.len,
            false => size * self.written.parts,
        };
        self.write(&mut *handle, number, end, size, self.written.known_newest(), false)?;
        self.close(handle, true)
    }

    fn overwrite(&mut self, object: Object, number: u64, flags: i32) -> Result<(), Failure> {
        let mut handle = self.open(object, number, libc::O_WRONLY | flags)?;
        self.write(&mut *handle, number, 0, self.size(number), self.written.known_newest(), true)?;
        self.close(handle, true)
    }

    fn read_whole(&mut self, object: Object, number: u64) -> Result<(), Failure> {
        let mut handle = self.open(object, number, libc::O_RDONLY)?;
        self.read(&mut *handle, number, self.readable(number))?;
        self.close(handle, false)
    }

    fn mknod(&mut self, object: Object, number: u64) -> Result<(), Failure> {
        let path = self.names.path(object, number);
        match self.tally.time(Call::Mknod, || self.fs.mknod(path, FILE_MODE)) {
            Err(failure) if failure.is_absence() => {
                self.make_directory(self.names.directory_of(number), true)?;
                let path = self.names.path(object, number);
                self.tally.time(Call::Mknod, || self.fs.mknod(path, FILE_MODE))
            }
            outcome => outcome,
        }
    }

    fn stat(&mut self, object: Object, number: u64) -> Result<(), Failure> {
        let path = self.names.path(object, number);
        let stat = self.tally.time(Call::Stat, || self.fs.stat(path))?;
        let expected = self.readable(number);
        match stat.kind {
            EntryKind::File => self.expect(stat.len >= expected, || format!("{} bytes long, not {expected}", stat.len)),
            _ => self.expect(false, || "not a file".into()),
        }
    }

    fn list(&mut self, directory: u64, mixed: bool) -> Result<(), Failure> {
        let (mut entries, verify) = (0, self.plan.verify);
        let path = self.names.directory(directory);
        self.listing.clear();
        let mut entry = |name: &CStr, kind: EntryKind| {
            entries += 1;
            if verify {
                self.listing.push(name, kind, None);
            }
        };
        self.tally.time(Call::Readdir, || self.fs.readdir(path, &mut entry))?;
        self.listed = entries;
        self.check_listing(Call::Readdir, directory, mixed)
    }

    fn list_with_attributes(&mut self, directory: u64, mixed: bool) -> Result<(), Failure> {
        let (mut entries, verify) = (0, self.plan.verify);
        let path = self.names.directory(directory);
        self.listing.clear();
        let mut entry = |name: &CStr, stat: &Stat| {
            entries += 1;
            if verify {
                self.listing.push(name, stat.kind, Some(stat.len));
            }
        };
        self.tally.time(Call::ReaddirStat, || self.fs.readdir_stat(path, &mut entry))?;
        self.listed = entries;
        self.check_listing(Call::ReaddirStat, directory, mixed)
    }

    /// Compares an attribute with its expected value: `what` says how it differs, unless it is `right`.
    fn expect(&mut self, right: bool, what: impl FnOnce() -> String) -> Result<(), Failure> {
        if !self.plan.verify || right {
            return Ok(());
        }
        self.tally.mismatches += 1;
        Err(Failure::wrong(Call::Stat, Bad::Differs { offset: 0, what: what() }))
    }

    /// Compares the directory that was just listed with the objects that were made in it.
    fn check_listing(&mut self, call: Call, directory: u64, mixed: bool) -> Result<(), Failure> {
        if !self.plan.verify {
            return Ok(());
        }
        // Threads of other ranks do not publish what they have: their names are ignored.
        // In shared directories the other threads' mix goes on meanwhile, and their files come and go: only this
        // thread's own files are compared.
        let threads: Vec<(u32, Holdings)> = match self.plan.layout.shared && !mixed {
            true => {
                (0..self.plan.workers()).map(|worker| (self.plan.number_of(worker), (self.others)(worker))).collect()
            }
            false => vec![(self.thread, self.holdings())],
        };
        let (own, written, plan, seed) = (self.thread, self.written, self.plan, self.seed);
        let least = |thread: u32, number: u64| match thread == own {
            true => written.readable(plan.sizes.of(seed, thread, number)),
            false => 0,
        };
        match self.listing.check(&mut self.names, directory, &threads, least) {
            Ok(entries) => {
                self.tally.entries += entries;
                Ok(())
            }
            Err(what) => {
                self.tally.mismatches += 1;
                let path = self.names.directory(directory).to_string_lossy().into_owned();
                Err(Failure { path, ..Failure::wrong(call, Bad::Listing { what }) })
            }
        }
    }

    pub(super) fn rename(&mut self, from: Object, number: u64, mixed: bool) -> Result<(), Failure> {
        let to = if from == Object::File { Object::Renamed } else { Object::File };
        self.rename_new(from, to, number)?;
        if mixed {
            self.away = if self.away == Some(number) { None } else { Some(number) };
        }
        Ok(())
    }

    /// Gives an object a name that nobody has: a rename never replaces a file that is there.
    fn rename_new(&mut self, from: Object, to: Object, number: u64) -> Result<(), Failure> {
        let (old, new) = (self.other_names.path(from, number), self.names.path(to, number));
        if !self.renames_by_replacing {
            let outcome = self.tally.time(Call::Rename, || self.fs.rename_new(old, new));
            match outcome.as_ref().err().and_then(|failure| failure.error.raw_os_error()) {
                Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => self.renames_by_replacing = true,
                _ => return outcome,
            }
        }
        // The look is not part of the rename: it is not measured.
        match self.fs.lstat(new) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            looked => {
                let error = looked.err().unwrap_or_else(|| io::Error::from_raw_os_error(libc::EEXIST));
                return Err(Failure { call: Call::Rename, error, path: String::new() });
            }
        }
        self.tally.time(Call::Rename, || self.fs.rename(old, new))
    }

    fn unlink(&mut self, object: Object, number: u64) -> Result<(), Failure> {
        let path = self.names.path(object, number);
        match self.tally.time(Call::Unlink, || self.fs.unlink(path)) {
            Err(failure) if self.plan.missing_is_removed && failure.is_absence() => {
                self.tally.missing += 1;
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// The name and the value of an extended attribute, both computed from numbers. The value is in the buffer; returns
    /// its length.
    fn xattr(&mut self, number: u64, index: u32) -> (CString, usize) {
        let name = CString::new(format!("user.plimsoll.{index}")).unwrap_or_default();
        let len = self.plan.xattr_bytes;
        let mut random = Random::new(mix(number ^ (u64::from(index) << 40)) ^ self.seed);
        let room = &mut self.buffer.as_mut_slice()[..len];
        room.iter_mut().for_each(|byte| *byte = b' ' + (random.next() % 94) as u8);
        (name, len)
    }

    fn set_xattrs(&mut self, object: Object, number: u64) -> Result<(), Failure> {
        for index in 0..self.plan.xattr_count {
            let (name, len) = self.xattr(number, index);
            let path = self.names.path(object, number);
            let value = &self.buffer.as_slice()[..len];
            self.tally.time(Call::Setxattr, || self.fs.setxattr(path, &name, value))?;
        }
        Ok(())
    }

    fn get_xattrs(&mut self, object: Object, number: u64) -> Result<(), Failure> {
        for index in 0..self.plan.xattr_count {
            let (name, len) = self.xattr(number, index);
            let mut value = vec![0; len.max(1)];
            let path = self.names.path(object, number);
            let got = self.tally.time(Call::Getxattr, || self.fs.getxattr(path, &name, &mut value))?;
            if self.plan.verify && value[..got] != self.buffer.as_slice()[..len] {
                self.tally.mismatches += 1;
                let what = format!("another value of {}", name.to_string_lossy());
                return Err(Failure::wrong(Call::Getxattr, Bad::Differs { offset: 0, what }));
            }
        }
        Ok(())
    }

    /// Stores a file as OpenStack Swift stores an object: complete and on disk before it has its name.
    fn swift_put(&mut self, number: u64) -> Result<(), Failure> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        let mut handle = self.open(Object::Temporary, number, flags)?;
        self.write(&mut *handle, number, 0, self.size(number), self.written.known_newest(), false)?;
        self.tally.time(Call::Fsync, || handle.fsync())?;
        self.tally.time(Call::Close, || handle.close())?;
        self.set_xattrs(Object::Temporary, number)?;
        let named = self.rename_new(Object::Temporary, Object::File, number);
        if named.is_err() {
            drop(self.fs.unlink(self.other_names.path(Object::Temporary, number))); // the failure above is the one to tell
        }
        named
    }

    fn await_create(&mut self, number: u64) -> Result<(), Failure> {
        let object = self.object(number);
        loop {
            let path = self.names.path(object, number);
            match self.tally.time(Call::Stat, || self.fs.stat(path)) {
                Err(failure) if failure.is_absence() => {
                    self.go_on()?;
                    if self.deadline_ns.is_some_and(|deadline_ns| monotonic_ns() >= deadline_ns) {
                        return Err(Failure::wrong(Call::Stat, Bad::Absent));
                    }
                    std::thread::sleep(std::time::Duration::from_micros(500));
                }
                outcome => return outcome.map(drop),
            }
        }
    }

    /// Removes every object that any operation may have left under that number. `listed` is the number of these.
    fn clean(&mut self, number: u64) -> Result<(), Failure> {
        self.listed = 0;
        let directory = self.names.directory_of(number);
        if self.absent == Some(directory) {
            return Ok(());
        }
        for object in [Object::File, Object::Renamed, Object::Temporary, Object::Symlink, Object::Link] {
            let path = self.names.path(object, number);
            let gone = self.tally.time(Call::Unlink, || self.fs.unlink(path));
            self.listed += u64::from(was_there(gone)?);
        }
        let path = self.names.path(Object::Directory, number);
        let gone = self.tally.time(Call::Rmdir, || self.fs.rmdir(path));
        self.listed += u64::from(was_there(gone)?);
        if self.listed == 0 && !self.plan.layout.hashed {
            let looked = self.fs.lstat(self.names.directory(directory)).err().and_then(|error| error.raw_os_error());
            self.absent = (looked == Some(libc::ENOENT)).then_some(directory);
        }
        Ok(())
    }
}

/// True if an object was removed, false if there was none.
fn was_there(outcome: Result<(), Failure>) -> Result<bool, Failure> {
    match outcome {
        Err(failure) if failure.is_absence() => Ok(false),
        outcome => outcome.map(|()| true),
    }
}
