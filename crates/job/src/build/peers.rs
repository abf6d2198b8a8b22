//! The rules of jobs that send data to a peer, or receive them: the engines `net` and `netsplice`.

use super::Draft;
use crate::engines;
use crate::error::Error;

/// Checks the options of such a job, and takes away what has no meaning for a socket.
///
/// # Errors
/// An option that is missing, or does not fit the protocol.
pub(super) fn check(draft: &mut Draft) -> Result<(), Error> {
    if !engines::find(&draft.job.engine).is_some_and(|engine| engine.to_peer) {
        return Ok(());
    }
    let own = |name: &str| draft.job.ring.other.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let protocol = own("protocol").unwrap_or_else(|| "tcp".into());
    let host = own("hostname").or_else(|| draft.job.files.names.first().cloned());
    let listens = own("listen").is_some_and(|value| value == "1");
    let rw = draft.job.rw;
    if rw.random || rw.directions.trim {
        return draft.fail(
            "rw",
            format!("{} is not possible on a socket", draft.written("rw")),
            "use rw=read, rw=write or rw=rw",
        );
    }
    if draft.verify.trims.percent > 0 {
        return draft.fail("trim_percentage", "a socket has nothing to trim", "leave trim_percentage out");
    }
    if draft.job.iolog.read.is_some() {
        return draft.fail("read_iolog", "a replay needs files, and a socket has none", "choose another ioengine");
    }
    match (protocol.as_str(), draft.is_set("port")) {
        ("unix", true) => return draft.fail("port", "a unix socket has no port", "leave port out"),
        ("unix", false) if host.is_none() => {
            return draft.fail("hostname", "protocol=unix needs hostname", "write the path of the socket");
        }
        ("unix", false) => {}
        (_, false) => {
            return draft.fail("port", format!("protocol={protocol} needs port"), "write for example port=8888");
        }
        (_, true) => {
            let port = own("port").and_then(|port| port.parse::<u64>().ok()).unwrap_or(0);
            if port + u64::from(draft.job.process.clones) - 1 > 65535 {
                let hint = "a port is at most 65535, and each clone takes the port of the one before plus 1";
                return draft.fail("port", format!("{} is too large", draft.written("port")), hint);
            }
        }
    }
    let is_connection = matches!(protocol.as_str(), "tcp" | "tcpv6" | "vsock");
    if !is_connection {
        if listens {
            let hint = "leave listen out: the side that reads listens";
            return draft.fail("listen", format!("listen is not an option of protocol={protocol}"), hint);
        }
        if rw.directions.read && rw.directions.write {
            let hint = "use rw=read on one side and rw=write on the other";
            return draft.fail("rw", format!("{} is not possible with protocol={protocol}", draft.written("rw")), hint);
        }
    }
    let listens = if is_connection { listens } else { rw.directions.read };
    match host {
        None if !listens => {
            let hint = if rw.directions.read { "add hostname, or listen" } else { "add hostname=ADDRESS" };
            return draft.fail("hostname", "the side that connects needs hostname", hint);
        }
        Some(host) => draft.other("hostname", &host),
        None => {}
    }
    draft.other("listen", if listens { "1" } else { "0" });
    draft.other("protocol", &protocol);
    draft.job.files.names.clear();
    draft.job.files.count = 1;
    // A sender cannot read its data back: the receiving job checks them.
    draft.verify.enabled &= !rw.directions.write;
    Ok(())
}
