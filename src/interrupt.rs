//! Ctrl-C: the first ends the run in good order, the second ends the program at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::Context;
use load::sweep::Doomed;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::exit::Exit;

/// A signal within this time after the first is the first one once more: timeout(1) and shells send it to the process
/// and again to its group, and nobody insists so fast.
const ECHO: Duration = Duration::from_millis(250);

/// Makes a write beyond the limit of file sizes (`ulimit -f`) an error, EFBIG, that is told and cleaned up after,
/// instead of a signal that ends the program where it is.
///
/// # Errors
/// The error of sigaction(2).
pub fn survive_file_size_limit() -> anyhow::Result<()> {
    // Nothing looks at the flag: the handler is there so that write(2) returns.
    let seen = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGXFSZ, seen).map(drop).context("cannot handle signals")
}

/// The flags that SIGINT, SIGTERM and SIGHUP have set so far.
#[derive(Clone, Default)]
pub struct Interrupt {
    /// Set by the first signal, and by any other part of the program that wants the run to end.
    pub stop: Arc<AtomicBool>,
    /// Set by the first signal alone.
    pub signalled: Arc<AtomicBool>,
    /// Set by SIGUSR1, which asks for a status and ends nothing.
    pub status_wanted: Arc<AtomicBool>,
    /// Set by SIGHUP where it asks for a configuration to be read again, and ends nothing.
    pub reload_wanted: Arc<AtomicBool>,
    /// Removed by the second one before it ends the program.
    pub doomed: Doomed,
}

impl Interrupt {
    /// Takes over the signals.
    ///
    /// # Errors
    /// The error of sigaction(2), or of creating a thread.
    pub fn listen() -> anyhow::Result<Interrupt> {
        Interrupt::listen_for(&[SIGINT, SIGTERM, SIGHUP])
    }

    /// Takes over the signals; SIGHUP asks for a configuration to be read again.
    ///
    /// # Errors
    /// As for [`Interrupt::listen`].
    pub fn listen_with_reload() -> anyhow::Result<Interrupt> {
        let interrupt = Interrupt::listen_for(&[SIGINT, SIGTERM])?;
        let wanted = Arc::clone(&interrupt.reload_wanted);
        signal_hook::flag::register(SIGHUP, wanted).context("cannot handle signals")?;
        Ok(interrupt)
    }

    fn listen_for(ends: &[i32]) -> anyhow::Result<Interrupt> {
        let interrupt = Interrupt::default();
        let mut signals = Signals::new(ends).context("cannot handle signals")?;
        let Interrupt { stop, signalled, status_wanted, doomed, .. } = interrupt.clone();
        signal_hook::flag::register(SIGUSR1, status_wanted).context("cannot handle signals")?;
        let listen = move || {
            while signals.wait().next().is_none() {}
            stop.store(true, Ordering::Relaxed);
            signalled.store(true, Ordering::Relaxed);
            // Taken together afterwards: what came at once is one signal, however late this thread looked.
            std::thread::sleep(ECHO);
            signals.pending().for_each(drop);
            while signals.wait().next().is_none() {}
            for path in doomed.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                let _ = std::fs::remove_file(path); // it may be gone already
            }
            std::process::exit(Exit::Interrupted as i32);
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(listen)
            .context("cannot start a thread for signals")?;
        Ok(interrupt)
    }
}
