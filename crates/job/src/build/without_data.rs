//! The rules of jobs whose ops move no data: the engines `cpuio` and `exec`.

use measure::PerDirection;

use super::Draft;
use crate::engines;
use crate::error::Error;
use crate::job::{Job, Verify};

/// `cpuload` and `cpuchunks`.
#[derive(Clone, Copy)]
pub(crate) struct CpuLoad {
    pub load_percent: Option<u32>,
    pub chunk_ns: u64,
}

impl Draft {
    /// Engines whose ops move no data: they have no sizes, no rates and no content.
    pub(super) fn without_data(&mut self) -> Result<(), Error> {
        if !engines::find(&self.job.engine).is_some_and(|engine| engine.without_data) {
            return Ok(());
        }
        if self.job.engine == "cpuio" {
            let Some(percent) = self.cpu.load_percent.filter(|percent| *percent > 0) else {
                return self.fail("cpuload", "the engine cpuio needs cpuload", "write for example cpuload=50");
            };
            (self.job.rate.busy_percent, self.job.ring.chunk_ns) = (Some(percent), self.cpu.chunk_ns);
        } else if !self.is_set("program") {
            return self.fail("program", "the engine exec needs program", "write for example program=/usr/bin/vmstat");
        }
        let plain = Job::default();
        self.job.rw = plain.rw;
        self.job.blocks.range = PerDirection::from_fn(|_| (1, 1));
        self.job.blocks.split = plain.blocks.split;
        (self.job.extent.size, self.job.extent.file_size) = (None, Some((1, 1)));
        self.job.files.names.clear();
        self.job.files.count = 1;
        self.verify_kind = None;
        (self.verify_given, self.verify) = (true, Verify::default());
        self.job.iolog = plain.iolog;
        Ok(())
    }
}
