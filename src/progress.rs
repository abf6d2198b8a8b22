//! One line on a terminal's standard error while load runs: progress, and the present throughput.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use load::{Phase, Progress};
use measure::Direction;
use measure::figures;

/// Parts of the bar.
const PARTS: u64 = 1000;
/// Rates are those of at least this long ago: shorter, they flicker.
const SPAN_NS: u64 = 500_000_000;

/// When the line of progress is shown (`--eta`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Show {
    /// The line is shown on a terminal.
    #[default]
    Auto,
    /// The line is shown on a terminal; elsewhere a line is printed at intervals.
    Always,
    /// The line is never shown.
    Never,
}

/// The time between two lines of `Always` where there is no terminal.
const LINE_NS: u64 = 1_000_000_000;

/// The line of progress, and the text above it. Dropping this value erases both.
pub struct Bar {
    bar: ProgressBar,
    meter: Meter,
    every_ns: u64,
    line_every_ns: Option<u64>,
    shown_ns: Option<u64>,
    line_ns: u64,
}

impl Bar {
    /// A line of progress that shows nothing yet.
    pub fn new(show: Show) -> Bar {
        let terminal = std::io::stderr().is_terminal();
        let target = match show {
            Show::Auto | Show::Always if terminal => ProgressDrawTarget::stderr_with_hz(10),
            _ => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(PARTS), target);
        bar.set_style(bar_style(LINE));
        let line_every_ns = (show == Show::Always && !terminal).then_some(LINE_NS);
        Bar { bar, meter: Meter::default(), every_ns: 0, line_every_ns, shown_ns: None, line_ns: 0 }
    }

    /// Sets the time between two changes of the line in nanoseconds (`--eta-interval`).
    pub fn every(&mut self, interval_ns: Option<u64>) {
        self.every_ns = interval_ns.unwrap_or(self.every_ns);
    }

    /// Sets the time in nanoseconds after which progress begins a new line (`--eta-newline`).
    pub fn newline_every(&mut self, interval_ns: Option<u64>) {
        self.line_every_ns = interval_ns.or(self.line_every_ns);
    }

