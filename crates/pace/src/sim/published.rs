//! The published measurements of the 16-drive machine, each as the scenario that it was.
//!
//! `data/io-pacing-intel.jsonl` has 709 rows. Those of tests 3, 5, 10, 11, 12, 14, 15 and 18 are what the model is held
//! against, with tests 2 and 4 (null devices) and 13 (one op in flight): a scenario is made for each from its own
//! columns. The initiators: two hosts; one fio job per host over 16
//! namespaces (tests 3 to 15), three over a third of 48 each (11, 12), or eight over two each (18, and the kernel
//! initiator). Little's law on the table's own latencies confirms each of these depths.

use serde_json::Value;

use super::more::lone;
use super::scenario::{Delay, Job, Order, Scenario, SizeShare, merge};
use crate::config::{Config, Credits, Method};

const DATA: &str = include_str!("../../data/io-pacing-intel.jsonl");
pub(super) const KIB128: u64 = 131_072;
/// The prototype's tuners look every 10 ms and move by 1 us at most.
pub(super) const TUNER_PERIOD_US: u64 = 10_000;
const TUNER_STEP_NS: u64 = 1000;
/// The kernel initiator takes longer between a completion and the next command: test 3's own latency at depth 2.
const KERNEL_TURNAROUND_US: f64 = 38.0;
/// The wire bytes of the tables' own columns: per payload byte, and beyond that per op.
const WIRE_FACTOR: f64 = 1.0612;
const WIRE_OP_BYTES: f64 = 160.0;
/// Nanoseconds of period per MiB in flight of tuner 2: the median of the tables' own columns
/// ((period - 46 us) / MiB in flight, rows that bypass small ops), for the two blocks of test 18.
pub(super) const TUNER2_NS_PER_MIB: [u64; 2] = [1100, 300];

/// One row and the scenario that reproduces it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The test's number.
    pub test: u32,
    /// The parameters that tell the row apart within the test.
    pub what: String,
    /// Published throughput, Gb/s.
    pub gbps: f64,
    /// The published row agrees with itself: its standard deviation is at most 2 Gb/s, and the wire rate seen at its
    /// end is that of its mean within 5 %. Else it jumped between states, and its mean is a mixture.
    pub stable: bool,
    /// True for the first half of the rows that count, every other row of each test. The model is fitted on either half
    /// and judged by the other.
    pub first: bool,
    /// The scenario that reproduces the row.
    pub scenario: Scenario,
}

impl Row {
    /// The name of the profile of the machine that was measured.
    pub fn profile(&self) -> &str {
        self.scenario.machine.get("profile").and_then(toml::Value::as_str).unwrap_or_default()
    }
}

pub(super) fn number(row: &Value, column: &str) -> Option<f64> {
    row.get(column)?.as_str()?.split_whitespace().next()?.parse().ok()
}

/// True if a row agrees with itself.
pub(super) fn stable(columns: &Value, gbps: f64, scenario: &Scenario) -> bool {
    let mean_bytes: f64 = scenario.jobs[0].sizes.iter().map(|s| s.bytes as f64 * s.percent / 100.0).sum();
    let expected_wire = gbps * (WIRE_FACTOR + WIRE_OP_BYTES / mean_bytes);
    let agrees = number(columns, "WIRE BW").is_some_and(|w| (w / expected_wire - 1.0).abs() <= 0.05);
    // The kernel rows of test 3 give no bufs; the standard deviation of every row is there.
    agrees && number(columns, "BW STDDEV").is_some_and(|sd| sd <= 2.0)
}

/// `128k/80:4k/20`, or one size for all.
pub(super) fn sizes(text: &str) -> Vec<SizeShare> {
    text.split(':')
        .filter_map(|part| {
            let (size, percent) = part.split_once('/').unwrap_or((part, "100"));
            Some(SizeShare { bytes: measure::units::parse_bytes(size, 1024).ok()?, percent: percent.parse().ok()? })
        })
        .collect()
}

pub(super) fn job(depth: f64, per_host: u32, namespaces: Option<&str>, sizes: Vec<SizeShare>) -> Job {
    Job {
        hosts: "0-1".into(),
        per_host,
        namespaces: namespaces.map(String::from),
        depth: depth as u32,
        iops: None,
        sizes,
        write_percent: 0.0,
        order: Order::Random,
        start_s: 0.0,
        stop_s: None,
    }
}

