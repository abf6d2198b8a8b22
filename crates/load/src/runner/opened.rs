//! The open files of a clone: all at once, or at most `openfiles` of them.

use std::sync::atomic::AtomicBool;

use crate::Error;
use crate::engine::Engine;
use crate::files::Target;

/// A clone's files as its engine knows them, opened when first used.
pub(super) struct Opened<'a> {
    target: &'a mut Target,
    names: Vec<String>,
    files: Vec<File>,
    /// Whether there are descriptors to hand to the engine: not for those that open their files themselves.
    has_descriptors: bool,
    /// How many may be open at once; None: no limit, and nothing to count.
    limit: Option<usize>,
    open_count: usize,
    /// Counts uses, to close the file that was used longest ago.
    uses: u64,
    unlink_between_passes: bool,
}

#[derive(Clone, Default)]
struct File {
    ready: bool,
    in_flight: u32,
    last_use: u64,
}

impl<'a> Opened<'a> {
    /// No file open yet.
    pub fn new(target: &'a mut Target, has_descriptors: bool, unlink_between_passes: bool) -> Opened<'a> {
        let names: Vec<String> = target.names().map(str::to_owned).collect();
        let limit = Some(target.open_limit() as usize).filter(|&limit| limit < names.len());
        let files = vec![File::default(); names.len()];
        Opened { target, names, files, has_descriptors, limit, open_count: 0, uses: 0, unlink_between_passes }
    }

    /// Opens as many files as may be open, before the clock starts.
    ///
    /// # Errors
    /// What opening or registering a file says.
    pub fn open_all(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        for file in 0..self.limit.unwrap_or(self.files.len()) {
            self.open(file, engine)?;
        }
        Ok(())
    }

    /// The path of a file, for messages.
    pub fn name(&self, file: u32) -> &str {
        self.names.get(file as usize).map_or("?", String::as_str)
    }

    /// Makes sure that a file is open, before an op on it.
    #[inline]
    pub fn before(&mut self, file: u32, engine: &mut dyn Engine) -> Result<(), Error> {
        let index = file as usize;
        if !self.files[index].ready {
            self.make_room(engine)?;
            self.open(index, engine)?;
        }
        if self.limit.is_some() {
            self.uses += 1;
            self.files[index].in_flight += 1;
            self.files[index].last_use = self.uses;
        }
        Ok(())
    }

    /// Takes note that an op on a file has ended.
    #[inline]
    pub fn after(&mut self, file: u32) {
        if self.limit.is_some() {
            self.files[file as usize].in_flight -= 1;
        }
    }

    #[cold]
    fn open(&mut self, index: usize, engine: &mut dyn Engine) -> Result<(), Error> {
        if self.has_descriptors {
            let fd = self.target.open(index as u32)?;
            let registered = engine.open(index as u32, fd);
            registered.map_err(|error| Error::system("cannot register", self.name(index as u32), error))?;
        }
        self.files[index].ready = true;
        self.open_count += 1;
        Ok(())
    }

    /// Closes the idle file that was used longest ago, if the limit is reached. With all of them busy the limit is
    /// exceeded rather than the queue drained.
    #[cold]
    fn make_room(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        if self.limit.is_none_or(|limit| self.open_count < limit) {
            return Ok(());
        }
        let idle = self.files.iter().enumerate().filter(|(_, file)| file.ready && file.in_flight == 0);
        match idle.min_by_key(|(_, file)| file.last_use).map(|(index, _)| index) {
            Some(index) => self.close(index, engine),
            None => Ok(()),
        }
    }

    fn close(&mut self, index: usize, engine: &mut dyn Engine) -> Result<(), Error> {
        if !std::mem::take(&mut self.files[index].ready) {
            return Ok(());
        }
        self.open_count -= 1;
        if !self.has_descriptors {
            return Ok(());
        }
        engine.close(index as u32);
        self.target.close(index as u32)
    }

    /// Between two passes: files are closed, removed if the job says so, their cached pages dropped, and opened again.
    ///
    /// # Errors
    /// What closing, removing or opening says.
    pub fn next_pass(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        self.close_all(engine)?;
        if self.unlink_between_passes {
            self.target.unlink_for_next_loop()?;
        } else if self.has_descriptors {
            self.target.settle_cache(&AtomicBool::new(false))?;
        }
        self.open_all(engine)
    }

    /// Forces all written data out (`end_fsync`).
    ///
    /// # Errors
    /// What fsync(2) says.
    pub fn sync_all(&mut self) -> Result<(), Error> {
        if self.has_descriptors { self.target.sync_all() } else { Ok(()) }
    }

    /// Closes all files. The engine must have finished everything.
    ///
    /// # Errors
    /// What `fsync_on_close` meets, the first of all; every file is closed nevertheless.
    pub fn close_all(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        let mut outcome = Ok(());
        for index in 0..self.files.len() {
            let closed = self.close(index, engine);
            outcome = outcome.and(closed);
        }
        outcome
    }
}
