//! `plimsoll report`: the page, or another form, of results that were saved.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use measure::schema::Document;
use report::html::{self, NamedDocument};

use crate::command_line::{Arguments, Subcommand};
use crate::exit::Exit;
use crate::output;
use crate::picture;

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
        .arg(
            Arg::new("chart")
                .long("chart")
                .value_name("NAME.svg|NAME.png")
                .action(ArgAction::Append)
                .value_parser(picture::file)
                .conflicts_with_all(["output", "format"])
                .help(
                    "Write one chart to a file instead of the page: the chart whose name the file's name ends with, \
                     such as latency.svg or before-iops.svg, else the first one; the output lists the names. png \
                     needs rsvg-convert",
                ),
        )
}

fn run(matches: &ArgMatches, _job: Vec<OsString>) -> anyhow::Result<Exit> {
    let paths: Vec<&PathBuf> = matches.get_many("results").expect("required").collect();
    let named = |path: &&PathBuf| -> anyhow::Result<Option<NamedDocument>> {
        let document = output::read_among(path, paths.len())?;
        Ok(document.map(|document| NamedDocument { name: path.display().to_string(), document }))
    };
    if let Some(path) = matches.get_one::<String>("output").filter(|path| *path != "-") {
        output::try_apart(&[Path::new(path)], paths.iter().copied().cloned())?;
    }
    let charts: Vec<&PathBuf> = matches.get_many("chart").into_iter().flatten().collect();
    let files: Vec<&Path> = charts.iter().map(|path| path.as_path()).collect();
    output::try_apart(&files, paths.iter().copied().cloned())?;
    let documents = paths.iter().filter_map(|path| named(path).transpose()).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!documents.is_empty(), "none of these files is a result: give those that --save has written");
    if !files.is_empty() {
        picture::write_all(&html::pictures(&documents), &files)?;
        return Ok(Exit::Ok);
    }
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
