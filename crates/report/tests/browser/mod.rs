//! A real browser that looks at pages at three widths, light and dark. Other test programs of the workspace include
//! this file for pages that they make. Screenshots stay in the target directory, under `tmp/pages`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Looks at a page in three frames, each as wide as a screen, and writes what is wrong into the document.
const MEASURE: &str = include_str!("measure.js");

/// Fails the test with all that a reader of these pages, each with its name, would stumble over. Skips with a reason
/// where no browser is installed, but not under CI.
pub fn look_at(pages: &[(&str, String)]) {
    let program = "/usr/bin/chromium";
    if !Path::new(program).exists() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "chromium is missing: tests/needs installs it");
        println!("skipped: chromium is not installed (tests/needs installs it)");
        return;
    }
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pages");
    std::fs::create_dir_all(&target).unwrap();
    let profile = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (name, page) in pages {
        for dark in [false, true] {
            wrong.extend(look(program, profile.path(), &target, (name, page), dark));
        }
    }
    assert!(wrong.is_empty(), "{} findings:\n{}", wrong.len(), wrong.join("\n"));
}

/// The findings on one page in one theme. Leaves a screenshot in `target`.
fn look(program: &str, profile: &Path, target: &Path, (name, page): (&str, &str), dark: bool) -> Vec<String> {
    let theme = if dark { "dark" } else { "light" };
    let host = target.join(format!("{name}.frames.html"));
    let quoted = serde_json::to_string(page).unwrap().replace("</", "<\\/").replace("<!--", "<\\u0021--");
    let frames = "<!DOCTYPE html><meta charset=\"utf-8\"><body style=\"margin:0;display:flex\"><script>";
    std::fs::write(&host, format!("{frames}const page = {quoted};\n{MEASURE}</script></body>")).unwrap();
    let address = format!("file://{}", host.display());
    let picture = target.join(format!("{name}.{theme}.png"));
    let _ = std::fs::remove_file(&picture);
    let screenshot = format!("--screenshot={}", picture.display());
    let arguments = ["--dump-dom".into(), screenshot, "--window-size=2640,3600".into(), address];
    let (document, mut wrong) = chromium(program, profile, dark, &arguments);
    assert!(picture.exists(), "{name}: no screenshot");
    let found = document.split("<pre id=\"measured\" hidden=\"\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let found = found.unwrap_or_else(|| panic!("{name}: the page was not measured: {document:.2000}"));
    let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let found: Value = serde_json::from_str(&found).unwrap_or_else(|error| panic!("{name}: {error}: {found}"));
    assert_eq!(found["dark"], dark, "{name}: the reader's setting is followed");
    wrong.extend(found["wrong"].as_array().unwrap().iter().map(Value::to_string));
    wrong.into_iter().map(|what| format!("{name}, {theme}: {what}")).collect()
}

/// Chromium's standard output with these arguments, and what it logged on the console of the page. It is ended when it
/// takes longer than any page can.
fn chromium(program: &str, profile: &Path, dark: bool, arguments: &[String]) -> (String, Vec<String>) {
    let scheme = if dark { 0 } else { 1 };
    let output = Command::new("timeout")
        .args(["--kill-after=5", "300", program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--hide-scrollbars", "--disable-dev-shm-usage", "--virtual-time-budget=5000"])
        .args(["--enable-logging=stderr", "--log-level=0"])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .output()
        .expect("timeout(1) is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let console = said.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_string).collect();
    (String::from_utf8(output.stdout).expect("a document is text"), console)
}
