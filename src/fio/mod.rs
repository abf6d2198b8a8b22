//! `fio`, under that name or as a subcommand: `run` with fio's habits, for scripts and programs that call fio.

use std::ffi::OsString;
use std::io::Write;

use clap::{ArgMatches, Command};
use job::job::{Job, Plan};
use measure::Direction;
use measure::figures::ByteUnits;
use report::{fio_json, fio_text};

use crate::command_line::{Arguments, Subcommand};
use crate::exit::{self, Exit};
use crate::run::{self, Manner};

pub mod status_line;

/// The name that the program may be called by.
pub const NAME: &str = "fio";

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Job, run };

fn command() -> Command {
    Command::new(NAME)
        .about("Run fio job files with fio's defaults and exit statuses, for scripts that call fio")
        .long_about(
            "Does what `plimsoll run` does, and keeps fio's habits where scripts rely on them: the version begins with \
             fio-3., notes stand in the report and not on standard error, several reports come in fio's order, the \
             status of wrong arguments is 1 and that of an interrupted run 128. A link of that name to this program \
             does the same.",
        )
        .override_usage("fio [FLAG]... [JOBFILE]... [--name=JOB] [--JOB-OPTION=VALUE]...")
}

fn run(_matches: &ArgMatches, words: Vec<OsString>) -> anyhow::Result<Exit> {
    match run::run_as(Manner::Fio, words) {
        Ok(Exit::BadInput) => Ok(Exit::JobFailed),
        Ok(Exit::Interrupted) => Ok(Exit::InterruptedAsFio),
        Err(error) if !exit::is_internal(&error) && !exit::is_broken_pipe(&error) => {
            // A closed standard error does not make the program panic: the status still tells.
            let _ = writeln!(std::io::stderr(), "fio: {error:#}");
            Ok(Exit::JobFailed)
        }
        outcome => outcome,
    }
}

/// The lines that fio writes before a run: each job's pattern, blocks and engine; the version; the number of processes.
pub fn opening(plan: &Plan) -> String {
    let mut text = String::new();
    for (job, group) in plan.jobs.iter().zip(plan.groups()) {
        text += &opening_of(job, group);
        if job.process.clones > 1 {
            text += "...\n";
        }
    }
    let count = |thread: bool, one: &str, several: &str| {
        let jobs = plan.jobs.iter().filter(|job| job.process.thread == thread);
        match jobs.map(|job| job.process.clones.max(1)).sum::<u32>() {
            0 => None,
            1 => Some(format!("1 {one}")),
            many => Some(format!("{many} {several}")),
        }
    };
    let counts = [count(true, "thread", "threads"), count(false, "process", "processes")];
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    let version = fio_json::version_of(env!("CARGO_PKG_VERSION"));
    text + &format!("{version}\nStarting {}\n", counts.join(" and "))
}

fn units_of(job: &Job) -> ByteUnits {
    ByteUnits { kb_base: job.reporting.kb_base, unit_base: job.reporting.unit_base }
}

fn opening_of(job: &Job, group: u32) -> String {
    let units = units_of(job);
    let size = |bytes: u64| fio_text::block_size(bytes, units);
    let names = if job.blocks.is_seq_rand { ["SEQ", "RAND", ""] } else { ["R", "W", "T"] };
    let named = Direction::ALL.into_iter().zip(names).filter(|(_, name)| !name.is_empty());
    let sizes = named.map(|(direction, name)| {
        let (least, most) = job.blocks.range[direction];
        format!("({name}) {}-{}", size(least), size(most))
    });
    let sizes: Vec<String> = sizes.collect();
    let (name, rw, engine, depth) = (&job.name, job.rw.name(), &job.engine, job.queue.depth);
    format!("{name}: (g={group}): rw={rw}, bs={}, ioengine={engine}, iodepth={depth}\n", sizes.join(", "))
}
