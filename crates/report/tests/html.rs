//! The HTML page: complete, self-contained, and safe whatever the names say.

mod sample;

use measure::schema::{Disturbances, Document};
use report::html::{NamedDocument, render};

fn named(name: &str, document: Document) -> NamedDocument {
    NamedDocument { name: name.into(), document }
}

fn pages() -> Vec<(&'static str, String)> {
    let sweep = || named("nvme.json", Document::Sweep(sample::sweep()));
    let run = || named("nightly.json", Document::Run(sample::run()));
    let comparison = || named("ab.json", Document::Comparison(sample::comparison()));
    let mut other = sample::sweep();
    other.curves.truncate(1);
    vec![
        ("sweep", render(&[sweep()])),
        ("run", render(&[run()])),
        ("comparison", render(&[comparison()])),
        (
            "many",
            render(&[
                sweep(),
                named("other.json", Document::Sweep(other)),
                run(),
                named("weekly.json", Document::Run(sample::run())),
            ]),
        ),
        (
            "empty",
            render(&[
                named("x", Document::Run(Default::default())),
                named("y", Document::Sweep(Default::default())),
                named("z", Document::Comparison(Default::default())),
            ]),
        ),
        ("nothing", render(&[])),
    ]
}

/// Set PLIMSOLL_PAGES to a directory to look at the pages that the tests see.
#[test]
fn pages_are_self_contained_and_well_formed() {
    for (name, page) in pages() {
        if let Some(directory) = std::env::var_os("PLIMSOLL_PAGES") {
            std::fs::write(std::path::Path::new(&directory).join(format!("{name}.html")), &page).unwrap();
        }
        for outside in ["<script", "<link", "<img", "@import", "src=", "href=", "url("] {
            assert!(!page.contains(outside), "{name} has {outside}");
        }
        // The name of the SVG namespace is the only address, and nothing loads it.
        assert_eq!(
            page.matches("http").count(),
            page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count(),
            "{name}"
        );
        assert!(!page.contains("NaN") && !page.contains("inf,") && !page.contains("\"inf"), "{name}");
        balanced(name, &page);
    }
}

/// Every element that is opened is closed, in order.
fn balanced(name: &str, page: &str) {
    const VOID: [&str; 2] = ["meta", "!DOCTYPE"];
    let mut open: Vec<&str> = Vec::new();
    for part in page.split('<').skip(1) {
        let tag = part.split(['>', ' ']).next().unwrap();
        let end = part.find('>').unwrap_or_else(|| panic!("{name}: <{tag} is not closed"));
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "{name}: </{closed}>");
        } else if !part[..end].ends_with('/') && !VOID.contains(&tag) {
            open.push(tag);
        }
    }
    assert!(open.is_empty(), "{name}: {open:?}");
}

#[test]
fn verdicts_come_before_figures_and_figures_are_there() {
    let page = render(&[named("nightly.json", Document::Run(sample::run()))]);
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is missing"));
    assert!(at("writes-not-synced") < at("<h2>All jobs"));
    at("nvme0n1");
    at("AMD EPYC 7543");
    at("plimsoll run nightly.fio");
    let page = render(&[named("nvme.json", Document::Sweep(sample::sweep()))]);
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is missing"));
    at("Nothing speaks against them");
    at("Load line");
    at("IOPS over time");
    at("load line</th>");
}

#[test]
fn a_run_has_a_headline_totals_and_jobs_that_can_be_told_apart() {
    let mut run = sample::run();
    let mut twin = run.jobs[0].clone();
    (twin.facts.engine, twin.facts.iodepth, twin.facts.synchronous, twin.clones) = ("psync".into(), 1, true, 128);
    (twin.depth.in_flight, twin.depth.in_flight_sum) = (vec![1000], 1000);
    twin.depth.in_flight_ns = u128::from(twin.runtime_ns) * u128::from(twin.clones);
    run.jobs.insert(1, twin);
    let page = render(&[named("nightly.json", Document::Run(run.clone()))]);
    let text = report::text::run(&run, report::text::Style::default());
    for part in ["randread #1", "randread #2"] {
        assert!(page.contains(part) && text.contains(part), "{part}");
    }
    assert!(page.contains(">group 0: read 244k IOPS") && page.contains("; log: write 14.2k IOPS"), "a headline");
    assert!(page.contains("group 0, together") && page.contains(">160</td>"), "32 and 128 in flight");
    assert!(
        page.contains("in flight on average, of 128 asked") && text.contains("128 on average of 128 asked"),
        "{text}"
    );
    assert!(page.contains("class=\"line s2 dashed\""), "the total lets the completion show through");
}

