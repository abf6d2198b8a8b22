//! The slices of a sweep, in words.

use measure::figures;
use measure::schema::{Curve, Slices};

/// The way in which the rounds of a curve were measured, as the end of a sentence; None where nothing is to be said of
/// it.
pub(crate) fn measured_in(curve: &Curve) -> Option<String> {
    if let Some(sign) = &curve.memory {
        return Some(format!("in visits of their own: the storage remembers the depth before ({sign})"));
    }
    let visits = || curve.points.iter().flat_map(|point| &point.visits);
    let sliced: Vec<&Slices> = visits().filter_map(|visit| visit.slices.as_ref()).collect();
    let lengths = || sliced.iter().map(|slices| slices.ns as f64);
    let (short, long) = (lengths().reduce(f64::min)?, lengths().reduce(f64::max)?);
    let count: u32 = sliced.iter().map(|slices| slices.count).sum();
    let lengths = match short < long {
        true => format!("{} and {} in turns", figures::nanoseconds(short), figures::nanoseconds(long)),
        false => figures::nanoseconds(short),
    };
    let mut rounds: Vec<u32> = visits().filter(|visit| visit.slices.is_some()).map(|visit| visit.round).collect();
    rounds.sort_unstable();
    rounds.dedup();
    let rounds = rounds.len();
    Some(format!("in {count} slices of {lengths}, {rounds} {}", if rounds == 1 { "round" } else { "rounds" }))
}
