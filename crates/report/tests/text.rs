//! The output on a terminal, as snapshots.

mod sample;

use measure::schema::Burst;
use report::text::{self, Style};

#[test]
fn a_run() {
    insta::assert_snapshot!(text::run(&sample::run(), Style::default()));
}

/// The time in which the engine looked for completions is part of the CPU time, and stands beside it.
#[test]
fn the_time_looked_is_told() {
    let mut run = sample::run();
    assert!(!text::run(&run, Style::default()).contains("looking for completions"));
    let job = &mut run.jobs[0];
    job.cpu.looked_ns = job.runtime_ns * u64::from(job.clones.max(1)) / 4;
    let told = text::run(&run, Style::default());
    assert!(told.contains("(25 % looking for completions, poll=)"), "{told}");
}

#[test]
fn a_sweep() {
    insta::assert_snapshot!(text::sweep(&sample::sweep(), Style::default()));
}

#[test]
fn a_sweep_on_a_narrow_terminal_keeps_to_it() {
    let mut sweep = sample::sweep();
    sweep.curves.truncate(1);
    let text = text::sweep(&sweep, Style { width: 80, ..Style::default() });
    fits(&text);
}

#[test]
fn the_burst_of_a_limit_is_told() {
    let mut sweep = sample::sweep();
    sweep.curves.truncate(1);
    let told = |sweep: &_| text::sweep(sweep, Style { width: 80, ..Style::default() });
    assert!(!told(&sweep).contains("burst"));
    let line = sweep.curves[0].line.as_mut().unwrap();
    (line.burst, line.overload) = (Some(Burst { ops: 20.0, hides_overload: true }), None);
    let text = told(&sweep);
    assert!(text.contains("burst      visits begin with up to 20 ops beyond"), "{text}");
    assert!(text.contains("overload   cannot be told"), "{text}");
    fits(&text);
}

/// No line is longer than 80 columns.
fn fits(text: &str) {
    let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
    assert!(longest.chars().count() <= 80, "{longest}");
}

#[test]
fn reads_and_writes_stand_apart() {
    let mut sweep = sample::sweep();
    sweep.curves.truncate(1);
    for point in &mut sweep.curves[0].points {
        let reads = point.job.directions.read.clone();
        let write = &mut point.job.directions.write;
        *write = reads;
        write.ops /= 4;
        point.job.facts.block_bytes.write = (8192, 8192);
    }
    let text = text::sweep(&sweep, Style { width: 80, ..Style::default() });
    let header = text.lines().find(|line| line.contains("iodepth")).unwrap();
    let words: Vec<&str> = header.split_whitespace().collect();
    assert_eq!(words, ["iodepth", "IOPS", "+-", "reads", "p99", "writes", "p99"]);
    let heading = text.lines().next().unwrap();
    assert!(heading.contains("read 4 KiB, write 8 KiB, 80 % reads"), "{heading}");
    fits(&text);
}

#[test]
fn several_engines_have_a_summary_and_a_legend() {
    let text = text::sweep(&sample::sweep(), Style { width: 80, ..Style::default() });
    let labels: Vec<String> = sample::sweep().curves.iter().map(|curve| curve.label.clone()).collect();
    assert!(labels.len() > 1);
    let row = |label: &str| text.lines().find(|line| line.starts_with(label) && line.contains(" to ")).is_some();
    assert!(labels.iter().all(|label| row(label)), "{text}");
    let legend = text.lines().find(|line| line.starts_with("a: ")).unwrap();
    assert!(labels.iter().all(|label| legend.contains(label.as_str())), "{legend}");
    fits(&text);
}

#[test]
fn charts_are_ascii_where_the_terminal_wants_it() {
    let ascii = Style { ascii: true, ..Style::default() };
    let mut sweep = sample::sweep();
    assert!(text::sweep(&sweep, ascii).is_ascii());
    sweep.curves.truncate(1);
    let text = text::sweep(&sweep, ascii);
    assert!(text.is_ascii() && text.contains('*') && text.contains("+---"), "{text}");
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
    let mut sweep = sample::sweep();
    sweep.curves.truncate(1); // without colours, several curves are told apart by letters
    assert_eq!(lines(strip(text::sweep(&sweep, coloured))), lines(text::sweep(&sweep, Style::default())));
    assert_eq!(lines(strip(text::run(&sample::run(), coloured))), lines(text::run(&sample::run(), Style::default())));
}

#[test]
fn empty_results_are_no_reason_to_panic() {
    text::run(&Default::default(), Style::default());
    text::sweep(&Default::default(), Style::default());
    text::comparison(&Default::default(), Style::default());
}

#[test]
fn a_map_that_is_too_wide_is_turned_so_that_its_curves_keep_their_names() {
    let mut sweep = sample::sweep();
    sweep.across = "bs".into();
    let labels = ["bs 16 KiB", "bs 64 KiB"];
    for (curve, (label, across)) in sweep.curves.iter_mut().zip(labels.into_iter().zip([16_384.0, 65_536.0])) {
        (curve.label, curve.across) = (label.into(), Some(across));
    }
    let text = text::sweep(&sweep, Style { width: 80, ..Style::default() });
    let map: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("iodepth    bs 16 KiB")).collect();
    assert!(map[0].ends_with("bs 64 KiB") && map[1].starts_with("1 ") && map[14].starts_with("1024 "), "{text}");
    assert!(map[..15].iter().all(|line| line.chars().count() <= 80) && map[15].starts_with("bytes per second"));
    // The mark stands where it stands in the wide table.
    let marked = |rows: &[&str]| rows.iter().filter(|row| row.contains(" |")).count();
    assert_eq!(marked(&map[1..15]), 2, "{text}");
    let wide = text::sweep(&sweep, Style { width: 400, ..Style::default() });
    assert!(wide.contains("\nbs 16 KiB  ") && !wide.contains("\niodepth    bs 16 KiB"), "{wide}");
}
