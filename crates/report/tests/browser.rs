//! Every kind of page in a real browser, at three widths, light and dark: nothing overlaps, nothing is clipped, text
//! can be read, and nothing is asked of the network. Screenshots stay in the target directory, under `tmp/pages`.

mod sample;

use std::path::{Path, PathBuf};
use std::process::Command;

use measure::schema::Document;
use report::html::{NamedDocument, render};
use serde_json::Value;

fn named(name: &str, document: Document) -> NamedDocument {
    NamedDocument { name: name.into(), document }
}

fn pages() -> Vec<(&'static str, String)> {
    let sweep = || named("nvme.json", Document::Sweep(sample::sweep()));
    let run = || named("nightly.json", Document::Run(sample::run()));
    let files = |name: &str| named(name, Document::Files(sample::files()));
    let mut one = sample::sweep();
    one.curves.truncate(1);
    let fio = report::read::document(include_bytes!("fio-3.33/json.json")).unwrap();
    vec![
        ("sweep", render(&[named("nvme.json", Document::Sweep(one))])),
        ("engines", render(&[sweep()])),
        ("run", render(&[run()])),
        ("fio", render(&[named("fio.json", fio)])),
        ("comparison", render(&[named("ab.json", Document::Comparison(sample::comparison()))])),
        ("files", render(&[files("fuse.json")])),
        ("many", render(&[sweep(), run(), named("weekly.json", Document::Run(sample::run())), files("fuse.json")])),
    ]
}

/// Looks at a page in three frames, each as wide as a screen, and writes what is wrong into the document.
const MEASURE: &str = include_str!("measure.js");

fn browser() -> Option<&'static str> {
    let there = Path::new("/usr/bin/chromium").exists();
    assert!(there || std::env::var("CI").as_deref() != Ok("true"), "chromium is missing: tests/needs installs it");
    if !there {
        println!("skipped: chromium is not installed (tests/needs installs it)");
    }
    there.then_some("/usr/bin/chromium")
}

/// Chromium's standard output with these arguments; it is ended when it takes longer than any page can.
fn chromium(program: &str, profile: &Path, dark: bool, arguments: &[String]) -> String {
    let scheme = if dark { 0 } else { 1 };
    let output = Command::new("timeout")
        .args(["--kill-after=5", "120", program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--hide-scrollbars", "--disable-dev-shm-usage", "--virtual-time-budget=5000"])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .output()
        .expect("timeout(1) is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a document is text")
}

#[test]
fn pages_can_be_read_at_every_width_in_light_and_dark() {
    let Some(program) = browser() else { return };
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pages");
    std::fs::create_dir_all(&target).unwrap();
    let profile = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (name, page) in pages() {
        for dark in [false, true] {
            let host = target.join(format!("{name}.frames.html"));
            let quoted = serde_json::to_string(&page).unwrap().replace("</", "<\\/").replace("<!--", "<\\u0021--");
            let frames = "<!DOCTYPE html><meta charset=\"utf-8\"><body style=\"margin:0;display:flex\"><script>";
            std::fs::write(&host, format!("{frames}const page = {quoted};\n{MEASURE}</script></body>")).unwrap();
            let address = format!("file://{}", host.display());
            let document = chromium(program, profile.path(), dark, &["--dump-dom".into(), address.clone()]);
            let found =
                document.split("<pre id=\"measured\" hidden=\"\">").nth(1).and_then(|rest| rest.split("</pre>").next());
            let found = found.unwrap_or_else(|| panic!("{name}: the page was not measured: {document:.2000}"));
            let found: Value =
                serde_json::from_str(&found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
                    .unwrap_or_else(|error| panic!("{name}: {error}: {found}"));
            assert_eq!(found["dark"], dark, "{name}: the reader's setting is followed");
            let theme = if dark { "dark" } else { "light" };
            wrong.extend(found["wrong"].as_array().unwrap().iter().map(|what| format!("{name}, {theme}: {what}")));
            let picture = target.join(format!("{name}.{theme}.png"));
            let shot = [format!("--screenshot={}", picture.display()), "--window-size=2640,3000".into(), address];
            chromium(program, profile.path(), dark, &shot);
            assert!(picture.exists(), "{name}: no screenshot");
        }
    }
    assert!(wrong.is_empty(), "{} findings:\n{}", wrong.len(), wrong.join("\n"));
}
