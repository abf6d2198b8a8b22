//! The whole command line as clap knows it, with the job options and the names of values that clap need not know for
//! parsing: manual pages and completions are made from it.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueHint};
use job::options::{OptionSpec, Status, ValueKind};

use crate::{command_line, man, run};

/// The heading of the job options.
pub const JOB_OPTIONS: &str = "Job options (as fio's)";

/// The arguments whose values have names, for completions: subcommand, argument, values.
fn named_values() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let engines = || job::engines::ENGINES.iter().map(|engine| engine.name).collect();
    let operations = load::smallfiles::OPERATIONS.iter().map(|row| row.name).collect();
    let methods = nvme_rpc::METHODS.iter().flat_map(|subject| subject.iter());
    vec![
        ("sweep", "engines", engines()),
        ("compare", "engines", engines()),
        ("files", "op", operations),
        ("trap", "policy", lanes::Policy::ALL.map(|policy| policy.name()).to_vec()),
        ("serve", "pacing", PACING.to_vec()),
        ("sim", "pacing", PACING.to_vec()),
        ("run", "pace", PACING.to_vec()),
        ("rpc", "method", methods.map(|method| method.name).collect()),
        ("man", "page", man::names().chain(["libiotrap"]).collect()),
    ]
}

/// The methods of pacing; those that end in a colon take a number.
const PACING: [&str; 7] = ["none", "auto", "auto:", "buffers:", "rate:", "iops:", "bw:"];

/// The job options whose value is a path: shells complete file names after these, and after no other job option.
const PATHS: [&str; 8] =
    ["filename", "directory", "opendir", "read_iolog", "write_iolog", "dhchap_key", "dhchap_ctrlr_key", "tls_key"];

/// The command line with all arguments, job options and names of values.
pub fn documented() -> Command {
    let files = Arg::new("file").value_name("JOBFILE").num_args(0..).value_hint(ValueHint::FilePath).help("Job files");
    let target = Arg::new("target")
        .value_name("TARGET")
        .value_hint(ValueHint::AnyPath)
        .help("File, directory or block device [default: .]");
    let sides = Arg::new("side")
        .value_name("FILE")
        .num_args(0..=2)
        .value_hint(ValueHint::FilePath)
        .help("Job files or results");
    let with_options = |command: Command| {
        let own: Vec<String> =
            command.get_arguments().filter_map(|argument| argument.get_long()).map(String::from).collect();
        command.args(job_options().filter(|argument| !own.iter().any(|own| argument.get_long() == Some(own))))
    };
    let program = command_line::program(crate::SUBCOMMANDS)
        .mut_subcommand("run", |run| with_options(run.args(run::flags()).arg(files.clone())))
        .mut_subcommand("fio", |fio| with_options(fio.args(run::flags()).arg(files)))
        .mut_subcommand("sweep", |sweep| with_options(sweep.arg(target)))
        .mut_subcommand("compare", |compare| with_options(compare.arg(sides)));
    named_values().into_iter().fold(program, |program, (subcommand, argument, values)| {
        program.mut_subcommand(subcommand, |command| {
            debug_assert!(command.get_arguments().any(|known| known.get_id() == argument), "{subcommand} {argument}");
            // The help of these arguments names the values already, or there are too many of them for a page.
            let is_in_help = argument != "op";
            command.mut_args(|known| match known.get_id() == argument {
                true => known.value_parser(PossibleValuesParser::new(values.clone())).hide_possible_values(is_in_help),
                false => known,
            })
        })
    })
}

/// The job options that a job can use; docs/options.md has those that Plimsoll refuses too.
fn job_options() -> impl Iterator<Item = Arg> {
    let usable = job::options::all().filter(|option| !matches!(option.status, Status::Unsupported(_)));
    usable.map(|option| {
        let argument = Arg::new(option.name).long(option.name).help_heading(JOB_OPTIONS);
        let argument = argument.help(option.help).long_help(job::options::paragraph(option));
        let argument = argument.visible_aliases(option.aliases.iter().copied());
        let argument = argument.value_name(value_name(option)).hide_possible_values(true);
        match option.kind.words() {
            _ if option.value_is_optional() => argument.num_args(0..=1).require_equals(true),
            [] if PATHS.contains(&option.name) => argument.num_args(1).value_hint(ValueHint::AnyPath),
            [] => argument.num_args(1).value_hint(ValueHint::Other),
            words => argument.num_args(1).value_parser(words.iter().map(|(word, _)| *word).collect::<Vec<_>>()),
        }
    })
}

/// A word for the value of a job option, such as SIZE.
fn value_name(option: &OptionSpec) -> &'static str {
    match option.kind {
        ValueKind::Bool(_) | ValueKind::Flag(_) => "0|1",
        ValueKind::Count(..) | ValueKind::Integer(..) | ValueKind::EachCount(..) | ValueKind::Numbers(..) => "NUMBER",
        ValueKind::Bytes(..) | ValueKind::EachBytes(..) => "SIZE",
        ValueKind::Amount(_) => "SIZE|PERCENT",
        ValueKind::Time(..) | ValueKind::TimeRange(..) | ValueKind::EachTime(..) => "TIME",
        ValueKind::BytesRange(_) | ValueKind::EachRange(_) => "SIZE-SIZE",
        ValueKind::Word(..) => "WORD",
        ValueKind::Text(_) | ValueKind::OptionalText(_) if PATHS.contains(&option.name) => "PATH",
        ValueKind::Text(_) | ValueKind::OptionalText(_) => "TEXT",
        ValueKind::Custom(..) | ValueKind::Opaque => "VALUE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_of_pacing_is_one_that_the_program_takes() {
        for method in PACING {
            let whole = if method.ends_with(':') { format!("{method}4096") } else { method.to_owned() };
            assert!(pace::Config::parse(&whole, 1024).is_ok(), "{whole}");
        }
    }

    #[test]
    fn every_argument_with_named_values_is_there() {
        documented().debug_assert();
    }
}
