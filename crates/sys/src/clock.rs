//! One monotonic clock, in nanoseconds, cheap enough to read three times per op.
//!
//! On x86-64 with an invariant time-stamp counter a reading costs one `rdtsc` and one
//! multiplication. Elsewhere it is `clock_gettime(CLOCK_MONOTONIC)` through the vDSO.
//! All threads and processes of a run that share a [`Clock`] (it is `Copy`, and survives
//! `fork`) read the same time line.

use std::time::Duration;

/// A calibrated monotonic clock. `Copy`: hand it to every worker.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    source: Source,
}

/// The source that a [`Clock`] reads, as `clocksource=` names it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    /// The time-stamp counter: `base_ns + ((tsc - base_tsc) * scale) >> 32`.
    Tsc { base_tsc: u64, base_ns: u64, scale: u64 },
    /// `clock_gettime(CLOCK_MONOTONIC)`.
    Monotonic,
}

impl Clock {
    /// The best clock of this machine: the time-stamp counter where the kernel itself trusts it
    /// (`/sys/devices/system/clocksource`), `CLOCK_MONOTONIC` otherwise. Calibrating takes ~10 ms.
    pub fn calibrated() -> Clock {
        let trusted = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .is_ok_and(|name| name.trim() == "tsc");
        if trusted { Self::tsc() } else { Self::monotonic() }
    }

    /// `CLOCK_MONOTONIC` through the vDSO (`clocksource=clock_gettime`).
    pub fn monotonic() -> Clock {
        Clock { source: Source::Monotonic }
    }

    /// The time-stamp counter calibrated against `CLOCK_MONOTONIC` (`clocksource=cpu`);
    /// `CLOCK_MONOTONIC` itself on machines without one.
    pub fn tsc() -> Clock {
        let Some((tsc0, ns0)) = tsc_and_monotonic() else { return Self::monotonic() };
        std::thread::sleep(Duration::from_millis(10));
        let Some((tsc1, ns1)) = tsc_and_monotonic() else { return Self::monotonic() };
        let (ticks, nanos) = (tsc1.saturating_sub(tsc0), ns1.saturating_sub(ns0));
        if ticks == 0 || nanos == 0 {
            return Self::monotonic();
        }
        let scale = ((u128::from(nanos) << 32) / u128::from(ticks)) as u64;
        Clock { source: Source::Tsc { base_tsc: tsc1, base_ns: ns1, scale } }
    }

    /// Nanoseconds on the `CLOCK_MONOTONIC` time line.
    #[inline(always)]
    pub fn now_ns(&self) -> u64 {
        match self.source {
            // A core whose counter is a few ticks behind the base must not wrap: saturate.
            Source::Tsc { base_tsc, base_ns, scale } => {
                let ticks = rdtsc().saturating_sub(base_tsc);
                base_ns + ((u128::from(ticks) * u128::from(scale)) >> 32) as u64
            }
            Source::Monotonic => monotonic_ns(),
        }
    }

    /// The name of the clock's source: `tsc` or `clock_gettime`.
    pub fn name(&self) -> &'static str {
        match self.source {
            Source::Tsc { .. } => "tsc",
            Source::Monotonic => "clock_gettime",
        }
    }
}

/// Keeps the processor busy for this many ticks of its time-stamp counter; of nanoseconds, on processors without one.
pub fn spin_cycles(cycles: u64) {
    let counter = || if cfg!(target_arch = "x86_64") { rdtsc() } else { monotonic_ns() };
    let start = counter();
    while counter().wrapping_sub(start) < cycles {
        std::hint::spin_loop();
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds (clock_gettime(2)).
pub fn monotonic_ns() -> u64 {
    gettime_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since the Unix epoch (`CLOCK_REALTIME`).
pub fn realtime_ns() -> u64 {
    gettime_ns(libc::CLOCK_REALTIME)
}

/// The seconds since the Unix epoch at which a clock of UTC shows what the clock of this machine's time zone shows at
/// `unix_seconds`. localtime_r(3).
pub fn local_seconds(unix_seconds: u64) -> u64 {
    let at = unix_seconds as libc::time_t;
    // SAFETY: all zeros is a value of struct tm: integers, and a pointer that may be null.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both references are valid for the call; localtime_r keeps neither.
    let known = unsafe { !libc::localtime_r(&raw const at, &raw mut local).is_null() };
    let offset = if known { local.tm_gmtoff } else { 0 };
    #[allow(clippy::useless_conversion, reason = "narrower on some architectures")]
    unix_seconds.saturating_add_signed(offset.into())
}

/// Sleeps until `CLOCK_MONOTONIC` reads `deadline_ns`, or a signal arrives (clock_nanosleep(2), absolute: late
/// wake-ups do not add up).
pub fn sleep_until_ns(deadline_ns: u64) {
    let ts = libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (deadline_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: ts is valid for the call; the remaining time is not asked for.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &ts, std::ptr::null_mut()) };
}

/// Makes this thread's timers as precise as the kernel can (PR_SET_TIMERSLACK of prctl(2)): 50 us late otherwise.
pub fn precise_timers() {
    // SAFETY: changes only this thread's timer slack.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

fn gettime_ns(clock: libc::clockid_t) -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: ts is a valid timespec for the kernel to fill; the clocks named here always exist.
    unsafe { libc::clock_gettime(clock, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn rdtsc() -> u64 {
    // SAFETY: every x86-64 processor has rdtsc; Linux leaves it enabled for user mode.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn rdtsc() -> u64 {
    0
}

/// One instant read on both clocks: the tightest of a few tries, so that a preemption between the
/// two readings does not become a calibration error. None without a time-stamp counter.
fn tsc_and_monotonic() -> Option<(u64, u64)> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    (0..16)
        .map(|_| {
            let before = rdtsc();
            let ns = monotonic_ns();
            let after = rdtsc();
            (after.saturating_sub(before), before + after.saturating_sub(before) / 2, ns)
        })
        .min_by_key(|&(width, ..)| width)
        .map(|(_, tsc, ns)| (tsc, ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_and_the_kernel_agree() {
        let clock = Clock::calibrated();
        let (kernel0, ours0) = (monotonic_ns(), clock.now_ns());
        std::thread::sleep(Duration::from_millis(50));
        let (ours1, kernel1) = (clock.now_ns(), monotonic_ns());
        let (ours, kernel) = ((ours1 - ours0) as f64, (kernel1 - kernel0) as f64);
        // The kernel's interval encloses that of the clock, so the latter may be shorter by a preemption, never longer.
        assert!(ours <= kernel * 1.001, "ours {ours} kernel {kernel}");
        assert!(ours >= 50e6 * 0.999, "ours {ours}");
    }

    #[test]
    fn time_never_goes_back() {
        let clock = Clock::calibrated();
        let mut last = clock.now_ns();
        for _ in 0..100_000 {
            let now = clock.now_ns();
            assert!(now >= last);
            last = now;
        }
    }
}
