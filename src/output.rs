//! Where results go: standard output, and files that are whole or not there.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Arg, ArgMatches, value_parser};
use measure::schema::{Document, RunResult};
use report::html::{self, NamedDocument};
use report::text::Style;

/// The style of standard output: coloured and as wide as the terminal, plain where it is none or NO_COLOR is set.
pub fn style() -> Style {
    let terminal = console::Term::stdout();
    // mpirun gives its ranks a terminal of its own making, whatever its own output is.
    if hosts::launch::launched(|name| std::env::var(name).ok()).is_some() {
        return Style::default();
    }
    let width = terminal.size_checked().map_or(Style::default().width, |(_rows, columns)| usize::from(columns));
    Style { colour: terminal.is_term() && console::colors_enabled(), width }
}

/// Prints `text` as it is.
///
/// # Errors
/// What write(2) says.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Warnings, a line each, on standard error: standard output is for results.
pub fn warn(warnings: &[String]) {
    for warning in warnings {
        let _ = writeln!(io::stderr(), "plimsoll: warning: {warning}");
    }
}

/// What went wrong in the jobs of a run, a line each, on standard error.
pub fn complain(result: &RunResult) {
    for (job, error) in result.jobs.iter().filter_map(|job| Some((job, job.error.as_ref()?))) {
        let _ = writeln!(io::stderr(), "plimsoll: job {}: {}", job.name, error.message);
    }
}

/// The results as our own JSON.
///
/// # Errors
/// None in practice: every part of the schema can be written.
pub fn json(document: &Document) -> anyhow::Result<String> {
    Ok(serde_json::to_string(document)? + "\n")
}

/// Writes a file that appears under its name when it is complete. What is no regular file (a pipe, a device such as
/// /dev/null) is written to as it is: renaming over it would replace it.
///
/// # Errors
/// What creating, writing or renaming it says.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let special = std::fs::metadata(path).is_ok_and(|there| !there.is_file());
    let written = if special {
        File::options().write(true).open(path).and_then(|file| put(file, text))
    } else {
        // A symbolic link stays one: the file behind it is replaced.
        replace(&std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()), text)
    };
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let partial = path.with_extension(format!("{}.part", path.extension().unwrap_or_default().to_string_lossy()));
    let written =
        File::create(&partial).and_then(|file| put(file, text)).and_then(|()| std::fs::rename(&partial, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&partial); // it may never have been there
    }
    written
}

fn put(file: File, text: &str) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// A saved result.
///
/// # Errors
/// A file that cannot be read or is no result.
pub fn read(path: &Path) -> anyhow::Result<Document> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    report::read::document(&bytes).with_context(|| format!("{} is not a result", path.display()))
}

/// The arguments `--save` and `--html`, and the names that are used without them.
pub fn arguments(default_json: &str, default_html: &str) -> [Arg; 2] {
    let argument = |name: &'static str, help: &str, default: &str| {
        let help = if default.is_empty() { help.to_string() } else { format!("{help} [default: {default}]") };
        Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
    };
    [
        argument("save", "Write the whole result as JSON, for `report` and `compare`", default_json),
        argument("html", "Write a report that needs no network to be read", default_html),
    ]
}

/// Writes the results as JSON, as a page, or not at all; a line says where they are.
///
/// # Errors
/// What writing says.
pub fn save(data: Option<&Path>, web: Option<&Path>, document: Document) -> anyhow::Result<()> {
    let mut said = Vec::new();
    if let Some(path) = data {
        write(path, &json(&document)?)?;
        said.push(format!("Results: {}", path.display()));
    }
    if let Some(path) = web {
        let name = data.unwrap_or(path).display().to_string();
        write(path, &html::render(&[NamedDocument { name, document }]))?;
        said.push(format!("Report: {}", path.display()));
    }
    if !said.is_empty() {
        let _ = writeln!(io::stderr(), "{}", said.join("  ")); // standard output may be JSON
    }
    Ok(())
}

/// The same, as `--save` and `--html` ask for it; without them under the default name, if there is one.
///
/// # Errors
/// See [`save`].
pub fn save_as_asked(matches: &ArgMatches, default_name: Option<&str>, document: Document) -> anyhow::Result<()> {
    let path = |argument: &str, extension: &str| {
        let given = matches.get_one::<PathBuf>(argument).cloned();
        given.or_else(|| default_name.map(|name| PathBuf::from(format!("{name}.{extension}"))))
    };
    save(path("save", "json").as_deref(), path("html", "html").as_deref(), document)
}

/// The name, without extension, for results that were not given one: `plimsoll-sweep-3`, the first that is free.
pub fn free_name(kind: &str) -> String {
    (1..)
        .map(|number| format!("plimsoll-{kind}-{number}"))
        .find(|name| !["json", "html"].iter().any(|extension| Path::new(&format!("{name}.{extension}")).exists()))
        .expect("some number is free")
}
