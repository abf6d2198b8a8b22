//! The settings in the environment: pools (see [`lanes::Pools::from_environment`]), and the records that the library
//! writes.
//!
//! The code here runs once, before `main`, where the standard library and allocation are allowed. Hooks pass everything
//! through until there are pools.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use lanes::Pools;
use lanes::environment::{ASYNC_VARIABLE, IOLOG_VARIABLE, RAW_VARIABLE, STATS_VARIABLE, TRACE_VARIABLE};
use lanes::pool::{FILE_VARIABLE, POOLS_VARIABLE, TEXT_VARIABLE};

use crate::abi::{errno, said, undisturbed};
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
    said::remember();
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
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
        Ok(None) if asynchronous => return catch_calls(variable),
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
    if variable(STATS_VARIABLE).is_some_and(|value| value != "0") {
        stats::want_summary();
    }
    undisturbed::look();
    executed::prepare();
    node::prepare(aio::note_completed);
    lane::configure(pools);
    catch_calls(variable);
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
