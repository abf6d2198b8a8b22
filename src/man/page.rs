//! One manual page: the sections that follow from the table of arguments, then those of [`sections`].

use clap::{Arg, Command};

use super::roff::{bold, escaped, prose, row};
use super::sections;
use crate::documented::JOB_OPTIONS;
use crate::fio;

/// More options than this make a synopsis that nobody reads: it says OPTION instead.
const IN_SYNOPSIS: usize = 8;

/// The page of a command as roff; `title` is its name in the index of pages, such as plimsoll-run.
pub fn of(command: &Command, title: &str) -> String {
    let name = command.get_name();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let description = command.get_long_about().map_or_else(|| about.clone(), ToString::to_string);
    let mut text = format!(
        // No hyphenation and no stretched blanks: a reader copies options from the page.
        ".TH {} 1 \"\" \"Plimsoll {}\" \"Plimsoll\"\n.nh\n.ad l\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}\n.SH DESCRIPTION\n{}\n",
        escaped(&title.to_uppercase()),
        env!("CARGO_PKG_VERSION"),
        escaped(title),
        prose(&about),
        synopsis(command, title),
        prose(&description),
    );
    text += &options(command);
    if command.has_subcommands() {
        let mut subcommands: Vec<&Command> = command.get_subcommands().collect();
        subcommands.sort_by_key(|subcommand| sections::names().position(|name| name == subcommand.get_name()));
        let rows = subcommands.into_iter().map(|subcommand| {
            let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
            format!(".TP\n{}\n{}\n", bold(&format!("plimsoll-{}(1)", subcommand.get_name())), prose(&about))
        });
        text += &format!(".SH SUBCOMMANDS\n{}", rows.collect::<String>());
    }
    let notes = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    if let Some(notes) = notes.filter(|notes| *notes != sections::examples(name)) {
        text += &format!(".SH NOTES\n{}", notes_of(&notes));
    }
    text + &sections::of(name)
}

/// The usage that the command states, else one that follows from its arguments.
fn synopsis(command: &Command, title: &str) -> String {
    let mut command = command.clone();
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let own = |argument: &&Arg| {
        !argument.is_positional() && argument.get_help_heading() != Some(JOB_OPTIONS) && argument.get_id() != "help"
    };
    let options: Vec<String> =
        command.get_arguments().filter(own).map(|argument| format!("[{}]", named(argument))).collect();
    let usage = if usage.contains("[OPTIONS]") && options.len() <= IN_SYNOPSIS {
        usage.replace("[OPTIONS]", &options.join(" "))
    } else {
        usage.replace("[OPTIONS]", "[OPTION]...")
    };
    // The page plimsoll-run is about the command `plimsoll run`; the page fsperf is about the link of that name.
    let usage = match title.starts_with("plimsoll-") && !usage.contains("plimsoll ") {
        true => usage.replacen(command.get_name(), &format!("plimsoll {}", command.get_name()), 1),
        false => usage,
    };
    let usage = usage.replace(['<', '>'], "");
    usage.lines().map(|line| escaped(line.trim())).collect::<Vec<_>>().join("\n.br\n")
}

/// Options and positional arguments; the job options have a section of their own, on the page of `run` only.
fn options(command: &Command) -> String {
    let is_run = command.get_name() == "run";
    let (jobs, own): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().partition(|argument| argument.get_help_heading() == Some(JOB_OPTIONS));
    if command.get_name() == fio::NAME {
        return String::from(".SH OPTIONS\nThe flags and the job options of \\fBplimsoll\\-run\\fR(1).\n");
    }
    let rows = |arguments: &[&Arg]| -> String {
        arguments.iter().map(|argument| row(&named(argument), &meaning(argument))).collect()
    };
    let mut text = format!(".SH OPTIONS\n{}", rows(&own));
    if !own.iter().any(|argument| argument.get_id() == "help") {
        text += &row("-h, --help", "Print help");
    }
    if command.get_version().is_some() {
        text += &row("-V, --version", "Print the version");
    }
    match jobs.is_empty() {
        true => text,
        false if is_run => text + &format!(".SH {}\n{}", JOB_OPTIONS.to_uppercase(), rows(&jobs)),
        false => text + ".PP\nThe job options of \\fBplimsoll\\-run\\fR(1) may stand beside these.\n",
    }
}

/// `-o, --output FILE`, or the name of a positional argument.
fn named(argument: &Arg) -> String {
    let most = argument.get_num_args().map_or(1, |range| range.max_values());
    let value = (argument.get_action().takes_values() && most > 0).then(|| match argument.get_value_names() {
        Some(names) => names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" "),
        None => argument.get_id().as_str().to_uppercase(),
    });
    let least = argument.get_num_args().map_or(1, |range| range.min_values());
    if argument.is_positional() {
        return format!("{}{}", value.unwrap_or_default(), if most > 1 { "..." } else { "" });
    }
    let longs = argument.get_long_and_visible_aliases().unwrap_or_default();
    let shorts = argument.get_short().into_iter().map(|short| format!("-{short}"));
    let names: Vec<String> = shorts.chain(longs.into_iter().map(|long| format!("--{long}"))).collect();
    match value {
        Some(value) if least == 0 => format!("{}[={value}]", names.join(", ")),
        Some(value) => format!("{} {value}", names.join(", ")),
        None => names.join(", "),
    }
}

/// The help of an argument with its values and its default.
fn meaning(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> = argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let values = match values.is_empty() || argument.is_hide_possible_values_set() {
        true => String::new(),
        false => format!(" [values: {}]", values.join(", ")),
    };
    let default = argument.get_default_values().first().map(|value| value.to_string_lossy()).unwrap_or_default();
    let default = match default.is_empty() || !argument.get_action().takes_values() || help.contains("[default") {
        true => String::new(),
        false => format!(" [default: {default}]"),
    };
    format!("{help}{values}{default}")
}

/// Text below the options: rows of two columns, lines that stand alone, and paragraphs.
fn notes_of(notes: &str) -> String {
    let mut text = String::new();
    for line in notes.lines().map(str::trim).filter(|line| !line.starts_with("usage:")) {
        let columns = line.split_once("  ").or_else(|| line.split_once(" - "));
        text += &match columns {
            Some((name, meaning)) => row(name, meaning.trim().trim_start_matches("- ")),
            None if line.is_empty() => continue,
            None => format!(".PP\n{}\n", prose(line)),
        };
    }
    text
}
