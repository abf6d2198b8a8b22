//! `plimsoll completions SHELL`: the completion script of a shell.

use std::ffi::OsString;

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use crate::command_line::{Arguments, Subcommand};
use crate::documented::documented;
use crate::exit::Exit;

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run };

fn command() -> Command {
    Command::new("completions")
        .about("Print the completion script of a shell")
        .long_about(
            "Prints the completion script of a shell: `plimsoll completions bash > /etc/bash_completion.d/plimsoll`.",
        )
        .arg(Arg::new("shell").value_name("SHELL").required(true).value_parser(value_parser!(Shell)).help("The shell"))
}

fn run(matches: &ArgMatches, _job: Vec<OsString>) -> anyhow::Result<Exit> {
    let shell: Shell = *matches.get_one("shell").expect("required");
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut documented(), "plimsoll", &mut script);
    match shell {
        Shell::Bash => script.extend(BASH_EQUALS.bytes()),
        Shell::Fish => script.extend(fish_positionals(&documented()).into_bytes()),
        _ => {}
    }
    std::io::Write::write_all(&mut std::io::stdout(), &script)?;
    Ok(Exit::Ok)
}

/// Lines of bash for `--option=value`, which readline splits into three words, and for lists of values, which it does
/// not split: clap_complete's script for bash knows `--option value` only.
const BASH_EQUALS: &str = r#"
_plimsoll_equals() {
    local current=$2 previous=$3
    if [[ $current == = ]]; then
        current=
    elif [[ $previous == = ]]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    _plimsoll "$1" "$current" "$previous"
    if [[ ${#COMPREPLY[@]} == 0 && $current == *,* ]]; then
        _plimsoll "$1" "${current##*,}" "$previous"
        COMPREPLY=("${COMPREPLY[@]/#/${current%,*},}")
    fi
}
complete -F _plimsoll_equals -o nosort -o bashdefault -o default plimsoll
"#;

/// Lines of fish for the values of positional arguments, such as the methods of `rpc`: clap_complete's script for fish
/// completes options only.
fn fish_positionals(program: &Command) -> String {
    let mut lines = String::new();
    for subcommand in program.get_subcommands() {
        for argument in subcommand.get_positionals() {
            let values = argument.get_possible_values();
            let names: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
            if !names.is_empty() {
                let condition = format!("__fish_plimsoll_using_subcommand {}", subcommand.get_name());
                lines += &format!("complete -c plimsoll -n \"{condition}\" -f -a \"{}\"\n", names.join(" "));
            }
        }
    }
    lines
}
