//! The sizes of files, and the bytes that a job transfers.

use measure::Direction;

use super::Draft;
use crate::error::Error;
use crate::job::Amount;

impl Draft {
    pub(super) fn extent(&mut self) -> Result<(), Error> {
        let used = self.job.rw.directions;
        let smallest = Direction::ALL
            .into_iter()
            .filter(|direction| used[*direction])
            .map(|direction| self.job.blocks.range[direction].0)
            .min();
        for (name, amount) in [("size", self.job.extent.size), ("io_size", self.job.extent.io_size)] {
            if let (Some(Amount::Bytes(bytes)), Some(block)) = (amount, smallest)
                && bytes < block
            {
                let hint =
                    if name == "size" { "a size without a unit is in bytes" } else { "nothing would be transferred" };
                return self.fail(name, format!("{} is less than the block size, {block}", self.written(name)), hint);
            }
        }
        if let Some((smallest, _)) = self.job.extent.file_size
            && smallest == 0
        {
            return self.fail(
                "filesize",
                format!("{}: a file has at least one byte", self.written("filesize")),
                "write as filesize=1m",
            );
        }
        if self.job.files.names.is_empty() && self.is_set("filename") {
            return self.fail("filename", "filename has no name in it", "write as filename=/path/to/file");
        }
        Ok(())
    }
}