/// fio's summary has neither facts on the page cache nor a course over time, and a few percentiles only.
#[test]
fn a_result_of_fio_is_not_called_good_where_nothing_was_checked() {
    let read = |bytes: &[u8]| report::read_document(bytes).unwrap();
    let page = render(&[named("fio.json", read(include_bytes!("fio-3.33/json.json")))]);
    assert!(!page.contains("Nothing speaks against them"), "green, though hardly anything was checked");
    assert!(page.contains("Not checkable (") && page.contains("in the page cache</li>"), "each with its reason");
    let chips = |class: &str| page.matches(&format!("<li class=\"{class}\">")).count();
    assert!(chips("unchecked") > chips("passed"), "{} {}", chips("unchecked"), chips("passed"));
    assert!(
        page.contains("Latency percentiles") && !page.contains("Latency distribution"),
        "a density is an invention"
    );
    let plus = render(&[named("fio.json", read(include_bytes!("fio-3.33/json-plus.json")))]);
    assert!(plus.contains("Latency distribution"), "json+ has the bins");
}

#[test]
fn green_stands_only_where_every_statement_was_checked() {
    let mut run = sample::run();
    run.jobs.truncate(1);
    run.verdicts.clear();
    let page = |run: &measure::schema::RunResult| render(&[named("r.json", Document::Run(run.clone()))]);
    let good = page(&run);
    assert!(
        good.contains("Nothing speaks against them.") && !good.contains("Not checkable"),
        "{:?}",
        run.jobs[0].checks
    );
    (run.jobs[0].facts.cached_fraction, run.jobs[0].facts.examined) = (None, false);
    run.jobs[0].judge();
    let grey = page(&run);
    assert!(!grey.contains("Nothing speaks against them.") && !grey.contains("class=\"verdict none\""));
    assert!(grey.contains("not everything could be checked") && grey.contains("<dt>Not checkable ("));
    let mut cut = sample::run();
    cut.jobs.truncate(1);
    cut.verdicts.clear();
    cut.ended = measure::schema::Ended::Interrupted;
    assert!(!page(&cut).contains("class=\"verdict none\""), "a run that was interrupted");
}

#[test]
fn several_engines_share_a_table_and_charts_and_only_the_chosen_one_has_bands() {
    let sweep = sample::sweep();
    assert!(sweep.advice.starts_with("io_uring"));
    let page = render(&[named("nvme.json", Document::Sweep(sweep))]);
    assert_eq!(page.matches("<table aria-label=\"All engines\">").count(), 1);
    assert_eq!(page.matches("class=\"tile main\"").count(), 1, "the tiles are those of one engine");
    assert!(page.contains("<polygon class=\"band s0\"") && !page.contains("<polygon class=\"band s1\""));
    assert!(page.contains("<polyline class=\"line s1\"") && page.contains("All points of libaio</summary>"));
}

#[test]
fn table_tile_title_and_text_give_one_load_line_and_one_overload() {
    let mut sweep = sample::sweep();
    sweep.curves.truncate(1);
    let measure::schema::Answer::At(line) = sweep.curves[0].line.as_ref().unwrap().answer() else {
        panic!("the sample has a load line");
    };
    let overload = sweep.curves[0].line.as_ref().unwrap().overload.expect("the sample has overload");
    let figure = measure::figures::plain;
    let (at, over) = (figure(line.mean), figure(overload.mean));
    let interval = |estimate: &measure::schema::Estimate| {
        format!("95 % interval {} to {}", figure(estimate.low), figure(estimate.high))
    };
    let text = report::text::sweep(&sweep, report::text::Style::default());
    let page = render(&[named("nvme.json", Document::Sweep(sweep))]).replace('\u{a0}', " ");
    for part in [
        format!("<tr class=\"at\"><th scope=\"row\" class=\"\">{at}\u{2002}\u{25c0} load line</th>"),
        format!("<tr class=\"over\"><th scope=\"row\" class=\"\">{over}\u{2002}\u{25c0} overload</th>"),
        format!("<div class=\"value\">iodepth {at}</div>"),
        format!(">load line {at}</text>"),
        format!(">overload {over}</text>"),
        interval(&line),
        interval(&overload),
    ] {
        assert!(page.contains(&part), "{part}");
    }
    assert!(text.contains(&format!("iodepth {at}, {}", interval(&line))), "{text}");
    assert!(text.contains(&format!("iodepth {over}, {}", interval(&overload))), "{text}");
}

