//! The global window: the smallest one on the plateau, found from the delivered rate alone.
//!
//! Device latency does not show a cache that spills: the drives answer as fast as ever while the path from memory to
//! the network slows down. The delivered rate shows it, but on a real machine a rate of 10 ms differs by several
//! percent from the next one, and drifts. So a trial compares two windows in turns, the present one and a candidate, in
//! the order A B B A: the drift falls out of the difference. The trial ends when the difference is sure, or precise
//! enough, or when it has taken long enough. A larger candidate stays if it delivers more; a smaller one if it loses
//! nothing against the best of the windows compared last, so that small losses do not add up.

use super::Tuning;
use crate::admission;

/// The result of one part of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub rate_bytes_per_s: f64,
    /// True if ops waited for the window.
    pub limited: bool,
    pub largest_op_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Direction {
    Up,
    Down,
}

impl Direction {
    fn other(self) -> Direction {
        match self {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        }
    }
}

/// Mean and variance by Welford's method.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    n: u32,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.n += 1;
        let off = value - self.mean;
        self.mean += off / f64::from(self.n);
        self.squares += off * (value - self.mean);
    }

    /// The variance of one value, with `prior` counted as [`PRIOR_WEIGHT`] values.
    fn variance(&self, prior: f64) -> f64 {
        let weight = f64::from(self.n.max(1) - 1);
        (PRIOR_WEIGHT * prior + self.squares) / (PRIOR_WEIGHT + weight)
    }
}

/// Two or three differences alone may agree by chance: the noise of earlier trials counts as three more.
const PRIOR_WEIGHT: f64 = 3.0;
/// The variance of a difference before the first trial: 2 % of the rate.
const FIRST_VARIANCE: f64 = 0.02 * 0.02;
/// A difference counts as at most this much, in either direction: a part that the machine stole says nothing more.
const MOST_DIFFERENCE: f64 = 0.25;
/// Parts of a rest that are one rate.
const REST_PARTS: u32 = 5;

/// The comparison of the present window with a candidate.
#[derive(Debug)]
struct Trial {
    direction: Direction,
    candidate_bytes: f64,
    /// Parts since the trial began.
    parts: u32,
    /// The rate of the first part of the present pair.
    first: f64,
    /// Candidate over base, minus one, in logarithms: a value for each pair.
    differences: Moments,
    /// Rates of the parts at the base, and how many of them were limited by the window.
    base: Moments,
    limited: u32,
}

#[derive(Clone, Copy)]
struct Verdict {
    kept: bool,
    /// The difference is beyond what noise explains.
    sure: bool,
}

/// The parts of a rest, in groups of [`REST_PARTS`].
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    rates: Moments,
    limited: u32,
}

#[derive(Debug)]
pub(crate) struct Window {
    /// The window that the trials have chosen.
    base_bytes: f64,
    /// The rate last seen through it; 0 before the first.
    base_rate: f64,
    /// The lead of a larger window when one was last compared, less what was won since: a fraction of the rate.
    debt: f64,
    trial: Option<Trial>,
    /// The last trial that ended with a verdict.
    last: Option<admission::Trial>,
    rest: Rest,
    next: Direction,
    step: f64,
    /// Parts until the next trial, and how many times the last trial's parts a rest takes.
    wait: u32,
    patience: u32,
    /// The variance of the difference of two parts.
    noise: f64,
    budget_bytes: f64,
    bytes_now: u64,
}

impl Window {
    pub fn new(tuning: &Tuning, budget_bytes: Option<u64>) -> Window {
        let budget_bytes = budget_bytes.unwrap_or(1 << 50) as f64;
        let base_bytes = (tuning.start_bytes as f64).min(budget_bytes);
        Window {
            base_bytes,
            base_rate: 0.0,
            debt: 0.0,
            trial: None,
            last: None,
            rest: Rest::default(),
            next: Direction::Up,
            step: tuning.step,
            wait: 0,
            patience: 1,
            noise: FIRST_VARIANCE,
            budget_bytes,
            bytes_now: base_bytes as u64,
        }
    }

