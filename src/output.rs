//! The output of results: standard output, and files that are whole or not there.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use measure::schema::{Document, Ended, RunResult};
use report::html::{self, NamedDocument};
use report::text::Style;
use sys::file;
use sys::replace::{partial, replace};

/// The style of standard output: coloured and as wide as the terminal, plain where it is none or NO_COLOR is set.
pub fn style() -> Style {
    style_of(&console::Term::stdout())
}

/// The style of a terminal, or of the pipe or file in its place.
pub fn style_of(terminal: &console::Term) -> Style {
    // mpirun gives its ranks a terminal of its own making, whatever its own output is.
    if hosts::launch::launched(|name| std::env::var(name).ok()).is_some() {
        return Style { ascii: true, ..Style::default() };
    }
    let width = terminal.size_checked().map_or(Style::default().width, |(_rows, columns)| usize::from(columns));
    Style {
        colour: terminal.is_term() && console::colors_enabled(),
        ascii: ascii_only(|name| std::env::var(name).ok()),
        width,
        cuts_names: terminal.is_term(),
    }
}

/// True if the environment asks for ASCII: a dumb terminal, or a locale that is not in UTF-8 (locale(7) gives the order
/// of the variables; without any of them the locale is C).
fn ascii_only(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(&variable).find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_lowercase();
    variable("TERM").as_deref() == Some("dumb") || !(locale.contains("utf-8") || locale.contains("utf8"))
}

/// Prints `text` to standard output as it is.
///
/// # Errors
/// The error of write(2).
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Warnings, a line each, on standard error: standard output is for results.
pub fn warn(warnings: &[String]) {
    for warning in warnings {
        let _ = writeln!(io::stderr(), "plimsoll: warning: {warning}");
    }
}

/// Writes the errors of the jobs of a run to standard error, a line each.
pub fn complain(result: &RunResult) {
    for (job, error) in result.jobs.iter().filter_map(|job| Some((job, job.error.as_ref()?))) {
        // The line names the job at its beginning.
        let message = error.message.strip_prefix(&format!("job {}: ", job.name)).unwrap_or(&error.message);
        let message = message.replace(&format!(" in job {}", job.name), "");
        let _ = writeln!(io::stderr(), "plimsoll: job {}: {message}", job.name);
    }
}

/// The form in which a result goes to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text for people.
    Text,
    /// JSON of Plimsoll's own schema (`--json`).
    Json,
    /// Rows of comma-separated values (`--csv`).
    Csv,
    /// Nothing (`--quiet`).
    Nothing,
}

impl Form {
    /// The form that the arguments of [`forms`] ask for.
    pub fn of(matches: &ArgMatches) -> Form {
        let flags = [("json", Form::Json), ("csv", Form::Csv), ("quiet", Form::Nothing)];
        flags.into_iter().find(|(name, _)| matches.get_flag(name)).map_or(Form::Text, |(_, form)| form)
    }
}

/// The arguments `--json`, `--csv` and `--quiet`, of which one at most is given.
pub fn forms() -> [Arg; 3] {
    let flag = |name: &'static str, others: [&'static str; 2], help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).conflicts_with_all(others).help(help)
    };
    [
        flag("json", ["csv", "quiet"], "Print the result as JSON, and write no files by default"),
        flag("csv", ["json", "quiet"], "Print the rows of the result as comma-separated values, units in the header"),
        flag("quiet", ["json", "csv"], "Print no result and no progress; files are written as ever"),
    ]
}

/// Prints a result in the form that the arguments ask for (`text` makes the form for people), and saves it as
/// [`save_as_asked`] does. A standard output that takes no more does not cost the saved result.
///
/// # Errors
/// The error of printing, else that of saving.
pub fn deliver(
    matches: &ArgMatches,
    default: Option<&DefaultName>,
    document: Document,
    text: impl FnOnce(&Document, Style) -> String,
) -> anyhow::Result<()> {
    let printed = match Form::of(matches) {
        Form::Text => print(&text(&document, style())),
        Form::Json => print(&json(&document)?),
        Form::Csv => print(&report::csv::render(&document)),
        Form::Nothing => Ok(()),
    };
    all([printed, save_as_asked(matches, default, document)])
}

/// The first error of several steps that were all tried; the others become lines on standard error.
///
/// # Errors
/// The first error.
pub fn all(outcomes: impl IntoIterator<Item = anyhow::Result<()>>) -> anyhow::Result<()> {
    let mut errors = outcomes.into_iter().filter_map(Result::err);
    let Some(first) = errors.next() else { return Ok(()) };
    errors.for_each(|error| complain_of(&error));
    Err(first)
}

