//! A page on a terminal: by man(1), else as plain text in a pager.

use std::env;
use std::io::Write;
use std::process::{Command, Stdio};

use report::text::wrap;

use crate::output;

/// Shows a page, until the reader leaves it.
///
/// # Errors
/// The error of writing to the terminal, where no pager is installed.
pub fn show(page: &str) -> anyhow::Result<()> {
    if takes("man", &["-l", "-"], page) {
        return Ok(());
    }
    let width = output::style().width;
    let text = text(page, width);
    let asked = env::var("MANPAGER").or_else(|_| env::var("PAGER")).unwrap_or_default();
    let pagers = [asked.as_str(), "less", "more"];
    let known = pagers.into_iter().filter_map(|pager| {
        let mut words = pager.split_whitespace();
        Some((words.next()?, words.collect::<Vec<_>>()))
    });
    match known.into_iter().any(|(pager, arguments)| takes(pager, &arguments, &text)) {
        true => Ok(()),
        false => output::print(&text),
    }
}

/// True if a program takes the text as its input and ends well.
fn takes(program: &str, arguments: &[&str], text: &str) -> bool {
    let Ok(mut child) = Command::new(program).args(arguments).stdin(Stdio::piped()).spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(text.as_bytes()); // a reader who leaves early has read enough
    }
    child.wait().is_ok_and(|status| status.success())
}

/// Columns before the text of a section, before the meaning of a name, and before an example.
const TEXT: usize = 7;
const MEANING: usize = 14;
const EXAMPLE: usize = 11;

/// The page as plain text, as man(1) would lay it out. It knows the requests that [`roff`](super::roff) and
/// [`page`](super::page) write.
fn text(page: &str, width: usize) -> String {
    let mut out = String::new();
    let (mut indent, mut is_name, mut is_example) = (TEXT, false, false);
    let blank = |columns: usize| " ".repeat(columns);
    for line in page.lines() {
        let (request, heading) = line.split_once(' ').unwrap_or((line, ""));
        match request {
            ".SH" => {
                indent = TEXT;
                out += &format!("\n{}\n", plain(heading));
            }
            ".PP" => {
                indent = TEXT;
                out += "\n";
            }
            ".TP" => {
                is_name = true;
                out += "\n";
            }
            ".EX" => is_example = true,
            ".EE" => is_example = false,
            request if request.starts_with('.') => {}
            _ if is_example => out += &format!("{}{}\n", blank(EXAMPLE), plain(line)),
            _ if is_name => {
                (indent, is_name) = (MEANING, false);
                out += &format!("{}{}\n", blank(TEXT), plain(line));
            }
            _ => out += &format!("{}{}\n", blank(indent), wrap(&plain(line), width, indent)),
        }
    }
    out.trim_start().to_string()
}

/// A line without the escapes of roff.
fn plain(line: &str) -> String {
    let replaced = [("\\fB", ""), ("\\fI", ""), ("\\fR", ""), ("\\&", ""), ("\\-", "-"), ("\\(aq", "'"), ("\\e", "\\")];
    replaced.iter().fold(line.to_string(), |line, (escape, text)| line.replace(escape, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented::documented;

    #[test]
    fn every_page_is_text_without_requests_and_escapes() {
        let program = documented();
        for command in std::iter::once(&program).chain(program.get_subcommands()) {
            let page = super::super::page::of(command, command.get_name());
            let text = text(&page, 80);
            for heading in ["NAME", "SYNOPSIS", "OPTIONS", "SEE ALSO"] {
                assert!(text.lines().any(|line| line == heading), "{heading}: {text}");
            }
            assert!(!text.contains("\\f") && !text.contains("\\-") && !text.contains("\\&"), "{text}");
            assert!(text.lines().all(|line| !line.starts_with('.')), "{text}");
            let is_prose = |line: &&str| !line.starts_with(&" ".repeat(EXAMPLE)) && line.contains(". ");
            assert!(text.lines().filter(is_prose).all(|line| line.chars().count() <= 80), "{text}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_or_fails_took_nothing() {
        assert!(takes("cat", &["-"], "") && !takes("false", &[], "text"));
        assert!(!takes("/nowhere/to/be/found", &[], "text"));
    }
}
