//! A loop that has nothing to do looks again and again for a while, or it sleeps.
//!
//! A sleep costs the two switches and delays the work that ends it. Looking costs the processor. A loop that looks for
//! as long as a sleep costs pays at most twice what the best choice would have cost, whatever comes (Karlin, Manasse,
//! McGeoch, Owicki: "Competitive Randomized Algorithms for Nonuniform Problems", Algorithmica 11, 1994). A loop that
//! chooses the time by the gaps that it has met pays less (Karlin, Li, Manasse, Owicki: "Empirical Studies of
//! Competitive Spinning for a Shared-Memory Multiprocessor", SOSP 1991). [`Lookout`] does that: for each of a few times
//! it keeps the recent mean cost of a gap, and takes the cheapest.
//!
//! Two loops that wait for each other need more. If both sleep, each gap of one contains the wake-up of the other, and
//! looking seems to be dear for both, although neither would have to wait if both looked. So a lookout tries the
//! longest time for some gaps now and then: the other side's gaps become shorter, it begins to look, and both stay
//! awake.

/// The way in which a loop waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Poll {
    /// The loop never sleeps: the least latency, for a whole processor.
    Always,
    /// The loop looks for as long as that is cheaper than a sleep.
    #[default]
    Adaptive,
    /// The loop sleeps at once.
    Never,
}

impl std::str::FromStr for Poll {
    type Err = String;

    fn from_str(text: &str) -> Result<Poll, String> {
        match text {
            "always" => Ok(Poll::Always),
            "adaptive" => Ok(Poll::Adaptive),
            "never" => Ok(Poll::Never),
            other => Err(format!("\"{other}\" is none of always, adaptive, never")),
        }
    }
}

/// The next step of a loop that has found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The loop looks again.
    Look,
    /// The loop offers the processor to others (sched_yield(2)), calls [`Lookout::has_yielded`], and looks again.
    Yield,
    /// The loop sleeps until something comes.
    Sleep,
}

/// The times for which a lookout may look, in quarters of the cost of a sleep.
const TIMES: [u64; 7] = [0, 1, 2, 4, 8, 16, 32];
/// One gap moves a mean cost by this part of the difference, as a power of two.
const WEIGHT: u32 = 4;
/// Gaps from the beginning of one trial to that of the next, and those of a trial: a thirty-second of all gaps.
const PERIOD: u32 = 1024;
const TRIAL: u32 = 32;
/// Looks between two offers of the processor.
const LOOKS: u32 = 4;
/// The least time, in nanoseconds, for which a thread that computes keeps a processor that it has been lent. The
/// kernel's own threads take moments.
const SLICE_NS: u64 = 500_000;
/// One wake-up moves the cost of a sleep by this part of it, and no further: a thread that waited for a processor has
/// not learned what a wake-up costs.
const LEARNING: u64 = 16;
/// The bounds of a cost that was learned, in nanoseconds.
const LEAST_SLEEP_NS: u64 = 2_000;
const MOST_SLEEP_NS: u64 = 100_000;
/// A lookout that lent the processor does not look for this multiple of the time: it loses a ninth of its time at most.
/// A thread that sleeps gets a busy processor sooner than one that has used up its share with looking.
const REST: u64 = 8;

/// Decides how one loop waits. The caller passes the time in.
#[derive(Clone, Debug)]
pub struct Lookout {
    poll: Poll,
    /// The cost of a sleep and its end, in nanoseconds.
    sleep_ns: u64,
    /// The recent mean cost of a gap with each of [`TIMES`], in nanoseconds.
    costs: [u64; TIMES.len()],
    /// The index of the time in use.
    chosen: usize,
    /// Gaps so far, modulo [`PERIOD`].
    gaps: u32,
    gap: Option<Gap>,
    /// The lookout does not look before this time.
    rests_until_ns: u64,
    /// The time looked so far, in nanoseconds.
    looked_ns: u64,
}

