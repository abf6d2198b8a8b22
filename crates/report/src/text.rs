//! Results for a terminal.

use measure::schema::{ComparisonResult, RunResult, SweepResult};

/// How text is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether ANSI colours are used.
    pub colour: bool,
    /// Columns of the terminal.
    pub width: usize,
}

impl Default for Style {
    fn default() -> Style {
        Style { colour: false, width: 100 }
    }
}

/// A run's summary.
pub fn run(_run: &RunResult, _style: Style) -> String {
    String::new()
}

/// A sweep: table, chart, plateau, load line, overload, ceiling, verdicts, advice.
pub fn sweep(_sweep: &SweepResult, _style: Style) -> String {
    String::new()
}

/// A comparison: effects with their intervals and a plain sentence.
pub fn comparison(_comparison: &ComparisonResult, _style: Style) -> String {
    String::new()
}
