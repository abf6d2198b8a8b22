//! `plimsoll sim --fit`: a machine learnt from results of sweeps, its errors, and its answers.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ArgMatches;
use measure::figures;
use measure::schema::Document;
use pace::sim::Scenario;
use pace::sim::learn::{self, Answer, Curve, Figure, Fitted, Place};
use report::html::{self, Frame, cards};
use report::svg::{Axis, Chart, Format, Series, Shape, escape};
use report::text::{Style, Table, wrap};
use serde_json::json;

use super::{progress_bar, show};
use crate::exit::Exit;
use crate::output;

/// The errors that the summary counts.
const WITHIN: [f64; 2] = [0.08, 0.15];

pub fn run(matches: &ArgMatches, threads: usize) -> anyhow::Result<Exit> {
    let results: Vec<(PathBuf, Place)> =
        matches.get_many::<String>("fit").into_iter().flatten().map(|text| result(text)).collect::<Result<_, _>>()?;
    let place = |name: &str| matches.get_one::<PathBuf>(name).map(PathBuf::as_path);
    let places = ["json", "html", "profile"].into_iter().filter_map(place).filter(|path| *path != Path::new("-"));
    output::try_apart(&places.collect::<Vec<_>>(), results.iter().map(|(path, _)| path.clone()))?;
    let mut curves = Vec::new();
    for (path, place) in &results {
        let Document::Sweep(sweep) = output::read(path)? else {
            bail!("--fit {}: not the result of a sweep (plimsoll sweep writes one)", path.display());
        };
        curves.extend(learn::curves(&sweep, *place).with_context(|| format!("--fit {}", path.display()))?);
    }
    let quiet = matches.get_flag("quiet");
    let bar = if quiet { indicatif::ProgressBar::hidden() } else { progress_bar() };
    let fitted = learn::fit(&curves, threads, &|done| show(&bar, done))?;
    let answers = learn::answers(&curves, &fitted, threads)?;
    bar.finish_and_clear();
    let (profile, mut delivered) = (toml::to_string(&fitted.machine)?, Vec::new());
    let (name, written) = match place("profile") {
        Some(path) => (path.to_path_buf(), output::write_result(path, &profile)),
        None => first_free(&profile)?,
    };
    delivered.push(written);
    if let Some(path) = place("html") {
        delivered.push(output::write_result(path, &page(&curves, &fitted, &answers)));
    }
    let json_on_stdout = place("json") == Some(Path::new("-"));
    if let Some(path) = place("json") {
        let text = serde_json::to_string_pretty(&document(&curves, &fitted, &answers))?;
        delivered.push(match json_on_stdout {
            true => output::print(&format!("{text}\n")),
            false => output::write_result(path, &text),
        });
    }
    if !json_on_stdout && !quiet {
        delivered.push(output::print(&text(&curves, &fitted, &answers, &name, output::style())));
    }
    output::all(delivered)?;
    Ok(Exit::Ok)
}

/// `FILE`, `FILE,drives=2`, `FILE,cores=1,drives=4`.
fn result(text: &str) -> anyhow::Result<(PathBuf, Place)> {
    let (mut path, mut place) = (text, Place::default());
    while let Some((rest, last)) = path.rsplit_once(',') {
        let Some((key, value)) = last.split_once('=') else { break };
        let field = match key {
            "drives" => &mut place.drives,
            "cores" => &mut place.cores,
            _ => break,
        };
        let number = value.parse().ok().filter(|n| (1..=4096).contains(n));
        *field = Some(number.with_context(|| format!("--fit {text}: {key}={value} is not a number from 1 to 4096"))?);
        path = rest;
    }
    Ok((path.into(), place))
}

/// Writes the profile as the first `plimsoll-machine-N.toml` that does not exist.
fn first_free(profile: &str) -> anyhow::Result<(PathBuf, anyhow::Result<()>)> {
    let names = (1..10_000).map(|n| PathBuf::from(format!("plimsoll-machine-{n}.toml")));
    let name = names.into_iter().find(|name| !name.exists()).context("no name is free for the profile: --profile")?;
    let written = output::write_result(&name, profile);
    Ok((name, written))
}