pub(super) fn scenario(name: String, cores: u32, pacing: Config, jobs: Vec<Job>) -> Scenario {
    let mut machine = toml::Table::new();
    machine.insert("profile".into(), "intel-16".into());
    machine.insert("cores".into(), i64::from(cores).into());
    let mean: f64 = jobs.iter().flat_map(|j| &j.sizes).map(|s| s.bytes as f64 * s.percent).sum::<f64>()
        / jobs.iter().flat_map(|j| &j.sizes).map(|s| s.percent).sum::<f64>();
    // As many ops as make a mean, whatever their size. Tuner 1 needs up to 24 of its periods to get anywhere, tuner 2 a
    // few. Without a tuner, all that can be in flight passes a few times.
    let ops: u64 = jobs.iter().map(super::kinds::ops).sum();
    let in_flight_s = ops as f64 * mean * 8.0 / 100e9;
    let settle = match pacing.method {
        Method::RateDelivered { .. } => 0.3,
        Method::RateInFlight { .. } => 0.06,
        _ => (2.0 * in_flight_s).clamp(0.01, 0.1),
    };
    let tuned = matches!(pacing.method, Method::RateDelivered { .. } | Method::RateInFlight { .. });
    let seconds = (40_000.0 * mean * 8.0 / 180e9).max(0.02 + if tuned { settle / 4.0 } else { 0.0 });
    Scenario {
        name,
        about: String::new(),
        seconds,
        warmup_seconds: settle + seconds / 4.0,
        seed: 1,
        sample_ms: 1.0,
        machine,
        pacing,
        namespaces: None,
        delay: Vec::new(),
        jobs,
        events: Vec::new(),
        sweep: Vec::new(),
    }
}

pub(super) fn plain(method: Method) -> Config {
    Config { method, budget_bytes: None }
}

pub(super) fn buffers(count: f64, cache: f64, cores: u32) -> Config {
    plain(Method::Buffers { count: count as u32, unit_bytes: KIB128 as u32, cache_per_core: cache as u32, cores })
}

/// Null devices answer at once and write nothing, so that nothing spills.
pub(super) fn null_devices(machine: &mut toml::Table) {
    let null = "cache.curve = [[1.0, 400.0], [1000.0, 400.0]]
        [drives]
        read_us = 0.0
        read_fixed_us = 0.0
        write_us = 0.0
        bus_gbytes = 100.0
        bus_op_us = 0.0
        core_us = 0.0
        write_gbytes = 100.0
        write_op_us = 0.0";
    merge(machine, null.parse().expect("TOML"));
}

/// A row in its place: the columns, and what its section says.
struct Line<'a> {
    test: u32,
    section: &'a str,
    /// The number of the row in its section, from 0.
    nth: usize,
    columns: &'a Value,
    kernel: bool,
    cores: u32,
}

/// The row's name, and its pacing, jobs, cores and delays; `None` if its columns do not say (a broken row).
type Built = Option<(String, Scenario)>;

