//! Further published measurements, of the same target with other loads and with other drives, each as the scenario that
//! it was.
//!
//! `data/io-pacing-more.jsonl` has 558 rows, drawn at random from the tables. A row becomes a scenario if its own
//! columns, or Little's law on its latency, say what its load was. The others are left out: rows of two or three
//! columns, rates and buffers whose parameters the tables do not give, delays of unknown depth.

use serde_json::Value;

use super::published::{
    KIB128, Row, TUNER_PERIOD_US, TUNER2_NS_PER_MIB, buffers, job, null_devices, number, plain, scenario, sizes, stable,
};
use super::scenario::{Delay, Job, Scenario};
use crate::config::{Config, Credits, Method};

const DATA: &str = include_str!("../../data/io-pacing-more.jsonl");
/// The pacer's period was set as 62.5 times that of a core.
const PERIOD_UNIT: f64 = 62.5;
/// Bytes of data that the target takes with the command in the tests "in-capsule".
const IN_CAPSULE_BYTES: i64 = 4096;

/// All of these rows whose load is known, in the order of the file.
pub fn more() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut place = Place::default();
    for line in DATA.lines() {
        let row: Value = serde_json::from_str(line).expect("the data is part of the crate");
        place.follow(&row);
        let columns = &row["row"];
        let (Some(gbps), Some((what, mut scenario))) = (number(columns, "BW"), build(&row, &place)) else { continue };
        let profile = match place.disks.as_str() {
            "Samsung drives" => "samsung-16",
            "12 Intel + 4 Samsung drives" if place.section.starts_with("12 Intel") => "intel-12-samsung-4",
            "12 Intel + 4 Samsung drives" => "samsung-12-intel-4",
            _ => "intel-16",
        };
        scenario.machine.insert("profile".into(), profile.into());
        let stable = stable(columns, gbps, &scenario);
        // No profile is fitted on rows of drives of two kinds.
        let fitted = stable && matches!(profile, "intel-16" | "samsung-16");
        let first = fitted && rows.iter().filter(|row| row.stable).count().is_multiple_of(2);
        rows.push(Row { test: 0, what, gbps, stable, first, scenario });
    }
    rows
}

/// The place in the file: tables of a section follow one another without a mark.
#[derive(Default)]
struct Place {
    disks: String,
    section: String,
    /// The number of the row in its section, from 0.
    nth: usize,
    /// True if ops bypassed the pacer in the row before.
    bypassed: bool,
    /// The number of tables of the section before this one: each begins with unpaced rows and ends with bypassed ones.
    table: usize,
    /// True if the write tests of these disks have begun.
    writes: bool,
}

impl Place {
    fn follow(&mut self, row: &Value) {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_string();
        let (disks, section) = (text("disks"), text("section"));
        if (&self.disks, &self.section) == (&disks, &section) {
            self.nth += 1;
        } else {
            let begun = self.writes && self.disks == disks && !section.contains("Read");
            let writes = begun || section.to_lowercase().contains("write") || disks.contains("writes");
            *self = Place { disks, section, writes, ..Place::default() };
        }
        let bypassed = number(&row["row"], "Pacer threshold").is_some_and(|bytes| bytes > 0.0);
        let unpaced = number(&row["row"], "Pacer period") == Some(0.0);
        self.table += usize::from(self.bypassed && unpaced);
        self.bypassed = bypassed;
    }
}

fn build(row: &Value, place: &Place) -> Option<(String, Scenario)> {
    let columns = &row["row"];
    if columns.get("IO size").is_some() {
        return of_sizes(columns, place);
    }
    match (place.disks.as_str(), place.section.as_str()) {
        ("16 Intel drives, small IOs", section) => of_small(section.rsplit(" / ").next()?, columns),
        ("16 Intel drives, writes", "intel_write") => of_writes(columns, place.nth),
        ("Samsung drives", "WRITE tests") => {
            let depth = number(columns, "QD")?;
            let what = format!("write 128k, rate, depth {depth}");
            Some((what.clone(), writing(scenario(what, 4, Config::none(), vec![one(depth)]))))
        }
        ("Samsung drives", "samsung") => of_samsung(&row["context"], columns),
        _ => None,
    }
}

