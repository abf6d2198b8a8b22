//! The directories of the layout: made before the first file, removed after the last.

use std::io;

use super::{DIR_MODE, Files};
use crate::smallfiles::failure::Failure;
use crate::smallfiles::tally::Call;

impl Files<'_> {
    /// Makes the directories of the layout that fall to this thread. Existing directories stay as they are.
    pub fn make_directories(&mut self) -> Result<(), Failure> {
        let (step, first) = match self.plan.layout.shared {
            true => (u64::from(self.plan.sharers()), u64::from(self.thread)),
            false => (1, 0),
        };
        let mut directory = first;
        while directory < self.names.directories() && !(self.stopped)() {
            self.make_directory(directory, false)?;
            directory += step;
        }
        Ok(())
    }

    /// Makes one directory with all directories above it. `counted`: the calls are measured.
    pub(super) fn make_directory(&mut self, directory: u64, counted: bool) -> Result<(), Failure> {
        for path in self.names.ancestry(directory) {
            let made = match counted {
                true => {
                    self.tally.time(Call::Mkdir, || self.fs.mkdir(&path, DIR_MODE)).map_err(|failure| failure.error)
                }
                false => self.fs.mkdir(&path, DIR_MODE),
            };
            match made {
                Ok(()) => self.note_made(directory),
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                Err(error) => {
                    let path = path.to_string_lossy().into_owned();
                    return Err(Failure { call: Call::Mkdir, error, path });
                }
            }
        }
        Ok(())
    }

    fn note_made(&mut self, directory: u64) {
        // Mixes make more files than were planned for, and so more directories.
        let word = (directory / 64) as usize;
        if word >= self.made.len() {
            self.made.resize(word + 1, 0);
        }
        self.made[word] |= 1 << (directory % 64);
    }

    /// Makes a directory of the layout, and those above it that come with it. `listed` is the number of these; the ones
    /// that were there stay as they are.
    pub(super) fn make_part_of_the_tree(&mut self, directory: u64) -> Result<(), Failure> {
        self.listed = 0;
        for path in self.names.brought_by(directory) {
            match self.tally.time(Call::Mkdir, || self.fs.mkdir(&path, DIR_MODE)) {
                Ok(()) => {
                    self.listed += 1;
                    self.note_made(directory);
                }
                Err(failure) if failure.error.raw_os_error() == Some(libc::EEXIST) => {}
                Err(failure) => return Err(Failure { path: path.to_string_lossy().into_owned(), ..failure }),
            }
        }
        Ok(())
    }

    /// Removes a directory of the layout, and those above it that came with it. `listed` is the number of these; the
    /// ones that hold something, or are none of the layout's, stay.
    pub(super) fn remove_part_of_the_tree(&mut self, directory: u64) -> Result<(), Failure> {
        self.listed = 0;
        for path in self.names.brought_by(directory).iter().rev() {
            match self.tally.time(Call::Rmdir, || self.fs.rmdir(path)) {
                Ok(()) => self.listed += 1,
                Err(failure) if stays(&failure.error) => break,
                Err(failure) => return Err(Failure { path: path.to_string_lossy().into_owned(), ..failure }),
            }
        }
        Ok(())
    }

    /// The number of directories of the layout, with those that are there beyond the planned ones: a mix makes more
    /// files than were planned for.
    pub fn directories_there(&mut self) -> u64 {
        let mut end = self.names.directories();
        while self.fs.stat(self.names.directory(end)).is_ok() {
            end += 1;
        }
        end
    }

    /// Removes the directories of the layout that this run made and that are empty.
    /// With `all`, it removes the empty directories of an earlier run too. It tries all of them, then returns the first
    /// failure.
    pub fn remove_directories(&mut self, all: bool) -> Result<(), Failure> {
        let mut first = Ok(());
        let beyond = if all { self.directories_there() } else { self.names.directories() };
        for directory in 0..(self.made.len() as u64 * 64).max(beyond) {
            let made = self.made.get((directory / 64) as usize).is_some_and(|word| word & (1 << (directory % 64)) != 0);
            if made || (all && directory < beyond) {
                for path in self.names.ancestry(directory).iter().rev() {
                    match self.fs.rmdir(path) {
                        Ok(()) => {}
                        Err(error) if stays(&error) => break,
                        Err(error) => {
                            let path = path.to_string_lossy().into_owned();
                            first = first.and(Err(Failure { call: Call::Rmdir, error, path }));
                            break;
                        }
                    }
                }
            }
        }
        first
    }
}

/// True if a directory was not removed because it holds objects of others, belongs to others, or is gone.
fn stays(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST | libc::ENOTDIR | libc::ENOENT))
}
