//! The response times of a thread's operations: a file of all of them, and their course over time.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use measure::OverTime;

use super::operation::Operation;
use super::plan::Phase;
use crate::Error;

/// The response times of one phase of one thread. They stay in memory until the phase is over: 24 bytes an operation.
pub(super) struct Times {
    pub start_ns: u64,
    pub samples: Vec<(Operation, u64, u64)>,
    pub over_time: OverTime,
}

impl Times {
    /// Records an operation that began at `began_ns` and spent `took_ns` in calls.
    pub fn record(&mut self, operation: Operation, began_ns: u64, took_ns: u64) {
        let at_ns = began_ns.saturating_sub(self.start_ns);
        self.samples.push((operation, at_ns, took_ns));
        self.over_time.record(at_ns, took_ns);
    }

    /// Writes the phase's lines `phase,operation,start_s,response_s` to `thrdTTT.csv` in the directory, after those of
    /// earlier phases.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, directory: &Path, thread: u32, index: usize, phase: &Phase) -> Result<(), Error> {
        let path = directory.join(format!("thrd{thread:03}.csv"));
        let written = (|| {
            let mut options = File::options();
            let file = match index {
                0 => options.write(true).create(true).truncate(true).open(&path),
                _ => options.append(true).create(true).open(&path),
            };
            let mut out = BufWriter::new(file?);
            if index == 0 {
                writeln!(out, "phase,operation,start_s,response_s")?;
            }
            for (operation, at_ns, took_ns) in &self.samples {
                let (at_s, took_s) = (*at_ns as f64 / 1e9, *took_ns as f64 / 1e9);
                writeln!(out, "{},{},{at_s:.9},{took_s:.9}", phase.name, operation.row().name)?;
            }
            out.flush()
        })();
        written.map_err(|error| Error::system("cannot write response times to", path.display().to_string(), error))
    }
}
