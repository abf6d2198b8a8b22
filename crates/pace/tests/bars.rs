//! The bars of the self-tuning pacer, on the calibrated machine and on machines that nothing was tuned for, with the
//! one default parameter set. Simulated time: the same on every machine. docs/pacing.md has the figures.
//!
//! The bars were set for one machine, which bars.toml keeps. The profile intel-16 is fitted anew with every change of
//! the model, and a bar must not move with it.

use pace::sim::{Outcome, Run, Scenario, jain, run_all};
use pace::{Config, Method, Tuning};

/// Payload ceiling of the calibrated machine, Gb/s.
const PLATEAU: f64 = 184.8;

const ONE_JOB: &str = r#"
name = "bar"
machine.profile = "intel-16"
pacing.method = "auto"
[[jobs]]
hosts = "0-1"
depth = 256
order = "random"
sizes = [{ bytes = "128k" }]
"#;

/// 48 namespaces on 16 drives, 32 of them delayed by 1 ms.
const SLOW: &str = r#"
name = "bar"
namespaces = 48
machine.profile = "intel-16"
pacing.method = "auto"
delay = [{ namespaces = "0-31", us = 1000.0 }]
[[jobs]]
hosts = "0-1"
namespaces = "0-15"
depth = 85
order = "random"
sizes = [{ bytes = "128k" }]
[[jobs]]
hosts = "0-1"
namespaces = "16-31"
depth = 85
order = "random"
sizes = [{ bytes = "128k" }]
[[jobs]]
hosts = "0-1"
namespaces = "32-47"
depth = 85
order = "random"
sizes = [{ bytes = "128k" }]
"#;

/// Eight jobs per host, 4096 outstanding, 16 cores.
const MIXED: &str = r#"
name = "bar"
machine = { profile = "intel-16", cores = 16 }
pacing.method = "auto"
[[jobs]]
hosts = "0-1"
per_host = 8
depth = 256
order = "random"
sizes = [{ bytes = "128k", percent = 80 }, { bytes = "4k", percent = 20 }]
"#;

fn merge(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(more)) => merge(inner, more),
            (_, value) => drop(base.insert(key, value)),
        }
    }
}

fn scenario(text: &str, warmup_seconds: f64, seconds: f64, seed: u64) -> Scenario {
    let mut scenario = Scenario::parse(text).unwrap_or_else(|e| panic!("{e}"));
    if scenario.machine.get("profile").and_then(toml::Value::as_str) == Some("intel-16") {
        let own = std::mem::take(&mut scenario.machine);
        scenario.machine = include_str!("bars.toml").parse().expect("TOML");
        merge(&mut scenario.machine, own);
        scenario.machine.remove("profile");
    }
    (scenario.warmup_seconds, scenario.seconds, scenario.seed) = (warmup_seconds, seconds, seed);
    scenario
}

fn simulate(scenarios: Vec<Scenario>) -> Vec<Outcome> {
    let runs: Vec<Run> = scenarios.into_iter().map(|scenario| Run { set: Vec::new(), scenario }).collect();
    run_all(&runs, 2, &|_| {}).unwrap_or_else(|e| panic!("{e}"))
}

fn with_depth(mut scenario: Scenario, depth: u32) -> Scenario {
    scenario.jobs.iter_mut().for_each(|job| job.depth = depth);
    scenario
}

fn mix(large_percent: f64, write_percent: f64, seed: u64) -> Scenario {
    let mut scenario = scenario(MIXED, 0.6, 0.6, seed);
    let sizes = &mut scenario.jobs[0].sizes;
    (sizes[0].percent, sizes[1].percent) = (large_percent, 100.0 - large_percent);
    scenario.jobs[0].write_percent = write_percent;
    scenario
}