#[test]
fn a_comparison_shows_the_verdicts_of_both_sides() {
    let mut comparison = sample::comparison();
    let of_side = |side: &str| {
        let mut verdict = sample::run().jobs[1].verdicts[0].clone();
        verdict.what = format!("{side}: {}", verdict.what);
        verdict
    };
    comparison.verdicts = vec![of_side("A"), of_side("B")];
    let page = render(&[named("ab.json", Document::Comparison(comparison))]);
    assert!(page.contains("<span class=\"of\">(A, B)</span>"));
    assert_eq!(
        page.matches("class=\"link\"").count(),
        10,
        "the runs of each of five pairs are joined, on two drawings"
    );
}

#[test]
fn files_have_one_chart_of_all_phases_and_no_columns_of_zeros() {
    let mut files = sample::files();
    let mut names_only = files.phases[0].clone();
    names_only.name = "stat".into();
    (names_only.total.bytes, names_only.total.records, names_only.total.failed) = (0, 0, 0);
    files.phases.push(names_only.clone());
    let page = |files: &measure::schema::FilesResult| render(&[named("f.json", Document::Files(files.clone()))]);
    let both = page(&files);
    assert!(
        both.contains("<title>Work a second in each phase</title>") && both.contains("<h1 class=\"advice\">create 1")
    );
    let row = both.split("<th scope=\"row\" class=\"\">stat</th>").nth(1).unwrap().split("</tr>").next().unwrap();
    assert_eq!(row.matches(">-</td>").count(), 2, "{row}");
    assert!(!both.contains("0 B/s"));
    files.phases = vec![names_only];
    let page = page(&files);
    assert!(!page.contains(">bandwidth</th>") && !page.contains(">IOPS</th>") && !page.contains(">failed</th>"));
}

#[test]
fn hosts_explain_their_skew_in_words_and_a_picture() {
    let page = render(&[named("cluster.json", Document::Run(sample::hosts()))]);
    for part in ["<h3>Start skew</h3>", "All ranks agree on one moment", "<title>Start of each host", "of the run."] {
        assert!(page.contains(part), "{part}");
    }
}

/// Programs that read a page aloud need names, descriptions and headings.
#[test]
fn charts_and_tables_are_named_and_described() {
    for (name, page) in pages() {
        let charts = page.matches("<svg class=\"chart").count();
        assert_eq!(page.matches("<desc>").count(), charts, "{name}");
        assert_eq!(
            page.matches("<th").count(),
            page.matches("<th scope=").count() + page.matches("<thead").count(),
            "{name}"
        );
        assert_eq!(page.matches("<table").count(), page.matches("<table aria-label=").count(), "{name}");
    }
}

#[test]
fn names_cannot_inject_markup() {
    let mut sweep = sample::sweep();
    let evil = "</style></svg><script>alert(1)</script>";
    sweep.target = evil.into();
    sweep.advice = evil.into();
    sweep.axis = evil.into();
    sweep.curves[0].label = evil.into();
    sweep.provenance.command = vec![evil.into()];
    sweep.provenance.machine.hostname = evil.into();
    let mut run = sample::run();
    run.jobs[0].name = evil.into();
    run.jobs[0].facts.rw = evil.into();
    run.jobs[1].verdicts[0].code = evil.into();
    run.jobs[1].verdicts[0].what = evil.into();
    run.disks[0].name = evil.into();
    let mut comparison = sample::comparison();
    comparison.sides = (evil.into(), evil.into());
    comparison.effects[0].figure = evil.into();
    let page = render(&[
        named(evil, Document::Sweep(sweep)),
        named(evil, Document::Run(run)),
        named(evil, Document::Comparison(comparison)),
    ]);
    assert!(!page.contains("<script"));
    balanced("evil", &page);
}

