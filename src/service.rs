//! The program as a service of systemd: readiness, the end, and a watchdog (sd_notify(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The time between two signs of life that systemd wants at most; `None` if it wants none of this process.
fn watchdog_period(variable: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let is_for_us = variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
    let period = variable("WATCHDOG_USEC")?.parse().ok().filter(|period| *period > 0 && is_for_us)?;
    Some(Duration::from_micros(period))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Tells systemd of a state, such as `READY=1`. Without systemd nobody is told, and systemd needs no answer.
pub fn notify(state: &str) {
    let Some(path) = variable("NOTIFY_SOCKET") else { return };
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    drop(sent); // systemd has gone, or another program has made the variable up
}

/// Gives signs of life from now on, for as long as `is_alive` returns.
///
/// # Errors
/// The system has no thread.
pub fn watch(is_alive: impl Fn() + Send + 'static) -> std::io::Result<()> {
    let Some(period) = watchdog_period(variable) else { return Ok(()) };
    let give = move || {
        loop {
            is_alive();
            notify("WATCHDOG=1");
            std::thread::sleep(period / 3);
        }
    };
    std::thread::Builder::new().name("watchdog".into()).spawn(give).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_for_one_process() {
        let own = std::process::id().to_string();
        let period = |usec: &'static str, pid: Option<String>| {
            watchdog_period(move |name| if name == "WATCHDOG_USEC" { Some(usec.into()) } else { pid.clone() })
        };
        assert_eq!(period("30000000", Some(own)), Some(Duration::from_secs(30)));
        assert_eq!(period("30000000", None), Some(Duration::from_secs(30)));
        assert_eq!(period("30000000", Some("1".into())), None);
        assert_eq!((period("0", None), period("soon", None)), (None, None));
    }
}