/// Mean and standard deviation of the throughputs.
fn spread(outcomes: &[Outcome]) -> (f64, f64) {
    let n = outcomes.len() as f64;
    let mean = outcomes.iter().map(|o| o.gbps).sum::<f64>() / n;
    (mean, (outcomes.iter().map(|o| (o.gbps - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt())
}

#[test]
fn the_plateau_is_kept_at_every_depth_from_32_to_2048() {
    let depths = [32, 48, 64, 128, 256, 512, 1024, 2048];
    for (depth, o) in
        depths.iter().zip(simulate(depths.iter().map(|&d| with_depth(scenario(ONE_JOB, 1.0, 1.5, 1), d)).collect()))
    {
        assert!(o.gbps >= 0.98 * PLATEAU, "depth {depth}: {:.1} Gb/s", o.gbps);
    }
}

#[test]
fn nothing_is_lost_at_low_depth() {
    for depth in [1, 2, 4, 8, 16, 24] {
        let auto = with_depth(scenario(ONE_JOB, 0.3, 0.5, 1), depth);
        let o = simulate(vec![auto.with_pacing(Config::none()), auto]);
        assert!(o[1].gbps >= 0.98 * o[0].gbps, "depth {depth}: {:.1} of {:.1} Gb/s", o[1].gbps, o[0].gbps);
    }
}

#[test]
fn slow_drives_do_not_hold_the_buffers_of_the_others() {
    for (depth, bar) in [(85, 178.0), (341, 175.0)] {
        let o = simulate(vec![with_depth(scenario(SLOW, 1.0, 1.5, 1), depth)]);
        assert!(o[0].gbps >= bar, "depth {depth}: {:.1} Gb/s", o[0].gbps);
    }
}

#[test]
fn mixed_sizes_keep_throughput_and_small_latency() {
    // Gb/s, and microseconds of small ops at the target: reads, and writes of the same mixes.
    for (large, write, bar_gbps, bar_us) in [
        (80.0, 0.0, 178.0, 300.0),
        (3.0, 0.0, 164.0, f64::INFINITY),
        (80.0, 100.0, 178.0, 300.0),
        (3.0, 100.0, 164.0, f64::INFINITY),
    ] {
        let o = simulate(vec![mix(large, write, 1)]);
        let at =
            format!("{large} % large, {write} % writes: {:.1} Gb/s, small {:.0} us", o[0].gbps, o[0].small.target_us);
        assert!(o[0].gbps >= bar_gbps && o[0].small.target_us < bar_us, "{at}");
    }
}

#[test]
fn ten_seeds_agree_within_one_percent() {
    let ten = |of: &dyn Fn(u64) -> Scenario| spread(&simulate((1..=10).map(of).collect()));
    for (what, bar, (mean, deviation)) in [
        ("depth 256", 0.98 * PLATEAU, ten(&|seed| scenario(ONE_JOB, 1.0, 1.0, seed))),
        ("32 slow of 48, depth 85", 178.0, ten(&|seed| scenario(SLOW, 1.0, 1.0, seed))),
        ("32 slow of 48, depth 341", 175.0, ten(&|seed| with_depth(scenario(SLOW, 1.0, 1.0, seed), 341))),
        ("80/20 mix", 178.0, ten(&|seed| mix(80.0, 0.0, seed))),
    ] {
        assert!(mean >= bar && deviation < 0.01 * mean, "{what}: {mean:.1} Gb/s, standard deviation {deviation:.2}");
    }
}

/// Mean Gb/s of the curve between two instants.
fn mean_between(o: &Outcome, from_s: f64, to_s: f64) -> f64 {
    let points: Vec<f64> = o.curve.iter().filter(|p| p.t_s > from_s && p.t_s <= to_s).map(|p| p.gbps).collect();
    points.iter().sum::<f64>() / points.len() as f64
}

#[test]
fn a_drive_that_turns_ten_times_slower_is_absorbed_within_a_second() {
    let text = ONE_JOB.replace("depth = 256", "per_host = 16\ndepth = 32")
        + "[[events]]\nat_s = 1.5\ndrives = \"5\"\nslower = 10.0\n";
    let o = &simulate(vec![scenario(&text, 0.5, 3.0, 1)])[0];
    let (before, after) = (mean_between(o, 1.0, 1.5), mean_between(o, 2.5, 3.5));
    assert!(before >= 0.98 * PLATEAU && after >= 0.98 * before, "{before:.1}, then {after:.1} Gb/s");
    // Not only on the mean of later: from one second on, every tenth of a second.
    for tenth in 0..10 {
        let from_s = 2.5 + f64::from(tenth) * 0.1;
        let then = mean_between(o, from_s, from_s + 0.1);
        assert!(then >= 0.95 * before, "at {from_s:.1} s: {then:.1} of {before:.1} Gb/s");
    }
}

#[test]
fn a_new_tenant_has_its_fair_share_within_a_second() {
    // All through one port, so that nothing but the pacer can divide it.
    let text = ONE_JOB
        .replace(
            "machine.profile = \"intel-16\"",
            "machine = { profile = \"intel-16\", ports = 1, port_gbps = 196.33 }",
        )
        .replace("\"0-1\"", "\"0-2\"")
        + "[[jobs]]\nhosts = \"3\"\nstart_s = 1.5\ndepth = 256\norder = \"random\"\nsizes = [{ bytes = \"128k\" }]\n";
    let o = &simulate(vec![scenario(&text, 0.5, 3.0, 1)])[0];
    let points: Vec<_> = o.curve.iter().filter(|p| p.t_s > 2.5 && p.t_s <= 3.5).collect();
    let shares: Vec<f64> =
        (0..4).map(|t| points.iter().map(|p| p.tenant_gbps[t]).sum::<f64>() / points.len() as f64).collect();
    assert!(jain(&shares) > 0.98, "{shares:.1?}: {:.4}", jain(&shares));
}

#[test]
fn a_greedy_tenant_does_not_crowd_out_a_modest_one() {
    // 16 outstanding beside 2048 on one port: the modest one gets more than its 0.8 % of the queue.
    let text = ONE_JOB
        .replace("machine.profile = \"intel-16\"", "machine = { profile = \"intel-16\", ports = 1 }")
        .replace("\"0-1\"", "\"0\"")
        .replace("256", "16")
        + "[[jobs]]\nhosts = \"1\"\ndepth = 2048\norder = \"random\"\nsizes = [{ bytes = \"128k\" }]\n";
    let auto = scenario(&text, 0.5, 1.0, 1);
    let o = simulate(vec![auto.with_pacing(Config::none()), auto]);
    assert!(o[1].tenant_gbps[0] > 10.0 * o[0].tenant_gbps[0], "{:?} against {:?}", o[1].tenant_gbps, o[0].tenant_gbps);
}

#[test]
fn machines_never_seen_need_no_change() {
    for (profile, depth) in [("small-cache", 64), ("small-cache", 1024), ("big-cache", 256), ("big-cache", 1024)] {
        let text = ONE_JOB.replace("intel-16", profile);
        // Against the best window that a hand could set, from 2 MiB up.
        let fixed = |mib: f64| {
            let mut fixed = with_depth(scenario(&text, 0.2, 0.3, 1), depth);
            let bytes = (mib * 1_048_576.0) as u64;
            let tuning = Tuning { start_bytes: bytes, floor_bytes: bytes, ..Tuning::default() };
            fixed.pacing = Config { method: Method::Auto { tuning }, budget_bytes: Some(bytes) };
            fixed
        };
        let by_hand = simulate((0..12).map(|n| fixed(2.0 * 1.4f64.powi(n))).collect());
        let best = by_hand.iter().map(|o| o.gbps).fold(0.0, f64::max);
        let o = simulate(vec![with_depth(scenario(&text, 2.0, 1.5, 1), depth)]);
        assert!(o[0].gbps >= 0.98 * best, "{profile}, depth {depth}: {:.1} of {best:.1} Gb/s", o[0].gbps);
    }
}

#[test]
fn a_hard_budget_costs_nothing_that_it_need_not() {
    let mut scenario = scenario(SLOW, 1.0, 1.0, 1);
    scenario.pacing.budget_bytes = Some(6 << 20);
    let o = &simulate(vec![scenario])[0];
    assert!(o.curve.iter().all(|p| p.in_flight_mib <= 6.0), "the budget is kept at every sample");
    // 48 shared buffers, the same memory, were measured at 89.6 Gb/s. Equal buffer-time for all 48 drives is worth
    // about 150.
    assert!(o.gbps >= 140.0, "{:.1} Gb/s", o.gbps);
}

#[test]
fn a_slow_namespace_costs_a_fast_one_nothing_under_a_hard_budget() {
    let text = include_str!("../../../configs/sim/budget.toml");
    let mut both = scenario(text, 0.5, 1.0, 1);
    both.sweep.clear();
    let mut alone = both.clone();
    alone.jobs.truncate(1);
    let o = simulate(vec![alone, both]);
    assert!(o[1].gbps >= 0.97 * o[0].gbps, "{:.1} of {:.1} Gb/s", o[1].gbps, o[0].gbps);
    assert!(o[1].curve.iter().all(|p| p.in_flight_mib <= 6.0));
}

#[test]
fn thirty_seconds_of_4096_outstanding_over_48_drives_are_a_few_million_events() {
    // The bar of 10 s per core is one of speed, and belongs to bench/; what it rests on is the number of events.
    let mut scenario = with_depth(scenario(ONE_JOB, 0.0, 0.5, 1), 2048);
    merge(&mut scenario.machine, "ports = 1\ndrives.count = 48".parse().expect("TOML"));
    let o = &simulate(vec![scenario])[0];
    assert!(o.events < 6 * 60 * 44_000 * 2, "{} events in half a second", o.events);
    assert!(o.gbps > 0.97 * PLATEAU / 2.0);
}
