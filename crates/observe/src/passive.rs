//! The passive load line: bounds of a device's load line from the traffic that the device has anyway.
//!
//! Production traffic is not an experiment: nobody sets its depth, and depth and demand depend on each other. This
//! module claims what holds for every kind of traffic, and says "cannot tell" otherwise.
//!
//! Let f(n) be the throughput of the device with n requests in flight. The load line L is the smallest n with f(n) at
//! least 97 % of the plateau P, the largest f. A window is some time of observation, with mean depth N, throughput X
//! and latency R = N / X (Little, "A proof for the queuing formula L = λW", 1961). The utilisation law and its bounds
//! hold for any window (Denning and Buzen, "The operational analysis of queueing network models", 1978):
//!
//! - Depth and throughput count while the device is busy, so idle time within a window does not blur them: N / U and
//!   X / U with U the busy part. An upper bound of U serves as well: it moves the point towards the origin along a line
//!   of equal latency, and stays below f because f is concave.
//! - f is concave up to its plateau. So X <= f(N) whatever the depth did within the window (Jensen): a window shows too
//!   little throughput, never too much. If windows at depth N give 97 % of P, L <= N.
//! - f(n) <= n / R(1): L >= 0.97 P R, with R the latency floor (the asymptotic bound of the same paper). The floor
//!   counts as seen at depths near one, or where latency is equal over a factor of two in depth.
//! - The plateau counts as seen if throughput gains less than 3 % over the last doubling of depth. The gain of one more
//!   octave widens its interval upwards: near saturation an open queue has X = P (1 - c / N), and one with contention
//!   alone (Gunther, "Guerrilla Capacity Planning", 2007, the universal scalability law with beta = 0) has it too.
//!
//! Traffic can make depth and throughput look like a plateau where none is. Each has a guard:
//!
//! - demand that stays equal while something else slows the device: throughput has to vary;
//! - a mix that shifts, in sizes or directions: windows of one mix alone are judged;
//! - caches, neighbours, states of the machine: equal depths have to give equal throughput, at all times;
//! - autocorrelation: the errors are those of batch means ([`measure::stats::Batches`]).
//!
//! One assumption remains, and docs/watch.md states it: no limit outside the device holds throughput exactly level
//! while the latency of the device varies.

use measure::figures::{percent, plain};
use measure::load_line::LOAD_LINE_FRACTION;
use measure::stats::{Batches, mean, t_quantile};

/// Some time of a target's work, as the kernel's counters show it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// The end of the window: nanoseconds of the caller's clock.
    pub end_ns: u64,
    /// Length in seconds.
    pub seconds: f32,
    /// Mean requests in flight: the sum of latencies over the length.
    pub depth: f32,
    /// The part of the time with requests in flight, 0..=1; 1 where the source does not tell.
    pub busy: f32,
    /// Completed requests per second.
    pub iops: f32,
    /// Mean bytes of a request.
    pub bytes_per_op: f32,
    /// The part of the requests that read, 0..=1.
    pub read_share: f32,
}

/// Windows with less than this part of busy time say too little: the kernel counts busy time in ticks of its clock.
const LEAST_BUSY: f64 = 0.05;
/// Windows with fewer requests are left out.
const LEAST_OPS: f64 = 10.0;
/// Fewer windows of one mix are too few to judge.
const FEWEST_WINDOWS: usize = 60;
/// A bin of depths with fewer windows is left out.
const FEWEST_IN_BIN: usize = 8;
/// Widths of one mix: in octaves of the request's size, and in the share of reads.
const SIZE_OCTAVES: f32 = 0.5;
const READ_WIDTH: f32 = 0.1;
/// Bins of depth per doubling.
const BINS_A_DOUBLING: f64 = 2.0;
/// Gain over the last doubling of depth above which throughput is still rising: as in [`measure::load_line`].
const RISING_A_DOUBLING: f64 = 0.03;
/// Scatter (a standard deviation of logarithms) of throughput at equal depth beyond which depth does not decide it.
const LARGEST_SCATTER: f64 = 0.08;
/// The least ratio of the highest throughput (95 % quantile) to the lowest (5 %): below it the demand may be constant.
const LEAST_VARIED: f64 = 1.5;
/// Depths beyond the line have to occur this often, with shallower ones between: one episode may show the machine of
/// one moment.
const FEWEST_VISITS: usize = 3;
/// Depths up to this one show the latency of a single request.
const NEAR_ONE: f64 = 1.3;
/// Latencies that differ by less than this are equal: the floor.
const FLOOR: f64 = 0.04;
/// The smallest error of a bin's mean: a device's windows are not exact to more.
const LEAST_ERROR: f64 = 0.003;

