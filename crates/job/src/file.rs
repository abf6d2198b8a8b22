//! fio's job files: a dialect of INI.
//!
//! `;` and `#` begin a comment anywhere in a line. A line `include FILE` or `include=FILE` puts another file's options
//! in its place. Sections whose name starts with `global` are for all later ones, and `[job@host]` is for one host.
//! `${NAME}` is a variable of the environment. `$ncpus`, `$pagesize` and `$mb_memory` describe the machine, and may be
//! part of a sum or product.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Place};
use crate::options;
use crate::per_host::{self, Hosts};
use crate::source::{Section, Setting, Source};

/// The source of files and variables, so that parsing itself touches nothing.
pub struct Surroundings<'a> {
    /// The text of a file; `-` is standard input.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The hosts that sections for single hosts are about.
    pub hosts: Hosts<'a>,
}

impl Surroundings<'static> {
    /// The file system, standard input and the process's environment.
    pub const SYSTEM: Surroundings<'static> =
        Surroundings { read: &read, variable: &|name| std::env::var(name).ok(), hosts: Hosts { here: "", all: &[] } };
    /// Surroundings without files and variables.
    pub const NONE: Surroundings<'static> = Surroundings {
        read: &|_| Err(io::ErrorKind::NotFound.into()),
        variable: &|_| None,
        hosts: Hosts { here: "", all: &[] },
    };
}

fn read(path: &Path) -> io::Result<String> {
    if path == Path::new("-") { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(path) }
}

/// Includes nested deeper than this are taken for a cycle.
const MAX_INCLUDES: usize = 16;

/// The sections of a job file.
///
/// # Errors
/// The first thing that is wrong: a file that cannot be read, a line outside of any section, an unknown option.
pub fn parse(path: &Path, surroundings: &Surroundings) -> Result<Source, Error> {
    let place = Place::WholeFile(Arc::new(path.to_path_buf()));
    let text = (surroundings.read)(path).map_err(|error| cannot_read(&place, "job file", path, &error))?;
    parse_text(path, &text, surroundings)
}

/// The sections of a job file whose text is `text`; `path` is for messages and for relative includes.
///
/// # Errors
/// See [`parse`].
pub fn parse_text(path: &Path, text: &str, surroundings: &Surroundings) -> Result<Source, Error> {
    let mut parser = Parser { surroundings, source: Source::default() };
    parser.lines(path, text, 0)?;
    per_host::apply(&mut parser.source, surroundings.hosts)?;
    Ok(parser.source)
}

fn cannot_read(place: &Place, what: &str, path: &Path, error: &io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "check the name; job options begin with --",
        io::ErrorKind::InvalidData => "it is not text in UTF-8",
        io::ErrorKind::IsADirectory => "give the job files in it",
        _ => "",
    };
    Error::new(place, format!("cannot read the {what} {}: {error}", path.display())).hint(hint)
}

struct Parser<'a> {
    surroundings: &'a Surroundings<'a>,
    source: Source,
}

impl Parser<'_> {
    fn lines(&mut self, path: &Path, text: &str, depth: usize) -> Result<(), Error> {
        let path = Arc::new(path.to_path_buf());
        for (index, line) in text.lines().enumerate() {
            let place = Place::File(path.clone(), index as u32 + 1);
            let line = self.without_comment(line, &place);
            if line.is_empty() {
                continue;
            }
            if let Some(header) = line.strip_prefix('[') {
                if depth > 0 {
                    return Err(Error::new(&place, "an included file has no sections")
                        .hint("move the section into the job file"));
                }
                let name = header.strip_suffix(']').ok_or_else(|| {
                    Error::new(&place, format!("\"{line}\" has no closing ]")).hint("write as [name]")
                })?;
                self.source.sections.push(Section { name: name.to_string(), place, settings: Vec::new() });
            } else if let Some(included) = included(line) {
                self.include(&path, included, &place, depth)?;
            } else {
                let setting = setting(line, &place, self.surroundings, &mut self.source.warnings)?;
                match self.source.sections.last_mut() {
                    Some(section) => section.settings.push(setting),
                    None => return Err(outside(line, &place)),
                }
            }
        }
        Ok(())
    }

    fn include(&mut self, from: &Path, included: &str, place: &Place, depth: usize) -> Result<(), Error> {
        if self.source.sections.is_empty() {
            return Err(outside(&format!("include {included}"), place));
        }
        if depth >= MAX_INCLUDES {
            return Err(Error::new(
                place,
                format!("include {included}: more than {MAX_INCLUDES} files include each other"),
            )
            .hint("a file seems to include itself"));
        }
        let plain = PathBuf::from(included);
        let beside = from.parent().map_or_else(|| plain.clone(), |folder| folder.join(included));
        let (path, text) = match (self.surroundings.read)(&plain) {
            Ok(text) => (plain, text),
            // Relative to the file that includes it.
            Err(error) => match (self.surroundings.read)(&beside) {
                Ok(text) => (beside, text),
                Err(_) => return Err(cannot_read(place, "included file", &plain, &error)),
            },
        };
        self.lines(&path, &text, depth + 1)
    }

    /// The line up to the first `;` or `#`, trimmed.
    fn without_comment<'l>(&mut self, line: &'l str, place: &Place) -> &'l str {
        let Some(start) = line.find([';', '#']) else { return line.trim() };
        let (kept, comment) = line.split_at(start);
        let cut_a_value = kept.contains('=') && !kept.ends_with(char::is_whitespace) && !kept.ends_with('=');
        let goes_on = comment[1..].starts_with(|next: char| !next.is_whitespace());
        if cut_a_value && goes_on {
            self.source.warnings.push(format!(
                "{place}: everything from \"{}\" on is a comment, as in fio: a value cannot contain ; or #; put a blank before it if a comment was meant",
                comment.trim_end(),
            ));
        }
        kept.trim()
    }
}

