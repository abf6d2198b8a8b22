//! Machines of known law, measured by simulation, learnt from their curves: the fit predicts points that it has not
//! seen, and changes that nobody has measured.

use pace::Config;
use pace::sim::learn::{Curve, Line, Point, answers, fit};
use pace::sim::{Confidence, Scenario, run};

/// A server of six places of 60 us behind 25 us of way, whose ops take another 3 us of a core, and bytes a bus.
const MACHINE: &str = "profile = 'intel-16'\ncores = 1\nturnaround_us = 25.0\ninitiator_op_us = 1.0\nop_us = 3.0\n\
                       deep_us = 0.0\ncache.curve = [[1.0, 100000.0], [2.0, 100000.0]]\ndrives.channels = 6\n\
                       drives.read_us = 60.0\ndrives.core_us = 0.0\ndrives.bus_gbytes = 2.0\ndrives.count = ";

/// Ops per second of the machine with these drives.
fn truth(drives: u32, bytes: u64, depth: u32) -> f64 {
    let text = format!(
        "name = 'truth'\nseed = 9\nseconds = 0.2\nwarmup_seconds = 0.1\npacing.method = 'none'\n\
         [[jobs]]\ndepth = {depth}\nsizes = [{{ bytes = {bytes} }}]\n[machine]\n{MACHINE}{drives}\n"
    );
    run(&Scenario::parse(&text).unwrap(), &mut |_| {}).unwrap().iops
}

fn curve(drives: u32, bytes: u64) -> Curve {
    let depths = [1, 2, 4, 6, 8, 12, 16, 32, 64];
    let point = |depth| Point { depth, iops: truth(drives, bytes, depth), uncertain: 0.01, initiator_us: 1.0 };
    Curve {
        name: format!("{drives} drives, {bytes} bytes"),
        bytes,
        write_percent: 0.0,
        hosts: 1,
        copies: 1,
        drives,
        cores: Some(1),
        points: depths.map(point).to_vec(),
        load_line: Line::At(32.0),
        overload: None,
    }
}

#[test]
fn unseen_points_and_changes_are_predicted() {
    let curves = [curve(1, 4096), curve(2, 4096), curve(1, 131_072)];
    let fitted = fit(&curves, 2, &|_| {}).unwrap();
    let ratios = fitted.ratios();
    let near = ratios.iter().filter(|ratio| (0.92..=1.08).contains(*ratio)).count();
    assert!(ratios.len() == 21 && near * 10 >= ratios.len() * 9, "{near} of {ratios:?}");
    // Two numbers of drives tell the drives' limit from the cores'.
    let said = answers(&curves, &fitted, 2).unwrap();
    let (low, high) = said.iter().find(|a| a.change == "2 more drives").and_then(|a| a.iops).unwrap();
    let three = truth(3, 4096, 64);
    assert!(low * 0.9 < three && three < high * 1.1 && high < 1.5 * low, "{three} is not in {low} to {high}");
    let pacing = said.iter().find(|a| a.change == "pacing").unwrap();
    assert!(pacing.text.contains("will not raise the throughput"), "{}", pacing.text);
}