/// The reason why the traffic cannot name a load line.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Too few windows with work, of one mix of requests.
    TooFew {
        /// Windows of the most frequent mix.
        windows: usize,
        /// Windows of all mixes.
        of: usize,
    },
    /// Throughput was the same all the time: nothing tells the device's limit from the demand's.
    DemandConstant,
    /// Equal depths gave different throughput; the standard deviation as a fraction.
    Scatter(f64),
    /// Throughput still rose at the deepest depth of the record.
    NeverAbove(f64),
    /// Throughput hardly rises any more, and the record is too noisy to place 97 % of the plateau.
    Unresolved,
}

impl Reason {
    /// The reason as the end of a sentence; `span` names the time of the record: "in this hour".
    pub fn sentence(&self, span: &str) -> String {
        match self {
            Reason::TooFew { windows, of } if windows == of => {
                format!("only {windows} intervals with work {span}; {FEWEST_WINDOWS} are needed")
            }
            Reason::TooFew { windows, of } => {
                format!("the mix of requests shifts: {windows} of {of} intervals {span} have the most frequent mix")
            }
            Reason::DemandConstant => {
                format!("throughput hardly varied {span}: the demand may limit it as well as the device")
            }
            Reason::Scatter(by) => {
                format!(
                    "throughput at equal depths differs by {}: the mix of requests or the storage changed meanwhile",
                    percent(*by)
                )
            }
            Reason::NeverAbove(depth) => {
                format!(
                    "never above depth {} {span}, where throughput still rose",
                    plain((depth * 10.0).round() / 10.0)
                )
            }
            Reason::Unresolved => "throughput hardly rises any more, but varies too much to place the line".into(),
        }
    }
}

/// Bounds of the load line from passive observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The plateau is at least this throughput, in requests per second: the lower end of a 95 % interval. Traffic that
    /// comes and goes within a window shows too little throughput, so there is no upper end.
    pub plateau_at_least_iops: f64,
    /// The load line is at least this depth; 1 where the floor of latency was not seen.
    pub low: f64,
    /// The load line is at most this depth.
    pub high: f64,
}

impl Bounds {
    /// `at 8`, `between 4 and 9`, `at most 9`.
    pub fn phrase(&self) -> String {
        match (plain(self.low), plain(self.high)) {
            (low, high) if low == high => format!("at {high}"),
            (_, high) if self.low <= 1.0 => format!("at most {high}"),
            (low, high) => format!("between {low} and {high}"),
        }
    }
}

/// The judgement on a record of windows.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The bounds, or the reason why there are none.
    pub line: Result<Bounds, Reason>,
    /// Windows that were judged, all of one mix.
    pub windows: usize,
    /// Mean bytes of a request of that mix.
    pub bytes_per_op: f64,
    /// The share of reads of that mix.
    pub read_share: f64,
    /// The deepest depth that was held for at least [`FEWEST_IN_BIN`] windows of that mix; 0 for none.
    pub deepest: f64,
}

/// A usable window: depth and throughput while the device was busy.
#[derive(Clone, Copy)]
struct Seen {
    depth: f64,
    iops: f64,
    /// Throughput over the whole window, idle time included.
    raw_iops: f64,
    ops: f64,
}

