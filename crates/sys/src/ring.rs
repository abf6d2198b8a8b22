//! The io_uring ring as every part of the project sets it up: the newest setup flags that the
//! kernel takes, and one clear reason where it takes none.
//!
//! Entries and queues are those of the `io-uring` crate, re-exported here.

use std::io;

pub use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};

/// How a ring is to be set up (io_uring_setup(2)).
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Entries of the submission queue; rounded up to a power of two by the kernel.
    pub entries: u32,
    /// Entries of the completion queue; 0 leaves the kernel's choice (twice `entries`).
    pub completion_entries: u32,
    /// Only the thread that builds the ring submits and reaps: lets the kernel defer completion work
    /// to the reaping call (`SINGLE_ISSUER | DEFER_TASKRUN`).
    pub single_issuer: bool,
    /// A kernel thread polls the submission queue, pausing after this many milliseconds (`SQPOLL`).
    pub sqpoll_idle_ms: Option<u32>,
    /// The processor of that kernel thread.
    pub sqpoll_cpu: Option<u32>,
    /// Completions are polled for on the device (`IOPOLL`; fio's `hipri`).
    pub iopoll: bool,
}

/// Why this system gives no ring.
#[derive(Debug, thiserror::Error)]
#[error("io_uring is not available: {reason}")]
pub struct Unavailable {
    /// The reason and what to do about it.
    pub reason: &'static str,
    /// What io_uring_setup(2) said.
    #[source]
    pub source: io::Error,
}

impl Setup {
    /// A ring with the given submission entries, shared by threads or not, interrupt-driven.
    pub fn new(entries: u32) -> Setup {
        Setup { entries, ..Setup::default() }
    }

    /// The ring, with every cheap flag that this kernel knows.
    ///
    /// # Errors
    /// [`Unavailable`] when the kernel refuses the plainest form too: no io_uring (ENOSYS), forbidden by
    /// `kernel.io_uring_disabled` or a seccomp filter (EPERM), out of locked memory (ENOMEM), bad sizes (EINVAL).
    pub fn build(&self) -> Result<IoUring, Unavailable> {
        // From newest to plainest: EINVAL means that this kernel does not know a flag of the form.
        let mut refusal = None;
        for form in [Form::Newest, Form::Deferred, Form::Cooperative, Form::Plain] {
            match self.builder(form).build(self.entries) {
                Ok(ring) => return Ok(ring),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refusal = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        Err(refusal.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL)).into())
    }

    fn builder(&self, form: Form) -> io_uring::Builder {
        let mut builder = IoUring::builder();
        builder.dontfork();
        if self.completion_entries > 0 {
            builder.setup_cqsize(self.completion_entries).setup_clamp();
        }
        if self.iopoll {
            builder.setup_iopoll();
        }
        if let Some(idle) = self.sqpoll_idle_ms {
            builder.setup_sqpoll(idle);
            if let Some(cpu) = self.sqpoll_cpu {
                builder.setup_sqpoll_cpu(cpu);
            }
        }
        if form <= Form::Newest {
            builder.setup_no_sqarray(); // 6.6
        }
        if form <= Form::Deferred && self.single_issuer && self.sqpoll_idle_ms.is_none() {
            builder.setup_single_issuer().setup_defer_taskrun(); // 6.1
        }
        if form == Form::Cooperative && self.sqpoll_idle_ms.is_none() {
            builder.setup_coop_taskrun(); // 5.19
        }
        builder
    }
}

#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Form {
    Newest,
    Deferred,
    Cooperative,
    Plain,
}

impl From<io::Error> for Unavailable {
    fn from(source: io::Error) -> Self {
        let reason = match source.raw_os_error() {
            Some(libc::ENOSYS) => "this kernel has no io_uring (Linux 5.1 or newer is needed)",
            Some(libc::EPERM | libc::EACCES) => {
                "it is forbidden here (sysctl kernel.io_uring_disabled, or a seccomp filter of the container)"
            }
            Some(libc::ENOMEM) => "not enough locked memory (raise ulimit -l) for a ring of this size",
            Some(libc::EMFILE | libc::ENFILE) => "no file descriptor left (raise ulimit -n)",
            Some(libc::EINVAL) => "the kernel refused the ring's parameters (queue too deep?)",
            _ => "io_uring_setup failed",
        };
        Unavailable { reason, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nop_goes_round() {
        let setup = Setup { single_issuer: true, ..Setup::new(8) };
        let mut ring = match setup.build() {
            Ok(ring) => ring,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        // SAFETY: a no-op refers to no memory.
        unsafe { ring.submission().push(&opcode::Nop::new().build().user_data(42)) }.unwrap();
        ring.submit_and_wait(1).unwrap();
        assert_eq!(ring.completion().next().map(|entry| entry.user_data()), Some(42));
    }

    #[test]
    fn too_deep_is_refused_with_a_reason() {
        let error = Setup::new(1 << 30).build().map(drop).unwrap_err();
        assert!(error.to_string().contains("queue too deep"), "{error}");
    }
}
