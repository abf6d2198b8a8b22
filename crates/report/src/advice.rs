//! The one sentence that a sweep ends with.

use measure::axis::AxisKind;
use measure::figures::{bytes_per_second, count, nanoseconds, percent, plain};
use measure::schema::{Answer, Curve, Estimate, LoadLine, Point, SweepResult};

use crate::limits;
use crate::text::has_different_blocks;

/// Curves whose plateaus differ by less than this are equally fast; the one with the lower latency is then better.
const EQUAL: f64 = 0.03;

/// One sentence: the engine, the depth, its throughput, and the effect of larger depths. Empty without a curve that was
/// judged.
///
/// The depth is the load line that tables and tiles show ([`LoadLine::answer`]). Where the sweep cannot name one, the
/// sentence says why.
///
/// Where the sweep has objectives or an open loop, the sentence names that limit.
pub fn advice(sweep: &SweepResult) -> String {
    limits::advice(sweep).unwrap_or_else(|| {
        let told = at_line(&sweep.axis, &sweep.curves, sweep.ceiling_iops);
        if sweep.curves.len() > 1 && has_different_blocks(sweep) {
            return of_blocks(sweep, &told);
        }
        match rivals(&sweep.curves).as_slice() {
            [_, _, ..] if !told.is_empty() => {
                let names = rivals(&sweep.curves).join(", ");
                format!("No winner: the plateaus of {names} overlap. The lowest latency has {told}")
            }
            _ => told,
        }
    })
}

/// The sentences on curves whose blocks have different sizes: small blocks give most ops and large blocks most bytes,
/// so that neither is the best. `told` is the sentence on the curve with most ops.
fn of_blocks(sweep: &SweepResult, told: &str) -> String {
    let by_ops = chosen(&sweep.curves);
    let by_bytes = chosen_by(&sweep.curves, |curve| plateau_bytes(curve).unwrap_or_default());
    let Some(curve) = by_bytes.filter(|index| Some(*index) != by_ops).map(|index| &sweep.curves[index]) else {
        return told.to_string();
    };
    let axis = if sweep.axis.is_empty() { "iodepth" } else { &sweep.axis };
    let most = bytes_per_second(plateau_bytes(curve).unwrap_or_default());
    let at = match (curve.line.as_ref().map(LoadLine::answer), shown(curve)) {
        (Some(Answer::At(_)), Some(point)) => {
            format!(", {axis} {}, with {most} at {}", plain(point.x), nanoseconds(point.job.lat_ns().mean()))
        }
        _ => format!(", with {most}"),
    };
    format!("Most ops a second: {told} Most bytes a second: {}{at}.", curve.label)
}

/// Bytes per second at the plateau of a curve; None without a plateau.
fn plateau_bytes(curve: &Curve) -> Option<f64> {
    let plateau = curve.line.as_ref()?.plateau()?.mean;
    let highest = curve.points.iter().max_by(|a, b| a.iops.mean.total_cmp(&b.iops.mean))?;
    let bytes_an_op = highest.bytes_per_second.mean / highest.iops.mean;
    bytes_an_op.is_finite().then_some(plateau * bytes_an_op)
}