impl<'a> Line<'a> {
    fn of(test: u32, section: &'a str, context: &Value, columns: &'a Value, nth: usize) -> Line<'a> {
        let kernel = context["Initiator"].as_str().is_some_and(|i| i.contains("kernel"));
        let mask = context.get("Target CPU mask").or(context.get("CPU mask")).and_then(Value::as_str).unwrap_or("0xF");
        let cores = if mask.starts_with("0xFFFF") { 16 } else { 4 };
        Line { test, section, nth, columns, kernel, cores }
    }

    fn build(&self) -> Built {
        match self.test {
            2..=5 => self.by_depth(),
            10 => self.by_buffers(),
            11 | 12 => self.with_slow_namespaces(),
            13 => self.one_op(),
            14 | 15 => self.by_period(),
            18 => self.by_sizes(),
            _ => None,
        }
    }

    fn number(&self, column: &str) -> Option<f64> {
        number(self.columns, column)
    }

    fn depth(&self) -> Option<f64> {
        self.number("QD").or_else(|| self.number("QD/job"))
    }

    fn one_job(&self, depth: f64) -> Job {
        job(depth, if self.kernel { 8 } else { 1 }, None, sizes("128k"))
    }

    fn by_depth(&self) -> Built {
        let depth = self.depth()?;
        let pacing = match self.test {
            2 | 3 => Config::none(),
            // Test 4 does not say how many of them each core kept to itself: all of them divided.
            4 => buffers(96.0, f64::from(96 / self.cores), self.cores),
            _ => buffers(96.0, 6.0, self.cores),
        };
        let what = format!("{}depth {depth}", if self.kernel { "kernel, 8 jobs, " } else { "" });
        let mut scenario = scenario(what.clone(), self.cores, pacing, vec![self.one_job(depth)]);
        if self.kernel {
            scenario.machine.insert("turnaround_us".into(), KERNEL_TURNAROUND_US.into());
        }
        if matches!(self.test, 2 | 4) {
            null_devices(&mut scenario.machine);
        }
        Some((what, scenario))
    }

    fn by_buffers(&self) -> Built {
        let (count, cache, depth) = (self.number("Num buffers")?, self.number("Buf cache")?, self.depth()?);
        let what = format!("{count} buffers, depth {depth}");
        Some((what.clone(), scenario(what, 4, buffers(count, cache, 4), vec![self.one_job(depth)])))
    }

    fn with_slow_namespaces(&self) -> Built {
        let (count, slow, depth) = (self.number("Num buffers")?, self.number("Num delay bdevs")?, self.depth()?);
        // Test 12: the third job, always on good namespaces, has a depth of its own, 256 in the first 11 rows and
        // 1024 in the others.
        let third = match (self.test, self.nth) {
            (11, _) => depth,
            (_, 0..11) => 256.0,
            _ => 1024.0,
        };
        let jobs = [(depth, "0-15"), (depth, "16-31"), (third, "32-47")];
        let jobs = jobs.map(|(depth, group)| job(depth, 1, Some(group), sizes("128k"))).to_vec();
        let what = if self.test == 11 {
            format!("{count} buffers, {slow} slow, depth {depth}")
        } else {
            format!("{count} buffers, {slow} slow at depth {depth}, others {third}")
        };
        let mut scenario = scenario(what.clone(), 4, buffers(count, (count / 4.0).floor(), 4), jobs);
        scenario.namespaces = Some(48);
        if slow > 0.0 {
            scenario.delay = vec![Delay { namespaces: format!("0-{}", slow as u32 - 1), us: 1000.0 }];
        }
        scenario.seconds = 0.5;
        Some((what, scenario))
    }

    /// Five rows of null devices, one that is broken, five of drives; those of delay and split devices follow.
    fn one_op(&self) -> Built {
        let null = self.nth < 5;
        if self.nth == 5 || self.nth > 10 {
            return None;
        }
        let what = format!("{}one op in flight", if null { "null, " } else { "" });
        let mut one = self.one_job(1.0);
        one.hosts = "0".into();
        let mut scenario = scenario(what.clone(), self.cores, Config::none(), vec![one]);
        if null {
            null_devices(&mut scenario.machine);
        }
        lone(&mut scenario);
        Some((what, scenario))
    }

    fn by_period(&self) -> Built {
        let depth = self.depth()?;
        let text = self.columns["Pacer period, us"].as_str()?;
        // "5.6 (22.4)": of all cores together, and of one.
        let period_us: f64 = match text.split_once('(') {
            Some((_, own)) => own.trim_end_matches(')').parse().ok()?,
            None => text.parse().ok()?,
        };
        let credits = Credits { cores: 4, at_period_end: true, ..Credits::every(period_us) };
        let method = if self.test == 14 { Method::Rate { credits } } else { tuner_1(credits) };
        // The last row of test 14 has 4096 outstanding by its own latency: eight jobs per host.
        let mut jobs = self.one_job(depth);
        if self.test == 14 && self.nth == 27 {
            jobs.per_host = 8;
        }
        let what = format!("{period_us} us, depth {depth}");
        let mut scenario = scenario(what.clone(), 4, plain(method), vec![jobs]);
        (scenario.seconds, scenario.warmup_seconds) = (0.5, 0.5);
        Some((what, scenario))
    }

    fn by_sizes(&self) -> Built {
        let depth = self.depth()?;
        let size = self.columns["IO size"].as_str()?;
        let bypass_bytes = self.number("Pacer threshold").unwrap_or(0.0) as u32;
        let credits = |credit_bytes: u64, period_us: f64| Credits {
            credit_bytes,
            cores: 16,
            bypass_bytes,
            at_period_end: true,
            ..Credits::every(period_us)
        };
        let (method, how) = if self.section.contains("rate based") {
            // 23 us in the first 38 rows, 24 us in the others, of 32 KiB.
            let period_us = if self.nth < 38 { 23.0 } else { 24.0 };
            (tuner_1(credits(32 << 10, period_us)), format!("tuner 1 from {period_us} us"))
        } else if self.number("Pacer period") == Some(0.0) {
            (Method::None, "unpaced".to_string())
        } else {
            let method = Method::RateInFlight {
                credits: credits(64 << 10, 46.0),
                tuner_period_us: TUNER_PERIOD_US,
                threshold_bytes: 0,
                ns_per_mib: TUNER2_NS_PER_MIB[usize::from(!self.section.contains("Bufs"))],
            };
            (method, "tuner 2".to_string())
        };
        let bypass = if bypass_bytes > 0 { format!(", up to {bypass_bytes} bypass") } else { String::new() };
        let what = format!("{size}, {how}{bypass}, depth {depth} x 16");
        Some((what.clone(), scenario(what, 16, plain(method), vec![job(depth, 8, None, sizes(size))])))
    }
}

