//! The ceiling of the generator: the null engine in place of the storage.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use measure::schema::{Curve, Estimate, Point};

use super::Doing;
use super::crew::{Crew, Order};
use super::effort::Effort;
use super::variant::{Variant, spot};
use super::visit::carry_out;
use super::workload::Workload;
use crate::Error;
use crate::run::Progress;

/// The time for which the null engine runs, in nanoseconds.
pub(super) const CEILING_NS: u64 = 1_000_000_000;

/// Measures the generator alone with the null engine, at the load line of the fastest curve.
pub(super) fn ceiling(
    workload: &Workload,
    effort: &Effort,
    curves: &[Curve],
    stop: &Arc<AtomicBool>,
    crew: Option<&mut dyn Crew>,
    progress: &mut dyn FnMut(Doing, &Progress),
) -> Result<Option<Estimate>, Error> {
    let plateau = |curve: &Curve| curve.points.iter().map(|point| point.iops.mean).fold(0.0, f64::max);
    let Some(best) = curves.iter().max_by(|a, b| plateau(a).total_cmp(&plateau(b))) else { return Ok(None) };
    let deepest = best.points.last().map_or(1.0, |point| point.x);
    let line = best.line.as_ref().and_then(|line| line.load_line);
    let x = line.map_or(deepest, |line| line.mean.ceil()).max(1.0);
    // A rate would be the ceiling: the job runs without one.
    let across = effort.across.clone().zip(best.across.map(|value| value as u64));
    let engine = workload.engines.iter().find(|engine| **engine == best.label).or(workload.engines.first());
    let engine = engine.cloned().unwrap_or_default();
    let variant = Variant { label: best.label.clone(), engine, across, ..Variant::default() };
    let x = (!effort.axis.is_rate()).then_some(x as u64);
    let spot = spot(&variant, effort, x, &|by_bytes, total| workload.offered(by_bytes, total))?;
    let depth = spot.depth;
    let mut shown = |now: &Progress| progress(Doing::Ceiling(&best.label, depth), now);
    let order = Order { spot, runtime_ns: CEILING_NS, ceiling: true };
    let job = carry_out(workload, &order, stop, crew, &mut shown)?;
    Ok(job.map(|(job, _)| Point::of(f64::from(depth), job).iops))
}