/// The results as JSON of Plimsoll's own schema.
///
/// # Errors
/// None in practice: every part of the schema can be written.
pub fn json(document: &Document) -> anyhow::Result<String> {
    Ok(serde_json::to_string(document)? + "\n")
}

/// An error that does not end the program, as a line on standard error.
pub fn complain_of(error: &anyhow::Error) {
    let _ = writeln!(io::stderr(), "plimsoll: {error:#}");
}

/// Writes a file that appears under its name when it is complete. A file that is not a regular one (a pipe, a device
/// such as /dev/null) is written to as it is: renaming over it would replace it.
///
/// # Errors
/// An error of creating, writing or renaming it.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let written = match is_special(path) {
        true => File::options().write(true).open(path).and_then(|file| put(&file, text)),
        false => replace(&behind(path), text.as_bytes()),
    };
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Writes the text into the file that stands at `path`, as fio does: a program that called fio may hold that file open.
///
/// # Errors
/// An error of creating or writing it.
pub fn write_in_place(path: &Path, text: &str) -> anyhow::Result<()> {
    let file = File::options().create(true).truncate(true).write(true).open(path);
    file.and_then(|file| put(&file, text)).with_context(|| format!("cannot write {}", path.display()))
}

/// Tries a path that a result is to be written to, before anything runs: a result that took hours must not meet a
/// directory that is not there. Leaves nothing behind.
///
/// # Errors
/// The error that [`write`](fn@write) would end with: a directory that is missing or cannot be written to.
pub fn try_to_write(path: &Path) -> anyhow::Result<()> {
    let tried = || -> io::Result<()> {
        if let Some(there) = std::fs::metadata(path).ok().filter(|there| !there.is_file()) {
            // A pipe is opened when there is something to say: opening it waits for its reader.
            return match there.file_type() {
                kind if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
                kind if kind.is_block_device() => {
                    Err(io::Error::other("it is a block device, and the result would destroy its content: give a file"))
                }
                _ => Ok(()),
            };
        }
        let partial = partial(&behind(path));
        File::create(&partial)?;
        std::fs::remove_file(&partial)
    };
    tried().with_context(|| format!("cannot write {}", path.display()))
}

/// Tries places of results before anything runs (see [`try_to_write`]), and refuses two kinds that would cost data: a
/// file that the command also reads or measures (`inputs`), and one file for two results.
///
/// # Errors
/// The first place that cannot be written, or must not be.
pub fn try_apart(outputs: &[&Path], inputs: impl IntoIterator<Item = PathBuf>) -> anyhow::Result<()> {
    outputs.iter().try_for_each(|path| try_to_write(path))?;
    let files: Vec<&Path> = outputs.iter().copied().filter(|path| !is_special(path)).collect();
    for (index, path) in files.iter().enumerate() {
        let twice = files[..index].iter().find(|other| destination(other) == destination(path));
        ensure!(
            twice.is_none(),
            "cannot write {}: two results would go to it, and the second would replace the first: name two files",
            path.display()
        );
    }
    let there: Vec<_> = files.iter().filter_map(|path| Some((path, file::identity(path)?))).collect();
    if there.is_empty() {
        return Ok(());
    }
    for input in inputs {
        let Some(same) = file::identity(&input) else { continue };
        if let Some((path, _)) = there.iter().find(|(_, other)| *other == same) {
            bail!(
                "cannot write {}: this command reads or measures {}, which the result would replace: name another file",
                path.display(),
                input.display()
            );
        }
    }
    Ok(())
}

/// The file that a path leads to, also where only its directory is there.
fn destination(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| {
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        let directory = std::fs::canonicalize(directory.unwrap_or(Path::new(".")));
        directory.map_or_else(|_| path.to_owned(), |directory| directory.join(path.file_name().unwrap_or_default()))
    })
}

/// True if there is something at `path` that is not a regular file.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|there| !there.is_file())
}

/// The file that a path leads to: a symbolic link stays one, the file behind it is replaced.
fn behind(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn put(file: &File, text: &str) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes the JSON of a result at once, whole but not synced: mpirun kills the program a second after it lost a rank.
/// The report that follows writes the JSON again, for good, and says what goes wrong.
pub fn save_at_once(path: Option<&Path>, document: &Document) {
    let Some(path) = path.filter(|path| !is_special(path) && !is_empty(document)) else { return };
    let (path, text) = (behind(path), json(document).unwrap_or_default());
    let partial = partial(&path);
    let written = std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, &path));
    if written.is_err() {
        let _ = std::fs::remove_file(&partial); // the report tells the error
    }
}