/// The prototype's first tuner, which follows the delivered rate.
fn tuner_1(credits: Credits) -> Method {
    Method::RateDelivered { credits, tuner_period_us: TUNER_PERIOD_US, tuner_step_ns: TUNER_STEP_NS }
}

/// All rows of the tests that the model is held against, in the order published.
pub fn rows() -> Vec<Row> {
    let (mut rows, mut nth_of): (Vec<Row>, Vec<(String, usize)>) = (Vec::new(), Vec::new());
    let mut calibrating = Vec::<(u32, usize)>::new();
    for line in DATA.lines() {
        let row: Value = serde_json::from_str(line).expect("the data is part of the crate");
        let section = row["section"].as_str().unwrap_or_default().to_string();
        let test = section
            .split("Test ")
            .nth(1)
            .and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next())
            .and_then(|n| n.parse().ok())
            .unwrap_or(0u32);
        let nth = match nth_of.iter_mut().find(|(s, _)| *s == section) {
            Some((_, nth)) => {
                *nth += 1;
                *nth
            }
            None => {
                nth_of.push((section.clone(), 0));
                0
            }
        };
        let columns = &row["row"];
        let (Some(gbps), Some((what, scenario))) =
            (number(columns, "BW"), Line::of(test, &section, &row["context"], columns, nth).build())
        else {
            continue;
        };
        let stable = stable(columns, gbps, &scenario);
        // Test 3 is held against whole: past the knee its means are means of wide swings, but of all its rows alike.
        let counts = stable || test == 3;
        let nth_counting = match calibrating.iter_mut().find(|(t, _)| *t == test) {
            Some((_, n)) if counts => {
                *n += 1;
                *n
            }
            Some((_, n)) => *n,
            None => {
                calibrating.push((test, 0));
                0
            }
        };
        rows.push(Row { test, what, gbps, stable, first: counts && nth_counting.is_multiple_of(2), scenario });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_tests_is_there() {
        let rows = rows();
        let count = |test| rows.iter().filter(|r| r.test == test).count();
        // 229 rows of test 18, of which one of 4k has lost its throughput.
        assert_eq!([2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 18].map(count), [14, 15, 14, 11, 35, 12, 25, 10, 28, 16, 228]);
        for test in [2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 18] {
            let half = rows.iter().filter(|r| r.test == test && r.first).count();
            let all = rows.iter().filter(|r| r.test == test && (r.stable || test == 3)).count();
            assert!(half.abs_diff(all - half) <= 1, "test {test}: {half} of {all}");
        }
    }
}
