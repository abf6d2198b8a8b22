//! The table as text: the help of one option, the list of all, the manual.

use std::fmt::Write;

use super::{OptionSpec, Status, TABLE, ValueKind};

/// All options with their help, one a line, group by group: `--cmdhelp`.
pub fn overview() -> String {
    let mut text = String::new();
    for group in TABLE {
        let _ = writeln!(text, "{}:", group.title);
        for option in group.options {
            let mark = match option.status {
                Status::Supported => "",
                Status::NoEffect(_) => " [no effect]",
                Status::Unsupported(_) => " [unsupported]",
            };
            let _ = writeln!(text, "  {:<30} {}{mark}", option.name, option.help);
        }
    }
    text
}

/// Everything about one option: `--cmdhelp=NAME`.
pub fn describe(option: &OptionSpec) -> String {
    let mut text = format!("{}: {}\n", option.name, option.help);
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(text, "{label:>10}: {value}");
    };
    if !option.aliases.is_empty() {
        line("alias", &option.aliases.join(", "));
    }
    if !matches!(option.kind, ValueKind::Opaque) {
        line("value", &option.kind.form());
    }
    line("default", if option.default.is_empty() { "none" } else { option.default });
    for (index, (word, help)) in words(option).iter().enumerate() {
        line(if index == 0 { "words" } else { "" }, format!("{word:<14} {help}").trim_end());
    }
    let engines = option.engines();
    if !engines.is_empty() {
        line("engines", &engines.join(", "));
    }
    match option.status {
        Status::Supported => {}
        Status::NoEffect(reason) => line("no effect", reason),
        Status::Unsupported(reason) => line("refused", reason),
    }
    text
}

fn words(option: &OptionSpec) -> &'static [(&'static str, &'static str)] {
    if matches!(option.kind, ValueKind::Bool(_) | ValueKind::Flag(_)) { &[] } else { option.kind.words() }
}

/// Everything about one option in a paragraph, for a manual page.
pub fn paragraph(option: &OptionSpec) -> String {
    let mut text = format!("{}.", option.help);
    let mut add = |label: &str, value: &str| {
        let _ = write!(text, " {label}: {value}.");
    };
    // The word for the value beside the name says enough of these kinds.
    let is_plain = match &option.kind {
        ValueKind::Bool(_)
        | ValueKind::Flag(_)
        | ValueKind::Bytes(..)
        | ValueKind::Amount(_)
        | ValueKind::Word(..)
        | ValueKind::Text(_) => true,
        ValueKind::OptionalText(_) | ValueKind::Opaque => true,
        ValueKind::Custom(form, ..) => *form == "word",
        _ => false,
    };
    if !is_plain {
        add("Value", &option.kind.form());
    }
    let words: Vec<&str> = words(option).iter().map(|(word, _)| *word).collect();
    if !words.is_empty() {
        add("Words", &words.join(", "));
    }
    if !option.default.is_empty() {
        add("Default", option.default);
    }
    let engines = option.engines();
    if !engines.is_empty() {
        add("Engines", &engines.join(", "));
    }
    match option.status {
        Status::Supported => {}
        Status::NoEffect(reason) => add("No effect", reason),
        Status::Unsupported(reason) => add("Refused", reason),
    }
    text
}

/// The reference of all options as Markdown.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Options of a job\n\n`make docs` makes this page from the table in `crates/job/src/options/table.rs`; do not edit it. [jobfile.md](jobfile.md)\nexplains job files. `plimsoll run --cmdhelp=NAME` prints one entry.\n\nA refused option stops the run with an error that names it, unless its value is the default. An option that neither\nPlimsoll nor fio 3.33 knows is an error too.\n",
    );
    for group in TABLE {
        let _ = write!(text, "\n## {}\n\n| option | value | default | |\n| --- | --- | --- | --- |\n", group.title);
        for option in group.options {
            let names = option.names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let form = if words(option).is_empty() {
                option.kind.form()
            } else {
                format!("{}: {}", option.kind.form(), word_list(option))
            };
            let form = if matches!(option.kind, ValueKind::Opaque) { String::new() } else { form };
            let default = if option.default.is_empty() { String::new() } else { format!("`{}`", option.default) };
            let engines = option.engines();
            let engines = if engines.is_empty() { String::new() } else { format!(" Engines: {}.", engines.join(", ")) };
            let status = match option.status {
                Status::Supported => String::new(),
                Status::NoEffect(reason) => format!(" **No effect:** {reason}."),
                Status::Unsupported(reason) => format!(" **Refused:** {reason}."),
            };
            let cells = [names, form, default, format!("{}.{engines}{status}", option.help)];
            let _ = writeln!(text, "| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
        }
    }
    text
}

fn word_list(option: &OptionSpec) -> String {
    words(option).iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(" ")
}