fn one(depth: f64) -> Job {
    job(depth, 1, None, sizes("128k"))
}

fn writing(mut scenario: Scenario) -> Scenario {
    scenario.jobs.iter_mut().for_each(|job| job.write_percent = 100.0);
    scenario
}

/// The tables by size, pacer and depth: eight jobs on each of two hosts, 16 cores.
fn of_sizes(columns: &Value, place: &Place) -> Option<(String, Scenario)> {
    let depth = number(columns, "QD/job").or_else(|| number(columns, "QD"))?;
    let size = columns["IO size"].as_str()?.replace("128k:80", "128k/80");
    let bypass_bytes = number(columns, "Pacer threshold")? as u32;
    let period_us = number(columns, "Pacer period")? / PERIOD_UNIT;
    let method = match period_us {
        0.0 => Method::None,
        _ => Method::RateInFlight {
            credits: Credits {
                credit_bytes: 64 << 10,
                cores: 16,
                bypass_bytes,
                at_period_end: true,
                ..Credits::every(period_us)
            },
            tuner_period_us: TUNER_PERIOD_US,
            threshold_bytes: 0,
            ns_per_mib: TUNER2_NS_PER_MIB[1],
        },
    };
    let how = if period_us == 0.0 { "unpaced".into() } else { format!("tuner 2 from {period_us:.1} us") };
    let bypass = if bypass_bytes > 0 { format!(", up to {bypass_bytes} bypass") } else { String::new() };
    let way = if place.writes { "write " } else { "" };
    let what = format!("{way}{size}, {how}{bypass}, depth {depth} x 16");
    let mut scenario = scenario(what.clone(), 16, plain(method), vec![job(depth, 8, None, sizes(&size))]);
    if place.writes {
        scenario = writing(scenario);
        // The first two tables of Intel drives: their 4 KiB writes hold no buffers, so the data came with the command.
        if place.disks.starts_with("16 Intel") && place.table < 2 {
            scenario.machine.insert("in_capsule_bytes".into(), IN_CAPSULE_BYTES.into());
        }
    }
    Some((what, scenario))
}

/// Reads of one small size, eight jobs on each of two hosts (Little's law on the latencies), 16 cores.
fn of_small(test: &str, columns: &Value) -> Option<(String, Scenario)> {
    let (test, size) = test.strip_prefix("test_")?.split_once('_')?;
    let depth = number(columns, "QD")?;
    // The tables count in-flight buffers of 8 KiB for ops of 16 KiB, too.
    let unit_bytes = measure::units::parse_bytes(size, 1024).ok()?.min(8192) as u32;
    let cores = number(columns, "Tgt CPUs").map_or(16, |cores| cores as u32);
    let pool = |count: f64| {
        plain(Method::Buffers { count: count as u32, unit_bytes, cache_per_core: count as u32 / cores, cores })
    };
    // With too few cores all buffers are in flight, and the table shows their number.
    let usual = if size == "4k" { 1536.0 } else { 1024.0 };
    let (pacing, how) = match test {
        "2" | "3" | "13" => (Config::none(), String::new()),
        "4" | "5" | "7" => (pool(usual), format!(", {usual} buffers")),
        "9" => (pool(number(columns, "Num buffers")?), format!(", {} buffers", number(columns, "Num buffers")?)),
        _ => return None,
    };
    let null = if matches!(test, "2" | "4") { "null, " } else { "" };
    let what = format!("{null}{size}{how}, {cores} cores, depth {depth}");
    let mut job = job(depth, 8, None, sizes(size));
    if test == "13" {
        (job.hosts, job.per_host) = ("0".into(), 1);
    }
    let mut scenario = scenario(what.clone(), cores, pacing, vec![job]);
    if !null.is_empty() {
        null_devices(&mut scenario.machine);
    }
    if test == "13" {
        lone(&mut scenario);
    }
    Some((what, scenario))
}

