//! Charts of a result in files of their own: SVG by Plimsoll, PNG by an installed rsvg-convert.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail, ensure};
use report::svg::Picture;

use crate::output;

/// The path of a chart's file, from an argument.
///
/// # Errors
/// A name that ends neither with `.svg` nor with `.png`.
pub fn file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg" | "png") => Ok(path),
        _ => Err("a chart is an svg or a png: give a name such as iops.svg".into()),
    }
}

/// Writes a chart to each file, and says which one, and the names of the others.
///
/// # Errors
/// A result without charts; an error of writing; a PNG without rsvg-convert.
pub fn write_all(pictures: &[Picture], files: &[&Path]) -> anyhow::Result<()> {
    ensure!(!pictures.is_empty(), "these results have no chart: nothing in them can be drawn");
    for path in files {
        let picture = asked(pictures, path);
        match path.extension().is_some_and(|extension| extension == "png") {
            true => write_png(&picture.svg(), path)?,
            false => output::write(path, &picture.svg())?,
        }
        let others: Vec<String> = pictures.iter().map(Picture::name).filter(|name| *name != picture.name()).collect();
        let others = match others.is_empty() {
            true => String::new(),
            false => format!(" (names of the other charts: {})", others.join(", ")),
        };
        output::print(&format!("Chart {}: {}{others}\n", picture.name(), path.display()))?;
    }
    Ok(())
}

/// The chart whose name the file's name ends with, the longest such name; the first chart if there is none.
fn asked<'a>(pictures: &'a [Picture], path: &Path) -> &'a Picture {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let is_asked = |picture: &&Picture| {
        let before = stem.strip_suffix(&picture.name());
        before.is_some_and(|before| !before.ends_with(|last: char| last.is_ascii_alphanumeric()))
    };
    pictures.iter().filter(is_asked).max_by_key(|picture| picture.name().len()).unwrap_or(&pictures[0])
}

/// Makes a PNG of twice the size, which is sharp on slides. Plimsoll itself has neither a renderer nor fonts.
fn write_png(svg: &str, path: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("rsvg-convert");
    command.args(["--zoom", "2", "--format", "png", "--output"]).arg(path);
    let mut child = match command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "cannot write {}: rsvg-convert makes PNGs and is not installed (Debian: apt install librsvg2-bin); or give \
             {}, which needs nothing",
            path.display(),
            path.with_extension("svg").display()
        ),
        child => child.context("cannot start rsvg-convert")?,
    };
    let said = child.stdin.take().expect("is piped").write_all(svg.as_bytes());
    let output = child.wait_with_output().context("cannot wait for rsvg-convert")?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_string();
        return Err(anyhow!("rsvg-convert: {why}")).with_context(|| format!("cannot write {}", path.display()));
    }
    said.context("cannot write to rsvg-convert")
}
