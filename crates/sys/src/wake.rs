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
/// median. Where that is not possible, the answer is 20,000.
pub fn cost_ns() -> u64 {
    static COST_NS: OnceLock<u64> = OnceLock::new();
    *COST_NS.get_or_init(|| measure().unwrap_or(20_000).clamp(LEAST_NS, MOST_NS))
}

fn measure() -> io::Result<u64> {
    let cpus = process::affinity()?;
    let (&first, &last) = (cpus.first().ok_or(io::ErrorKind::NotFound)?, cpus.last().ok_or(io::ErrorKind::NotFound)?);
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
    }
}