/// Windows of similar depth.
struct Bin {
    /// Logarithm of the mean depth.
    ln_depth: f64,
    /// The largest depth in the bin.
    deepest: f64,
    /// Mean logarithm of throughput, with its error.
    ln_iops: f64,
    error: f64,
    /// Mean logarithm of latency (depth over throughput) in seconds, with its error.
    ln_latency: f64,
    latency_error: f64,
    windows: usize,
    /// Sum of squared residuals of the logarithm of throughput, beyond those of counting.
    residuals: f64,
}

/// Judges a record of windows, in order of time. Deterministic.
pub fn judge(windows: &[Window]) -> Judgement {
    let usable: Vec<&Window> = windows.iter().filter(|window| is_usable(window)).collect();
    let mix = most_frequent_mix(&usable);
    let seen: Vec<Seen> = mix.iter().map(|window| seen(window)).collect();
    let bins = bins(&seen);
    let mean_of = |of: fn(&Window) -> f32| mean(&mix.iter().map(|window| f64::from(of(window))).collect::<Vec<_>>());
    Judgement {
        line: bounds(&seen, &bins, usable.len()),
        windows: mix.len(),
        bytes_per_op: mean_of(|window| window.bytes_per_op),
        read_share: mean_of(|window| window.read_share),
        deepest: bins.last().map_or(0.0, |bin| bin.ln_depth.exp()),
    }
}

fn is_usable(window: &Window) -> bool {
    let ops = f64::from(window.iops) * f64::from(window.seconds);
    window.depth > 0.0 && busy(window) >= LEAST_BUSY && ops >= LEAST_OPS && window.depth.is_finite()
}

/// An upper bound of the busy part: at least one request is in flight while the device is busy.
fn busy(window: &Window) -> f64 {
    f64::from(window.busy.clamp(0.0, 1.0)).min(f64::from(window.depth))
}

fn seen(window: &Window) -> Seen {
    let busy = busy(window);
    let raw_iops = f64::from(window.iops);
    Seen {
        depth: f64::from(window.depth) / busy,
        iops: raw_iops / busy,
        raw_iops,
        ops: raw_iops * f64::from(window.seconds),
    }
}

/// The windows of the mix that most windows have: sizes within half an octave, shares of reads within a fifth.
fn most_frequent_mix<'a>(windows: &[&'a Window]) -> Vec<&'a Window> {
    let mut by_size: Vec<(f32, f32)> =
        windows.iter().map(|window| (window.bytes_per_op.max(1.0).log2(), window.read_share)).collect();
    by_size.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut best = (0, 0.0, 0.0);
    for step in 0..=10 {
        let share = step as f32 / 10.0;
        let sizes: Vec<f32> =
            by_size.iter().filter(|(_, read)| (read - share).abs() <= READ_WIDTH).map(|(size, _)| *size).collect();
        let mut first = 0;
        for (index, size) in sizes.iter().enumerate() {
            while size - sizes[first] > SIZE_OCTAVES {
                first += 1;
            }
            if index + 1 - first > best.0 {
                best = (index + 1 - first, sizes[first], share);
            }
        }
    }
    let (_, from, share) = best;
    let is_of_it = |window: &&Window| {
        let size = window.bytes_per_op.max(1.0).log2();
        (from..=from + SIZE_OCTAVES).contains(&size) && (window.read_share - share).abs() <= READ_WIDTH
    };
    windows.iter().copied().filter(is_of_it).collect()
}

fn bins(seen: &[Seen]) -> Vec<Bin> {
    let mut grouped: std::collections::BTreeMap<i32, Vec<Seen>> = std::collections::BTreeMap::new();
    for one in seen {
        grouped.entry((one.depth.log2() * BINS_A_DOUBLING).floor() as i32).or_default().push(*one);
    }
    grouped.into_values().filter(|group| group.len() >= FEWEST_IN_BIN).map(|group| bin(&group)).collect()
}

