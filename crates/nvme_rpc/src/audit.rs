//! The lines of the log about calls: who changes what, and whether it worked.

use nvme_target::AttachmentRequest;
use nvme_target::journal::{Entry, Journal, Level, quoted};
use serde_json::Value;

use super::jsonrpc::Outcome;
use super::params::repeated;

/// Tells of a call of a client. `has_changed` is true if the call has changed the configuration.
pub(super) fn called(journal: &Journal, method: &str, params: Option<&Value>, outcome: &Outcome, has_changed: bool) {
    let level = if is_question(method) { Level::Debug } else { Level::Notice };
    journal.add(level, || {
        // A request may have a megabyte.
        let name = repeated(method.to_string());
        let given = params.map(|params| repeated(params.to_string()));
        let with = given.as_ref().map(|given| format!(" {given}")).unwrap_or_default();
        let (message, failed) = match outcome {
            Ok(_) if has_changed => (format!("the configuration changes: {name}{with}"), None),
            Ok(_) => (format!("a call: {name}{with}"), None),
            Err(error) => (format!("a call that fails: {name}{with}: {error}"), Some(error.to_string())),
        };
        let entry = Entry::new(if has_changed { "change" } else { "call" }, message).with("method", name);
        let parts = [("params", given), ("error", failed)];
        parts.into_iter().fold(entry, |entry, (part, value)| match value {
            Some(value) => entry.with(part, value),
            None => entry,
        })
    });
}

/// True for a method that changes nothing, by its name.
fn is_question(method: &str) -> bool {
    method.contains("_get_") || method.contains("_wait_")
}

/// Tells of a host that has attached namespaces to hosts, or detached them.
pub(super) fn attached(journal: &Journal, request: &AttachmentRequest) {
    journal.add(Level::Notice, || {
        let AttachmentRequest { subsystem_nqn, host_nqn, nsid, controllers, attaches } = request;
        let does = if *attaches { "attaches" } else { "detaches" };
        let host = quoted(host_nqn);
        let message = format!("host {host} {does} namespace {nsid} of {subsystem_nqn}: controllers {controllers:?}");
        Entry::new("change", message).with("host", host_nqn.as_str()).with("subsystem", subsystem_nqn.as_str())
    });
}
