//! The one sentence that a sweep ends with.

use measure::figures::{count, nanoseconds, percent, plain};
use measure::schema::{Curve, Estimate, LoadLine, Point};

/// Curves whose plateaus differ by less than this are equally fast; the one with the lower latency is then better.
const EQUAL: f64 = 0.03;

/// Which engine, which depth, what it gives, and what deeper does: one sentence. Empty without a load line.
///
/// The depth is that of [`Curve::at_load_line`]: what it gives was seen, not interpolated.
pub fn advice(axis: &str, curves: &[Curve], ceiling_iops: Option<Estimate>) -> String {
    let Some((curve, line, point)) = best(curves) else { return String::new() };
    let axis = if axis.is_empty() { "iodepth" } else { axis };
    let at = format!("{}, {axis} {}", curve.label, plain(point.x));
    let (iops, latency) = (count(point.iops.mean), nanoseconds(point.job.lat_ns().mean()));
    if line.still_rising {
        return format!("{at}: {iops} IOPS at {latency}, and still rising: sweep deeper to find the line.");
    }
    let part = percent((point.iops.mean / line.plateau_iops.mean).min(1.0));
    let gives = format!("{at}: {part} of {} IOPS at {latency}", count(line.plateau_iops.mean));
    let beyond = match &line.overload {
        Some(overload) => format!("deeper adds latency, and beyond {} throughput falls", plain(overload.mean.round())),
        None => "deeper only adds latency".to_string(),
    };
    let limit = match ceiling_iops {
        Some(ceiling) if line.plateau_iops.mean > 0.8 * ceiling.mean => {
            format!(" (near the generator's own {} IOPS: the storage may do more)", count(ceiling.mean))
        }
        _ => String::new(),
    };
    format!("{gives}; {beyond}{limit}.")
}

/// The curve with the highest plateau (among equals the one with the lowest latency at its line), and the point to use.
fn best(curves: &[Curve]) -> Option<(&Curve, &LoadLine, &Point)> {
    let candidates = || {
        curves.iter().filter_map(|curve| {
            let line = curve.line.as_ref()?;
            Some((curve, line, curve.at_load_line()?))
        })
    };
    let highest = candidates().map(|(_, line, _)| line.plateau_iops.mean).fold(0.0, f64::max);
    let equals = candidates().filter(|(_, line, _)| line.plateau_iops.mean >= highest * (1.0 - EQUAL));
    equals.min_by(|a, b| a.2.job.lat_ns().mean().total_cmp(&b.2.job.lat_ns().mean()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(mean: f64) -> Estimate {
        Estimate { mean, low: mean * 0.99, high: mean * 1.01 }
    }

    fn curve(label: &str, plateau: f64, line: f64, latency_ns: u64) -> Curve {
        let points = [1.0, 2.0, 4.0, 8.0, 16.0].map(|x: f64| {
            let mut point = Point { x, iops: near(plateau * (x / line).min(1.0)), ..Point::default() };
            point.job.directions.read.lat_ns.record(latency_ns * (x as u64));
            point
        });
        let line = LoadLine { plateau_iops: near(plateau), load_line: near(line), ..LoadLine::default() };
        Curve { label: label.into(), points: points.into(), line: Some(line) }
    }

    #[test]
    fn says_engine_depth_and_what_deeper_does() {
        let mut one = curve("io_uring", 122e3, 4.0, 50_000);
        assert_eq!(
            advice("iodepth", std::slice::from_ref(&one), Some(near(5e6))),
            "io_uring, iodepth 4: 100 % of 122k IOPS at 200 us; deeper only adds latency."
        );
        one.line.as_mut().unwrap().overload = Some(near(12.2));
        assert!(advice("", &[one.clone()], None).ends_with("; deeper adds latency, and beyond 12 throughput falls."));
        assert!(advice("", &[one.clone()], Some(near(130e3))).contains("the storage may do more"));
        one.line.as_mut().unwrap().still_rising = true;
        assert_eq!(
            advice("iodepth", &[one], None),
            "io_uring, iodepth 16: 122k IOPS at 800 us, and still rising: sweep deeper to find the line."
        );
    }

    #[test]
    fn the_faster_curve_wins_and_among_equals_the_quicker() {
        let (slow, fast) = (curve("libaio", 90e3, 4.0, 10_000), curve("io_uring", 122e3, 8.0, 50_000));
        assert!(advice("iodepth", &[slow.clone(), fast.clone()], None).starts_with("io_uring, iodepth 8"));
        let quick = curve("guasi", 121e3, 4.0, 50_000);
        assert!(advice("iodepth", &[fast, quick, slow], None).starts_with("guasi, iodepth 4"));
        assert_eq!(advice("iodepth", &[Curve::default()], None), "");
    }
}
