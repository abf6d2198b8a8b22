//! The table of methods.

mod absent;
mod accepted;
mod bdev;
mod framework;
pub(super) mod keyring;
mod nvmf;

use std::time::Duration;

use nvme_target::ErrorKind;
use serde_json::Value;

use super::jsonrpc::{Outcome, RpcError, code};
use super::params::{Param, Params, meant, repeated};
use super::state::{Control, State};

/// One JSON-RPC method.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// The method's name, as SPDK has it.
    pub name: &'static str,
    /// The effect of a call, in a line.
    pub about: &'static str,
    /// The parameters that a call takes.
    pub params: &'static [Param],
    /// The answer to a call, in a few words.
    pub result: &'static str,
    /// The times at which the method may be called.
    pub when: When,
    /// The way in which the method is carried out.
    pub run: Run,
}

/// The times at which a method may be called, on a target that was told to wait for `framework_start_init`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The method may be called before and after `framework_start_init`.
    Always,
    /// The method may be called after `framework_start_init` only.
    Initialized,
    /// A call has a meaning only before `framework_start_init`: clients that ask later for the methods that they may
    /// call do not get this one.
    Startup,
}

/// The way in which a method is carried out.
#[derive(Clone, Copy)]
pub enum Run {
    /// This function carries the method out.
    Do(fn(&mut State, &Params) -> Outcome),
    /// This function carries the method out by calls of its own, between which other clients may call.
    DoInSteps(fn(&Control, &Params) -> Outcome),
    /// The method has no effect, for this reason: it is accepted with any parameters, so that configurations of SPDK
    /// load.
    WithoutEffect(&'static str),
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Run::Do(_) => "Do",
            Run::DoInSteps(_) => "DoInSteps",
            Run::WithoutEffect(_) => "WithoutEffect",
        })
    }
}

/// A method on the target, which is there once it has been initialised.
const fn method(
    name: &'static str,
    about: &'static str,
    params: &'static [Param],
    result: &'static str,
    run: fn(&mut State, &Params) -> Outcome,
) -> Method {
    Method { name, about, params, result, when: When::Initialized, run: Run::Do(run) }
}

/// A method that may ask for what happens anyway, and for nothing else: another value would promise what is not there.
const fn only(name: &'static str, about: &'static str, params: &'static [Param]) -> Method {
    let run = Run::Do(|_, _| Ok(serde_json::Value::Bool(true)));
    Method { name, about, params, result: "true", when: When::Always, run }
}

/// Every method, by subject.
pub static METHODS: &[&[Method]] = &[
    framework::METHODS,
    bdev::METHODS,
    nvmf::settings::METHODS,
    nvmf::transport::METHODS,
    nvmf::subsystem::METHODS,
    nvmf::namespace::METHODS,
    nvmf::listener::METHODS,
    nvmf::discovery::METHODS,
    nvmf::host::METHODS,
    nvmf::statistics::METHODS,
    keyring::METHODS,
    accepted::METHODS,
];

/// The method of that name.
pub fn find(name: &str) -> Option<&'static Method> {
    METHODS.iter().copied().flatten().find(|method| method.name == name)
}

/// The error of a name that no method has: SPDK's reason to have it, or the name that was meant.
pub fn unknown(name: &str) -> RpcError {
    let absent = absent::METHODS.iter().find(|(absent, _)| *absent == name).map(|(_, why)| why.to_string());
    let why = absent.or_else(|| {
        let close = meant(name, METHODS.iter().copied().flatten().map(|method| method.name))?;
        Some(format!("did you mean {close}?"))
    });
    let why = why.unwrap_or_else(|| "rpc_get_methods lists the methods of this target".into());
    RpcError::new(code::METHOD_NOT_FOUND, format!("Method not found: {}: {why}", repeated(name.to_owned())))
}

/// The code of an error about something that is not there: ENODEV.
pub(super) const NO_DEVICE: i64 = -(libc::ENODEV as i64);

/// The time for which a call is tried again before its error is the answer.
pub(super) fn patience(name: &str, given: Option<&Value>) -> Duration {
    bdev::patience(name, given).unwrap_or_default()
}

pub(super) use nvmf::namespace::attach;

/// SPDK's methods that do not exist here, and why.
pub(super) fn absent() -> &'static [(&'static str, &'static str)] {
    absent::METHODS
}

/// The refusal of the target, under the code that SPDK answers with.
pub(super) fn refusal(error: nvme_target::Error) -> RpcError {
    let code = match error.kind {
        ErrorKind::Invalid => code::INVALID_PARAMS,
        ErrorKind::Exists => -i64::from(libc::EEXIST),
        ErrorKind::NotFound => NO_DEVICE,
        ErrorKind::Busy => -i64::from(libc::EBUSY),
        ErrorKind::Full => -i64::from(libc::ENOSPC),
        ErrorKind::System => error
            .source
            .as_ref()
            .and_then(|error| error.raw_os_error())
            .map_or(code::INTERNAL_ERROR, |errno| -i64::from(errno)),
    };
    RpcError::new(code, error.message)
}

/// 32 hexadecimal digits, with or without hyphens, as 16 bytes.
fn uuid(name: &str, text: &str) -> Result<[u8; 16], RpcError> {
    hex(name, &text.replace('-', ""))
}

/// Twice as many hexadecimal digits as bytes.
fn hex<const BYTES: usize>(name: &str, text: &str) -> Result<[u8; BYTES], RpcError> {
    let wrong =
        || RpcError::params(format!("Invalid parameters: {name} takes {} hexadecimal digits, not {text:?}", 2 * BYTES));
    if text.len() != 2 * BYTES || !text.is_ascii() {
        return Err(wrong());
    }
    let mut bytes = [0; BYTES];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(bytes)
}

/// Upper case and without groups, as SPDK writes NGUID and EUI-64.
fn hex_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use nvme::uuid;

    use super::*;
    use crate::params::{Need, ParamKind};

    #[test]
    fn names_are_unique_and_everything_is_explained() {
        let mut names: Vec<&str> = METHODS.iter().copied().flatten().map(|method| method.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        fn explained(params: &[Param]) {
            for param in params {
                assert!(!param.about.is_empty(), "{}", param.name);
                assert!(!matches!(param.need, Need::Default("")), "{}", param.name);
                if let ParamKind::Object(members) = param.kind {
                    explained(members);
                }
            }
        }
        for (name, why) in absent() {
            assert!(find(name).is_none() && !why.is_empty(), "{name} is there");
        }
        for method in METHODS.iter().copied().flatten() {
            assert!(!method.about.is_empty() && !method.result.is_empty(), "{}", method.name);
            explained(method.params);
        }
    }

    #[test]
    fn identifiers_read_back() {
        let text = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!(uuid::text(&uuid("uuid", text).expect("a UUID")), text);
        assert!(uuid("uuid", "0123").is_err() && uuid("uuid", &"é".repeat(16)).is_err());
        assert_eq!(hex_text(&hex::<2>("eui64", "AbCd").expect("two bytes")), "ABCD");
    }
}
