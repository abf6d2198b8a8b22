//! `--hosts a,b,c`: the same command on many hosts, started by ssh.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::atomic::Ordering;

use anyhow::{Context, anyhow};
use clap::Arg;
use hosts::ssh::{self, AGENT, Order};

use crate::exit::Exit;
use crate::interrupt::Interrupt;

/// The option's name.
const OPTION: &str = "--hosts";
/// The variable that names another remote shell, and its value where it is not set.
const SHELL: (&str, &str) = ("PLIMSOLL_SSH", "ssh -o BatchMode=yes");

/// The option, for the help of the commands that take it.
pub fn argument() -> Arg {
    let help = "Run on these hosts, which ssh reaches, a rank on each [or HOST:RANKS]; docs/hosts.md";
    Arg::new("hosts").long("hosts").value_name("HOST,...").help(help)
}

/// Starts the command on the hosts of `--hosts` and waits for its end; None where the option is not given.
///
/// # Errors
/// A list that is none; a remote shell that cannot be started.
pub fn lead(interrupt: &Interrupt) -> anyhow::Result<Option<Exit>> {
    let (list, words) = without_hosts(std::env::args_os().skip(1).collect());
    let Some(list) = list else { return Ok(None) };
    let list = list.into_string().map_err(|list| anyhow!("{OPTION}: {list:?} is not text"))?;
    let shell = std::env::var(SHELL.0).unwrap_or_else(|_| SHELL.1.into());
    let order = Order {
        hosts: ssh::ranks_of(&list).map_err(anyhow::Error::msg)?,
        shell: shell.split_whitespace().map(str::to_owned).collect(),
        program: std::env::current_exe().context("this program is not found")?,
        directory: std::env::current_dir().context("the working directory is not found")?,
        words,
        on_terminal: std::io::stderr().is_terminal(),
    };
    anyhow::ensure!(!order.shell.is_empty(), "{} is empty: it names the remote shell", SHELL.0);
    let status = ssh::lead(&order, || interrupt.signalled.load(Ordering::Relaxed))?;
    Ok(Some(match status {
        0 => Exit::Ok,
        2 => Exit::BadInput,
        130 => Exit::Interrupted,
        _ => Exit::JobFailed,
    }))
}

/// The value of `--hosts`, and the other words.
fn without_hosts(words: Vec<OsString>) -> (Option<OsString>, Vec<OsString>) {
    let mut list = None;
    let mut others = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.to_str().and_then(|word| word.strip_prefix(OPTION)) {
            Some("") => list = Some(words.next().unwrap_or_default()),
            Some(value) if value.starts_with('=') => list = Some(value[1..].into()),
            _ => others.push(word),
        }
    }
    (list, others)
}

/// Carries out `plimsoll hosts-agent RANK RANKS [NAME=VALUE]... -- WORDS...`, which ssh starts; None if these arguments
/// of the program are others.
pub fn agent(arguments: &[OsString]) -> Option<anyhow::Result<Exit>> {
    let text: Vec<&str> = arguments.iter().map_while(|word| word.to_str()).take_while(|word| *word != "--").collect();
    let [_, AGENT, rank, ranks, variables @ ..] = &text[..] else { return None };
    let words = arguments.get(text.len() + 1..).unwrap_or_default();
    let variables: Vec<(&str, &str)> = variables.iter().filter_map(|variable| variable.split_once('=')).collect();
    let (rank, ranks) = (rank.parse().ok()?, ranks.parse().ok()?);
    Some(ssh::serve(rank, ranks, &variables, words).map(|()| Exit::Ok).context("cannot be the agent of a rank"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_taken_out_of_the_words() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let (list, others) = without_hosts(words(&["run", "--hosts", "a,b", "job.fio", "--hostname=x"]));
        assert_eq!((list, others), (Some("a,b".into()), words(&["run", "job.fio", "--hostname=x"])));
        assert_eq!(without_hosts(words(&["run", "--hosts=a"])), (Some("a".into()), words(&["run"])));
        assert_eq!(without_hosts(words(&["run", "--hosts"])), (Some("".into()), words(&["run"])));
        assert_eq!(without_hosts(words(&["run"])).0, None);
    }
}
