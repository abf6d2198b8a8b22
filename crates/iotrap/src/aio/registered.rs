//! The registered files of one io_uring (IORING_REGISTER_FILES): the open file that each place of the ring's table
//! holds, as far as the library has seen it being put there.
//!
//! The kernel cannot be asked what a place holds, so the library knows it only if it sees every call that changes the
//! table. A program may make such calls where no hook sees them, so the knowledge counts only while `--raw` is in force
//! ([`crate::abi::dispatch`]).

use core::ffi::c_int;

use crate::abi::dispatch;
use crate::abi::readable;
use crate::open::tracking;
use crate::state::group::GroupRef;
use crate::state::table::Name;

/// Places of a ring's table that are known; files in places beyond are not spread.
pub const PLACES: usize = 512;

/// IORING_REGISTER_FILES_SKIP: the place stays as it is.
const SKIP: c_int = -2;

/// The places of a ring's table of files.
pub struct Registered {
    /// The group of each place, which the table keeps a reference to. None: another file, or none.
    places: [Option<Name>; PLACES],
    /// The places beyond those that are in use or were.
    used: usize,
    /// The library has missed a change: nothing is known.
    missed: bool,
}

/// The files of a call that registers them, each proven to be the file of its descriptor before the call.
pub struct Candidates {
    names: [Option<Name>; PLACES],
    first: usize,
    count: usize,
}

impl Registered {
    /// The table of a ring without registered files.
    pub const fn none() -> Registered {
        Registered { places: [None; PLACES], used: 0, missed: false }
    }

    /// The open file in a place, if it is one of a pool.
    pub fn group(&self, place: u32) -> Option<GroupRef> {
        let name = (*self.places.get(place as usize)?)?;
        GroupRef::acquire(name)
    }

    /// True if a place may hold a file of a pool that the library does not know of.
    pub fn is_unknown(&self, place: u32) -> bool {
        !dispatch::on() || self.missed || place as usize >= PLACES
    }

    fn set(&mut self, place: usize, name: Option<Name>) {
        let Some(before) = self.places.get_mut(place) else { return };
        self.used = self.used.max(place + 1);
        if let Some(before) = core::mem::replace(before, name) {
            drop(GroupRef::again(before));
        }
    }

    /// Empties a place, or notes that nobody knows what it holds.
    pub fn clear(&mut self, place: usize) {
        self.set(place, None);
    }

    /// Empties all places: the program has unregistered its files, or the ring ends.
    pub fn clear_all(&mut self) {
        (0..self.used).for_each(|place| self.set(place, None));
        (self.used, self.missed) = (0, false);
    }

    /// Notes a change that the library cannot follow.
    pub fn forget_all_places(&mut self) {
        self.clear_all();
        self.missed = true;
    }

    /// Notes that a call has put files into the first `done` places of its range. The library does not
    /// know the files in the places beyond.
    ///
    /// `files` is the list of the call.
    pub fn put(&mut self, candidates: &Candidates, files: *const c_int, done: usize) {
        let read = readable::for_each(files, candidates.count, |at, fd| {
            if fd == SKIP && at < done {
                return;
            }
            let known = if at < done { candidates.names.get(at).copied().flatten() } else { None };
            // The number means the same file after the call as before it: that is the file in the table.
            let group = known.and_then(|name| GroupRef::proven(fd).filter(|group| group.name() == name));
            let name = group.map(|group| {
                let name = group.name();
                core::mem::forget(group); // the table's
                name
            });
            self.set(candidates.first + at, name);
        });
        if !read {
            self.forget_all_places();
        }
    }
}

/// The files that the `count` descriptors of a call mean before the call, which puts them into the places from `first`
/// on.
pub fn before(files: *const c_int, first: usize, count: usize) -> Candidates {
    let mut names = [None; PLACES];
    // The library does not follow more places, so an unchecked count costs no time.
    let count = count.min(PLACES);
    readable::for_each(files, count, |at, fd| {
        let Some(place) = names.get_mut(at) else { return };
        // The program may close the number and use the file by its place: the library needs a duplicate from here on.
        if let Some(group) = GroupRef::of(fd).filter(|group| group.is_asleep() && group.ended().is_none()) {
            let _ = tracking::awaken(&group, fd); // a number that means another file is not proven below
        }
        *place = GroupRef::proven(fd).map(|group| group.name());
    });
    Candidates { names, first, count }
}
