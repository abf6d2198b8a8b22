//! Methods about the target as a program: its methods, its configuration, its end.

use nvme_target::journal::Level;
use serde_json::{Value, json};

use super::{METHODS as ALL, Method, Run, When, only};
use crate::config::{SUBSYSTEMS, Step};
use crate::jsonrpc::{Outcome, RpcError};
use crate::params::{Need, Param, ParamKind, Params, U64};
use crate::reload;
use crate::state::{Ending, State};

/// Signals by which [`METHODS`]' spdk_kill_instance knows how to end.
const SIGNALS: [&str; 12] =
    ["SIGINT", "SIGTERM", "SIGQUIT", "SIGHUP", "SIGKILL", "SIGUSR1", "INT", "TERM", "QUIT", "HUP", "KILL", "USR1"];

/// The methods of this module.
pub static METHODS: &[Method] = &[
    Method {
        name: "rpc_get_methods",
        about: "List the methods",
        params: &[
            Param::optional("current", ParamKind::Bool, "false", "list only methods that may be called now"),
            Param::ignored("include_aliases", ParamKind::Bool, "there are no aliases"),
        ],
        result: "their names",
        when: When::Always,
        run: Run::Do(get_methods),
    },
    Method {
        name: "spdk_get_version",
        about: "Show the version of this program",
        params: &[],
        result: "version and its fields",
        when: When::Always,
        run: Run::Do(get_version),
    },
    Method {
        name: "framework_start_init",
        about: "Start a target that `plimsoll serve --wait-for-rpc` holds; without such a target answer true too, where SPDK answers an error",
        params: &[],
        result: "true",
        when: When::Startup,
        run: Run::Do(start_init),
    },
    Method {
        name: "framework_wait_init",
        about: "Wait until the target is initialized",
        params: &[],
        result: "true",
        when: When::Always,
        run: Run::Do(|_, _| Ok(Value::Bool(true))),
    },
    Method {
        name: "framework_get_subsystems",
        about: "List the parts of the configuration in the order of their loading",
        params: &[],
        result: "their names and dependencies",
        when: When::Always,
        run: Run::Do(get_subsystems),
    },
    Method {
        name: "framework_get_config",
        about: "List the calls that make one part of the configuration",
        params: &[
            Param::required("name", ParamKind::Text, "keyring, bdev or nvmf"),
            Param::ignored("with_batches", ParamKind::Bool, "no call stands in a batch, so there are none to include"),
        ],
        result: "the calls in the form of \"config\" in a configuration file",
        when: When::Always,
        run: Run::Do(get_config),
    },
    Method {
        name: "framework_reload_config",
        about: "Make the configuration that of a file by changing what differs (SPDK lacks this): connections of what does \
                not change last",
        params: &[
            Param::optional(
                "subsystems",
                ParamKind::Any,
                "those of the file of `plimsoll serve -c`, as it is now",
                "the array of that name in a configuration file",
            ),
            Param::optional("keep", ParamKind::Bool, "false", "keep what the configuration does not have"),
        ],
        result: "the names of what was added, changed, made_anew and removed, and the numbers unchanged and left_alone",
        when: When::Initialized,
        run: Run::DoInSteps(reload::reload_config),
    },
    Method {
        name: "framework_set_scheduler",
        about: "Choose a scheduler; only static is possible, because idle reactors sleep",
        params: &[
            Param {
                need: Need::Only("\"static\""),
                ..Param::required("name", ParamKind::Text, "threads stay on the reactors of --cores")
            },
            Param::only("period", U64, "0", "a static scheduler has no period"),
        ],
        result: "true",
        when: When::Always,
        run: Run::Do(|_, _| Ok(Value::Bool(true))),
    },
    Method {
        name: "framework_get_reactors",
        about: "Show how busy each reactor is",
        params: &[],
        result: "tick_rate (1/s), reactors with busy and idle ticks",
        when: When::Initialized,
        run: Run::Do(get_reactors),
    },
    Method {
        name: "thread_get_stats",
        about: "Show how busy each serving thread is",
        params: &[],
        result: "tick_rate (1/s), threads with busy and idle ticks",
        when: When::Initialized,
        run: Run::Do(get_threads),
    },
    Method {
        name: "thread_get_pollers",
        about: "Tell how often the event loop of each thread that serves has turned",
        params: &[],
        result: "tick_rate (1/s), threads, each with its event loop as the one active poller",
        when: When::Initialized,
        run: Run::Do(get_pollers),
    },
    Method {
        name: "framework_get_scheduler",
        about: "Tell the scheduler of threads: connections go to reactors, and reactors stay on their processors",
        params: &[],
        result: "scheduler_name, scheduler_period (us)",
        when: When::Always,
        run: Run::Do(|_, _| Ok(json!({ "scheduler_name": "static", "scheduler_period": 0 }))),
    },
    Method {
        name: "log_get_flags",
        about: "List the flags of the log: there are none",
        params: &[],
        result: "an object without members",
        when: When::Always,
        run: Run::Do(|_, _| Ok(json!({}))),
    },
    Method {
        name: "log_get_level",
        about: "Tell the level of the log",
        params: &[],
        result: "ERROR, WARNING, NOTICE, INFO or DEBUG",
        when: When::Always,
        run: Run::Do(get_log_level),
    },
    Method {
        name: "log_get_print_level",
        about: "Tell the level of the log, as log_get_level does",
        params: &[],
        result: "ERROR, WARNING, NOTICE, INFO or DEBUG",
        when: When::Always,
        run: Run::Do(get_log_level),
    },
    Method {
        name: "log_set_print_level",
        about: "Choose the level of the log, as log_set_level does: there is one log, on standard error",
        params: &[LOG_LEVEL],
        result: "true",
        when: When::Always,
        run: Run::Do(set_log_level),
    },
    Method {
        name: "log_set_level",
        about: "Choose the least grave level of lines in the log on standard error",
        params: &[LOG_LEVEL],
        result: "true",
        when: When::Always,
        run: Run::Do(set_log_level),
    },
    Method {
        name: "spdk_kill_instance",
        about: "Send a signal to the target: SIGKILL ends it at once, the others in good order",
        params: &[Param::required("sig_name", ParamKind::OneOf(&SIGNALS), "the signal")],
        result: "true, before it ends",
        when: When::Always,
        run: Run::Do(kill_instance),
    },
    only(
        "sock_set_default_impl",
        "Say that connections are the kernel's sockets",
        &[Param::required(
            "impl_name",
            ParamKind::OneOf(&["posix", "uring"]),
            "the kernel's sockets in both cases; listeners ask for TLS by secure_channel",
        )],
    ),
    Method {
        name: "sock_get_default_impl",
        about: "Tell the sockets of connections: the kernel's, whichever name sock_set_default_impl has given",
        params: &[],
        result: "impl_name, always posix",
        when: When::Always,
        run: Run::Do(|_, _| Ok(json!({ "impl_name": "posix" }))),
    },
];

