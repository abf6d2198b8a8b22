//! The settings in which the curves of a sweep differ, and those of each point.
#![forbid(unsafe_code)]

use measure::figures;
use measure::schema::Curve;

use super::axis::{Axis, Role};
use super::crew::Spot;
use super::effort::Effort;
use super::resume::Resume;
use super::values::Values;
use super::workload::Workload;
use crate::Error;

/// The settings that a curve has for itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Variant {
    pub label: String,
    pub engine: String,
    /// Of a map: the axis across and its value.
    pub across: Option<(Axis, u64)>,
    /// The curve as the sweep left it that is resumed.
    pub earlier: Curve,
    /// True if the depth can change while the load goes on.
    pub in_place: bool,
}

/// The curves of a sweep, as far as an earlier one has measured them. `alone`: no crew measures with this process.
///
/// # Errors
/// An earlier sweep of another workload, axis or curves; a bad option.
pub(super) fn of_sweep(
    workload: &Workload,
    effort: &Effort,
    resume: Option<&Resume>,
    alone: bool,
) -> Result<Vec<Variant>, Error> {
    let mut variants = variants(&workload.engines, effort);
    if alone && workload.recorded().is_none() && effort.axis.role() == Role::Depth {
        for variant in &mut variants {
            let spot = spot(variant, effort, None, &|_, _| Ok(Default::default()))?;
            variant.in_place = workload.changes_in_place(&spot)?;
        }
    }
    if let Some(resume) = resume {
        resume.check(workload, effort)?;
        resume.check_places(&effort.axis)?;
        resume.check_curves(&variants.iter().map(|variant| variant.label.as_str()).collect::<Vec<_>>())?;
        variants.iter_mut().for_each(|variant| variant.earlier = resume.curve(&variant.label));
    }
    Ok(variants)
}

/// The curves of a sweep: one an engine, or one a value of the axis across.
fn variants(engines: &[String], effort: &Effort) -> Vec<Variant> {
    let of_engine = |engine: &String| Variant { label: engine.clone(), engine: engine.clone(), ..Variant::default() };
    let Some(across) = &effort.across else { return engines.iter().map(of_engine).collect() };
    let engine = engines.first().cloned().unwrap_or_default();
    let values = across.values().map(Values::asked).unwrap_or_default();
    let of_value = |value: u64| Variant {
        label: format!("{} {}", across.name(), figures::axis_value(across.name(), value as f64)),
        engine: engine.clone(),
        across: Some((across.clone(), value)),
        ..Variant::default()
    };
    values.into_iter().map(of_value).collect()
}

/// The rates that a job option offers: the option and its value, from the sum of all directions.
pub(super) type Offered<'a> = dyn Fn(bool, u64) -> Result<(String, String), Error> + 'a;

/// The settings of a curve's point at `x`; None: those of the curve without a rate.
pub(super) fn spot(variant: &Variant, effort: &Effort, x: Option<u64>, offered: &Offered) -> Result<Spot, Error> {
    let mut spot = Spot { engine: variant.engine.clone(), depth: effort.depth(), ..Spot::default() };
    let places = x.map(|x| (&effort.axis, x)).into_iter();
    for (axis, value) in places.chain(variant.across.iter().map(|(axis, value)| (axis, *value))) {
        match axis.role() {
            Role::Depth => spot.depth = value.try_into().unwrap_or(u32::MAX),
            role @ (Role::Ops | Role::Bytes) => spot.options.push(offered(role == Role::Bytes, value)?),
            Role::Clones | Role::Other => spot.options.push((axis.name().into(), axis.written(value))),
        }
    }
    Ok(spot)
}
