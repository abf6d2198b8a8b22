//! The output of fsperf: people have scripts that read it.

use std::fmt::Write;

use measure::units::exact_bytes;

use super::{Experiment, Figures, Mode, Test};

/// Bytes of an MB as fsperf prints it.
const MB: f64 = (1 << 20) as f64;

/// The box above the results.
pub fn head(of: &Experiment) -> String {
    let line = "*".repeat(80);
    let size = exact_bytes(of.block_bytes).to_uppercase();
    format!("{line}\n{:<97}*\n{line}\n", format!("* Output of Results for {size} blocksize"))
}

/// A test's figures as the long form has them; the title of the test comes before its first mode.
pub fn long(figures: &Figures, first_mode: bool) -> String {
    let mut out = String::new();
    if first_mode {
        let title = match figures.test {
            Test::InitialWrite => "Results of Initial Write Test",
            Test::Overwrite => "Results of Overwrite Test",
            Test::Read => "Results of Read Test",
        };
        let _ = write!(out, "\n\n{title}\n{}\n", "=".repeat(title.len()));
    }
    let seconds = |ns: u64| ns as f64 / 1e9;
    let rate = |ns: u64| if ns == 0 { 0.0 } else { figures.bytes as f64 / MB / seconds(ns) };
    let timed = |name: &str, ns: u64| {
        let (time, rate) = (general(seconds(ns)), general(rate(ns)));
        format!("   {name:.<32}{time:>9} s   (Throughput:{rate:>12} MB/s)\n")
    };
    if figures.mode == Mode::Throughput {
        out += "\nThroughput Test:\n----------------\n\n";
        out += &timed("Trigger time:", figures.trigger_ns);
        // No separate thread submits: the thread that triggers a request hands it to the kernel.
        out += &timed("Asynchronous submit time:", 0);
        out += &timed("Synchronous submit time:", figures.trigger_ns);
        out += &timed("I/O time:", figures.io_ns);
        let _ = writeln!(out, "   {:.<32}{:>9}", "Ratio trigger time to I/O time:", general(figures.trigger_ratio()));
    } else {
        out += "\nLatency Test:\n-------------\n\n";
        out += &timed("I/O time:", figures.io_ns);
        let _ = writeln!(out, "   {:.<32}{:>9} us", "Latency:", general(figures.latency_us()));
    }
    out
}

/// A test's figures in one line: test, mode, block size, rate, and the trigger ratio or the latency.
pub fn short(of: &Experiment, figures: &Figures) -> String {
    let block = exact_bytes(of.block_bytes);
    let rate = if figures.io_ns == 0 { 0.0 } else { figures.bytes as f64 / MB / (figures.io_ns as f64 / 1e9) };
    let head = format!("{:<9} {:<10} {block:>5}  {rate:10.2} MB/s", figures.test.name(), figures.mode.name());
    match figures.mode {
        Mode::Throughput => format!("{head}  trigger ratio {}\n", general(figures.trigger_ratio())),
        Mode::Latency => format!("{head}  latency {} us\n", general(figures.latency_us())),
    }
}

impl Figures {
    /// Trigger time over I/O time: near 0 where submitting does not block, near 1 where submitting is as good as
    /// synchronous.
    pub fn trigger_ratio(&self) -> f64 {
        if self.io_ns == 0 { 0.0 } else { self.trigger_ns as f64 / self.io_ns as f64 }
    }

    /// The mean I/O time of a block in microseconds.
    pub fn latency_us(&self) -> f64 {
        if self.blocks == 0 { 0.0 } else { self.io_ns as f64 / 1e3 / self.blocks as f64 }
    }
}

/// A number as C's `%g` writes it: six significant digits, without zeros at the end, with an exponent where it is
/// below -4 or above 5.
fn general(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".into();
    }
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
    };
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).unwrap_or(0);
        return trim(&format!("{value:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(digits), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        let cases = [
            (0.842679, "0.842679"),
            (1.0184, "1.0184"),
            (263.17, "263.17"),
            (28_603_300.0, "2.86033e+07"),
            (2.83514e-6, "2.83514e-06"),
            (0.000178999, "0.000178999"),
            (212_680.0, "212680"),
            (999_999.5, "1e+06"),
            (0.0, "0"),
            (4_200.125_7, "4200.13"),
        ];
        for (value, text) in cases {
            assert_eq!(general(value), text);
        }
    }

    fn figures(mode: Mode) -> Figures {
        Figures {
            test: Test::Read,
            mode,
            bytes: 5 << 30,
            blocks: 320,
            io_ns: 40_278_500_000,
            trigger_ns: if mode == Mode::Throughput { 213_000 } else { 0 },
            warnings: Vec::new(),
        }
    }

    /// The output has, line for line, the form that has been published.
    #[test]
    fn the_long_form_has_its_columns() {
        assert_eq!(
            long(&figures(Mode::Throughput), true),
            "\n\nResults of Read Test\n====================\n\nThroughput Test:\n----------------\n\n   \
             Trigger time:................... 0.000213 s   (Throughput: 2.40376e+07 MB/s)\n   \
             Asynchronous submit time:.......        0 s   (Throughput:           0 MB/s)\n   \
             Synchronous submit time:........ 0.000213 s   (Throughput: 2.40376e+07 MB/s)\n   \
             I/O time:.......................  40.2785 s   (Throughput:     127.115 MB/s)\n   \
             Ratio trigger time to I/O time:.5.28818e-06\n"
        );
        assert_eq!(
            long(&figures(Mode::Latency), false),
            "\nLatency Test:\n-------------\n\n   \
             I/O time:.......................  40.2785 s   (Throughput:     127.115 MB/s)\n   \
             Latency:........................   125870 us\n"
        );
    }
}