/// Writes of 128 KiB. Of these rows the table gives neither the pacer nor the devices. They come in the order of the
/// tests of reads: no pacing, then 96 buffers; one op in flight on a null device, then on a drive. Little's law says
/// which rows are of one job on each of two hosts.
fn of_writes(columns: &Value, nth: usize) -> Option<(String, Scenario)> {
    let (depth, latency_us, gbps) = (number(columns, "QD")?, number(columns, "AVG LAT, us")?, number(columns, "BW")?);
    if depth == 1.0 && gbps * 1e3 * latency_us / 8.0 / (KIB128 as f64) < 1.1 {
        let null = latency_us < 50.0;
        let what = format!("write 128k, {}one op in flight", if null { "null, " } else { "" });
        let mut job = one(1.0);
        job.hosts = "0".into();
        let mut scenario = writing(scenario(what.clone(), 4, Config::none(), vec![job]));
        if null {
            null_devices(&mut scenario.machine);
        }
        lone(&mut scenario);
        return Some((what, scenario));
    }
    let (pacing, how) = match nth {
        2 | 3 | 5..=8 => (Config::none(), ""),
        10..=16 => (buffers(96.0, 24.0, 4), "96 buffers, "),
        _ => return None,
    };
    let what = format!("write 128k, {how}depth {depth}");
    Some((what.clone(), writing(scenario(what, 4, pacing, vec![one(depth)]))))
}

/// One op at a time needs no long run.
pub(super) fn lone(scenario: &mut Scenario) {
    (scenario.seconds, scenario.warmup_seconds) = (0.05, 0.01);
}

fn of_samsung(context: &Value, columns: &Value) -> Option<(String, Scenario)> {
    let configuration = context["Configuration"].as_str()?;
    let depth = number(columns, "QD")?;
    if columns.get("Pacer period, us").is_some() || context.get("Disk Credit").is_some() {
        return None;
    }
    if let Some(slow) = number(columns, "Num delay bdevs") {
        let count = number(columns, "Num buffers")?;
        // At depth 85 and 341 all namespaces have that depth; at less, the good ones have 1024 (Little's law).
        let third = if matches!(depth, 85.0 | 341.0) { depth } else { 1024.0 };
        let what = format!("{count} buffers, {slow} slow at depth {depth}, others {third}");
        let jobs = [(depth, "0-15"), (depth, "16-31"), (third, "32-47")];
        let jobs = jobs.map(|(depth, group)| job(depth, 1, Some(group), sizes("128k"))).to_vec();
        let mut scenario = scenario(what.clone(), 4, buffers(count, (count / 4.0).floor(), 4), jobs);
        scenario.namespaces = Some(48);
        if slow > 0.0 {
            scenario.delay = vec![Delay { namespaces: format!("0-{}", slow as u32 - 1), us: 1000.0 }];
        }
        scenario.seconds = 0.5;
        return Some((what, scenario));
    }
    let (pacing, how) = match (number(columns, "Num buffers"), number(columns, "Buf cache")) {
        (Some(count), Some(cache)) => (buffers(count, cache, 4), format!("{count} buffers, ")),
        _ if configuration.contains("BUF_CACHE_SIZE=6 ") => (buffers(96.0, 6.0, 4), "96 buffers, ".into()),
        _ if matches!(configuration, "config_null_16" | "config_nvme") => (Config::none(), String::new()),
        _ => return None,
    };
    let null = configuration == "config_null_16";
    let what = format!("{}{how}depth {depth}", if null { "null, " } else { "" });
    let mut scenario = scenario(what.clone(), 4, pacing, vec![one(depth)]);
    if null {
        null_devices(&mut scenario.machine);
    }
    Some((what, scenario))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_whose_load_is_known_are_there() {
        let rows = more();
        let of =
            |profile: &str| rows.iter().filter(|row| row.scenario.machine["profile"].as_str() == Some(profile)).count();
        let writes = rows.iter().filter(|row| row.scenario.jobs[0].write_percent > 0.0).count();
        let counts = ["intel-16", "samsung-16", "intel-12-samsung-4", "samsung-12-intel-4"].map(of);
        assert_eq!((rows.len(), counts, writes), (404, [130, 146, 64, 64], 190));
        for row in &rows {
            super::super::check(&row.scenario).unwrap_or_else(|e| panic!("{}: {e}", row.what));
        }
    }
}