    /// True if the line is drawn on a terminal.
    pub fn is_drawn(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Does what prints on the terminal while the line is out of the way.
    pub fn aside(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Shows a text above the line, in place of the one before: the last of its lines for which there is room.
    pub fn above(&self, text: &str) {
        let rows = console::Term::stderr().size_checked().map_or(24, |(rows, _)| usize::from(rows));
        let lines: Vec<&str> = text.trim_end().lines().collect();
        let shown = &lines[lines.len().saturating_sub(rows.saturating_sub(2))..];
        self.bar.set_prefix(shown.join("\n"));
        let above = if shown.is_empty() { "" } else { "{prefix}\n" };
        self.bar.set_style(bar_style(&format!("{above}{LINE}")));
    }

    /// Shows a moment: what is being done, how far (0..=1, None if there is no known end), and the load.
    pub fn show(&mut self, doing: &str, done: Option<f64>, now: &Progress) {
        let text = format!("{doing}{}", self.meter.rates(now));
        if self.shown_ns.is_none_or(|shown| now.elapsed_ns < shown || now.elapsed_ns - shown >= self.every_ns) {
            self.shown_ns = Some(now.elapsed_ns);
            self.bar.set_position((done.unwrap_or(0.0).clamp(0.0, 1.0) * PARTS as f64) as u64);
            self.bar.set_message(text.clone());
        }
        if let Some(every_ns) = self.line_every_ns
            && now.elapsed_ns.saturating_sub(self.line_ns) >= every_ns
        {
            self.line_ns = now.elapsed_ns;
            let percent = done.map(|done| format!("{:.0} %  ", done * 100.0)).unwrap_or_default();
            let line = format!("{} s  {percent}{text}", now.elapsed_ns / 1_000_000_000);
            // A closed standard error does not end the run.
            self.bar.suspend(|| {
                let _ = writeln!(std::io::stderr(), "{line}");
            });
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The template of the line.
const LINE: &str = "{elapsed} [{bar:24.cyan/blue}] {percent:>3}%  {wide_msg}";

fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well-formed").progress_chars("=> ")
}

/// The name of a phase in the line of progress.
pub fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Layout => "laying out",
        Phase::Ramp => "ramping up",
        Phase::Run => "running",
        Phase::Verify => "verifying",
    }
}

/// Rates from totals.
#[derive(Default)]
struct Meter {
    /// The moment that rates are counted from, and the last one before the next such moment.
    from: Progress,
    next: Progress,
    /// The last moment at which the counters had moved, and the text for it.
    moved: Progress,
    said: String,
}

/// Counters are published in bursts: between two of them the last figure stands, for at most this long.
const STALE_NS: u64 = 2_000_000_000;

impl Meter {
    /// ` read 122k iops 477 MiB/s, lat 203 us`; empty while there is nothing to tell.
    fn rates(&mut self, now: &Progress) -> String {
        if now.elapsed_ns < self.moved.elapsed_ns || ops(now) < ops(&self.moved) || now.phase != self.moved.phase {
            (self.from, self.next, self.moved) = (*now, *now, *now); // another run, or another phase of it
            self.said.clear();
        }
        let silent_ns = now.elapsed_ns - self.moved.elapsed_ns;
        if ops(now) > ops(&self.moved) || silent_ns > STALE_NS {
            self.moved = *now;
            self.said = self.line_of(now);
        }
        self.said.clone()
    }

    fn line_of(&mut self, now: &Progress) -> String {
        if now.elapsed_ns - self.next.elapsed_ns >= SPAN_NS {
            (self.from, self.next) = (self.next, *now);
        }
        let seconds = (now.elapsed_ns - self.from.elapsed_ns) as f64 / 1e9;
        let done = ops(now) - ops(&self.from);
        if seconds <= 0.0 || done == 0 {
            return String::new();
        }
        let mut text = String::new();
        for direction in Direction::ALL {
            let ops = now.ops[direction].saturating_sub(self.from.ops[direction]) as f64 / seconds;
            let bytes = now.bytes[direction].saturating_sub(self.from.bytes[direction]) as f64 / seconds;
            if ops > 0.0 {
                let (ops, bytes) = (figures::count(ops), figures::bytes_per_second(bytes));
                text += &format!("  {} {ops} iops {bytes}", direction.name());
            }
        }
        let lat = now.lat_sum_ns.saturating_sub(self.from.lat_sum_ns) as f64 / done as f64;
        if lat > 0.0 {
            text += &format!("  lat {}", figures::nanoseconds(lat));
        }
        text
    }
}

fn ops(now: &Progress) -> u64 {
    now.ops.iter().map(|(_, &ops)| ops).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, reads: u64) -> Progress {
        let mut now = Progress { phase: Phase::Run, elapsed_ns: ms * 1_000_000, ..Progress::default() };
        now.ops.read = reads;
        now.bytes.read = reads * 4096;
        now.lat_sum_ns = reads * 200_000;
        now
    }

    #[test]
    fn rates_follow_the_recent_past() {
        let mut meter = Meter::default();
        assert_eq!(meter.rates(&at(0, 0)), "");
        for tick in 1..=10 {
            meter.rates(&at(tick * 250, tick * 250));
        }
        // From 2.5 s on it runs twice as fast: a second later nothing of the past is left in the figure.
        let last = (11..=14).map(|tick| meter.rates(&at(tick * 250, 2500 + (tick - 10) * 500))).last();
        assert_eq!(last.as_deref(), Some("  read 2k iops 7.81 MiB/s  lat 200 us"));
    }

    #[test]
    fn counters_that_move_in_bursts_do_not_make_the_figure_jump() {
        let mut meter = Meter::default();
        let said = (0..40).map(|tick: u64| meter.rates(&at(tick * 200, tick / 3 * 600))).skip(20);
        assert!(said.into_iter().all(|text| text.starts_with("  read 1k iops")));
    }

    #[test]
    fn a_stall_is_seen() {
        let mut meter = Meter::default();
        (0..10).for_each(|tick| drop(meter.rates(&at(tick * 500, tick * 500))));
        let stalled = (10..20).map(|tick| meter.rates(&at(tick * 500, 4500))).last();
        assert_eq!(stalled.as_deref(), Some(""));
    }

    #[test]
    fn a_new_run_starts_from_nothing() {
        let mut meter = Meter::default();
        meter.rates(&at(0, 0));
        meter.rates(&at(1000, 5000));
        assert_eq!(meter.rates(&at(100, 10)), "");
    }
}
