//! Ranks that ssh starts, for hosts without MPI. The program at which the user sits carries no load: it starts the
//! ranks and hands their messages on. No port is opened, and everything travels through ssh.
//!
//! ```text
//! lead (here) ─► ssh HOST plimsoll hosts-agent ─► plimsoll run ... (the rank)
//!      frames: messages, output, status ◄──►        Pipes: messages         output: a pipe
//! ```

mod agent;
mod frame;
mod lead;
mod pipes;

pub use agent::serve;
pub use lead::{Order, lead};
pub use pipes::Pipes;

/// The first argument of the program that ssh starts.
pub const AGENT: &str = "hosts-agent";
/// The variable with the two descriptors of a rank's [`Pipes`], as "3,4": messages come from the first.
const LINK: &str = "PLIMSOLL_LINK";
/// The variable that tells the first rank that its standard error goes to a terminal.
pub const ON_TERMINAL: &str = "PLIMSOLL_ON_TERMINAL";
/// The line that an agent writes before its first frame. The start-up files of a shell may write anything before it.
const GREETING: &[u8] = b"\nplimsoll hosts-agent 1\n";

/// The ranks of a list such as `a,b:2`: the host of each, one rank on a host unless it says more.
///
/// # Errors
/// An empty name, a number that is none.
pub fn ranks_of(list: &str) -> Result<Vec<String>, String> {
    let mut ranks = Vec::new();
    for word in list.split(',') {
        let (host, count) = word.split_once(':').unwrap_or((word, "1"));
        let count = count.parse::<usize>().ok().filter(|count| (1..=4096).contains(count));
        let count = count.ok_or_else(|| format!("--hosts: {word:?} is not HOST or HOST:RANKS"))?;
        if host.is_empty() || host.starts_with('-') {
            return Err(format!("--hosts: {word:?} names no host (expected HOST[:RANKS],...)"));
        }
        ranks.extend(std::iter::repeat_n(host.to_owned(), count));
    }
    Ok(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_hosts() {
        assert_eq!(ranks_of("a").unwrap(), ["a"]);
        assert_eq!(ranks_of("a:2,user@b").unwrap(), ["a", "a", "user@b"]);
        for wrong in ["", "a,,b", "a:0", "a:x", ":2", "-oProxyCommand=x", "a:99999999"] {
            assert!(ranks_of(wrong).is_err(), "{wrong:?}");
        }
    }
}
