//! The engine of a job, and the options that only some engines take.

use measure::Direction;

use super::Draft;
use crate::engines::{self, EngineSpec};
use crate::error::Error;
use crate::options;
use crate::source::Setting;

impl Draft {
    /// The row of the job's engine, if Plimsoll has it.
    pub(super) fn known_engine(&self) -> Result<&'static EngineSpec, Error> {
        let name = self.job.engine.clone();
        if let Some(engine) = engines::find(&name) {
            return Ok(engine);
        }
        let base = name.split(':').next().unwrap_or_default();
        let all = || format!("engines: {}", engines::names());
        match options::did_you_mean(&name, engines::ENGINES.iter().flat_map(EngineSpec::names)) {
            _ if engines::is_missing(base) => self.fail("ioengine", format!("unsupported engine {name}"), &all()),
            Some(meant) => self.fail("ioengine", format!("unknown engine {name}"), &format!("did you mean {meant}?")),
            None => self.fail("ioengine", format!("unknown engine {name}"), &all()),
        }
    }

    pub(super) fn engine(&mut self) -> Result<(), Error> {
        let engine = self.known_engine()?;
        let name = engine.name;
        let is_foreign = |option: &str| !engine.options.contains(&option) && !engines::with_option(option).is_empty();
        let foreign: Vec<(Setting, bool)> =
            self.set.values().filter(|(setting, _)| is_foreign(setting.option.name)).cloned().collect();
        for (setting, own) in foreign {
            let engines = setting.option.engines().join(", ");
            if own {
                return Err(Error::new(
                    &setting.place,
                    format!("{} is not an option of the engine {name}", setting.written()),
                )
                .hint(format!("it belongs to {engines}")));
            }
            let job = self.job.name.clone();
            self.warn(
                &setting.place,
                format!(
                    "{} has no effect on job {job}: it belongs to {engines}, and the job's engine is {name}",
                    setting.written()
                ),
            );
        }
        Ok(())
    }

    pub(super) fn atomic(&self) -> Result<(), Error> {
        if self.job.ring.option("atomic") == Some("1") && !self.job.files.direct {
            return self.fail("atomic", "atomic=1 is for direct writes", "add direct=1");
        }
        Ok(())
    }

    /// Engines whose ops are calls on names: one op for each file, whatever sizes the job gives.
    pub(super) fn names(&mut self) {
        if engines::find(&self.job.engine).is_some_and(|engine| engine.on_names) {
            let directions = self.job.rw.directions;
            let used = Direction::ALL.into_iter().filter(|&direction| directions[direction]);
            let block = used.map(|direction| self.job.blocks.range[direction].1).max().unwrap_or(1);
            let used = Direction::ALL.map(|direction| (direction, block));
            for (direction, block) in used {
                self.job.blocks.range[direction] = (block, block);
                self.job.blocks.split[direction].clear();
            }
            let extent = &mut self.job.extent;
            (extent.size, extent.file_size, extent.io_size) = (None, Some((block, block)), None);
        }
    }
}
