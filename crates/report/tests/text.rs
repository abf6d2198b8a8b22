//! The output on a terminal, as snapshots.

mod sample;

use report::text::{self, Style};

#[test]
fn a_run() {
    insta::assert_snapshot!(text::run(&sample::run(), Style::default()));
}

#[test]
fn a_sweep() {
    insta::assert_snapshot!(text::sweep(&sample::sweep(), Style::default()));
}

#[test]
fn a_sweep_on_a_narrow_terminal_keeps_to_it() {
    let mut sweep = sample::sweep();
    sweep.curves.truncate(1);
    let text = text::sweep(&sweep, Style { colour: false, width: 80 });
    let charts = text.lines().filter(|line| line.contains('\u{2502}') || line.contains('\u{2514}'));
    assert!(charts.map(|line| line.chars().count()).max().unwrap() <= 80);
}

#[test]
fn a_comparison() {
    insta::assert_snapshot!(text::comparison(&sample::comparison(), Style::default()));
}

#[test]
fn colour_adds_nothing_but_escapes() {
    let strip = |text: String| {
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some(start) = rest.find('\x1b') {
            out.push_str(&rest[..start]);
            rest = &rest[start + rest[start..].find('m').unwrap() + 1..];
        }
        out + rest
    };
    let coloured = Style { colour: true, ..Style::default() };
    let lines = |text: String| text.lines().map(|line| line.trim_end().to_string()).collect::<Vec<_>>();
    assert_eq!(
        lines(strip(text::sweep(&sample::sweep(), coloured))),
        lines(text::sweep(&sample::sweep(), Style::default()))
    );
    assert_eq!(lines(strip(text::run(&sample::run(), coloured))), lines(text::run(&sample::run(), Style::default())));
}

#[test]
fn empty_results_are_no_reason_to_panic() {
    text::run(&Default::default(), Style::default());
    text::sweep(&Default::default(), Style::default());
    text::comparison(&Default::default(), Style::default());
}