/// Puts the profile of a file into the scenario's machine, where `machine.profile` names one (`*.toml`, from the folder
/// of the scenario). A value of the scenario that differs is noted, because the measurements do not vouch for it.
pub fn insert_profile(scenario: &mut Scenario, folder: &Path) -> anyhow::Result<()> {
    let name = scenario.machine.get("profile").and_then(toml::Value::as_str);
    let Some(name) = name.filter(|name| name.ends_with(".toml")).map(String::from) else { return Ok(()) };
    let path = folder.join(&name);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read the profile {}", path.display()))?;
    let mut machine: toml::Table = text.parse().with_context(|| path.display().to_string())?;
    let own = std::mem::take(&mut scenario.machine);
    let changed = own.iter().find(|(key, value)| *key != "profile" && machine.get(*key) != Some(*value));
    let changed = changed.map(|(key, _)| key.clone());
    if let (Some(field), Some(toml::Value::Table(learned))) = (changed, machine.get_mut("learned")) {
        learned.insert("changed".into(), field.into());
    }
    merge(&mut machine, own);
    machine.remove("profile");
    scenario.machine = machine;
    Ok(())
}

fn merge(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(more)) => merge(inner, more),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// A sentence on the points that the fits of the halves had not seen, and one on the interval.
fn judgement(fitted: &Fitted) -> Vec<String> {
    let ratios = fitted.ratios();
    let within = |part: f64| ratios.iter().filter(|ratio| (1.0 / **ratio - 1.0).abs() <= part).count();
    let [near, far] = WITHIN.map(within);
    let seen = format!(
        "Of {} steady points that a fit on the other half predicted, {near} lie within 8 % and {far} within 15 %.",
        ratios.len()
    );
    let interval = match fitted.error() {
        Some((factor, coverage)) => format!(
            "interval: {:+.1} % to {:+.1} % at a typical point, wider between the points; {:.0} of 100 such points lie \
             in it",
            100.0 * (1.0 / factor - 1.0),
            100.0 * (factor - 1.0),
            100.0 * coverage
        ),
        None => "no interval: too few points".into(),
    };
    vec![seen, interval]
}

fn percent(simulated: f64, measured: f64) -> String {
    if simulated.is_finite() { format!("{:+.1} %", 100.0 * (simulated / measured - 1.0)) } else { "-".into() }
}

/// The interval of a figure.
fn ends(figure: Figure) -> Option<(f64, f64)> {
    figure.error.map(|(factor, _)| (figure.iops / factor, figure.iops * factor))
}

fn text(curves: &[Curve], fitted: &Fitted, answers: &[Answer], profile: &Path, style: Style) -> String {
    let mut text = String::new();
    let line = |text: &mut String, sentence: &str| {
        let _ = writeln!(text, "{}", wrap(sentence, style.width, 4));
    };
    for (n, curve) in curves.iter().enumerate() {
        line(&mut text, &curve.name);
        let mut table = Table::of(&[
            "iodepth",
            "measured IOPS",
            "simulation's error",
            "learnt",
            "interval",
            "error of the other half's fit",
        ]);
        for (k, point) in curve.points.iter().enumerate() {
            let learnt = fitted.learnt[n][k];
            let ends = ends(learnt).map(|(low, high)| format!("{} to {}", figures::count(low), figures::count(high)));
            table.row(vec![
                point.depth.to_string(),
                figures::count(point.iops),
                percent(fitted.simulated[n][k], point.iops),
                figures::count(learnt.iops),
                ends.unwrap_or("-".into()),
                percent(fitted.predicted[n][k], point.iops),
            ]);
        }
        let _ = writeln!(text, "{}", table.render(style, 2));
    }
    judgement(fitted).iter().for_each(|sentence| line(&mut text, sentence));
    let _ = writeln!(text, "\n{}", constants(fitted).render(style, 0));
    for open in fitted.machine.learned.iter().flat_map(|learned| &learned.undetermined) {
        line(&mut text, &format!("not determined: {open}"));
    }
    text.push('\n');
    for curve in curves {
        line(&mut text, &format!("{}, if you change one thing (nobody has measured that):", curve.name));
        for answer in answers.iter().filter(|answer| answer.curve == curve.name) {
            let _ = writeln!(text, "  {}", wrap(&format!("{}: {}", answer.change, answer.text), style.width, 4));
        }
    }
    text.push('\n');
    line(&mut text, &format!("The machine is in {}: machine.profile of a scenario.", profile.display()));
    text
}

fn constants(fitted: &Fitted) -> Table {
    let mut table = Table::of(&["constant", "value", "fits as well from", "to"]);
    for constant in &fitted.constants {
        let (low, high) = constant.range;
        table.row(vec![constant.name.into(), constant.value.to_string(), low.to_string(), high.to_string()]);
    }
    table
}

