//! A configuration takes the place of the present one: what differs changes, and the rest goes on.

use std::sync::PoisonError;

use nvme_target::journal::{Entry, Level};
use serde_json::{Value, json};

use super::config::{self, Step};
use super::difference::{self, Call, Change, Plan};
use super::jsonrpc::{Outcome, RpcError};
use super::methods::keyring;
use super::params::Params;
use super::state::Control;

/// The changes that a reload has made, by the names of things.
#[derive(Default)]
struct Done {
    added: Vec<String>,
    changed: Vec<String>,
    made_anew: Vec<String>,
    removed: Vec<String>,
    unchanged: usize,
    left_alone: usize,
}

/// `framework_reload_config`.
pub(super) fn reload_config(control: &Control, params: &Params) -> Outcome {
    let keeps = params.bool_if("keep").unwrap_or(false);
    if let Some(subsystems) = params.as_given().get("subsystems") {
        let text = json!({ "subsystems": subsystems }).to_string();
        let steps = config::parse(&text).map_err(RpcError::params)?;
        return control.reload(&steps, keeps, "a client's configuration").map_err(RpcError::failed);
    }
    let Some(path) = control.lock().configuration_file.clone() else {
        return Err(RpcError::params("the target was started without -c FILE: give subsystems"));
    };
    let name = path.display().to_string();
    let text =
        std::fs::read_to_string(&path).map_err(|error| RpcError::failed(format!("cannot read {name}: {error}")))?;
    let steps = config::parse(&text).map_err(|error| RpcError::failed(format!("{name}: {error}")))?;
    let done = control.reload(&steps, keeps, &name).map_err(|error| RpcError::failed(format!("{name}: {error}")))?;
    if !keeps {
        control.begun_anew(&text).map_err(RpcError::failed)?;
    }
    Ok(done)
}

impl Control {
    /// Makes the configuration that of these calls, by changes of what differs. With `keeps`, things that the calls do
    /// not make stay. Returns the names of the changes.
    ///
    /// # Errors
    /// One line. The configuration is as it was before then, but for the content of memory devices that were removed.
    fn reload(&self, wanted: &[Step], keeps: bool, name: &str) -> Result<Value, String> {
        let _one_at_a_time = self.shared.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.lock().made.clone();
        let plan = difference::plan(&before, wanted, keeps)?;
        let done = match self.follow(&plan) {
            Ok(done) => done,
            Err(why) => {
                let now = self.lock().made.clone();
                let back = difference::plan(&now, &before, false).and_then(|plan| self.follow(&plan));
                let end = match back {
                    Ok(_) => "the configuration is as it was".to_string(),
                    Err(again) => format!("and the way back failed too: {again}"),
                };
                let line = format!("{why}; {end}");
                let told = format!("the configuration of {name} is not loaded: {line}");
                self.target().journal().add(Level::Error, || Entry::new("reload", told));
                return Err(line);
            }
        };
        let Done { added, changed, made_anew, removed, unchanged, left_alone } = done;
        let told = format!(
            "the configuration of {name} is loaded: {} added, {} changed, {} made anew, {} removed, {unchanged} unchanged",
            added.len(),
            changed.len(),
            made_anew.len(),
            removed.len()
        );
        self.target().journal().add(Level::Notice, || Entry::new("reload", told));
        Ok(json!({
            "added": added, "changed": changed, "made_anew": made_anew, "removed": removed, "unchanged": unchanged,
            "left_alone": left_alone
        }))
    }

    fn follow(&self, plan: &Plan) -> Result<Done, String> {
        let mut done = Done { left_alone: plan.left_alone, ..Done::default() };
        for (name, call) in &plan.remove {
            self.make(name, call)?;
        }
        for (name, change) in &plan.change {
            match change {
                Change::None => done.unchanged += 1,
                Change::InPlace(calls) => {
                    calls.iter().try_for_each(|call| self.make(name, call))?;
                    done.changed.push(name.clone());
                }
                Change::Key { name: key, path } => match self.replace_key(key, path) {
                    Ok(true) => done.changed.push(name.clone()),
                    Ok(false) => done.unchanged += 1,
                    Err(error) => return Err(format!("{name}: {error}")),
                },
                Change::Anew(call) => {
                    self.make(name, call)?;
                    done.made_anew.push(name.clone());
                }
                Change::New(call) => {
                    self.make(name, call)?;
                    done.added.push(name.clone());
                }
            }
        }
        for (name, call) in &plan.remove_keys {
            self.make(name, call)?;
        }
        done.removed.extend(plan.gone.iter().cloned());
        Ok(done)
    }

    fn make(&self, name: &str, (method, params): &Call) -> Result<(), String> {
        self.call_of_client(method, Some(params)).map(drop).map_err(|error| format!("{name}: {error}"))
    }

    fn replace_key(&self, name: &str, path: &str) -> Result<bool, RpcError> {
        let mut state = self.lock();
        let is_new = keyring::replace(&mut state, name, path)?;
        if is_new {
            let line = format!("the configuration changes: the key {name} is that of {path} now");
            state.target.journal().add(Level::Notice, || Entry::new("change", line));
            state.save().map_err(RpcError::failed)?;
        }
        Ok(is_new)
    }

    /// Has the directory of the state know that the configuration comes from this file's text now: the next start with
    /// the file is one that goes on.
    fn begun_anew(&self, text: &str) -> Result<(), String> {
        let mut state = self.lock();
        let made = state.made.clone();
        match &mut state.directory {
            Some(directory) => directory.begin_with(json!({ "calls": [], "configuration": text }), &made),
            None => Ok(()),
        }
    }
}