/// Writes the only copy of a result; where that fails, keeps it in the directory for temporary files and says so.
///
/// # Errors
/// The error of [`write`](fn@write).
pub fn write_result(path: &Path, text: &str) -> anyhow::Result<()> {
    or_rescue(write(path, text), path, text)
}

/// The outcome of writing the only copy of a result to `path`; after an error the result is in the directory for
/// temporary files.
///
/// # Errors
/// That error, with the place of the result.
pub fn or_rescue(written: anyhow::Result<()>, path: &Path, text: &str) -> anyhow::Result<()> {
    let Err(error) = written else { return Ok(()) };
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let rescued = std::env::temp_dir().join(format!("plimsoll-rescued-{}-{name}", std::process::id()));
    match write(&rescued, text) {
        Ok(()) => Err(error.context(format!("the result is in {} instead", rescued.display()))),
        Err(_) => Err(error),
    }
}

/// A saved result.
///
/// # Errors
/// A file that cannot be read or is not a result.
pub fn read(path: &Path) -> anyhow::Result<Document> {
    Ok(read_among(path, 1)?.expect("the only file is a result, or an error"))
}

/// A saved result, one of `count` that were given; None with a warning if there are others and this file is not a
/// result: `*.json` names whatever lies in a directory.
///
/// # Errors
/// A file that cannot be read; the only one, if it is not a result.
pub fn read_among(path: &Path, count: usize) -> anyhow::Result<Option<Document>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    match report::read_document(&bytes) {
        Ok(document) => Ok(Some(document)),
        Err(error) if count > 1 => {
            warn(&[format!("{} is left out: {error}", path.display())]);
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("cannot take {} as a result", path.display())),
    }
}

/// The arguments `--save` and `--html`, and the names that are used without them.
pub fn arguments(default_json: &str, default_html: &str) -> [Arg; 2] {
    let argument = |name: &'static str, help: &str, default: &str| {
        let help = if default.is_empty() { help.to_string() } else { format!("{help} [default: {default}]") };
        Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
    };
    [
        argument("save", "Write the whole result as JSON, for `report` and `compare`", default_json),
        argument("html", "Write the report to FILE as one HTML page", default_html),
    ]
}

/// The default name of the results of a subcommand: `plimsoll-sweep-N`, N being the first free number when the first
/// file is written.
#[derive(Debug)]
pub struct DefaultName {
    subcommand: &'static str,
    claimed: OnceCell<String>,
}

/// Tries the paths of `--save`, `--html` and `--smallfile-json` before anything runs, see [`try_apart`].
///
/// # Errors
/// The first path that cannot be written, or must not be.
pub fn try_asked(matches: &ArgMatches, inputs: impl IntoIterator<Item = PathBuf>) -> anyhow::Result<()> {
    let asked = |name: &&str| matches.try_get_one::<PathBuf>(name).ok().flatten(); // not all subcommands have all
    let asked = ["save", "html", "smallfile-json"].iter().filter_map(asked);
    try_apart(&asked.map(PathBuf::as_path).collect::<Vec<_>>(), inputs)
}

impl DefaultName {
    /// The default name of the results of this subcommand.
    pub fn of(subcommand: &'static str) -> DefaultName {
        DefaultName { subcommand, claimed: OnceCell::new() }
    }

    /// Tries whether a file of this name can be written here, see [`try_to_write`].
    ///
    /// # Errors
    /// The current directory cannot be written to.
    pub fn try_to_write(&self) -> anyhow::Result<()> {
        try_to_write(Path::new(&format!("plimsoll-{}-0.json", self.subcommand))).context(
            "sweep writes its results here by default (--no-files writes none, --save and --html name other files)",
        )
    }

    /// The name, which is the same from the first call on.
    fn claim(&self) -> anyhow::Result<&str> {
        if self.claimed.get().is_none() {
            let _ = self.claimed.set(self.first_free()?);
        }
        Ok(self.claimed.get().map_or("", String::as_str))
    }

    /// The first name that is free, as `plimsoll-sweep-3`: its `.json` exists from now on, so that no other process
    /// takes the same number.
    fn first_free(&self) -> anyhow::Result<String> {
        for number in 1.. {
            let name = format!("plimsoll-{}-{number}", self.subcommand);
            if Path::new(&format!("{name}.html")).exists() {
                continue;
            }
            match File::create_new(format!("{name}.json")) {
                Ok(_) => return Ok(name),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("cannot write {name}.json")),
            }
        }
        unreachable!("some number is free")
    }
}

