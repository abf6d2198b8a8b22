//! The passes that make a job of a draft, in their order: each relies on what the passes before it have settled.

use super::{Draft, Imposed, peers};
use crate::error::Error;
use crate::job::Job;
use crate::lint;

impl Draft {
    /// The job, if everything fits together, and the warnings about it.
    pub(super) fn finish(mut self, imposed: &Imposed) -> Result<(Job, Vec<String>), Error> {
        self.habits(imposed);
        self.engine()?;
        self.blocks()?;
        self.extent()?;
        self.atomic()?;
        self.names();
        self.without_data()?;
        peers::check(&mut self)?;
        self.zones()?;
        self.queue();
        self.pattern();
        self.precondition()?;
        self.rate()?;
        self.time()?;
        self.buffers();
        self.working_set()?;
        self.verify(imposed)?;
        self.check_zoned()?;
        self.reporting();
        self.permissions(imposed)?;
        self.process_priority();
        self.request_priorities()?;
        lint::job(&mut self);
        Ok((self.job, self.warnings))
    }

    fn habits(&mut self, imposed: &Imposed) {
        self.job.errors.as_fio = imposed.lenient;
        self.job.files.makes_directories = imposed.lenient;
    }

    /// `--readonly`, and the refusals that the command line overrides.
    fn permissions(&mut self, imposed: &Imposed) -> Result<(), Error> {
        let changes_names = matches!(self.job.engine.as_str(), "filecreate" | "filedelete" | "dircreate" | "dirdelete");
        let reserves = self.job.engine == "falloc";
        let writes = self.job.rw.directions.write || self.job.rw.directions.trim || changes_names || reserves;
        for (name, forbidden, verb) in
            [("rw", writes, "writes"), ("trim_percentage", self.verify.trims.percent > 0, "trims")]
        {
            if imposed.read_only && forbidden {
                let what = format!("job {} {verb}, and --readonly forbids that", self.job.name);
                return self.fail(name, what, "leave one of them out");
            }
        }
        self.job.files.read_only = imposed.read_only;
        self.job.allow.mounted_write |= imposed.allow.mounted_write;
        self.job.allow.signature_write |= imposed.allow.signature_write;
        Ok(())
    }

    fn process_priority(&mut self) {
        if (self.priority, self.priority_hint) != ((None, None), None) {
            // ioprio_set(2) knows no level without a class; fio takes best effort then.
            let class = self.priority.0.filter(|class| *class != 0).unwrap_or(2);
            self.job.process.io_priority = Some((class, self.priority.1.unwrap_or(0)));
            self.job.process.io_priority_hint = self.priority_hint.unwrap_or(0);
        }
    }
}