/// The sentence on the load line.
fn at_line(axis: &str, curves: &[Curve], ceiling_iops: Option<Estimate>) -> String {
    let chosen = chosen(curves).map(|index| &curves[index]);
    let Some((curve, line)) = chosen.and_then(|curve| Some((curve, curve.line.as_ref()?))) else {
        return String::new();
    };
    let kind = AxisKind::of(axis);
    let (more, adds, widen) = match kind {
        AxisKind::Clones => ("more clones", "add", "sweep more clones"),
        AxisKind::Speed => ("a faster application", "adds", "replay faster"),
        AxisKind::Depth | AxisKind::Rate | AxisKind::Other => ("deeper", "adds", "sweep deeper"),
    };
    let axis = if axis.is_empty() { "iodepth" } else { axis };
    let plateau = count(line.plateau_iops.mean);
    let beyond = match &line.overload {
        Some(overload) => format!("{more} {adds} latency, and beyond {} throughput falls", plain(overload.mean)),
        None => kind.only_adds_latency().to_string(),
    };
    let limit = match ceiling_iops {
        Some(ceiling) if line.plateau_iops.mean > 0.8 * ceiling.mean => {
            format!(" (near the generator's own {} IOPS: the storage may do more)", count(ceiling.mean))
        }
        _ => String::new(),
    };
    let label = &curve.label;
    match (line.answer(), shown(curve)) {
        (Answer::At(_), Some(point)) => {
            let part = percent((point.iops.mean / line.plateau_iops.mean).min(1.0));
            let latency = nanoseconds(point.job.lat_ns().mean());
            format!("{label}, {axis} {}: {part} of {plateau} IOPS at {latency}; {beyond}{limit}.", plain(point.x))
        }
        (Answer::Between(low, high), _) => {
            let more = match line.scatter {
                Some(_) => "a quieter machine or more --time narrows this",
                None => kind.only_adds_latency(),
            };
            let more = if line.overload.is_some() { beyond.as_str() } else { more };
            format!(
                "{label}: {plateau} IOPS; the load line lies between {axis} {} and {}; {more}{limit}.",
                plain(low),
                plain(high)
            )
        }
        (Answer::Beyond, Some(point)) => format!(
            "{label}, {axis} {}: {} IOPS at {}, and still rising: {widen} to find the line.",
            plain(point.x),
            count(point.iops.mean),
            nanoseconds(point.job.lat_ns().mean())
        ),
        // The verdict no-load-line gives the reason.
        (Answer::Unnamed(_), _) => format!("{label}: the sweep cannot recommend a {}.", kind.one()),
        (Answer::At(_) | Answer::Beyond, None) => String::new(),
    }
}

/// The names of the curves whose plateaus the sweep cannot tell from the highest; one name, or none, without rivals.
fn rivals(curves: &[Curve]) -> Vec<&str> {
    let named = || {
        let known = |curve: &Curve| curve.line.as_ref().filter(|line| !line.still_rising)?.plateau();
        curves.iter().filter_map(move |curve| Some((curve.label.as_str(), known(curve)?)))
    };
    let Some((_, highest)) = named().max_by(|(_, a), (_, b)| a.mean.total_cmp(&b.mean)) else { return Vec::new() };
    named().filter(|(_, one)| one.high >= highest.low).map(|(label, _)| label).collect()
}

/// The point whose figures the sentence gives: at the load line, else the deepest.
fn shown(curve: &Curve) -> Option<&Point> {
    curve.at_load_line().or(curve.points.last())
}

/// The number of the curve that the sentence names: the one with the highest plateau; among equals the one with the
/// lowest latency at its line. A curve whose load line can be named goes before one whose cannot. None without a curve
/// that was judged.
pub(crate) fn chosen(curves: &[Curve]) -> Option<usize> {
    chosen_by(curves, |curve| curve.line.as_ref().map_or(0.0, |line| line.plateau_iops.mean))
}

