//! `plimsoll rpc`: calls to a target's control socket, in the language of SPDK's rpc.py.

mod ls;

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use nvme_rpc::params::from_words;
use nvme_rpc::{DEFAULT_PATH, Step, client, find_method, unknown_method};
use serde_json::{Value, json};

use crate::command_line::{Arguments, Subcommand};
use crate::exit::Exit;
use crate::{output, values};

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run };

fn command() -> Command {
    Command::new("rpc")
        .about("Call a method of a running target")
        .long_about(
            "Calls a method of a running `plimsoll serve` or SPDK target through its control socket. Prints the \
             answer as SPDK's rpc.py does: a string as text, any other value as JSON.\n\nThree words are not methods: \
             `ls` prints the target as a tree, `save_config` prints its configuration, and `load_config [FILE]` makes what \
             a configuration has and the target has not, changes what differs, and leaves the rest alone; with \
             --replace it also removes what the configuration does not have.",
        )
        .after_help(crate::man::examples("rpc"))
        .arg(
            Arg::new("socket")
                .short('s')
                .long("socket")
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .default_value(DEFAULT_PATH)
                .help("Path of the control socket"),
        )
        .arg(
            Arg::new("timeout")
                .short('t')
                .long("timeout")
                .value_name("TIME")
                .value_parser(values::duration)
                .default_value("60s")
                .help("Time to wait for the answer"),
        )
        .arg(
            Arg::new("markdown")
                .long("markdown")
                .action(ArgAction::SetTrue)
                .conflicts_with("method")
                .help("Print the reference of all methods as Markdown"),
        )
        .disable_help_flag(true)
        .arg(
            Arg::new("help")
                .short('h')
                .long("help")
                .action(ArgAction::SetTrue)
                .help("Print help, or the help of METHOD"),
        )
        .arg(Arg::new("method").value_name("METHOD").help("Method to call"))
        .arg(
            Arg::new("params")
                .value_name("NAME=VALUE")
                .num_args(0..)
                .allow_hyphen_values(true)
                .trailing_var_arg(true)
                .help("Parameters of the method: VALUE is JSON or text; NAME.MEMBER=VALUE sets a member of an object"),
        )
}

fn run(matches: &ArgMatches, _job: Vec<OsString>) -> anyhow::Result<Exit> {
    if matches.get_flag("markdown") {
        output::print(&nvme_rpc::markdown())?;
        return Ok(Exit::Ok);
    }
    let help = matches.get_flag("help");
    let Some(name) = matches.get_one::<String>("method") else {
        if help {
            output::print(&format!("{}\n", command().bin_name("plimsoll rpc").render_long_help()))?;
            return Ok(Exit::Ok);
        }
        output::print(&nvme_rpc::help(None))?;
        return Ok(Exit::Ok);
    };
    let words: Vec<&str> = matches.get_many::<String>("params").into_iter().flatten().map(String::as_str).collect();
    let target = Connection {
        path: matches.get_one::<PathBuf>("socket").expect("it has a default"),
        timeout: *matches.get_one("timeout").expect("it has a default"),
    };
    let method = find_method(name);
    if help || words.iter().any(|word| ["-h", "--help"].contains(word)) {
        let method = method.with_context(|| unknown_method(name).message)?;
        output::print(&nvme_rpc::help(Some(method)))?;
        return Ok(Exit::Ok);
    }
    match name.as_str() {
        "save_config" => target.save(&words),
        "load_config" => target.load(&words),
        "ls" => {
            ensure!(words.is_empty(), "ls takes no parameters: it prints the whole target");
            output::print(&ls::tree(|method| target.call(method, None))?)?;
            Ok(Exit::Ok)
        }
        _ => {
            let table = method.filter(|method| !method.params.is_empty()).map(|method| method.params);
            let params = from_words(table, words.into_iter()).map_err(anyhow::Error::msg)?;
            let answer = target.call(name, params.as_ref())?;
            let text = match answer {
                Value::String(text) => text,
                answer => serde_json::to_string_pretty(&answer)?,
            };
            output::print(&(text + "\n"))?;
            Ok(Exit::Ok)
        }
    }
}

struct Connection<'a> {
    path: &'a Path,
    timeout: Duration,
}

