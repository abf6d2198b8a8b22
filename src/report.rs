//! `plimsoll report`: the page, or another form, of results that were saved.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Arg, ArgMatches, Command, value_parser};
use measure::schema::Document;
use report::html::{self, NamedDocument};

use crate::command_line::{Arguments, Subcommand};
use crate::exit::Exit;
use crate::output;

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run };

fn command() -> Command {
    Command::new("report")
        .about("Make a page of results, one or many side by side")
        .long_about(
            "Makes a page of results, one or many side by side. It reads Plimsoll's results (`--save`) and fio's \
             JSON. The page needs neither network nor script.",
        )
        .arg(
            Arg::new("results")
                .value_name("RESULT")
                .num_args(1..)
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Results of `run --save`, `files --save`, `sweep`, `compare --save`, or of fio --output-format=json"),
        )
        .arg(
            Arg::new("output")
                .long("output")
                .short('o')
                .value_name("FILE")
                .help("File to write; - is standard output [default for html: plimsoll-report.html, for others: -]"),
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_parser(["html", "text", "csv", "json", "ndjson"])
                .default_value("html")
                .help("Format; json (fio's schema) and ndjson (intervals) are for results of run only"),
        )
}

fn run(matches: &ArgMatches, _job: Vec<OsString>) -> anyhow::Result<Exit> {
    let paths: Vec<&PathBuf> = matches.get_many("results").expect("required").collect();
    let named = |path: &&PathBuf| Ok(NamedDocument { name: path.display().to_string(), document: output::read(path)? });
    if let Some(path) = matches.get_one::<String>("output").filter(|path| *path != "-") {
        output::try_apart(&[Path::new(path)], paths.iter().copied().cloned())?;
    }
    let documents = paths.iter().map(named).collect::<anyhow::Result<Vec<_>>>()?;
    let format = matches.get_one::<String>("format").expect("has a default").as_str();
    let text = if format == "html" {
        html::render(&documents)
    } else {
        documents.iter().map(|named| render(named, format)).collect::<anyhow::Result<String>>()?
    };
    let default = if format == "html" { "plimsoll-report.html" } else { "-" };
    match matches.get_one::<String>("output").map_or(default, String::as_str) {
        "-" => output::print(&text)?,
        path => {
            output::write(Path::new(path), &text)?;
            output::print(&format!("Report: {path}\n"))?;
        }
    }
    Ok(Exit::Ok)
}

fn render(named: &NamedDocument, format: &str) -> anyhow::Result<String> {
    let style = output::style();
    Ok(match (&named.document, format) {
        (document, "csv") => report::csv::render(document),
        (Document::Run(run), "json") => report::fio_json::render(run, false),
        (Document::Run(run), "ndjson") => report::ndjson::render(run),
        (Document::Run(run), _) => report::text::run(run, style),
        (_, "json" | "ndjson") => bail!("{}: --format={format} is for results of `run`", named.name),
        (Document::Sweep(sweep), _) => report::text::sweep(sweep, style),
        (Document::Comparison(comparison), _) => report::text::comparison(comparison, style),
        (Document::Files(files), _) => report::text::files(files, style),
    })
}