/// [`chosen`], by another figure of the plateau.
fn chosen_by(curves: &[Curve], plateau: impl Fn(&Curve) -> f64) -> Option<usize> {
    let all = || curves.iter().enumerate().filter_map(|(index, curve)| Some((index, curve.line.as_ref()?)));
    let named = |line: &LoadLine| !matches!(line.answer(), Answer::Unnamed(_));
    let any_named = all().any(|(_, line)| named(line));
    let candidates = || all().filter(|(_, line)| named(line) || !any_named);
    let highest = candidates().map(|(index, _)| plateau(&curves[index])).fold(0.0, f64::max);
    let equals = candidates().filter(|(index, _)| plateau(&curves[*index]) >= highest * (1.0 - EQUAL));
    let latency = |index: usize| shown(&curves[index]).map_or(f64::INFINITY, |point| point.job.lat_ns().mean());
    equals.map(|(index, _)| index).min_by(|&a, &b| latency(a).total_cmp(&latency(b)))
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
        let line = LoadLine { plateau_iops: near(plateau), load_line: Some(near(line)), ..LoadLine::default() };
        Curve { label: label.into(), points: points.into(), line: Some(line), ..Curve::default() }
    }

    #[test]
    fn says_engine_depth_and_what_deeper_does() {
        let mut one = curve("io_uring", 122e3, 4.0, 50_000);
        assert_eq!(
            at_line("iodepth", std::slice::from_ref(&one), Some(near(5e6))),
            "io_uring, iodepth 4: 100 % of 122k IOPS at 200 us; deeper only adds latency."
        );
        one.line.as_mut().unwrap().overload = Some(Estimate { mean: 12.0, low: 11.0, high: 14.0 });
        assert!(at_line("", &[one.clone()], None).ends_with("; deeper adds latency, and beyond 12 throughput falls."));
        assert!(at_line("", &[one.clone()], Some(near(130e3))).contains("the storage may do more"));
        let line = one.line.as_mut().unwrap();
        line.load_line = Some(Estimate { mean: 4.0, low: 1.0, high: 16.0 });
        assert_eq!(
            at_line("iodepth", &[one.clone()], None),
            "io_uring: 122k IOPS; the load line lies between iodepth 1 and 16; deeper adds latency, and beyond 12 throughput \
             falls."
        );
        let line = one.line.as_mut().unwrap();
        (line.load_line, line.unnamed) = (None, Some("the machine changed".into()));
        assert_eq!(at_line("iodepth", &[one.clone()], None), "io_uring: the sweep cannot recommend a depth.");
        assert_eq!(
            at_line("numjobs", &[one.clone()], None),
            "io_uring: the sweep cannot recommend a number of clones."
        );
        let line = one.line.as_mut().unwrap();
        (line.unnamed, line.still_rising) = (None, true);
        assert!(
            at_line("numjobs", &[one.clone()], None).ends_with("still rising: sweep more clones to find the line.")
        );
        assert_eq!(
            at_line("iodepth", &[one], None),
            "io_uring, iodepth 16: 122k IOPS at 800 us, and still rising: sweep deeper to find the line."
        );
    }

    #[test]
    fn the_faster_curve_wins_and_among_equals_the_quicker() {
        let (slow, fast) = (curve("libaio", 90e3, 4.0, 10_000), curve("io_uring", 122e3, 8.0, 50_000));
        assert!(at_line("iodepth", &[slow.clone(), fast.clone()], None).starts_with("io_uring, iodepth 8"));
        let quick = curve("guasi", 121e3, 4.0, 50_000);
        assert!(at_line("iodepth", &[fast, quick, slow], None).starts_with("guasi, iodepth 4"));
        assert_eq!(at_line("iodepth", &[Curve::default()], None), "");
    }

    /// A device of 1 GB/s and 100k ops a second: small blocks have most ops, large blocks most bytes.
    #[test]
    fn blocks_of_different_sizes_have_no_single_winner() {
        let of = |label: &str, bytes: f64, plateau: f64, line: f64| {
            let mut curve = curve(label, plateau, line, 100_000);
            curve.points.iter_mut().for_each(|point| point.bytes_per_second = near(point.iops.mean * bytes));
            curve
        };
        let curves = vec![of("bs 4k", 4096.0, 100e3, 8.0), of("bs 128k", 131_072.0, 7.6e3, 4.0)];
        let said =
            advice(&SweepResult { curves, axis: "iodepth".into(), across: "bs".into(), ..SweepResult::default() });
        assert!(said.starts_with("Most ops a second: bs 4k, iodepth 8: "), "{said}");
        assert!(said.contains("Most bytes a second: bs 128k, iodepth 4, with "), "{said}");
    }

    #[test]
    fn curves_whose_plateaus_overlap_have_no_winner() {
        let of = |curves: Vec<Curve>| advice(&SweepResult { curves, axis: "iodepth".into(), ..SweepResult::default() });
        let (fast, quick) = (curve("io_uring", 122e3, 8.0, 50_000), curve("guasi", 121e3, 4.0, 50_000));
        let said = of(vec![fast.clone(), quick]);
        assert!(said.starts_with("No winner: the plateaus of io_uring, guasi overlap."), "{said}");
        let said = of(vec![fast, curve("libaio", 90e3, 4.0, 10_000)]);
        assert!(said.starts_with("io_uring, iodepth 8"), "{said}");
    }
}
