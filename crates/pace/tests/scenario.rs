//! The scenario parser: anything that is not a scenario is one line of error, never a panic; and what parses can be
//! checked.

use pace::sim::{Scenario, check, expand};
use proptest::prelude::*;

const VALID: &str = include_str!("../../../configs/sim/slow-drives.toml");

fn one_line<T>(result: Result<T, pace::Error>) {
    if let Err(error) = result {
        let text = error.to_string();
        assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn noise_is_refused(text in "\\PC{0,200}") {
        one_line(Scenario::parse(&text));
    }

    /// A valid file with one piece replaced by something else: what still parses is checked, and expands or says why
    /// not.
    #[test]
    fn damage_is_refused(from in 0usize..VALID.len(), length in 0usize..40, with in "[-0-9a-z\"\\[\\]{}=.,\n ]{0,20}") {
        let cut = |at: usize| (0..=at.min(VALID.len())).rev().find(|&n| VALID.is_char_boundary(n)).unwrap_or(0);
        let (from, to) = (cut(from), cut(from + length));
        let text = format!("{}{with}{}", &VALID[..from], &VALID[to.max(from)..]);
        match Scenario::parse(&text) {
            Err(error) => one_line::<()>(Err(error)),
            Ok(scenario) => match expand(&scenario) {
                Err(error) => one_line::<()>(Err(error)),
                Ok(runs) => runs.iter().take(4).for_each(|run| one_line(check(&run.scenario))),
            },
        }
    }
}

#[test]
fn numbers_at_their_limits_are_answers_not_panics() {
    for (what, with) in [
        ("depth = 85", "depth = 4294967295"),
        ("depth = 85", "depth = -1"),
        ("us = 1000.0", "us = 1e300"),
        ("us = 1000.0", "us = nan"),
        ("seconds = 2.0", "seconds = inf"),
        ("\"0-1\"", "\"0-4294967295\""),
        ("\"0-1\"", "\"4294967296\""),
        ("\"128k\"", "\"99999999999g\""),
        ("namespaces = 48", "namespaces = 4294967295"),
        ("namespaces = 48", "namespaces = 0"),
    ] {
        let text = VALID.replacen(what, with, 1);
        assert_ne!(text, VALID, "{what} is in the scenario");
        let refused = match Scenario::parse(&text) {
            Err(error) => Err(error),
            Ok(mut scenario) => {
                scenario.sweep.clear();
                check(&scenario)
            }
        };
        assert!(refused.is_err(), "{with}");
        one_line(refused);
    }
}

/// The outcome of 64 reads in flight from one drive, on a machine without work of processors that these lines change.
fn one_drive(lines: &str) -> pace::sim::Outcome {
    let text = format!(
        "name = \"t\"\nseconds = 0.02\nwarmup_seconds = 0.01\n[machine]\nprofile = \"intel-16\"\ndrives.count = 1\n\
         drives.jitter = 0.0\ninitiator_op_us = 0.0\nop_us = 0.0\ndeep_us = 0.0\ndrives.core_us = 0.0\n\
         {lines}\n[pacing]\nmethod = \"none\"\n[[jobs]]\nhosts = \"0\"\ndepth = 64\n\
         sizes = [{{ bytes = \"4k\" }}]\n"
    );
    pace::sim::run(&Scenario::parse(&text).unwrap(), &mut |_| {}).unwrap()
}

#[test]
fn a_queue_with_a_depth_keeps_the_rest_at_the_initiator() {
    let [free, deep, shallow] =
        [4096, 64, 16].map(|depth| one_drive(&format!("queue_depth = {depth}\ndrives.placed = false")));
    assert_eq!((free.iops, free.all.target_us), (deep.iops, deep.all.target_us));
    // The drive is the limit with either, so all 64 take as long; the target has a quarter of them.
    assert!((0.97..1.03).contains(&(shallow.all.lat_us / free.all.lat_us)), "{} us", shallow.all.lat_us);
    let part = shallow.all.target_us / free.all.target_us;
    assert!((0.15..0.35).contains(&part), "{part}");
    let nothing = Scenario::parse(&VALID.replace("[machine]", "[machine]\nqueue_depth = 0")).unwrap();
    assert!(check(&nothing).unwrap_err().to_string().contains("queue_depth"));
}

#[test]
fn placed_blocks_wait_for_their_channel() {
    let of = |lines: &str| one_drive(&format!("drives.channels = 16\n{lines}")).iops;
    let (any, placed) = (of("queue_depth = 8\ndrives.placed = false"), of("queue_depth = 8"));
    // Eight ops at sixteen channels never wait for a free one, and often for one that has their blocks.
    assert!((0.5..0.9).contains(&(placed / any)), "{placed} of {any}");
}

#[test]
fn a_write_fetches_its_data_unless_they_came_with_the_command() {
    let latency_us = |lines: &str| {
        let text = VALID_WRITE.replace("[machine]", &format!("[machine]\n{lines}"));
        pace::sim::run(&Scenario::parse(&text).unwrap(), &mut |_| {}).unwrap().all.lat_us
    };
    let (fetched, carried) = (latency_us("fetch_us = 7.0\nfetch_op_us = 1.5"), latency_us("in_capsule_bytes = 4096"));
    assert!((fetched - carried - 7.0 - 1.5).abs() < 0.1, "{fetched} and {carried} us");
}

#[test]
fn a_controller_delays_a_read_and_limits_nothing() {
    let of = |us: f64| one_drive(&format!("drives.placed = false\ndrives.read_fixed_us = {us}"));
    // One more channel's time of delay: 64 ops still keep 7 channels busy.
    let (without, with) = (of(0.0), of(20.0));
    assert!((0.99..1.01).contains(&(with.iops / without.iops)), "{} and {}", without.iops, with.iops);
    let lone = |us: f64| {
        let text = VALID_WRITE.replace("write_percent = 100.0", "write_percent = 0.0");
        let text = text.replace("[pacing]", &format!("drives.read_fixed_us = {us}\n[pacing]"));
        pace::sim::run(&Scenario::parse(&text).unwrap(), &mut |_| {}).unwrap().all.lat_us
    };
    assert!((lone(20.0) - lone(0.0) - 20.0).abs() < 0.1, "{} and {} us", lone(0.0), lone(20.0));
}

#[test]
fn a_drive_with_memory_takes_few_writes_at_the_speed_of_the_bus() {
    let of = |depth: u32, kib: u32| {
        let text = VALID_WRITE.replace("4k", "128k").replace("depth = 1", &format!("depth = {depth}"));
        let drives = format!(
            "drives.count = 1\ndrives.write_us = 0.0\ndrives.write_op_us = 0.0\ndrives.bus_gbytes = 4.0\n\
             drives.write_gbytes = 1.0\ndrives.write_buffer_kib = {kib}\n[pacing]"
        );
        let text = text.replace("[pacing]", &drives).replace("seconds = 0.01", "seconds = 0.1");
        pace::sim::run(&Scenario::parse(&text).unwrap(), &mut |_| {}).unwrap()
    };
    // One write of 131 us at the limit leaves 131072 bytes; a memory of 1 MiB hides that, but not the limit.
    let (small, large) = (of(1, 0), of(1, 1024));
    assert!(small.all.lat_us > 131.0 && small.gbps < 7.5, "{} us, {} Gb/s", small.all.lat_us, small.gbps);
    assert!((7.9..8.1).contains(&large.gbps), "{} Gb/s", large.gbps);
    let deep = of(32, 1024);
    assert!((7.9..8.1).contains(&deep.gbps), "{} Gb/s", deep.gbps);
}

#[test]
fn the_cache_follows_the_buffers_in_use_with_a_lag() {
    let gbps = |lag_mib: f64, seconds: f64| {
        let text = include_str!("../../../configs/sim/prototype-03.toml");
        let mut scenario = Scenario::parse(text).unwrap();
        scenario.sweep.clear();
        scenario.jobs.iter_mut().for_each(|job| job.depth = 256);
        (scenario.warmup_seconds, scenario.seconds) = (0.002, seconds);
        let lag = format!("cache.lag_mib = {lag_mib}").parse::<toml::Table>().unwrap();
        scenario.machine.extend(lag);
        pace::sim::run(&scenario, &mut |_| {}).unwrap().gbps
    };
    // A lag of 4 GiB holds the spill off for the first 10 ms; a small one changes no steady state.
    let (at_once, late) = (gbps(0.0, 0.01), gbps(4096.0, 0.01));
    assert!(late > 1.1 * at_once, "{late} and {at_once} Gb/s");
    let (at_once, soon) = (gbps(0.0, 0.2), gbps(8.0, 0.2));
    assert!((0.97..1.03).contains(&(soon / at_once)), "{soon} and {at_once} Gb/s");
}

const VALID_WRITE: &str = r#"
name = "t"
seconds = 0.02
warmup_seconds = 0.01
[machine]
profile = "intel-16"
op_us = 2.0
deep_us = 0.0
drives.core_us = 0.0
drives.jitter = 0.0
[pacing]
method = "none"
[[jobs]]
hosts = "0"
depth = 1
write_percent = 100.0
sizes = [{ bytes = "4k" }]
"#;

#[test]
fn a_scenario_says_if_anything_like_it_was_measured() {
    let of = |from: &str, to: &str| {
        let text = include_str!("../../../configs/sim/prototype-03.toml").replace(from, to);
        pace::sim::kinds::of(&Scenario::parse(&text).unwrap()).unwrap().map(|kind| kind.name)
    };
    assert_eq!(of("", ""), Ok(pace::sim::kinds::LARGE));
    for (from, to, why) in [
        ("method = \"none\"", "method = \"auto\"", "auto"),
        ("128k", "1m", "1048576 bytes"),
        ("intel-16\"", "intel-16\"\ndrives.count = 8", "drives"),
        ("depth = 32", "depth = 32\nwrite_percent = 50.0", "only reads"),
        ("depth = 32", "depth = 32\niops = 100.0", "always full"),
    ] {
        let outside = of(from, to).unwrap_err();
        assert!(outside.contains(why), "{outside}");
    }
}

/// A target has more namespaces than a scenario may have hosts.
#[test]
fn thousands_of_delayed_namespaces_are_simulated() {
    let text = "name = 'many'\nseconds = 0.02\nwarmup_seconds = 0.0\nnamespaces = 5000\nmachine.profile = 'intel-16'\n\
                pacing = { method = 'buffers', count = 96 }\ndelay = [{ namespaces = '0-4999', us = 100.0 }]\n\
                [[jobs]]\ndepth = 32\nsizes = [{ bytes = '128k' }]\n";
    let outcome =
        pace::sim::run(&Scenario::parse(text).unwrap(), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    assert!(outcome.gbps > 0.0 && outcome.all.ops > 0, "{}", outcome.gbps);
}