fn bin(group: &[Seen]) -> Bin {
    let of = |value: fn(&Seen) -> f64| group.iter().map(value).collect::<Vec<f64>>();
    let (depths, iops) = (of(|one| one.depth.ln()), of(|one| one.iops.ln()));
    let latencies = of(|one| (one.depth / one.iops).ln());
    let (ln_depth, ln_iops) = (mean(&depths), mean(&iops));
    // Within a bin throughput may rise with depth: only what is left is scatter.
    let spread: f64 = depths.iter().map(|depth| (depth - ln_depth).powi(2)).sum();
    let together: f64 = depths.iter().zip(&iops).map(|(depth, iops)| (depth - ln_depth) * (iops - ln_iops)).sum();
    let slope = if spread > 1e-9 { (together / spread).clamp(-1.0, 1.0) } else { 0.0 };
    let residuals: f64 = depths
        .iter()
        .zip(&iops)
        .zip(group)
        .map(|((depth, iops), one)| (iops - ln_iops - slope * (depth - ln_depth)).powi(2) - 1.0 / one.ops)
        .sum();
    let error = |values: &[f64]| Batches::of(values).standard_error().max(LEAST_ERROR);
    Bin {
        ln_depth,
        deepest: group.iter().map(|one| one.depth).fold(0.0, f64::max),
        ln_iops,
        error: error(&iops),
        ln_latency: mean(&latencies),
        latency_error: error(&latencies),
        windows: group.len(),
        residuals: residuals.max(0.0),
    }
}

fn bounds(seen: &[Seen], bins: &[Bin], usable: usize) -> Result<Bounds, Reason> {
    let (Some(deepest), true) = (bins.last(), seen.len() >= FEWEST_WINDOWS) else {
        return Err(Reason::TooFew { windows: seen.len(), of: usable });
    };
    if !demand_varied(seen) {
        return Err(Reason::DemandConstant);
    }
    let scatter = bins.iter().map(|bin| (bin.residuals / bin.windows as f64).sqrt()).fold(0.0, f64::max);
    if scatter > LARGEST_SCATTER {
        return Err(Reason::Scatter(scatter));
    }
    let never_above = Reason::NeverAbove(deepest.ln_depth.exp());
    let octave = std::f64::consts::LN_2;
    // The bin at least an octave above the deepest.
    let Some(before) = bins.iter().rev().find(|bin| deepest.ln_depth - bin.ln_depth >= octave * 0.99) else {
        return Err(never_above);
    };
    let doublings = (deepest.ln_depth - before.ln_depth) / octave;
    let two_errors = 2.0 * deepest.error.hypot(before.error);
    let rise = (deepest.ln_iops - before.ln_iops) / doublings;
    if rise + two_errors / doublings > RISING_A_DOUBLING {
        return Err(if rise > RISING_A_DOUBLING / 2.0 { never_above } else { Reason::Unresolved });
    }
    // All bins that do not differ from the best by more than their noise are the plateau.
    let best = bins.iter().max_by(|a, b| a.ln_iops.total_cmp(&b.ln_iops)).unwrap_or(deepest);
    let top: Vec<&Bin> =
        bins.iter().filter(|bin| best.ln_iops - bin.ln_iops <= 2.5 * best.error.hypot(bin.error)).collect();
    let weights: f64 = top.iter().map(|bin| bin.error.powi(-2)).sum();
    let pooled = top.iter().map(|bin| bin.ln_iops * bin.error.powi(-2)).sum::<f64>() / weights;
    let error = weights.powf(-0.5);
    let t = t_quantile(0.975, top.iter().map(|bin| bin.windows).sum::<usize>() as f64 / 4.0);
    // One more octave may gain as much as the last one did.
    let gain = (rise + two_errors / doublings).max(0.0);
    let high = best.ln_iops + 2.0 * best.error + gain;
    let low = pooled - t * error;
    let reaches = |bin: &&Bin| bin.ln_iops - 2.0 * bin.error >= high + LOAD_LINE_FRACTION.ln();
    let Some(line) = bins.iter().find(reaches) else { return Err(Reason::Unresolved) };
    // Throughput has to stay level beyond the line, again and again.
    let is_beyond = |one: &Seen| one.depth > line.deepest;
    let visits = seen.windows(2).filter(|pair| !is_beyond(&pair[0]) && is_beyond(&pair[1])).count();
    if deepest.ln_depth - line.ln_depth < octave * 0.99 || visits < FEWEST_VISITS {
        return Err(never_above);
    }
    let upper = line.deepest.ceil();
    let lower = floor_of_latency(bins).map_or(1.0, |latency| (LOAD_LINE_FRACTION * low.exp() * latency).floor());
    Ok(Bounds { plateau_at_least_iops: (low - scatter).exp(), low: lower.clamp(1.0, upper), high: upper })
}

