//! The owner of an object: a run removes objects that it made, and leaves alone those that it could not make.

use super::Files;
use crate::smallfiles::failure::Failure;
use crate::smallfiles::operation::{Operation, Population, Walk};
use crate::smallfiles::tally::Call;
use crate::smallfiles::tree::Object;

impl Files<'_> {
    /// Notes that this run could not give a name: whatever has the name is somebody else's, unless an earlier phase of
    /// the run gave the name.
    fn found(&mut self, object: Object, number: u64) {
        let kind = match object {
            Object::File => Some(Population::Files),
            Object::Directory => Some(Population::Directories),
            Object::Symlink => Some(Population::Symlinks),
            Object::Link => Some(Population::Links),
            _ => None,
        };
        if !self.earlier.iter().any(|(known, range)| Some(*known) == kind && range.contains(&number)) {
            self.foreign.note(self.thread, object, number);
        }
    }

    /// The object that an operation works on by its name; None if it lists directories or removes everything.
    pub(super) fn used(&self, operation: Operation, number: u64) -> Option<Object> {
        match (operation, operation.row().walk) {
            (Operation::DeleteRenamed, _) => Some(Object::Renamed),
            (_, Walk::Uses(kind) | Walk::Takes(kind)) => Some(match kind {
                Population::Files => self.object(number),
                Population::Directories => Object::Directory,
                Population::Symlinks => Object::Symlink,
                Population::Links => Object::Link,
            }),
            _ => None,
        }
    }

    /// Notes the names that a failed operation did not give.
    pub(super) fn note_failure(&mut self, operation: Operation, object: Object, number: u64, failure: &Failure) {
        match (operation, failure.call) {
            (Operation::Create | Operation::Mknod, Call::Create | Call::Mknod | Call::Mkdir) => {
                self.found(object, number);
            }
            (Operation::SwiftPut, call) => {
                self.found(Object::File, number);
                if matches!(call, Call::Create | Call::Mkdir) {
                    self.found(Object::Temporary, number);
                }
            }
            (Operation::Symlink, _) => self.found(Object::Symlink, number),
            (Operation::Link, _) => self.found(Object::Link, number),
            (Operation::Mkdir, _) => self.found(Object::Directory, number),
            (Operation::Rename, _) => {
                self.found(if object == Object::File { Object::Renamed } else { Object::File }, number);
            }
            _ => {}
        }
    }

    /// Removes the objects that this run made and has not removed yet. It tries all of them, then returns the first
    /// failure, and the number of failures.
    pub fn remove_made(&mut self) -> (Result<(), Failure>, u64) {
        let (mut first, mut stay) = (Ok(()), 0);
        let earlier = std::mem::take(&mut self.earlier);
        // A name that was there before this run stays, unless an earlier phase of the run made it.
        let mut rows = earlier.clone();
        for kind in [Population::Files, Population::Symlinks, Population::Links, Population::Directories] {
            rows.push((kind, self.population(kind).ours()));
        }
        for (kind, number) in rows.into_iter().flat_map(|(kind, row)| row.map(move |number| (kind, number))) {
            let before = earlier.iter().any(|(other, range)| *other == kind && range.contains(&number));
            let removed = match kind {
                // A phase may have renamed the file, and a later one made another of its first name.
                Population::Files => self.remove_file(number, before),
                Population::Symlinks => self.remove(Object::Symlink, number).map(drop),
                Population::Links => self.remove(Object::Link, number).map(drop),
                Population::Directories => self.remove(Object::Directory, number).map(drop),
            };
            stay += u64::from(removed.is_err());
            first = first.and(removed);
        }
        (first, stay)
    }

    /// Removes file `number` under the first of its names that is there, or under all of them. The first name comes
    /// first: a file that has it was not renamed, whoever has the other name.
    fn remove_file(&mut self, number: u64, all: bool) -> Result<(), Failure> {
        let (renames, puts) = (self.plan.does(Operation::Rename), self.plan.does(Operation::SwiftPut));
        let names = [(Object::File, true), (Object::Renamed, renames), (Object::Temporary, puts)];
        let mut first = Ok(());
        for (object, _) in names.into_iter().filter(|(_, given)| *given) {
            match self.remove(object, number) {
                Ok(true) if !all => break,
                Ok(_) => {}
                Err(failure) => first = first.and(Err(failure)),
            }
        }
        first
    }

    /// Removes an object under a name that this run gave; true if it was there.
    fn remove(&mut self, object: Object, number: u64) -> Result<bool, Failure> {
        if self.foreign.has(self.thread, object, number) {
            return Ok(false);
        }
        let path = self.names.path(object, number);
        let (call, removed) = match object {
            Object::Directory => (Call::Rmdir, self.fs.rmdir(path)),
            _ => (Call::Unlink, self.fs.unlink(path)),
        };
        match removed {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(Failure { call, error, path: self.names.last() }),
        }
    }
}