/// A gap that has begun.
#[derive(Clone, Copy, Debug)]
struct Gap {
    began_ns: u64,
    /// The time of the last look.
    looked_ns: u64,
    looks: u32,
    /// The time for which the processor was lent to others, in nanoseconds.
    lent_ns: u64,
    /// The time looked so far, once the loop sleeps.
    slept: Option<u64>,
}

impl Lookout {
    /// A lookout that has met no gap: it begins with a trial. `sleep_ns` is the cost of a sleep and its end, in
    /// nanoseconds, as [`sys::wake::cost_ns`](../sys/wake/fn.cost_ns.html) measures it.
    pub fn new(poll: Poll, sleep_ns: u64) -> Lookout {
        Lookout {
            poll,
            sleep_ns: sleep_ns.max(1),
            costs: [0; TIMES.len()],
            chosen: TIMES.len() - 1,
            gaps: 0,
            gap: None,
            rests_until_ns: 0,
            looked_ns: 0,
        }
    }

    /// A look at `now_ns` has found nothing.
    #[inline]
    pub fn found_nothing(&mut self, now_ns: u64) -> Step {
        if self.poll == Poll::Never {
            return Step::Sleep;
        }
        let begins = Gap { began_ns: now_ns, looked_ns: now_ns, looks: 0, lent_ns: 0, slept: None };
        let gap = self.gap.get_or_insert(begins);
        gap.looked_ns = now_ns;
        if self.poll == Poll::Always {
            return Step::Look;
        }
        let looked_ns = now_ns.saturating_sub(gap.began_ns);
        let is_over = looked_ns >= TIMES[self.chosen] * self.sleep_ns / 4;
        if gap.slept.is_some() || is_over || now_ns < self.rests_until_ns {
            gap.slept.get_or_insert(looked_ns);
            return Step::Sleep;
        }
        gap.looks += 1;
        if gap.looks.is_multiple_of(LOOKS) { Step::Yield } else { Step::Look }
    }

    /// The loop has offered the processor, and has it again at `now_ns`. After a slice of another thread, which may
    /// want the processor again, the lookout rests.
    #[inline]
    pub fn has_yielded(&mut self, now_ns: u64) {
        let Some(gap) = &mut self.gap else { return };
        let lent_ns = now_ns.saturating_sub(gap.looked_ns);
        if lent_ns >= SLICE_NS {
            gap.lent_ns += lent_ns;
            self.rests_until_ns = now_ns + REST * lent_ns;
        }
    }

    /// A sleep has ended `wake_ns` after the call that ended it. The cost of a sleep follows the median of these times,
    /// from 2 to 100 us: for loops that nobody has measured a wake-up for.
    pub fn has_woken(&mut self, wake_ns: u64) {
        let step_ns = self.sleep_ns / LEARNING;
        let learned_ns = if wake_ns > self.sleep_ns { self.sleep_ns + step_ns } else { self.sleep_ns - step_ns };
        self.sleep_ns = learned_ns.clamp(LEAST_SLEEP_NS, MOST_SLEEP_NS);
    }

    /// Nanoseconds looked so far, in the gaps that have ended: processor time that sleeps would not have taken. The
    /// time for which other threads had the processor is not among them.
    pub fn looked_ns(&self) -> u64 {
        self.looked_ns
    }

