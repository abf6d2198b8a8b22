//! The contents that the files of a thread have by now: generations of overwrites, lengths after appends.

use crate::smallfiles::operation::Operation;

/// The facts by which reads know the files' contents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// True if this run made the files, so that the generations are known.
    pub here: bool,
    /// The newest generation in any file.
    pub newest: u32,
    /// The generation that the last overwrite of all files wrote: no file's first part is older.
    pub everywhere: u32,
    /// The length of each file in multiples of its size: 1, 0 after `mknod`, one more after each complete append phase.
    pub parts: u64,
    /// True if `truncate` may have cut some files to half of their size.
    pub truncated: bool,
}

impl Written {
    /// The contents of files that an earlier run made.
    pub fn before() -> Written {
        Written { here: false, newest: u32::MAX, everywhere: 0, parts: 1, truncated: false }
    }

    /// The contents of files that this run makes.
    pub fn now() -> Written {
        Written { here: true, newest: 0, everywhere: 0, parts: 1, truncated: false }
    }

    /// Notes, before a phase that overwrites files begins, that it writes a new generation.
    pub fn start_of(&mut self, operation: Operation) {
        if matches!(operation, Operation::Overwrite | Operation::TruncateOverwrite) && self.here {
            self.newest += 1;
        }
    }

    /// Notes the effect of a whole phase. `complete`: the phase went over every file; `whole`: it wrote all records of
    /// each.
    pub fn end_of(&mut self, operation: Operation, complete: bool, whole: bool) {
        match operation {
            Operation::Append if complete => self.parts += 1,
            Operation::Mknod => self.parts = 0,
            Operation::Overwrite | Operation::TruncateOverwrite => {
                if self.here && complete && whole {
                    self.everywhere = self.newest;
                }
                if operation == Operation::TruncateOverwrite {
                    self.parts = self.parts.min(1);
                }
                if complete && whole {
                    self.parts = self.parts.max(1);
                }
            }
            Operation::Truncate => self.truncated = true,
            _ => {}
        }
        if complete && operation == Operation::TruncateOverwrite {
            self.truncated = false;
        }
    }

    /// The generation that writes use now. Files of an earlier run get generation 0.
    pub fn known_newest(&self) -> u32 {
        if self.here { self.newest } else { 0 }
    }

    /// The number of bytes that a file made with `size` bytes has at least.
    pub fn readable(&self, size: u64) -> u64 {
        let whole = size * self.parts;
        if self.truncated { whole.min(size / 2) } else { whole }
    }
}
