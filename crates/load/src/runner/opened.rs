//! The open files of a clone: all at once, or at most `openfiles` of them.

use std::sync::atomic::AtomicBool;

use job::Job;
use job::engines::EngineSpec;

use crate::Error;
use crate::engine::Engine;
use crate::files::Target;

/// A clone's files as its engine knows them, opened when first used.
pub(super) struct Opened<'a> {
    target: &'a mut Target,
    names: Vec<String>,
    files: Vec<File>,
    access: Access,
    /// The number of files that may be open at once; None: no limit, and nothing to count.
    limit: Option<usize>,
    open_count: usize,
    /// Counts uses, to close the file that was used longest ago.
    uses: u64,
    unlink_between_passes: bool,
    fsync_on_close: bool,
}

/// The party that opens the files: the target, the engine, or nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The target opens the files, and has descriptors for the engine.
    Descriptors,
    /// The engine itself opens the files.
    Engine,
    /// The job has no files to open.
    Nothing,
}

impl Access {
    /// The access that an engine needs.
    pub fn of(engine: &EngineSpec) -> Access {
        match (engine.diskless, engine.opens_files) {
            (true, _) => Access::Nothing,
            (_, true) => Access::Engine,
            _ => Access::Descriptors,
        }
    }
}

#[derive(Clone, Default)]
struct File {
    ready: bool,
    in_flight: u32,
    last_use: u64,
}

impl<'a> Opened<'a> {
    /// The files of a clone, none of them open yet.
    pub fn new(target: &'a mut Target, access: Access, job: &Job) -> Opened<'a> {
        let names: Vec<String> = target.names().map(str::to_owned).collect();
        let limit = Some(target.open_limit() as usize).filter(|&limit| limit < names.len());
        let files = vec![File::default(); names.len()];
        Opened {
            target,
            names,
            files,
            access,
            limit,
            open_count: 0,
            uses: 0,
            unlink_between_passes: job.files.unlink_each_loop,
            fsync_on_close: job.syncs.fsync_on_close,
        }
    }

    /// Opens as many files as may be open, before the clock starts.
    ///
    /// # Errors
    /// An error of opening or registering a file.
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
    #[inline(always)]
    pub fn before(&mut self, file: u32, engine: &mut dyn Engine) -> Result<(), Error> {
        match self.limit.is_none() && self.files[file as usize].ready {
            true => Ok(()),
            false => self.open_for_op(file, engine),
        }
    }

    fn open_for_op(&mut self, file: u32, engine: &mut dyn Engine) -> Result<(), Error> {
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
        let file = index as u32;
        match self.access {
            Access::Descriptors => {
                let fd = self.target.open(file)?;
                let registered = engine.open(file, fd);
                registered.map_err(|error| Error::system("cannot register", self.name(file), error))?;
            }
            Access::Engine => {
                let opened = engine.storage().map_or(Ok(()), |storage| storage.open(file));
                opened.map_err(|error| Error::system("cannot open", self.name(file), error))?;
            }
            Access::Nothing => {}
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
        let file = index as u32;
        match self.access {
            Access::Descriptors => {
                engine.close(file);
                self.target.close(file)
            }
            Access::Engine => {
                let Some(storage) = engine.storage() else { return Ok(()) };
                let synced = if self.fsync_on_close { storage.sync(file) } else { Ok(()) };
                let closed = synced.and(storage.close(file));
                closed.map_err(|error| {
                    Error::system("cannot close", self.name(file), error).hint("some earlier writes are not stored")
                })
            }
            Access::Nothing => Ok(()),
        }
    }

    /// Between two passes: files are closed, removed if the job says so, their cached pages dropped, and opened again.
    ///
    /// # Errors
    /// An error of closing, removing or opening a file.
    pub fn next_pass(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        self.close_all(engine)?;
        match (self.access, self.unlink_between_passes) {
            (Access::Engine, true) => {
                for file in 0..self.files.len() as u32 {
                    match engine.storage().map_or(Ok(()), |storage| storage.unlink(file)) {
                        // Another clone that shares the file was first.
                        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                            return Err(Error::system("cannot remove", self.name(file), error));
                        }
                        _ => {}
                    }
                }
            }
            (_, true) => self.target.unlink_for_next_loop()?,
            (Access::Descriptors, false) => self.target.settle_cache(&AtomicBool::new(false))?,
            (_, false) => {}
        }
        self.open_all(engine)
    }

    /// Forces all written data out (`end_fsync`).
    ///
    /// # Errors
    /// The error of fsync(2).
    pub fn sync_all(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        match self.access {
            Access::Descriptors => self.target.sync_all(),
            Access::Engine => (0..self.files.len() as u32).try_for_each(|file| {
                let was_open = self.files[file as usize].ready;
                if !was_open {
                    self.open(file as usize, engine)?;
                }
                let synced = engine.storage().map_or(Ok(()), |storage| storage.sync(file));
                let synced = synced.map_err(|error| Error::system("cannot sync", self.name(file), error));
                let closed = if was_open { Ok(()) } else { self.close(file as usize, engine) };
                synced.and(closed)
            }),
            Access::Nothing => Ok(()),
        }
    }

    /// Closes all files. The engine must have finished everything.
    ///
    /// # Errors
    /// The first error of `fsync_on_close`; every file is closed nevertheless.
    pub fn close_all(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        let mut outcome = Ok(());
        for index in 0..self.files.len() {
            let closed = self.close(index, engine);
            outcome = outcome.and(closed);
        }
        outcome
    }
}