#[test]
fn runs_on_files_are_shown_and_set_side_by_side() {
    let files = |name| named(name, Document::Files(sample::files()));
    let one = render(&[files("fuse.json")]);
    for part in ["create, whole", "to the stonewall", "threads-uneven", "errors-tolerated", "cannot write &lt;f&gt;"] {
        assert!(one.contains(part), "{part}");
    }
    assert!(!one.contains("<f>") && !one.contains("side by side"));
    let two = render(&[files("fuse.json"), files("gfapi.json")]);
    assert!(two.contains("Files side by side") && two.contains("gfapi.json (posix)"));
    let text = report::text::files(&sample::files(), report::text::Style::default());
    for part in ["2 threads x 1,501 files of 4 KiB", "1.5k files/s", "to the stonewall", "failed 1 x write"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn the_heading_of_a_sweep_leaves_out_the_option_of_its_axis() {
    for (axis, what) in [("iodepth", "randread 4 KiB"), ("bs", "randread")] {
        let mut sweep = sample::sweep();
        sweep.curves.truncate(1);
        sweep.axis = axis.into();
        for point in &mut sweep.curves[0].points {
            // An initiator in the program bypasses no cache, and says nothing of one.
            point.job.facts = measure::schema::Facts {
                rw: "randread".into(),
                engine: "nvme_tcp".into(),
                elsewhere: true,
                iodepth: point.x as u32,
                block_bytes: measure::PerDirection::from_fn(|_| (4096, 4096)),
                ..Default::default()
            };
        }
        let page = render(&[named("nvme.json", Document::Sweep(sweep))]);
        assert!(
            page.contains(&format!("<small>{what}, nvme_tcp</small>")),
            "{axis}: {}",
            page.split("<small>").nth(1).unwrap()
        );
    }
}

#[test]
fn options_break_at_no_hyphen() {
    let mut sweep = sample::sweep();
    sweep.provenance.command = vec!["plimsoll".into(), "sweep".into(), "--iodepth=1,2".into()];
    let page = render(&[named("nvme.json", Document::Sweep(sweep))]);
    assert!(page.contains("<code>plimsoll sweep <span class=\"word\">--iodepth=1,2</span></code>"));
}

/// The counts of each kind of result, on the page and in the text; a result without events says nothing of them.
#[test]
fn events_that_distort_figures_are_counted_on_every_page() {
    let style = report::text::Style::default;
    let events = Disturbances { connections_lost: 3, path_waits: 2, ..Disturbances::default() };
    let counts = "3 connections lost, 2 waits for a path";
    let (mut run, mut comparison, mut files) = (sample::run(), sample::comparison(), sample::files());
    for (text, document) in [
        (report::text::run(&run, style()), Document::Run(run.clone())),
        (report::text::comparison(&comparison, style()), Document::Comparison(comparison.clone())),
        (report::text::files(&files, style()), Document::Files(files.clone())),
    ] {
        assert!(!text.contains("disturbed") && !render(&[named("a", document)]).contains("Disturbed"), "{text}");
    }
    run.jobs[0].disturbances = events;
    files.phases[0].disturbances = events;
    // Two runs of side B add up.
    comparison.runs[0].1.jobs[0].disturbances = Disturbances { connections_lost: 1, ..events };
    comparison.runs[1].1.jobs[0].disturbances = Disturbances { connections_lost: 2, ..Disturbances::default() };
    for (text, page, side) in [
        (report::text::run(&run, style()), Document::Run(run), ""),
        (report::text::comparison(&comparison, style()), Document::Comparison(comparison), " B:"),
        (report::text::files(&files, style()), Document::Files(files), ""),
    ] {
        assert!(text.contains(&format!("disturbed{side} {counts}")), "{text}");
        let page = render(&[named("a", page)]);
        let said = if side.is_empty() { format!("Disturbed: {counts}") } else { format!("Disturbed B: {counts}") };
        assert!(page.contains(&said), "{page}");
    }
}