#[test]
fn the_profile_vouches_for_what_was_measured_only() {
    let one = curve(1, 4096);
    let rising = Curve { load_line: Line::Beyond, points: one.points[..8].to_vec(), ..one };
    let fitted = fit(std::slice::from_ref(&rising), 2, &|_| {}).unwrap();
    let said = answers(std::slice::from_ref(&rising), &fitted, 2).unwrap();
    assert!(said[0].text.contains("will not help: no load line"), "{}", said[0].text);
    assert!(said[1].text.contains("the results do not tell"), "{}", said[1].text);
    let open = &fitted.machine.learned.as_ref().unwrap().undetermined;
    assert!(open.iter().any(|open| open.contains("add a sweep of bs=128k")), "{open:?}");
    // The profile is a document: a scenario that it describes has an interval, and others say why they have none.
    let machine: toml::Table = toml::to_string(&fitted.machine).unwrap().parse().unwrap();
    let trust = |bytes: u64, depth: u32, pacing: Config| {
        let text = format!(
            "name = 't'\nseconds = 0.05\npacing.method = 'none'\n[[jobs]]\ndepth = {depth}\nsizes = [{{ bytes = {bytes} }}]\n"
        );
        let mut scenario = Scenario::parse(&text).unwrap();
        (scenario.machine, scenario.pacing) = (machine.clone(), pacing);
        run(&scenario, &mut |_| {}).unwrap().confidence
    };
    // Its figures are those of the fit.
    let Confidence::Interval { low_gbps, high_gbps, .. } = trust(4096, 8, Config::none()) else {
        panic!("an interval")
    };
    let (middle, learnt) = ((low_gbps * high_gbps).sqrt() * 1e9 / 8.0 / 4096.0, fitted.learnt[0][4].iops);
    assert!((middle / learnt - 1.0).abs() < 0.03, "{middle} {learnt}");
    assert!(matches!(trust(4096, 8, Config::none()), Confidence::Interval { rows: 6, .. }));
    assert!(matches!(trust(8192, 8, Config::none()), Confidence::Outside(why) if why.contains("8192 bytes")));
    assert!(matches!(trust(4096, 64, Config::none()), Confidence::Outside(why) if why.contains("at most 32 ops")));
    assert!(matches!(trust(4096, 8, Config::auto(None)), Confidence::Outside(why) if why.contains("without pacing")));
}

#[test]
fn a_half_does_not_see_the_points_that_it_predicts() {
    let one = curve(1, 4096);
    let mut other = one.clone();
    other.points[3].iops *= 0.7;
    let predicted = |curve: Curve| fit(&[curve], 2, &|_| {}).unwrap().predicted[0][3];
    let (before, after) = (predicted(one), predicted(other));
    assert!((after / before - 1.0).abs() < 0.03, "{before} {after}");
}

#[test]
fn a_profile_without_points_still_loads_and_corrects_nothing() {
    let one = curve(1, 4096);
    let fitted = fit(&[one], 2, &|_| {}).unwrap();
    let mut machine: toml::Table = toml::to_string(&fitted.machine).unwrap().parse().unwrap();
    let learned = machine.get_mut("learned").and_then(toml::Value::as_table_mut).unwrap();
    for key in ["scores", "law", "curves"] {
        assert!(learned.remove(key).is_some(), "{key}");
    }
    let text = "name = 't'\nseconds = 0.05\npacing.method = 'none'\n[[jobs]]\ndepth = 8\nsizes = [{ bytes = 4096 }]\n";
    let mut scenario = Scenario::parse(text).unwrap();
    scenario.machine = machine;
    let outcome = run(&scenario, &mut |_| {}).unwrap();
    assert_eq!(outcome.gbps, outcome.simulated_gbps);
    assert!(matches!(outcome.confidence, Confidence::Interval { rows: 7, .. }), "{:?}", outcome.confidence);
}

#[test]
fn pacing_helps_where_throughput_falls_with_the_bytes_in_flight() {
    // A drive of 20,000 ops a second behind a cache of 4 MiB.
    let part = |depth: u32| (64.0 / f64::from(depth)).powf(0.25).min(1.0);
    let fallen = |depth: u32| (f64::from(depth) / 100e-6).min(20_000.0) * part(depth);
    let depths = [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512];
    let points = depths.map(|depth| Point { depth, iops: fallen(depth), uncertain: 0.01, initiator_us: 1.0 }).to_vec();
    let curve = Curve { points, overload: Some(128.0), load_line: Line::At(2.0), ..curve(1, 65_536) };
    let fitted = fit(std::slice::from_ref(&curve), 2, &|_| {}).unwrap();
    let said = answers(std::slice::from_ref(&curve), &fitted, 2).unwrap();
    let (low, high) = said[0].iops.unwrap();
    assert!(low > 15_000.0 && high < 25_000.0, "{low} to {high}: {}", said[0].text);
    assert!(said[0].text.contains("more than the model's error"), "{}", said[0].text);
}
