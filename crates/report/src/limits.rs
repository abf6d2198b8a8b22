//! The limits of a sweep in words: the same in the text, on the page and in the advice.

use measure::axis::place;
use measure::figures::{axis_value, count, precise_count};
use measure::limit::KEEPS_UP;
use measure::schema::{Curve, Limit, SweepResult};

/// A limit in a few words, and a remark on it.
pub(crate) struct Said {
    /// `rate_iops 95k`, `beyond iodepth 64`, `cannot be named`.
    pub short: String,
    /// The throughput, the interval and the cause that ends it.
    pub more: String,
}

/// The words for a limit of a curve.
pub(crate) fn said(limit: &Limit, curve: &Curve, axis: &str) -> Said {
    let at = |x: f64| axis_value(axis, x);
    let Some((x, low)) = limit.at.zip(limit.low) else {
        // The verdict no-limit gives the reason.
        return Said { short: "cannot be named".into(), more: "see no-limit".into() };
    };
    let largest = curve.points.last().map_or(low, |point| point.x);
    let mut parts = Vec::new();
    if let Some(iops) = &limit.iops {
        let interval = format!("95 % interval {} to {}", precise_count(iops.low), precise_count(iops.high));
        parts.push(format!("{} IOPS, {interval}", precise_count(iops.mean)));
    }
    parts.push(match limit.high {
        Some(high) => format!("the limit lies between {} and {}", at(low), at(high)),
        None if limit.is_beyond(largest) => open_end(limit, curve),
        None => format!("kept up to {}, and {}", at(low), open_end(limit, curve)),
    });
    parts.extend(limit.beyond.as_ref().map(|cause| format!("beyond it the limit is {cause}")));
    parts.extend(limit.burst.map(|ops| {
        format!(
            "visits begin with up to {} ops beyond what the storage sustains, and values that live on them do not count",
            count(ops)
        )
    }));
    let beyond = limit.is_beyond(largest) && x == low;
    let short = if beyond { format!("at least {axis} {}", at(x)) } else { format!("{axis} {}", at(x)) };
    Said { short, more: parts.join("; ") }
}

/// The words for a limit without an upper end: the largest value keeps it, or the visits to larger ones cannot tell.
fn open_end(limit: &Limit, curve: &Curve) -> String {
    let largest = curve.points.last().map_or(0.0, |point| point.x);
    match limit.is_beyond(largest) {
        true => "nothing that was measured breaks it".into(),
        false => "beyond that the visits cannot tell".into(),
    }
}

/// The conditions of a limit, the objectives alone where there are any.
pub(crate) fn conditions(limit: &Limit) -> String {
    let objectives: Vec<&str> =
        limit.conditions.iter().map(String::as_str).filter(|condition| *condition != KEEPS_UP).collect();
    objectives.join(", ")
}

/// The limit that a curve was measured for: that of the objectives, else that of its queue.
fn wanted(curve: &Curve) -> Option<&Limit> {
    curve.kept.as_ref().or(curve.saturation.as_ref())
}

/// The number of the curve with the highest throughput at its limit; None without a limit.
pub(crate) fn chosen(sweep: &SweepResult) -> Option<usize> {
    let iops = |limit: &Limit| limit.iops.map_or(-1.0, |iops| iops.mean);
    let all = sweep.curves.iter().enumerate().filter_map(|(index, curve)| Some((index, iops(wanted(curve)?))));
    all.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index)
}

/// The sentence on the limits of a sweep: that of its objectives, else that of its queue. None without a limit.
pub(crate) fn advice(sweep: &SweepResult) -> Option<String> {
    let curve = &sweep.curves[chosen(sweep)?];
    let limit = wanted(curve)?;
    let keeps = match conditions(limit) {
        none if none.is_empty() => "the system keeps up".to_string(),
        objectives => format!("the system keeps {objectives}"),
    };
    let label = &curve.label;
    Some(match (limit.at, limit.iops) {
        (Some(x), Some(iops)) => {
            let beyond = match &limit.beyond {
                Some(cause) => format!("beyond it the limit is {cause}"),
                None => open_end(limit, curve),
            };
            format!("{label}, {}: {keeps} at {} IOPS; {beyond}.", place(&sweep.axis, x), precise_count(iops.mean))
        }
        _ => format!("{label}: the sweep cannot tell where {keeps}."),
    })
}

/// The point that a limit advises.
pub(crate) fn is_at(limit: Option<&Limit>, x: f64) -> bool {
    limit.and_then(|limit| limit.at) == Some(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::schema::{Estimate, Point};

    fn limit() -> Limit {
        Limit {
            conditions: vec!["keeps up".into(), "p99<1ms".into()],
            at: Some(95e3),
            low: Some(95e3),
            high: Some(1e5),
            iops: Some(Estimate { mean: 94_900.0, low: 94_500.0, high: 95_300.0 }),
            beyond: Some("p99<1ms, which breaks".into()),
            ..Limit::default()
        }
    }

    fn curve(largest: f64) -> Curve {
        let points = vec![Point { x: largest, ..Point::default() }];
        Curve { label: "io_uring".into(), points, ..Curve::default() }
    }

    #[test]
    fn a_burst_is_said() {
        let Said { more, .. } = said(&Limit { burst: Some(141.0), ..limit() }, &curve(2e5), "rate_iops");
        assert!(more.ends_with("; visits begin with up to 141 ops beyond what the storage sustains, and values that live on them do not count"), "{more}");
    }

    #[test]
    fn a_limit_has_its_interval_and_its_cause() {
        let Said { short, more } = said(&limit(), &curve(2e5), "rate_iops");
        assert_eq!(short, "rate_iops 95k");
        assert_eq!(
            more,
            "94.9k IOPS, 95 % interval 94.5k to 95.3k; the limit lies between 95k and 100k; beyond it the limit is \
             p99<1ms, which breaks"
        );
        let open = Limit { high: None, beyond: None, ..limit() };
        assert!(said(&open, &curve(95e3), "rate_iops").short.starts_with("at least"));
        assert!(said(&open, &curve(2e5), "rate_iops").more.contains("cannot tell"));
        assert_eq!(said(&Limit::default(), &curve(1.0), "iodepth").short, "cannot be named");
    }

    #[test]
    fn the_advice_is_that_of_the_objective() {
        let saturation = Some(Limit { conditions: vec!["keeps up".into()], ..limit() });
        let curve = Curve { kept: Some(limit()), saturation: saturation.clone(), ..curve(2e5) };
        let mut sweep = SweepResult { axis: "rate_iops".into(), curves: vec![curve], ..SweepResult::default() };
        assert_eq!(
            advice(&sweep).unwrap(),
            "io_uring, rate_iops 95k: the system keeps p99<1ms at 94.9k IOPS; beyond it the limit is p99<1ms, which \
             breaks."
        );
        let kept = sweep.curves[0].kept.as_mut().unwrap();
        (kept.high, kept.beyond) = (None, None);
        assert_eq!(
            advice(&sweep).unwrap(),
            "io_uring, rate_iops 95k: the system keeps p99<1ms at 94.9k IOPS; beyond that the visits cannot tell."
        );
        sweep.curves[0].points[0].x = 95e3;
        assert!(advice(&sweep).unwrap().ends_with("94.9k IOPS; nothing that was measured breaks it."));
        sweep.curves[0].kept = None;
        assert!(advice(&sweep).unwrap().contains("the system keeps up at 94.9k"));
        sweep.curves[0].saturation = None;
        assert_eq!(advice(&sweep), None);
    }
}