fn outside(line: &str, place: &Place) -> Error {
    Error::new(place, format!("\"{line}\" stands outside of any section")).hint("begin with [global] or [jobname]")
}

fn included(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("include")?;
    rest.strip_prefix(|next: char| next == '=' || next.is_whitespace()).map(str::trim)
}

/// One `name=value` of a job file.
fn setting(
    line: &str,
    place: &Place,
    surroundings: &Surroundings,
    warnings: &mut Vec<String>,
) -> Result<Setting, Error> {
    let line = variables(line, place, surroundings, warnings);
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name.trim_end(), Some(value.trim_start())),
        None => (line.as_str(), None),
    };
    let option = options::find(name).ok_or_else(|| unknown(name, place))?;
    Ok(Setting { option, value: value.map(keywords), place: place.clone() })
}

/// The error for a name that does not belong to any option.
pub(crate) fn unknown(name: &str, place: &Place) -> Error {
    let known = options::all().flat_map(|option| option.names());
    let hint = match options::did_you_mean(name, known) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "plimsoll run --cmdhelp lists all options".into(),
    };
    Error::new(place, format!("unknown option {name}")).hint(hint)
}

/// Replaces `${NAME}` with the variable of the environment; a variable that is not set is empty.
fn variables(line: &str, place: &Place, surroundings: &Surroundings, warnings: &mut Vec<String>) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, behind)) = after.split_once('}') else { break };
        text.push_str(before);
        match (surroundings.variable)(name) {
            Some(value) => text.push_str(&value),
            None => warnings.push(format!("{place}: ${{{name}}} is not set in the environment, and is empty as in fio: run {name}=VALUE plimsoll ...")),
        }
        rest = behind;
    }
    text + rest
}

/// Puts the machine's figures in for `$ncpus`, `$pagesize` and `$mb_memory`, and computes the expressions.
pub(crate) fn keywords(value: &str) -> String {
    if !value.contains('$') {
        return value.to_string();
    }
    let mut text = value.to_string();
    for (word, figure) in [("$pagesize", page_bytes as fn() -> u64), ("$mb_memory", memory_mb), ("$ncpus", processors)]
    {
        if text.contains(word) {
            text = text.replace(word, &figure().to_string());
        }
    }
    let computes = text != value && text.contains(['+', '-', '*', '/']);
    match measure::units::parse_bytes(&format!("({text})"), 1024) {
        Ok(result) if computes => result.to_string(),
        // In parentheses, so that nobody takes the first number for the result: the reader names the fault.
        Err(_) if computes && text.chars().all(|letter| letter.is_ascii_digit() || "+-*/() ".contains(letter)) => {
            format!("({text})")
        }
        _ => text,
    }
}

/// Bytes of a page, from the vector that the kernel hands to each program (AT_PAGESZ of getauxval(3)).
fn page_bytes() -> u64 {
    const AT_PAGESZ: u64 = 6;
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).unwrap_or(0);
    let vector = std::fs::read("/proc/self/auxv").unwrap_or_default();
    vector.chunks_exact(16).find(|entry| word(&entry[..8]) == AT_PAGESZ).map_or(4096, |entry| word(&entry[8..]))
}

/// Memory of the machine in megabytes.
fn memory_mb() -> u64 {
    let table = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = table.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) / 1024
}

/// Processors that are configured, online or not.
fn processors() -> u64 {
    let is_processor = |name: &str| {
        name.strip_prefix("cpu")
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
    };
    let count = std::fs::read_dir("/sys/devices/system/cpu").map_or(0, |entries| {
        entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_processor)).count()
    });
    if count > 0 { count as u64 } else { std::thread::available_parallelism().map_or(1, |count| count.get() as u64) }
}