/// True if throughput varied by more than its counting explains: else the demand may be what limits it.
fn demand_varied(seen: &[Seen]) -> bool {
    let mut raw: Vec<(f64, f64)> = seen.iter().map(|one| (one.raw_iops, one.ops)).collect();
    raw.sort_by(|a, b| a.0.total_cmp(&b.0));
    let at = |part: f64| raw[((raw.len() - 1) as f64 * part) as usize];
    let ((low, low_ops), (high, high_ops)) = (at(0.05), at(0.95));
    // Three standard deviations of counts.
    high * (1.0 - 3.0 / high_ops.sqrt()) >= LEAST_VARIED * low * (1.0 + 3.0 / low_ops.sqrt())
}

/// The latency floor in seconds, at the lower end of its interval; None if the record does not show it.
fn floor_of_latency(bins: &[Bin]) -> Option<f64> {
    let floor = bins.iter().min_by(|a, b| a.ln_latency.total_cmp(&b.ln_latency))?;
    let is_equal = |bin: &Bin| {
        (bin.ln_depth - floor.ln_depth).abs() >= std::f64::consts::LN_2 * 0.99
            && bin.ln_latency - floor.ln_latency <= FLOOR
    };
    let seen = floor.ln_depth.exp() <= NEAR_ONE || bins.iter().any(is_equal);
    seen.then(|| (floor.ln_latency - 2.0 * floor.latency_error).exp())
}

/// A target above its load line, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overload {
    /// The beginning of the first window of it, on the clock of the windows.
    pub since_ns: u64,
    /// The mean depth of the last windows as a multiple of the line.
    pub times: f64,
}

/// Windows that decide on overload.
const OVERLOAD_WINDOWS: usize = 10;
/// Overload begins at this multiple of the line.
const OVERLOAD_TIMES: f64 = 1.5;

/// The present overload: the last ten windows lie above `line` (the upper end of its interval), by half on average.
/// None otherwise, and where the record ended more than three windows before `now_ns`. `newest_first` are the windows.
pub fn overload<'a>(newest_first: impl Iterator<Item = &'a Window>, line: f64, now_ns: u64) -> Option<Overload> {
    let mut windows = newest_first.peekable();
    let last = *windows.peek()?;
    let length_ns = (f64::from(last.seconds) * 1e9) as u64;
    let above = |window: &&Window| f64::from(window.depth) > line;
    let run: Vec<&Window> = windows.take_while(above).collect();
    let recent: Vec<f64> = run.iter().take(OVERLOAD_WINDOWS).map(|window| f64::from(window.depth)).collect();
    let times = mean(&recent) / line;
    let first = run.last()?;
    let held = run.len() >= OVERLOAD_WINDOWS && times >= OVERLOAD_TIMES && last.end_ns + 3 * length_ns >= now_ns;
    held.then(|| Overload { since_ns: first.end_ns.saturating_sub((f64::from(first.seconds) * 1e9) as u64), times })
}