/// Writes the results as JSON, as a page, or not at all; a line says where they are, unless `silent`. A result in which
/// nothing was measured is not written.
///
/// # Errors
/// The error of writing; the other file is written anyway, or its error is a line on standard error.
pub fn save(data: Option<&Path>, web: Option<&Path>, document: Document, silent: bool) -> anyhow::Result<()> {
    if data.is_none() && web.is_none() {
        return Ok(());
    }
    if is_empty(&document) {
        let _ = writeln!(io::stderr(), "plimsoll: the run measured nothing, so it writes no result");
        return Ok(());
    }
    let mut said = Vec::new();
    let mut outcomes = Vec::new();
    if let Some(path) = data {
        match write_result(path, &json(&document)?) {
            Ok(()) => said.push(format!("Results: {}", path.display())),
            Err(error) => outcomes.push(Err(error)),
        }
    }
    if let Some(path) = web {
        let name = data.unwrap_or(path).display().to_string();
        match write_result(path, &html::render(&[NamedDocument { name, document }])) {
            Ok(()) => said.push(format!("Report: {}", path.display())),
            Err(error) => outcomes.push(Err(error)),
        }
    }
    if !said.is_empty() && !silent {
        let _ = writeln!(io::stderr(), "{}", said.join("  ")); // standard output may be JSON
    }
    all(outcomes)
}

/// True if a signal came before there was anything to keep.
fn is_empty(document: &Document) -> bool {
    match document {
        Document::Run(run) => {
            run.ended == Ended::Interrupted && run.jobs.iter().all(|job| job.total_ops() == 0 && job.error.is_none())
        }
        Document::Sweep(sweep) => sweep.curves.iter().all(|curve| curve.points.is_empty()),
        Document::Comparison(comparison) => comparison.ended == Ended::Interrupted && comparison.effects.is_empty(),
        Document::Files(files) => {
            files.ended == Ended::Interrupted
                && files.phases.iter().all(|phase| phase.total.files == 0 && phase.total.failed == 0)
        }
    }
}

/// Saves a document where `--save` and `--html` say; without them under the default name, if there is one.
///
/// # Errors
/// The errors of [`save`].
pub fn save_as_asked(matches: &ArgMatches, default: Option<&DefaultName>, document: Document) -> anyhow::Result<()> {
    let asked = |argument: &str| matches.get_one::<PathBuf>(argument).cloned();
    let (data, web) = (asked("save"), asked("html"));
    let name = match default {
        Some(default) if (data.is_none() || web.is_none()) && !is_empty(&document) => Some(default.claim()?),
        _ => None,
    };
    let named = |extension: &str| name.map(|name| PathBuf::from(format!("{name}.{extension}")));
    let claimed = named("json");
    // Users know the names that they gave, and not those that the program chose.
    let silent = name.is_none() && Form::of(matches) == Form::Nothing;
    let (data, web) = (data.or_else(|| named("json")), web.or_else(|| named("html")));
    let outcome = save(data.as_deref(), web.as_deref(), document, silent);
    // A claim that holds no result is taken back.
    if let Some(claimed) = claimed.filter(|path| std::fs::metadata(path).is_ok_and(|there| there.len() == 0)) {
        let _ = std::fs::remove_file(claimed);
    }
    outcome
}

/// Saves what has been measured so far where the JSON of the whole result is to be, for the case that the program does
/// not come to its end. A pipe or a device gets only the whole result.
///
/// # Errors
/// The error of [`write`](fn@write).
pub fn save_so_far(matches: &ArgMatches, default: Option<&DefaultName>, document: &Document) -> anyhow::Result<()> {
    let path = match (matches.get_one::<PathBuf>("save"), default) {
        _ if is_empty(document) => return Ok(()),
        (Some(path), _) if is_special(path) => return Ok(()),
        (Some(path), _) => path.clone(),
        (None, Some(default)) => PathBuf::from(format!("{}.json", default.claim()?)),
        (None, None) => return Ok(()),
    };
    write(&path, &json(document)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_locale_in_utf8_gets_more_than_ascii() {
        let asked = |set: &'static [(&str, &str)]| {
            ascii_only(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string()))
        };
        for set in [
            &[("LANG", "en_US.UTF-8")][..],
            &[("LC_ALL", "C.utf8"), ("LANG", "C")],
            &[("LC_ALL", ""), ("LANG", "C.UTF-8")],
        ] {
            assert!(!asked(set), "{set:?}");
        }
        for set in [
            &[][..],
            &[("LANG", "C")],
            &[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")],
            &[("LC_CTYPE", "POSIX"), ("LANG", "en_US.UTF-8")],
            &[("LANG", "en_US.UTF-8"), ("TERM", "dumb")],
        ] {
            assert!(asked(set), "{set:?}");
        }
    }
}
