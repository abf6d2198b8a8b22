//! The report: one page that needs nothing else.

mod common;
use common::*;

#[test]
fn the_page_is_self_contained() {
    let place = directory();
    let job = ["run", "--name=reads", "--rw=randread", "--size=1m", "--output-format=json"];
    succeed(place.path(), &[&job[..], &["--save=run.json"]].concat());
    let sweep = ["sweep", "--iodepth=1,2,4", "--time=2s", "--size=8m", "--save=sweep.json", "--html=sweep.html"];
    succeed(place.path(), &sweep);
    let output = succeed(place.path(), &["report", "run.json", "sweep.json", "-o", "both.html"]);
    assert!(stdout(&output).contains("both.html"));
    for name in ["both.html", "sweep.html"] {
        let page = std::fs::read_to_string(place.path().join(name)).unwrap();
        // An XML namespace is a name, not an address that is fetched.
        let references = page.replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xhtml", "");
        for outside in ["http:", "https:", "src=", "<link", "@import", "url("] {
            assert!(!references.contains(outside), "{name} refers to something outside: {outside}");
        }
        assert!(page.contains("<svg") && page.contains("prefers-color-scheme"), "{name}");
        assert!(!page.contains("<script"), "{name}");
    }
    let both = std::fs::read_to_string(place.path().join("both.html")).unwrap();
    assert!(both.contains("run.json") && both.contains("sweep.json") && both.contains("reads"));
}

#[test]
fn results_of_fio_are_taken_too() {
    if !has_program("fio") {
        return;
    }
    let place = directory();
    let job = ["--name=theirs", "--rw=randread", "--size=1m", "--output-format=json", "--output=fio.json"];
    tool("fio", &job, place.path());
    succeed(place.path(), &["report", "fio.json"]);
    let page = std::fs::read_to_string(place.path().join("plimsoll-report.html")).unwrap();
    assert!(page.contains("theirs"));
    let text = stdout(&succeed(place.path(), &["report", "fio.json", "--format=text"]));
    assert!(text.contains("theirs"), "{text}");
}

#[test]
fn a_page_can_go_to_standard_output() {
    let place = directory();
    succeed(place.path(), &["run", "--name=a", "--rw=read", "--size=64k", "--save=run.json", "--output-format=json"]);
    let page = stdout(&succeed(place.path(), &["report", "run.json", "-o", "-"]));
    assert!(page.trim_start().to_lowercase().starts_with("<!doctype html>"));
    assert_eq!(names(place.path()), ["a.0.0", "run.json"]);
}

/// Renaming a finished file over its place would turn a pipe, or /dev/null, into a file.
#[test]
fn a_pipe_stays_a_pipe_and_a_link_a_link() {
    use std::os::unix::fs::FileTypeExt;
    let directory = directory();
    let place = |name: &str| directory.path().join(name);
    succeed(directory.path(), &["run", "--name=a", "--ioengine=null", "--size=1m", "--save=result.json"]);
    assert!(std::process::Command::new("mkfifo").arg(place("pipe")).status().unwrap().success());
    let pipe = place("pipe");
    let reader = std::thread::spawn(move || std::fs::read_to_string(pipe).unwrap());
    std::os::unix::fs::symlink("real.html", place("link")).unwrap();
    std::fs::write(place("real.html"), "").unwrap();
    succeed(directory.path(), &["report", "result.json", "--output=pipe"]);
    succeed(directory.path(), &["report", "result.json", "--output=link"]);
    assert!(reader.join().unwrap().contains("</html>"));
    assert!(std::fs::symlink_metadata(place("pipe")).unwrap().file_type().is_fifo());
    assert!(std::fs::symlink_metadata(place("link")).unwrap().is_symlink());
    assert!(std::fs::read_to_string(place("real.html")).unwrap().contains("</html>"));
}

/// A chart in a file of its own needs no page, no network and no setting of the reader.
#[test]
fn a_chart_stands_alone_and_its_name_chooses_it() {
    let place = directory();
    succeed(place.path(), &["run", "--name=a", "--ioengine=null", "--size=64m", "--save=run.json"]);
    let text = stdout(&succeed(place.path(), &["report", "run.json", "--chart", "old.svg"]));
    assert!(text.starts_with("Chart latency-percentiles: old.svg (names of the other charts: "), "{text}");
    let text =
        stdout(&succeed(place.path(), &["report", "run.json", "--chart", "before-latency-distribution-lat.svg"]));
    assert!(text.starts_with("Chart latency-distribution-lat: "), "{text}");
    for name in ["old.svg", "before-latency-distribution-lat.svg"] {
        let svg = std::fs::read_to_string(place.path().join(name)).unwrap();
        assert!(svg.starts_with("<svg width=\"640\" ") && svg.ends_with("</svg>\n"), "{name}: {svg:.300}");
        assert!(!svg.contains("var(") && !svg.contains("prefers-color-scheme"), "{name}");
    }
    assert!(!place.path().join("plimsoll-report.html").exists(), "a chart is no page");
    let error = refused(place.path(), &["report", "run.json", "--chart", "chart.jpg"]);
    assert!(error.contains("svg or a png"), "{error}");
    let error = refused(place.path(), &["report", "run.json", "--chart", "run.json.svg", "--format=csv"]);
    assert!(error.contains("cannot be used with"), "{error}");
}

/// rsvg-convert makes PNGs; without it the error says what to install, or to give instead.
#[test]
fn a_png_needs_a_converter_and_says_so() {
    let place = directory();
    succeed(place.path(), &["run", "--name=a", "--ioengine=null", "--size=64m", "--save=run.json"]);
    let mut without = plimsoll(place.path());
    let output = without.args(["report", "run.json", "--chart", "a.png"]).env("PATH", place.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("librsvg2-bin") && stderr(&output).contains("a.svg"), "{}", stderr(&output));
    assert!(!place.path().join("a.png").exists());
    if !has_program("rsvg-convert") {
        return;
    }
    succeed(place.path(), &["report", "run.json", "--chart", "a.png"]);
    let png = std::fs::read(place.path().join("a.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
    let width = u32::from_be_bytes(png[16..20].try_into().unwrap());
    assert_eq!(width, 1280, "twice the size of the drawing");
}

/// `report *.json` names whatever lies in a directory.
#[test]
fn files_that_are_not_results_are_left_out_with_a_warning() {
    let place = directory();
    succeed(place.path(), &["run", "--name=a", "--ioengine=null", "--size=1m", "--save=run.json"]);
    file(place.path(), "package.json", "{\"name\": \"other\"}");
    file(place.path(), "list.json", "[1, 2]");
    let output = succeed(place.path(), &["report", "list.json", "package.json", "run.json"]);
    let warnings = stderr(&output);
    assert_eq!(warnings.lines().count(), 2, "{warnings}");
    for name in ["list.json", "package.json"] {
        assert!(warnings.contains(&format!("plimsoll: warning: {name} is left out: ")), "{warnings}");
    }
    let page = std::fs::read_to_string(place.path().join("plimsoll-report.html")).unwrap();
    assert!(page.contains("<title>run.json - Plimsoll</title>"), "one result is left, and has the page");
    let error = refused(place.path(), &["report", "package.json"]);
    assert!(error.contains("package.json"), "{error}");
    let output = run(place.path(), &["report", "list.json", "package.json"]);
    assert_eq!(output.status.code(), Some(2), "nothing is left");
    assert!(refused(place.path(), &["report", "run.json", "missing.json"]).contains("missing.json"));
}
