//! Sweeps: any parameter of a scenario, by its path, every combination, on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use super::{Outcome, Scenario};
use crate::config::Error;

/// A parameter and its values.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// The path of the field in the scenario, such as `jobs.0.depth`, `pacing.count`, `machine.cache.spread`;
    /// `jobs.*.depth` is that of every job.
    pub param: String,
    /// The values that the parameter takes in turn.
    pub values: Vec<toml::Value>,
}

/// One combination of a sweep: its parameters, and the resulting scenario.
#[derive(Clone, Debug)]
pub struct Run {
    /// The parameters that were set: paths and values.
    pub set: Vec<(String, toml::Value)>,
    /// The scenario with these values, without sweeps.
    pub scenario: Scenario,
}

/// The largest number of runs of a scenario.
const RUNS_MAX: usize = 100_000;

/// All runs of a scenario: one without sweeps, else every combination, the last parameter varying fastest.
///
/// # Errors
/// A path that leads nowhere, or a value that the parameter cannot take.
pub fn expand(scenario: &Scenario) -> Result<Vec<Run>, Error> {
    let mut runs = vec![Vec::new()];
    for sweep in &scenario.sweep {
        if sweep.values.is_empty() {
            return Err(Error(format!("sweep of {}: no values", sweep.param)));
        }
        if runs.len() * sweep.values.len() > RUNS_MAX {
            return Err(Error(format!("the sweep has more than {RUNS_MAX} combinations; vary less at once")));
        }
        runs = runs
            .iter()
            .flat_map(|set: &Vec<(String, toml::Value)>| {
                sweep.values.iter().map(|value| {
                    let mut set = set.clone();
                    set.push((sweep.param.clone(), value.clone()));
                    set
                })
            })
            .collect();
    }
    let base = toml::Value::try_from(Scenario { sweep: Vec::new(), ..scenario.clone() })
        .map_err(|e| Error(format!("scenario: {e}")))?;
    runs.into_iter()
        .map(|set| {
            let mut tree = base.clone();
            for (path, value) in &set {
                assign(&mut tree, &path.split('.').collect::<Vec<_>>(), value)
                    .map_err(|why| Error(format!("sweep of {path}: {why}")))?;
            }
            let scenario: Scenario = tree.try_into().map_err(|e: toml::de::Error| {
                let what: Vec<_> = set.iter().map(|(path, value)| format!("{path} = {value}")).collect();
                Error(format!("sweep with {}: {}", what.join(", "), e.message()))
            })?;
            Ok(Run { set, scenario })
        })
        .collect()
}

fn assign(tree: &mut toml::Value, path: &[&str], value: &toml::Value) -> Result<(), String> {
    let Some((&key, rest)) = path.split_first() else {
        *tree = value.clone();
        return Ok(());
    };
    match tree {
        toml::Value::Table(table) if rest.is_empty() => {
            // A field left at its default is not in the tree: it is set here, and checked when the tree is read.
            table.insert(key.into(), value.clone());
            Ok(())
        }
        toml::Value::Table(table) => {
            let next = table.entry(key).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            assign(next, rest, value)
        }
        toml::Value::Array(items) if key == "*" => items.iter_mut().try_for_each(|item| assign(item, rest, value)),
        toml::Value::Array(items) => {
            let count = items.len();
            let item = key.parse::<usize>().ok().and_then(|n| items.get_mut(n));
            assign(item.ok_or(format!("{key:?} is not one of the {count} items, counted from 0"))?, rest, value)
        }
        _ => Err(format!("{key:?} is inside something that has no parts")),
    }
}

/// The outcomes of `runs`, in their order, computed by `threads` threads. `progress` is told the fraction done.
///
/// # Errors
/// The error of the first run that fails.
pub fn run_all(runs: &[Run], threads: usize, progress: &(dyn Fn(f64) + Sync)) -> Result<Vec<Outcome>, Error> {
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<Result<Outcome, Error>>>> = runs.iter().map(|_| Mutex::new(None)).collect();
    let fractions: Vec<Mutex<f64>> = runs.iter().map(|_| Mutex::new(0.0)).collect();
    let lock = |m: &Mutex<f64>| *m.lock().unwrap_or_else(|e| e.into_inner());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, runs.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some(run) = runs.get(n) else { return };
                    let outcome = super::run(&run.scenario, &mut |fraction| {
                        *fractions[n].lock().unwrap_or_else(|e| e.into_inner()) = fraction;
                        progress(fractions.iter().map(lock).sum::<f64>() / runs.len() as f64);
                    });
                    *done[n].lock().unwrap_or_else(|e| e.into_inner()) = Some(outcome);
                }
            });
        }
    });
    done.into_iter()
        .map(|slot| {
            slot.into_inner()
                .unwrap_or_else(|e| e.into_inner())
                .unwrap_or_else(|| Err(Error("a simulation thread ended without a result".into())))
        })
        .collect()
}