fn document(curves: &[Curve], fitted: &Fitted, answers: &[Answer]) -> serde_json::Value {
    let error = fitted.error();
    let curve = |(n, curve): (usize, &Curve)| {
        let point = |(k, point): (usize, &learn::Point)| {
            let learnt = fitted.learnt[n][k];
            let predicted = Some(fitted.predicted[n][k]).filter(|iops| iops.is_finite());
            json!({ "iodepth": point.depth, "measured_iops": point.iops, "simulated_iops": fitted.simulated[n][k],
                    "learnt_iops": learnt.iops, "interval_iops": ends(learnt), "predicted_iops": predicted })
        };
        let points: Vec<_> = curve.points.iter().enumerate().map(point).collect();
        json!({ "name": curve.name, "bytes": curve.bytes, "write_percent": curve.write_percent,
                "drives": curve.drives, "points": points })
    };
    let curves: Vec<_> = curves.iter().enumerate().map(curve).collect();
    json!({
        "plimsoll sim": env!("CARGO_PKG_VERSION"),
        "fit": {
            "curves": curves,
            "error_factor": error.map(|(factor, _)| factor),
            "coverage": error.map(|(_, coverage)| coverage),
            "constants": fitted.constants,
            "undetermined": fitted.machine.learned.as_ref().map(|learned| &learned.undetermined),
            "answers": answers,
            "machine": fitted.machine,
        }
    })
}

/// The page: measured and simulated curves over one another, the constants, the answers.
fn page(curves: &[Curve], fitted: &Fitted, answers: &[Answer]) -> String {
    let chart = |(n, curve): (usize, &Curve)| {
        let depths: Vec<f64> = curve.points.iter().map(|point| f64::from(point.depth)).collect();
        let over = |of: Vec<f64>| depths.iter().copied().zip(of).collect::<Vec<_>>();
        let learnt = over(fitted.learnt[n].iter().map(|figure| figure.iops).collect());
        let within = |(x, figure): (&f64, &Figure)| ends(*figure).map(|(low, high)| (*x, low, high));
        let band = depths.iter().zip(&fitted.learnt[n]).filter_map(within).collect();
        let measured = over(curve.points.iter().map(|point| point.iops).collect());
        Chart::new(&curve.name)
            .x(Axis::log2("iodepth").ticks(depths.clone()))
            .y(Axis::linear("IOPS").format(Format::Count))
            .series(Series::line("learnt", learnt).band(band))
            .series(Series::line("simulated", over(fitted.simulated[n].clone())).dashed())
            .series(Series::new("measured", Shape::Points, measured))
    };
    let mut body = format!("<h2>Measured and simulated</h2>{}", cards(curves.iter().enumerate().map(chart)));
    let mut paragraph = |sentence: &str| body.push_str(&format!("<p class=\"about\">{}</p>", escape(sentence)));
    judgement(fitted).iter().for_each(|sentence| paragraph(sentence));
    for open in fitted.machine.learned.iter().flat_map(|learned| &learned.undetermined) {
        paragraph(&format!("Not determined: {open}"));
    }
    let mut changes = html::Table::new("If you change one thing (nobody has measured that)", &["curve", "change", ""]);
    for answer in answers {
        changes.row("", &[("", answer.curve.clone()), ("", answer.change.clone()), ("", answer.text.clone())]);
    }
    let mut constants = html::Table::new("Constants", &["constant", "value", "fits as well from", "to"]);
    for constant in &fitted.constants {
        let figures = [constant.value, constant.range.0, constant.range.1].map(|value| ("", value.to_string()));
        let cells: Vec<_> = [("", constant.name.to_string())].into_iter().chain(figures).collect();
        constants.row("", &cells);
    }
    body.push_str("<h2>Changes</h2>");
    body.push_str(&changes.end());
    body.push_str("<h2>The machine</h2>");
    body.push_str(&constants.end());
    let about = "A fit to measured curves. The band is the interval of a learnt figure: a simulated one, corrected by the points.";
    Frame { title: "fit", kind: "fit", headline: "A machine learnt from sweeps", about }.around(&body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_the_file() {
        let place = |drives, cores| Place { drives, cores };
        assert_eq!(result("a,b.json").unwrap(), ("a,b.json".into(), place(None, None)));
        assert_eq!(result("a.json,drives=2,cores=1").unwrap(), ("a.json".into(), place(Some(2), Some(1))));
        assert!(result("a.json,drives=0").is_err());
    }
}
