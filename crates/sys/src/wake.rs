//! The price of a sleep on this machine: what a thread pays that blocks and is woken by another one.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::process;

/// Exchanges of one measurement: a few milliseconds.
const ROUNDS: usize = 64;
/// The time for which the other side sleeps before it is woken. A processor that has slept for some microseconds takes
/// half as long again to wake up as one that has just gone to sleep.
const SLEEP: Duration = Duration::from_micros(25);
/// The bounds of a believable price, in nanoseconds; a machine that is busy while it measures answers too high.
const LEAST_NS: u64 = 2_000;
const MOST_NS: u64 = 100_000;

/// The time in nanoseconds from the system call that wakes a thread on another processor until that thread has its
/// byte, both sides' system calls included: 2,000 to 100,000.
///
/// The process measures it once, with two threads on two processors that wake each other over a socket, and takes the
/// median. A process that is held to one processor of several is woken from other ones: there a timer wakes a thread.
/// Where neither is possible, the answer is 20,000.
pub fn cost_ns() -> u64 {
    static COST_NS: OnceLock<u64> = OnceLock::new();
    *COST_NS.get_or_init(|| measure().unwrap_or(20_000).clamp(LEAST_NS, MOST_NS))
}

fn measure() -> io::Result<u64> {
    match way(&process::affinity()?, process::host().cpus) {
        Way::Timer => by_timer(),
        Way::Socket(first, last) => by_socket(first, last),
    }
}

/// The ways to measure.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    Timer,
    /// Between these two processors; the same one twice on a machine that has no other.
    Socket(u32, u32),
}

/// The way for a thread that may run on `cpus`, on a machine with `online` processors.
///
/// Two threads on one processor pass their byte on without ever waking it, which is cheaper than what peers on other
/// processors cost.
fn way(cpus: &[u32], online: u32) -> Way {
    match cpus {
        [first, .., last] => Way::Socket(*first, *last),
        [only] if online <= 1 => Way::Socket(*only, *only),
        _ => Way::Timer,
    }
}

/// The price by a timer: how much longer than asked a sleep takes.
fn by_timer() -> io::Result<u64> {
    let sleeps = move || -> io::Result<u64> {
        // The kernel may wake a thread later than asked, to wake several at once: not this one.
        process::set_timer_slack(1)?;
        let mut rounds = [0; ROUNDS];
        for round in &mut rounds {
            let began = Instant::now();
            std::thread::sleep(SLEEP);
            *round = began.elapsed().saturating_sub(SLEEP).as_nanos() as u64;
        }
        rounds.sort_unstable();
        Ok(rounds[ROUNDS / 2])
    };
    let sleeps = std::thread::Builder::new().name("wake-timer".to_string()).spawn(sleeps)?;
    sleeps.join().map_err(|_| io::Error::other("a thread that measures a wake-up has panicked"))?
}

/// The price by a socket between two processors.
fn by_socket(first: u32, last: u32) -> io::Result<u64> {
    let (mut near, mut far) = UnixStream::pair()?;
    let echo = move || -> io::Result<()> {
        process::set_affinity(&[last])?;
        let mut byte = [0];
        while far.read(&mut byte)? > 0 {
            far.write_all(&byte)?;
        }
        Ok(())
    };
    let ask = move || -> io::Result<u64> {
        process::set_affinity(&[first])?;
        let mut byte = [0];
        let mut rounds = [0; ROUNDS];
        for round in &mut rounds {
            let rested = Instant::now();
            while rested.elapsed() < SLEEP {
                std::hint::spin_loop();
            }
            let began = Instant::now();
            near.write_all(&byte)?;
            near.read_exact(&mut byte)?;
            *round = began.elapsed().as_nanos() as u64;
        }
        rounds.sort_unstable();
        Ok(rounds[ROUNDS / 2] / 2)
    };
    let thread = |name: &str| std::thread::Builder::new().name(name.to_string());
    let echo = thread("wake-echo").spawn(echo)?;
    let ask = thread("wake-ask").spawn(ask)?;
    let failed = |_| io::Error::other("a thread that measures a wake-up has panicked");
    let cost = ask.join().map_err(failed)?;
    // The other side ends when this one's socket is closed.
    echo.join().map_err(failed)??;
    cost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_has_a_price() {
        let cost_ns = cost_ns();
        assert!((LEAST_NS..=MOST_NS).contains(&cost_ns), "{cost_ns}");
        assert_eq!(super::cost_ns(), cost_ns, "measured once");
        assert!(measure().expect("two threads and a socket") > 0);
        assert!(by_timer().expect("a thread and a timer") > 0);
    }

    #[test]
    fn one_processor_of_several_is_woken_from_others() {
        assert_eq!(way(&[0, 1, 7], 8), Way::Socket(0, 7));
        assert_eq!(way(&[3], 8), Way::Timer);
        assert_eq!(way(&[0], 1), Way::Socket(0, 0));
        assert_eq!(way(&[], 8), Way::Timer);
    }
}
