//! Results for a terminal.

mod comparison;
mod files;
mod hosts;
mod plot;
mod run;
mod sweep;
mod table;

pub use comparison::comparison;
pub use files::files;
pub use run::run;
pub use sweep::{sweep, sweep_findings, sweep_rows};
pub use table::Table;

pub(crate) use comparison::{changed, disturbed_sides, named, value, word};
pub(crate) use files::{OVER_ITERATIONS, described as described_files, over_iterations};
pub(crate) use hosts::{Sheet as HostSheet, sheets as host_sheets, skew as host_skew};
pub(crate) use run::{described, grouped, in_flight, names};
pub(crate) use sweep::{cpus, has_different_blocks, place, spread, workload};

use measure::schema::{Machine, Storage};
use measure::verdict::{Severity, Verdict};

/// The layout of text: colours, characters and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// True if ANSI colours are used.
    pub colour: bool,
    /// True if charts are drawn with ASCII characters only.
    pub ascii: bool,
    /// Columns of the terminal, or of the page.
    pub width: usize,
    /// True if long names are cut so that lines fit into `width`: a terminal has no more room, a pipe and a file have.
    pub cuts_names: bool,
}

impl Default for Style {
    fn default() -> Style {
        Style { colour: false, ascii: false, width: 100, cuts_names: false }
    }
}

/// The role of a piece of text, which decides its colour.
#[derive(Clone, Copy)]
enum Tone {
    Bold,
    Soft,
    Good,
    Warning,
    Bad,
    /// The colour of a curve.
    Curve(usize),
}

impl Style {
    fn paint(self, tone: Tone, text: &str) -> String {
        if !self.colour {
            return text.to_string();
        }
        const CURVES: [u8; 6] = [34, 33, 32, 35, 36, 31];
        let code = match tone {
            Tone::Bold => 1,
            Tone::Soft => 2,
            Tone::Good => 32,
            Tone::Warning => 33,
            Tone::Bad => 31,
            Tone::Curve(index) => CURVES[index % CURVES.len()],
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    fn of_severity(self, severity: Severity, text: &str) -> String {
        let tone = match severity {
            Severity::Note => Tone::Soft,
            Severity::Warning => Tone::Warning,
            Severity::Invalid => Tone::Bad,
        };
        self.paint(tone, text)
    }
}

/// Breaks text at spaces so that no line is longer than `width`, each but the first indented.
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut out = String::new();
    let mut column = indent;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > width.max(indent + 20) {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        }
        if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

/// Verdicts, three sentences each.
fn verdicts<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>, style: Style, indent: usize) -> String {
    let mut out = String::new();
    let pad = " ".repeat(indent);
    for verdict in verdicts {
        let head = format!("{} {}:", verdict.severity.name(), verdict.code);
        let inner = indent + 4;
        let first = wrap(&format!("{head} {}", verdict.what), style.width, inner);
        // The head is coloured after wrapping, so that escapes do not count as columns.
        let first = first.replacen(&head, &style.of_severity(verdict.severity, &head), 1);
        out.push_str(&format!("{pad}{first}\n"));
        let body = wrap(&format!("{} {}", verdict.means, verdict.advice), style.width, inner);
        out.push_str(&format!("{}{}\n", " ".repeat(inner), style.paint(Tone::Soft, &body)));
    }
    out
}

/// The machine and the storage, a line each; empty if nothing is known of them.
fn measured_on(on: &str, storage: &Storage, style: Style) -> String {
    let lines = [("on", on), ("storage", &storage.described())];
    let known = lines.into_iter().filter(|(_, what)| !what.is_empty());
    known.map(|(name, what)| style.paint(Tone::Soft, &wrap(&format!("{name} {what}"), style.width, 3)) + "\n").collect()
}

/// The machine in one line; empty if nothing is known of it.
fn machine(machine: &Machine) -> String {
    let parts = [
        machine.hostname.clone(),
        machine.kernel.clone(),
        if machine.cpus > 0 { format!("{} x {}", machine.cpus, machine.cpu) } else { String::new() },
        if machine.memory_bytes > 0 { measure::figures::bytes(machine.memory_bytes as f64) } else { String::new() },
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}