const LOG_LEVEL: Param = Param::required(
    "level",
    ParamKind::OneOf(&Level::NAMES),
    "WARNING has refusals and violations, NOTICE also hosts that come and go and changes of the configuration, INFO also \
     queues and discovery, DEBUG also questions to the control socket",
);

fn get_log_level(state: &mut State, _: &Params) -> Outcome {
    Ok(json!(state.target.journal().level().name()))
}

fn set_log_level(state: &mut State, params: &Params) -> Outcome {
    if let Some(level) = Level::named(params.text("level")) {
        state.target.journal().set_level(level);
    }
    Ok(Value::Bool(true))
}

fn get_methods(state: &mut State, params: &Params) -> Outcome {
    let current = params.bool_if("current").unwrap_or(false);
    let callable = |method: &&Method| {
        !current || method.when == When::Always || (method.when == When::Initialized) == state.initialized
    };
    let names: Vec<&str> = ALL.iter().copied().flatten().filter(callable).map(|method| method.name).collect();
    Ok(json!(names))
}

fn get_version(_: &mut State, _: &Params) -> Outcome {
    let number = |text: &str| text.parse::<u32>().unwrap_or_default();
    Ok(json!({
        "version": concat!("plimsoll ", env!("CARGO_PKG_VERSION")),
        "fields": {
            "major": number(env!("CARGO_PKG_VERSION_MAJOR")),
            "minor": number(env!("CARGO_PKG_VERSION_MINOR")),
            "patch": number(env!("CARGO_PKG_VERSION_PATCH")),
            "suffix": env!("CARGO_PKG_VERSION_PRE")
        }
    }))
}

