//! The settings in the environment: pools (see [`lanes::Pools::from_environment`]), and the records that the library
//! writes.
//!
//! The code here runs once, before `main`, where the standard library and allocation are allowed. Hooks pass everything
//! through until there are pools.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use lanes::Pools;
use lanes::environment::{
    ASYNC_VARIABLE, DRY_RUN_VARIABLE, FILTERS_VARIABLE, IOLOG_VARIABLE, PROBE, RAW_VARIABLE, STATS_VARIABLE,
    TRACE_VARIABLE,
};
use lanes::pool::{FILE_VARIABLE, POOLS_VARIABLE, TEXT_VARIABLE};

use crate::abi::filters::{self, Filters};
use crate::abi::{errno, probe, said, sealed, undisturbed};
use crate::aio::{self, async_io, context};
use crate::fork;
use crate::hooks::{caught, executed, exit};
use crate::policy::trace;
use crate::state::{lane, node, process, stats};

/// `same-thread`: the thread that reads a completion ring from memory is the thread that submits (see [`context`]).
const RING_VARIABLE: &str = "IOTRAP_RING";

/// Sets everything up, or tells in one line why nothing is spread.
pub fn begin() {
    let _errno = errno::kept();
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if !may_call(variable(FILTERS_VARIABLE)) {
        return sealed::seal();
    }
    said::remember();
    let read = |path: &std::path::Path| std::fs::read_to_string(path);
    // Independent of pools: asynchronous libaio changes where requests block, not where they go.
    let asynchronous = variable(ASYNC_VARIABLE).is_some_and(|value| value != "0");
    if asynchronous {
        context::prepare(false);
        process::watch(fork::forget_all);
        let asked = |name: &str| variable(name).is_some_and(|value| value != "0");
        async_io::prepare(asked(TRACE_VARIABLE) || asked(STATS_VARIABLE));
        exit::prepare();
        undisturbed::look();
    }
    let pools = match Pools::from_environment(variable, read) {
        Ok(Some(pools)) => pools,
        Ok(None) if asynchronous => {
            process::make_table();
            return catch_calls(variable);
        }
        Ok(None) => {
            return say(&format!(
                "nothing is spread: none of {TEXT_VARIABLE}, {FILE_VARIABLE} and {POOLS_VARIABLE} is set"
            ));
        }
        Err(error) => return say(&format!("nothing is spread: {error}")),
    };
    let trusted = variable(RING_VARIABLE).as_deref() == Some("same-thread");
    context::prepare(trusted);
    if !asynchronous {
        process::watch(fork::forget_all);
    }
    let text = variable(TRACE_VARIABLE).is_some_and(|value| value != "0");
    let log = std::env::var_os(IOLOG_VARIABLE).and_then(|path| CString::new(path.as_bytes()).ok());
    if let Err(error) = trace::begin(text, log.as_deref()) {
        let error = std::io::Error::from_raw_os_error(error);
        say(&format!("{IOLOG_VARIABLE}: nothing is recorded: {error}"));
    }
    if let Some(value) = variable(STATS_VARIABLE).filter(|value| value != "0") {
        // The program may change its directory.
        let path = if value == "1" { None } else { std::path::absolute(value).ok() };
        stats::want_summary(path.and_then(|path| CString::new(path.into_os_string().into_encoded_bytes()).ok()));
        if !asynchronous {
            exit::prepare();
        }
    }
    if variable(DRY_RUN_VARIABLE).is_some_and(|value| value != "0") {
        lane::begin_dry_run();
    }
    if variable(FILTERS_VARIABLE).is_none() {
        lane::tell_of_absent_lanes(); // `plimsoll trap` sets the variable
    }
    undisturbed::look();
    executed::prepare();
    node::prepare(aio::note_completed);
    lane::configure(pools);
    process::make_table();
    catch_calls(variable);
}

/// True if the library may make system calls of its own in this process: the process has begun with no filter of system
/// calls, or only with those that were found to permit all calls of the library (`trusted`). A filter that the library
/// does not know may kill the process for any other call.
fn may_call(trusted: Option<String>) -> bool {
    if trusted.as_deref() == Some(PROBE) {
        probe::run();
    }
    let permitted = trusted.as_deref().map(|text| text.parse().unwrap_or(0));
    match filters::of_process() {
        Filters::None => return true,
        Filters::Some(count) if permitted.is_some_and(|permitted: u32| count <= permitted) => return true,
        Filters::Some(_) | Filters::Unknown => {}
    }
    if permitted.is_none() {
        said::line_under_a_filter(
            b"iotrap: nothing is spread: the process has begun with a filter of system calls (seccomp); start it by plimsoll trap, which tests the filter\n",
        );
    }
    false
}

/// Begins to catch the system calls outside libc, if that is wanted.
fn catch_calls(variable: impl Fn(&str) -> Option<String>) {
    if variable(RAW_VARIABLE).is_some_and(|value| value != "0") {
        caught::prepare();
    }
}

fn say(text: &str) {
    said::line(format!("iotrap: {text}\n").as_bytes());
}
