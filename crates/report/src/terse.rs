//! fio's `--output-format=terse`, version 3.

use measure::schema::RunResult;

/// One line a job.
pub fn render(_run: &RunResult) -> String {
    String::new()
}