    /// True from a look that has found nothing to one that has found something.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.gap.is_some()
    }

    /// Something has come, at `now_ns`.
    #[inline]
    pub fn found(&mut self, now_ns: u64) {
        if let Some(gap) = self.gap.take() {
            self.end(gap, now_ns);
        }
    }

    fn end(&mut self, gap: Gap, now_ns: u64) {
        let lasted_ns = now_ns.saturating_sub(gap.began_ns);
        self.looked_ns += gap.slept.unwrap_or(lasted_ns).saturating_sub(gap.lent_ns);
        // The wake-up belongs to the sleep and not to the gap.
        let gap_ns =
            gap.slept.map_or(lasted_ns, |looked_ns| lasted_ns.saturating_sub(self.sleep_ns).max(looked_ns + 1));
        for (time, cost) in TIMES.iter().zip(&mut self.costs) {
            let limit_ns = time * self.sleep_ns / 4;
            let paid_ns = if gap_ns <= limit_ns { gap_ns } else { limit_ns + self.sleep_ns };
            *cost = *cost - (*cost >> WEIGHT) + (paid_ns >> WEIGHT);
        }
        self.gaps = (self.gaps + 1) % PERIOD;
        let longest = TIMES.len() - 1;
        let cheapest = || (0..TIMES.len()).min_by_key(|&index| self.costs[index]).unwrap_or(longest);
        self.chosen = if self.gaps < TRIAL { longest } else { cheapest() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLEEP_NS: u64 = 30_000;
    const LOOK_NS: u64 = 1_000;

    /// The cost of one gap: the time looked, and the sleep if there was one. The loop looks every microsecond.
    fn pay(lookout: &mut Lookout, now_ns: &mut u64, gap_ns: u64) -> u64 {
        let (began_ns, comes_ns) = (*now_ns, *now_ns + gap_ns);
        loop {
            if *now_ns >= comes_ns {
                lookout.found(*now_ns);
                return *now_ns - began_ns;
            }
            if lookout.found_nothing(*now_ns) == Step::Sleep {
                let looked_ns = *now_ns - began_ns;
                *now_ns = comes_ns + SLEEP_NS;
                lookout.found(*now_ns);
                return looked_ns + SLEEP_NS;
            }
            *now_ns += LOOK_NS;
        }
    }

    /// The mean cost of these gaps, and that of the best fixed time to look.
    fn costs(gaps: &[u64]) -> (f64, f64) {
        let (mut lookout, mut now_ns) = (Lookout::new(Poll::Adaptive, SLEEP_NS), 0);
        let paid: u64 = gaps.iter().map(|&gap_ns| pay(&mut lookout, &mut now_ns, gap_ns)).sum();
        let fixed = |limit_ns: u64| -> u64 {
            gaps.iter().map(|&gap_ns| if gap_ns <= limit_ns { gap_ns } else { limit_ns + SLEEP_NS }).sum()
        };
        let best = (0..=300).map(|limit_us| fixed(limit_us * 1000)).min().unwrap();
        (paid as f64 / gaps.len() as f64, best as f64 / gaps.len() as f64)
    }

    /// Numbers from 0 to 1, the same in each run (xorshift64*).
    fn uniform(state: &mut u64) -> f64 {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Gaps of a Poisson process, of a fixed rate, of two kinds, and in bursts: never far from the best time that one
    /// could have set beforehand.
    #[test]
    fn a_lookout_costs_little_more_than_the_best_fixed_time() {
        let mut state = 1;
        for mean_us in [1.0, 5.0, 10.0, 20.0, 50.0, 100.0, 300.0, 1000.0, 10_000.0] {
            let mut poisson = || (-mean_us * 1000.0 * (1.0 - uniform(&mut state)).ln()) as u64;
            let gaps: Vec<u64> = (0..20_000).map(|_| poisson()).collect();
            let (paid, best) = costs(&gaps);
            assert!(paid < 1.25 * best + 2.0 * LOOK_NS as f64, "Poisson {mean_us} us: {paid} over {best}");
            let (paid, best) = costs(&vec![mean_us as u64 * 1000; 20_000]);
            assert!(paid < 1.35 * best + 2.0 * LOOK_NS as f64, "every {mean_us} us: {paid} over {best}");
        }
        for (short_us, long_us) in [(5, 1000), (20, 100), (50, 10_000)] {
            let mut state = 7;
            let gaps: Vec<u64> =
                (0..20_000).map(|_| if uniform(&mut state) < 0.7 { short_us } else { long_us } * 1000).collect();
            let (paid, best) = costs(&gaps);
            assert!(paid < 1.3 * best + 2.0 * LOOK_NS as f64, "{short_us} and {long_us} us: {paid} over {best}");
            let bursts: Vec<u64> =
                (0..20_000).map(|n| if n / 500 % 2 == 0 { short_us } else { long_us } * 1000).collect();
            let (paid, best) = costs(&bursts);
            assert!(
                paid < 1.3 * best + 2.0 * LOOK_NS as f64,
                "bursts of {short_us} and {long_us} us: {paid} over {best}"
            );
        }
    }

    /// Two loops that answer each other at once, each as far as it is awake: after some thousand exchanges neither
    /// sleeps, whatever they began with.
    #[test]
    fn two_loops_that_wait_for_each_other_stay_awake() {
        let mut ends = [0, 1].map(|_| Lookout::new(Poll::Adaptive, SLEEP_NS));
        for end in &mut ends {
            // They have slept for an hour.
            (end.chosen, end.gaps) = (0, TRIAL);
            end.costs = TIMES.map(|time| SLEEP_NS + SLEEP_NS * time / 4);
        }
        const WORK_NS: u64 = 8_000;
        // Each end works, sends, and waits; its gap began when it had sent.
        let (mut now_ns, mut waits_since) = (0, [0, 0]);
        let mut slept = Vec::new();
        for exchange in 0..10_000 {
            let end = exchange % 2;
            let lookout = &mut ends[end];
            let mut at_ns = waits_since[end];
            let mut slept_now = false;
            while at_ns < now_ns {
                if lookout.found_nothing(at_ns) == Step::Sleep {
                    slept_now = true;
                    at_ns = now_ns + SLEEP_NS;
                } else {
                    at_ns += LOOK_NS;
                }
            }
            now_ns = at_ns;
            lookout.found(now_ns);
            slept.push(slept_now);
            now_ns += WORK_NS;
            waits_since[end] = now_ns;
        }
        assert!(slept[10..200].iter().all(|&slept| slept), "they began asleep");
        let late = slept[5000..].iter().filter(|&&slept| slept).count();
        assert_eq!(late, 0, "of 5000 exchanges");
    }

    /// A loop without work looks once for a moment, and sleeps from then on, however often the clock wakes it.
    #[test]
    fn an_idle_loop_sleeps() {
        let mut lookout = Lookout::new(Poll::Adaptive, SLEEP_NS);
        let mut looked = 0;
        let mut now_ns = 0;
        for _ in 0..1000 {
            while lookout.found_nothing(now_ns) != Step::Sleep {
                looked += LOOK_NS;
                now_ns += LOOK_NS;
            }
            now_ns += 500_000_000;
        }
        assert!(looked <= 8 * SLEEP_NS, "{looked} ns in 500 s");
    }

    /// One gap in a while costs a bounded part of the processor.
    #[test]
    fn looking_for_nothing_is_bounded() {
        for gap_ns in [100_000, 1_000_000, 10_000_000] {
            let (paid, _) = costs(&vec![gap_ns; 20_000]);
            let for_nothing = (paid - SLEEP_NS as f64) / (gap_ns + SLEEP_NS) as f64;
            assert!(for_nothing < 0.1, "a gap of {gap_ns} ns: {for_nothing}");
        }
    }

    /// Another thread always wants the processor, and keeps it for 3 ms once it has it: looking costs little more than
    /// sleeping at once.
    #[test]
    fn a_busy_processor_is_left_to_others() {
        let (mut lookout, mut now_ns, mut sleeps_ns) = (Lookout::new(Poll::Adaptive, SLEEP_NS), 0, 0);
        for _ in 0..100_000 {
            let comes_ns = now_ns + 10_000;
            sleeps_ns += 10_000 + SLEEP_NS;
            while now_ns < comes_ns {
                match lookout.found_nothing(now_ns) {
                    Step::Look => now_ns += LOOK_NS,
                    Step::Yield => {
                        now_ns += 3_000_000;
                        lookout.has_yielded(now_ns);
                    }
                    Step::Sleep => now_ns = comes_ns + SLEEP_NS,
                }
            }
            lookout.found(now_ns);
        }
        assert!(now_ns < sleeps_ns * 115 / 100, "{now_ns} ns, and {sleeps_ns} ns asleep");
    }

    #[test]
    fn a_processor_that_others_want_is_given_up() {
        let mut lookout = Lookout::new(Poll::Adaptive, SLEEP_NS);
        let mut now_ns = 0;
        assert_eq!(lookout.found_nothing(now_ns), Step::Look);
        let mut yields = 0;
        for _ in 0..12 {
            now_ns += LOOK_NS;
            yields += u32::from(lookout.found_nothing(now_ns) == Step::Yield);
        }
        assert_eq!(yields, 3);
        lookout.has_yielded(now_ns + LOOK_NS);
        assert_eq!(lookout.found_nothing(now_ns + LOOK_NS), Step::Look, "nobody wanted it");
        // Another thread has run for a slice.
        now_ns += 3_000_000;
        lookout.has_yielded(now_ns);
        assert_eq!(lookout.found_nothing(now_ns), Step::Sleep);
        lookout.found(now_ns + LOOK_NS);
        assert_eq!(lookout.found_nothing(now_ns + 20_000_000), Step::Sleep, "not for a while");
        lookout.found(now_ns + 21_000_000);
        assert_eq!(lookout.found_nothing(now_ns + 30_000_000), Step::Look);
    }

    /// Two loops that believe that a sleep costs a third of what it does: each takes the other's wake-up for its own
    /// gap, and sleeps, until the wake-ups have told the price.
    #[test]
    fn wake_ups_tell_what_a_sleep_costs() {
        for (told, most_ns) in [(false, u64::MAX), (true, SLEEP_NS * 5 / 4)] {
            let mut lookout = Lookout::new(Poll::Adaptive, SLEEP_NS / 3);
            for wake in 0..200 {
                // Every tenth thread waits for a processor before it runs.
                let late_ns = if wake % 10 == 0 { 3_000_000 } else { 0 };
                if told {
                    lookout.has_woken(SLEEP_NS + late_ns);
                }
            }
            let learned_ns = lookout.sleep_ns;
            assert_eq!(learned_ns >= SLEEP_NS * 4 / 5 && learned_ns <= most_ns, told, "{learned_ns}");
        }
        let mut lookout = Lookout::new(Poll::Adaptive, SLEEP_NS);
        (0..1000).for_each(|_| lookout.has_woken(0));
        assert_eq!(lookout.sleep_ns, LEAST_SLEEP_NS);
        (0..1000).for_each(|_| lookout.has_woken(u64::MAX));
        assert_eq!(lookout.sleep_ns, MOST_SLEEP_NS);
    }

    /// The time looked ends with the sleep and not with the arrival, and a slice of another thread is not part of it.
    #[test]
    fn the_time_looked_is_counted() {
        let mut lookout = Lookout::new(Poll::Adaptive, SLEEP_NS);
        lookout.found_nothing(0);
        lookout.found(5_000);
        assert_eq!(lookout.looked_ns(), 5_000, "found while looking");
        lookout.found_nothing(10_000);
        assert_eq!(lookout.found_nothing(10_000 + 9 * SLEEP_NS), Step::Sleep);
        lookout.found(100_000_000);
        assert_eq!(lookout.looked_ns(), 5_000 + 9 * SLEEP_NS, "found after a sleep");
        lookout.found_nothing(200_000_000);
        lookout.has_yielded(203_000_000);
        lookout.found(203_001_000);
        assert_eq!(lookout.looked_ns(), 5_000 + 9 * SLEEP_NS + 1_000, "lent to another thread for 3 ms");
    }

    #[test]
    fn always_and_never() {
        let mut always = Lookout::new(Poll::Always, SLEEP_NS);
        let mut never = Lookout::new(Poll::Never, SLEEP_NS);
        for now_ns in [0, 1_000_000_000, 2_000_000_000] {
            assert_eq!((always.found_nothing(now_ns), never.found_nothing(now_ns)), (Step::Look, Step::Sleep));
        }
        for lookout in [&mut always, &mut never] {
            lookout.found(3_000_000_000);
        }
        assert_eq!((always.looked_ns(), never.looked_ns()), (3_000_000_000, 0));
        assert!("sometimes".parse::<Poll>().unwrap_err().contains("always, adaptive, never"));
    }
}