    /// The window in force: a candidate's while it is measured.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes_now
    }

    pub fn last_trial(&self) -> Option<admission::Trial> {
        self.last
    }

    /// Takes the result of a part, and returns true if the window is another one from now on.
    pub fn add_part(&mut self, tuning: &Tuning, seen: Seen) -> bool {
        let floor = (tuning.floor_bytes.max(2 * seen.largest_op_bytes) as f64).min(self.budget_bytes);
        match self.trial.take() {
            Some(trial) => self.add_to_trial(tuning, trial, seen),
            None => self.add_to_rest(tuning, seen, floor),
        }
        self.base_bytes = self.base_bytes.clamp(floor, self.budget_bytes);
        let bytes = match &self.trial {
            // A B B A A B B A: the candidate has the second and the third part of each four.
            Some(trial) if matches!(trial.parts % 4, 1 | 2) => trial.candidate_bytes,
            _ => self.base_bytes,
        };
        let before = std::mem::replace(&mut self.bytes_now, bytes.clamp(floor, self.budget_bytes) as u64);
        before != self.bytes_now
    }

    fn add_to_rest(&mut self, tuning: &Tuning, seen: Seen, floor: f64) {
        self.rest.rates.add(seen.rate_bytes_per_s);
        self.rest.limited += u32::from(seen.limited);
        self.wait = self.wait.saturating_sub(u32::from(seen.limited));
        if self.rest.rates.n < REST_PARTS {
            return;
        }
        let Rest { rates, limited } = std::mem::take(&mut self.rest);
        self.notice(tuning, rates.mean);
        self.base_rate = rates.mean;
        if 2 * limited > REST_PARTS && self.wait == 0 {
            self.try_next(floor);
        }
    }

    /// A rate that has moved by more than noise explains is news: the workload or the machine is another one.
    fn notice(&mut self, tuning: &Tuning, rate: f64) {
        if self.base_rate <= 0.0 {
            return;
        }
        let change = rate / self.base_rate - 1.0;
        let chance = tuning.sure * (self.noise / f64::from(REST_PARTS)).sqrt();
        if change.abs() > tuning.news.max(chance) {
            (self.patience, self.wait, self.debt) = (1, 0, 0.0);
            if change < 0.0 {
                // Less is delivered through the same window: if it has become too small, that costs until it is larger.
                (self.next, self.step) = (Direction::Up, tuning.step);
            }
        }
    }

    fn try_next(&mut self, floor: f64) {
        // At an end of the range only the other direction is left.
        match self.next {
            Direction::Up if self.base_bytes >= self.budget_bytes => self.next = Direction::Down,
            Direction::Down if self.base_bytes <= floor => self.next = Direction::Up,
            _ => {}
        }
        let bytes = match self.next {
            Direction::Up => self.base_bytes * self.step,
            Direction::Down => self.base_bytes / self.step,
        };
        self.trial = Some(Trial {
            direction: self.next,
            candidate_bytes: bytes.clamp(floor, self.budget_bytes),
            parts: 0,
            first: 0.0,
            differences: Moments::default(),
            base: Moments::default(),
            limited: 0,
        });
    }

    fn add_to_trial(&mut self, tuning: &Tuning, mut trial: Trial, seen: Seen) {
        let rate = seen.rate_bytes_per_s;
        let of_base = matches!(trial.parts % 4, 0 | 3);
        if of_base {
            trial.base.add(rate);
            trial.limited += u32::from(seen.limited);
        }
        trial.parts += 1;
        if trial.parts % 2 == 1 {
            trial.first = rate;
            self.trial = Some(trial);
            return;
        }
        let (base, candidate) = if of_base { (rate, trial.first) } else { (trial.first, rate) };
        if base > 0.0 && candidate > 0.0 {
            trial.differences.add((candidate / base).ln().clamp(-MOST_DIFFERENCE, MOST_DIFFERENCE));
        }
        if trial.base.n >= 2 && 2 * trial.limited <= trial.base.n {
            // The load is less than the window by now: the trial compares nothing.
            self.rest_after(tuning, &trial);
            return;
        }
        match self.verdict(tuning, &trial) {
            None => self.trial = Some(trial),
            Some(verdict) => self.conclude(tuning, &trial, verdict),
        }
    }

    /// The candidate's gain that would just keep it.
    fn threshold(&self, tuning: &Tuning, direction: Direction) -> f64 {
        match direction {
            Direction::Up => tuning.keep_up,
            Direction::Down => self.debt - tuning.keep_down,
        }
    }

    fn verdict(&self, tuning: &Tuning, trial: &Trial) -> Option<Verdict> {
        let Moments { n, mean, .. } = trial.differences;
        let over = mean - self.threshold(tuning, trial.direction);
        let kept = over > 0.0;
        if n < tuning.pairs_min {
            let lost = n > 0 && -mean > tuning.bail_out + tuning.sure * self.noise.sqrt();
            let late = trial.parts >= 2 * tuning.pairs_max;
            return (lost || late).then_some(Verdict { kept: false, sure: lost });
        }
        let error = (trial.differences.variance(self.noise) / f64::from(n)).sqrt();
        let sure = over.abs() > tuning.sure * error;
        let enough = error <= tuning.precise || trial.parts >= 2 * tuning.pairs_max;
        (sure || enough).then_some(Verdict { kept, sure })
    }

    fn conclude(&mut self, tuning: &Tuning, trial: &Trial, verdict: Verdict) {
        let gain = trial.differences.mean;
        self.last = (trial.differences.n > 0).then(|| admission::Trial {
            window_bytes: self.base_bytes as u64,
            candidate_bytes: trial.candidate_bytes as u64,
            gain: gain.exp_m1(),
            error: (trial.differences.variance(self.noise) / f64::from(trial.differences.n)).sqrt(),
        });
        if trial.differences.n >= 2 {
            let weight = f64::from(trial.differences.n).min(20.0) / 40.0;
            self.noise += weight * (trial.differences.variance(self.noise) - self.noise);
        }
        self.debt = match trial.direction {
            Direction::Up if verdict.kept => 0.0,
            Direction::Up => gain.max(0.0),
            Direction::Down if verdict.kept => (self.debt - gain).max(0.0),
            Direction::Down => self.debt,
        };
        if !verdict.kept {
            self.give_up(tuning, trial);
            return;
        }
        // Go on in this direction, and faster if the gain was beyond chance.
        self.base_bytes = trial.candidate_bytes;
        self.base_rate = trial.base.mean * gain.exp();
        self.next = trial.direction;
        if verdict.sure {
            self.step = (self.step * self.step).min(tuning.step_max);
        }
        (self.patience, self.wait) = (1, 0);
    }

    fn give_up(&mut self, tuning: &Tuning, trial: &Trial) {
        self.base_rate = trial.base.mean;
        if self.step > tuning.step {
            // A large step that failed says nothing about a small one in the same direction.
            (self.step, self.wait) = (tuning.step, 0);
            return;
        }
        self.next = trial.direction.other();
        self.rest_after(tuning, trial);
    }

    fn rest_after(&mut self, tuning: &Tuning, trial: &Trial) {
        self.wait = self.patience * trial.parts;
        self.patience = (self.patience * 2).min(tuning.patience_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    const MIB: f64 = 1_048_576.0;

    /// A machine whose rate rises up to a window of `knee` MiB, and falls from one of `spill` MiB on, in the end to
    /// `least`.
    #[derive(Clone, Copy, Debug)]
    struct Machine {
        knee: f64,
        spill: f64,
        least: f64,
    }

    impl Machine {
        fn rate(&self, bytes: f64) -> f64 {
            let window = bytes / MIB;
            let doublings = (window / self.spill).log2().max(0.0);
            (window / self.knee).min(1.0) * self.least.max(1.0 - 0.12 * doublings)
        }
    }

    /// Noise of a real machine: each part differs from the next one, all of them drift, and some are stolen.
    struct Noise {
        random: Xoshiro256PlusPlus,
        part: f64,
        drift: f64,
        stolen: f64,
    }

    impl Noise {
        fn new(seed: u64, part: f64) -> Noise {
            Noise { random: Xoshiro256PlusPlus::seed_from_u64(seed), part, drift: 0.0, stolen: part / 4.0 }
        }

        fn uniform(&mut self) -> f64 {
            (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
        }

        /// Mean 0, standard deviation 1.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
        }

        fn factor(&mut self) -> f64 {
            self.drift = 0.99 * self.drift + 0.14 * self.part * self.normal();
            if self.uniform() < self.stolen {
                return 0.1;
            }
            (1.0 + self.drift + self.part * self.normal()).max(0.05)
        }
    }

    /// The mean rate over the parts, a fraction of the best.
    fn held(window: &mut Window, machine: Machine, noise: &mut Noise, parts: u32) -> f64 {
        let tuning = Tuning::default();
        let mut sum = 0.0;
        for _ in 0..parts {
            let rate = machine.rate(window.bytes() as f64);
            sum += rate;
            let rate_bytes_per_s = rate * noise.factor() * 5e9;
            window.add_part(&tuning, Seen { rate_bytes_per_s, limited: true, largest_op_bytes: 128 << 10 });
        }
        sum / f64::from(parts)
    }

    const MACHINES: [Machine; 4] = [
        Machine { knee: 1.0, spill: 2.0, least: 0.3 },
        Machine { knee: 5.0, spill: 10.0, least: 0.6 },
        Machine { knee: 30.0, spill: 100.0, least: 0.8 },
        Machine { knee: 0.3, spill: 1000.0, least: 1.0 },
    ];

    /// The mean over seeds, and the worst.
    fn over_seeds(of: impl Fn(u64) -> f64) -> (f64, f64) {
        let all: Vec<f64> = (0..20).map(of).collect();
        (all.iter().sum::<f64>() / 20.0, all.iter().copied().fold(f64::INFINITY, f64::min))
    }

    /// The trials are part of the time.
    #[test]
    fn the_plateau_is_held_however_noisy_the_rates_are() {
        for (part, mean_bar, worst_bar) in
            [(0.0, 0.998, 0.998), (0.02, 0.998, 0.995), (0.05, 0.99, 0.985), (0.1, 0.98, 0.97)]
        {
            for machine in MACHINES {
                let (mean, worst) = over_seeds(|seed| {
                    let (mut window, mut noise) = (Window::new(&Tuning::default(), None), Noise::new(seed, part));
                    held(&mut window, machine, &mut noise, 2000);
                    held(&mut window, machine, &mut noise, 4000)
                });
                assert!(mean >= mean_bar && worst >= worst_bar, "noise {part}, {machine:?}: {mean:.4}, {worst:.4}");
            }
        }
    }

    #[test]
    fn a_machine_that_turns_into_another_one_is_followed() {
        for part in [0.0, 0.02, 0.05] {
            for (before, after) in [(MACHINES[0], MACHINES[2]), (MACHINES[2], MACHINES[0])] {
                let (mean, worst) = over_seeds(|seed| {
                    let (mut window, mut noise) = (Window::new(&Tuning::default(), None), Noise::new(seed, part));
                    held(&mut window, before, &mut noise, 2000);
                    held(&mut window, after, &mut noise, 500);
                    held(&mut window, after, &mut noise, 2000)
                });
                assert!(mean >= 0.99 && worst >= 0.985, "noise {part}, {after:?}: {mean:.4}, {worst:.4}");
            }
        }
    }
}