impl Connection<'_> {
    fn call(&self, method: &str, params: Option<&Value>) -> anyhow::Result<Value> {
        let answer =
            client::call(self.path, method, params, self.timeout).map_err(|error| self.explain(method, &error))?;
        answer.map_err(|error| anyhow::anyhow!("{method}: {error} (code {})", error.code))
    }

    fn explain(&self, method: &str, error: &io::Error) -> anyhow::Error {
        let path = self.path.display();
        let nobody = "no target is listening there: start `plimsoll serve`, or give its --socket";
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => anyhow::anyhow!("{path}: {nobody}"),
            io::ErrorKind::PermissionDenied => {
                anyhow::anyhow!("{path}: only the user who started the target (and root) may control it")
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                anyhow::anyhow!("{path}: no answer to {method} within {:?} (--timeout)", self.timeout)
            }
            _ => anyhow::anyhow!("{path}: {method}: {error}"),
        }
    }

    /// Prints the configuration as a file.
    fn save(&self, words: &[&str]) -> anyhow::Result<Exit> {
        if let Some(word) = words.first() {
            bail!("save_config takes no {word:?}: it prints the configuration");
        }
        let parts = self.call("framework_get_subsystems", None)?;
        let mut subsystems = Vec::new();
        for part in parts.as_array().into_iter().flatten().filter_map(|part| part["subsystem"].as_str()) {
            let config = self.call("framework_get_config", Some(&json!({ "name": part })))?;
            subsystems.push(json!({ "subsystem": part, "config": config }));
        }
        output::print(&(serde_json::to_string_pretty(&json!({ "subsystems": subsystems }))? + "\n"))?;
        Ok(Exit::Ok)
    }

    /// Brings a configuration about, of a file or of standard input: by what differs, if the target can tell.
    fn load(&self, words: &[&str]) -> anyhow::Result<Exit> {
        let replaces = words.contains(&"--replace");
        let words: Vec<&str> = words.iter().copied().filter(|word| *word != "--replace").collect();
        let (name, text) = match words[..] {
            [] => {
                let mut text = String::new();
                io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
                ("standard input", text)
            }
            [path] => (path, std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?),
            _ => bail!("load_config takes one file, or none for standard input"),
        };
        let steps =
            nvme_rpc::parse_configuration(&text).map_err(anyhow::Error::msg).with_context(|| name.to_string())?;
        let now = self.call("rpc_get_methods", Some(&json!({ "current": true })))?;
        if now.as_array().is_some_and(|now| now.contains(&json!("framework_reload_config"))) {
            return self.reload(name, &steps, replaces);
        }
        ensure!(!replaces, "{name}: this target cannot replace its configuration: leave --replace out");
        // A target that waits for framework_start_init takes some calls before it, and the others after.
        let callable = |step: &&Step| now.as_array().is_some_and(|now| now.contains(&json!(step.method)));
        let waits = now.as_array().is_some_and(|now| now.contains(&json!("framework_start_init")));
        let (first, rest): (Vec<&Step>, Vec<&Step>) = steps.iter().partition(|step| !waits || callable(step));
        for Step { method, params, .. } in first {
            self.call(method, params.as_ref()).with_context(|| name.to_string())?;
        }
        if waits {
            self.call("framework_start_init", None)?;
        }
        for Step { method, params, .. } in rest {
            self.call(method, params.as_ref()).with_context(|| name.to_string())?;
        }
        Ok(Exit::Ok)
    }

    /// Has the target change what differs, and tells what that was.
    fn reload(&self, name: &str, steps: &[Step], replaces: bool) -> anyhow::Result<Exit> {
        let params = json!({ "subsystems": nvme_rpc::grouped_configuration(steps), "keep": !replaces });
        let done = self.call("framework_reload_config", Some(&params)).with_context(|| name.to_string())?;
        let mut lines = Vec::new();
        for (kind, word) in
            [("removed", "removed"), ("made_anew", "made anew"), ("changed", "changed"), ("added", "added")]
        {
            let things = done[kind].as_array().into_iter().flatten().filter_map(Value::as_str);
            lines.extend(things.map(|thing| format!("{word}: {thing}\n")));
        }
        lines.push(format!("{} unchanged\n", done["unchanged"]));
        if let Some(left @ 1..) = done["left_alone"].as_u64() {
            lines.push(format!("{left} more that {name} does not have (--replace removes them)\n"));
        }
        output::print(&lines.concat())?;
        Ok(Exit::Ok)
    }
}