fn start_init(state: &mut State, _: &Params) -> Outcome {
    state.initialized = true;
    Ok(Value::Bool(true))
}

fn get_subsystems(_: &mut State, _: &Params) -> Outcome {
    Ok(SUBSYSTEMS.iter().map(|(name, needs)| json!({ "subsystem": name, "depends_on": needs })).collect())
}

fn get_config(state: &mut State, params: &Params) -> Outcome {
    let name = params.text("name");
    if !SUBSYSTEMS.iter().any(|(known, _)| *known == name) {
        return Err(RpcError::params(format!("Subsystem '{name}' not found; there are keyring, bdev and nvmf")));
    }
    Ok(state.made.iter().filter(|step| step.subsystem == name).map(Step::object).collect())
}

fn get_reactors(state: &mut State, _: &Params) -> Outcome {
    let stats = state.target.stats();
    let reactors: Vec<Value> = stats
        .reactors
        .iter()
        .enumerate()
        .map(|(number, reactor)| {
            json!({
                "lcore": state.target.processor(number),
                "busy": reactor.busy_ns,
                "idle": stats.uptime_ns.saturating_sub(reactor.busy_ns),
                "in_interrupt": true,
                "lw_threads": [{
                    "name": reactor.name,
                    "id": number + 1,
                    "cpumask": mask(state.target.processor(number)),
                    "elapsed": stats.uptime_ns
                }]
            })
        })
        .collect();
    Ok(json!({ "tick_rate": 1_000_000_000u64, "pid": std::process::id(), "reactors": reactors }))
}

/// A set of one processor as SPDK writes it: hexadecimal, without a prefix.
fn mask(processor: u32) -> String {
    let digit = format!("{:x}", 1 << (processor % 4));
    digit + &"0".repeat(processor as usize / 4)
}

fn get_threads(state: &mut State, _: &Params) -> Outcome {
    let stats = state.target.stats();
    let threads: Vec<Value> = stats
        .reactors
        .iter()
        .enumerate()
        .map(|(number, reactor)| {
            json!({
                "name": reactor.name,
                "id": number + 1,
                "cpumask": mask(state.target.processor(number)),
                "busy": reactor.busy_ns,
                "idle": stats.uptime_ns.saturating_sub(reactor.busy_ns),
                "in_interrupt": true,
                "active_pollers_count": 1,
                "timed_pollers_count": 0,
                "paused_pollers_count": 0
            })
        })
        .collect();
    Ok(json!({ "tick_rate": 1_000_000_000u64, "threads": threads }))
}

fn get_pollers(state: &mut State, _: &Params) -> Outcome {
    let stats = state.target.stats();
    let thread = |(number, reactor): (usize, &nvme_target::ReactorStats)| {
        json!({
            "name": reactor.name,
            "id": number + 1,
            "active_pollers": [{
                "name": "nvmf_poll_group_poll", "id": 1, "state": "waiting",
                "run_count": reactor.loops, "busy_count": reactor.completed_io
            }],
            "timed_pollers": [],
            "paused_pollers": []
        })
    };
    let threads: Vec<Value> = stats.reactors.iter().enumerate().map(thread).collect();
    Ok(json!({ "tick_rate": 1_000_000_000u64, "threads": threads }))
}

fn kill_instance(state: &mut State, params: &Params) -> Outcome {
    let now = params.text("sig_name").ends_with("KILL");
    (state.on_end)(if now { Ending::Now } else { Ending::Drain });
    Ok(Value::Bool(true))
}

#[cfg(test)]
mod tests {
    #[test]
    fn masks_of_processors() {
        let masks: Vec<String> = [0, 1, 3, 4, 9, 64].map(super::mask).into();
        assert_eq!(masks, ["1", "2", "8", "10", "200", "10000000000000000"]);
    }
}
