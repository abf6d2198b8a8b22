//! The state of the control plane: the target, and the calls that configured it.

mod shared_devices;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use nvme::auth::{Key, Keys, Policy};
use nvme::spec::Status;
use nvme_target::device::Fault;
use nvme_target::journal::{Entry, Level};
use nvme_target::{AttachmentRequest, Departure, NamespaceManager, Options, Target};
use serde_json::{Map, Value};

use super::audit;
use super::config::{self, Step};
use super::jsonrpc::{Outcome, RpcError, code};
use super::methods::{self, Method, Run, When};
use super::params::Params;
use super::saved::StateDirectory;

/// SPDK's name of the one target that there is.
pub(super) const TARGET_NAME: &str = "nvmf_tgt";

/// The settings of the program, which no call changes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Options of the target; the parameters of `nvmf_create_transport` go before them.
    pub options: Options,
    /// The pacing of `options` was asked for explicitly: a transport's own is put aside, with a warning.
    pub pacing_is_fixed: bool,
    /// Devices and files in use by this system may be served nevertheless.
    pub allow_in_use: bool,
    /// Configuring calls wait for `framework_start_init`, as under SPDK's `--wait-for-rpc`.
    pub wait_for_init: bool,
}

/// The way in which a client asked for the end of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The target ends in good order.
    Drain,
    /// The target ends at once.
    Now,
}

/// The control plane of one target. Clones are handles to the same control plane.
#[derive(Clone)]
pub struct Control {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    state: Mutex<State>,
    /// Told after every call: who waits for a state looks again.
    changed: Condvar,
    /// Held while a configuration takes the place of the present one: one at a time.
    pub(super) reloading: Mutex<()>,
}

/// The state that methods work on.
pub struct State {
    pub(super) settings: Settings,
    pub(super) target: Target,
    /// The calls that would make the present configuration, in order.
    pub(super) made: Vec<Step>,
    /// The number of changes of `made` so far.
    changes: u64,
    /// The file of the command line that the configuration comes from.
    pub(super) configuration_file: Option<PathBuf>,
    /// The directory that keeps `made`, if there is one.
    pub(super) directory: Option<StateDirectory>,
    /// True if each change is saved; false while the configuration from before is loaded.
    saves: bool,
    pub(super) initialized: bool,
    /// The subsystems that there may be, the discovery service counted; `None` for any number.
    pub(super) max_subsystems: Option<u32>,
    /// Faults in force, by device.
    pub(super) faults: BTreeMap<String, Vec<Fault>>,
    /// The keys of the keyring by name.
    pub(super) keyring: BTreeMap<String, Key>,
    /// The keys that hosts authenticate with: the target asks this table.
    pub(super) keys: Arc<Keys>,
    /// Things that a user should know and that are not errors, on their way to the log.
    pub(super) warnings: Vec<String>,
    /// The shared devices, by uid, that a thread follows.
    followed: BTreeSet<u64>,
    /// The ops that the answer to the present call waits for.
    departure: Departure,
    /// Methods that were called and have no effect in Plimsoll.
    pub(super) without_effect: Vec<&'static str>,
    pub(super) on_end: Box<dyn Fn(Ending) + Send>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A method that panicked has changed a part at most; the next one sees what is there.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    /// The control plane of a new target, which it starts. `on_end` is called when a client asks for the end.
    ///
    /// # Errors
    /// The errors of [`Target::start`].
    pub fn start(settings: Settings, on_end: Box<dyn Fn(Ending) + Send>) -> Result<Control, nvme_target::Error> {
        let target = Target::start(settings.options.clone())?;
        let keys = Arc::new(Keys::new(Policy::default()));
        target.set_authenticator(Some(keys.clone()));
        let of_tls = Arc::clone(&keys);
        target.set_tls_keys(Arc::new(move |identity| of_tls.tls_keys(identity)));
        let state = State {
            initialized: !settings.wait_for_init,
            settings,
            target,
            made: Vec::new(),
            changes: 0,
            configuration_file: None,
            directory: None,
            saves: false,
            max_subsystems: None,
            faults: BTreeMap::new(),
            keyring: BTreeMap::new(),
            keys,
            warnings: Vec::new(),
            followed: BTreeSet::new(),
            departure: Departure::default(),
            without_effect: Vec::new(),
            on_end,
        };
        let target = state.target.clone();
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), reloading: Mutex::new(()) });
        target.set_namespace_manager(Arc::new(Manager(Arc::downgrade(&shared))));
        Ok(Control { shared })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// The answer to a call of a client, which leaves a line in the log.
    ///
    /// # Errors
    /// As for [`Control::call`].
    pub fn call_of_client(&self, name: &str, given: Option<&Value>) -> Outcome {
        let (outcome, has_changed) = self.answer(name, given);
        audit::called(self.target().journal(), name, given, &outcome, has_changed);
        outcome
    }

    /// The answer to a call.
    ///
    /// # Errors
    /// An unknown method, parameters that do not fit its table, the errors of the method.
    pub fn call(&self, name: &str, given: Option<&Value>) -> Outcome {
        self.answer(name, given).0
    }

    /// The answer to a call, and true if the call has changed the configuration.
    fn answer(&self, name: &str, given: Option<&Value>) -> (Outcome, bool) {
        if let Some(Method { run: Run::DoInSteps(run), params, when, .. }) = methods::find(name) {
            let params = Params::check(name, params, given).and_then(|params| {
                self.lock().in_time(*when)?;
                Ok(params)
            });
            return (params.and_then(|params| run(self, &params)), false);
        }
        let mut state = self.lock();
        if name == "framework_wait_init" {
            while !state.initialized {
                state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        let changes = state.changes;
        let until = Instant::now() + methods::patience(name, given);
        let mut outcome = state.call(name, given);
        self.shared.changed.notify_all();
        let is_missing = |outcome: &Outcome| outcome.as_ref().is_err_and(|error| error.code == methods::NO_DEVICE);
        while is_missing(&outcome) {
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            outcome = state.call(name, given);
        }
        let outcome = state.saved(changes, outcome);
        let has_changed = state.changes != changes;
        shared_devices::follow_all(&self.shared, &mut state);
        let departure = std::mem::take(&mut state.departure);
        // Other calls go on meanwhile: one of them may be the one that ends the ops.
        drop(state);
        departure.wait();
        (outcome, has_changed)
    }

    /// Carries out a host's Namespace Attachment. Returns its status.
    fn attach(&self, request: &AttachmentRequest) -> Status {
        let mut state = self.lock();
        let changes = state.changes;
        let outcome = methods::attach(&mut state, request);
        self.shared.changed.notify_all();
        let departure = std::mem::take(&mut state.departure);
        if let Err(status) = outcome {
            return status;
        }
        let saved = state.saved(changes, Ok(Value::Null));
        if let Err(why) = &saved {
            state.warnings.push(format!("namespace {}: {why}", request.nsid));
        }
        audit::attached(state.target.journal(), request);
        drop(state);
        departure.wait();
        if saved.is_ok() { Status::SUCCESS } else { Status::INTERNAL_ERROR.do_not_retry() }
    }

    /// Keeps the configuration in that directory. If it has one already, this target gets that configuration; else the
    /// target gets it from `configure`. From then on, each call that changes the configuration saves it before its
    /// answer.
    ///
    /// # Errors
    /// The first call that fails, with the file as it was; the errors of writing.
    pub fn keep(
        &self,
        directory: StateDirectory,
        configure: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let steps = directory.steps().map(<[Step]>::to_vec);
        self.lock().directory = Some(directory);
        match steps {
            Some(steps) => self.carry_out(steps)?,
            None => configure()?,
        }
        let mut state = self.lock();
        state.saves = true;
        state.save()
    }

    /// Carries out a configuration file's calls in order.
    ///
    /// # Errors
    /// The first call that fails, and which it is; those before it stay in force.
    pub fn load(&self, text: &str) -> Result<(), String> {
        self.carry_out(config::parse(text)?)
    }

    fn carry_out(&self, steps: Vec<Step>) -> Result<(), String> {
        for Step { subsystem, method, params } in steps {
            self.call(&method, params.as_ref()).map_err(|error| {
                let given = params.as_ref().map(|params| format!(" {params}")).unwrap_or_default();
                format!("{subsystem}: {method}{given}: {error}")
            })?;
        }
        Ok(())
    }

    /// Names the file that the configuration comes from: `framework_reload_config` reads it again.
    pub fn set_configuration_file(&self, path: PathBuf) {
        self.lock().configuration_file = Some(path);
    }

    /// The target.
    pub fn target(&self) -> Target {
        self.lock().target.clone()
    }

    /// Puts the warnings since the last time into the log.
    pub fn tell(&self) {
        let mut state = self.lock();
        let mut warnings = std::mem::take(&mut state.warnings);
        let idle = std::mem::take(&mut state.without_effect);
        if !idle.is_empty() {
            warnings.push(format!("accepted, without effect here: {}", idle.join(", ")));
        }
        for warning in warnings {
            state.target.journal().add(Level::Warning, || Entry::new("warning", warning));
        }
    }
}

/// The control plane as the target's manager of namespaces.
struct Manager(Weak<Shared>);

impl NamespaceManager for Manager {
    fn attach(&self, request: &AttachmentRequest) -> Status {
        let shared = self.0.upgrade();
        shared.map_or(Status::INTERNAL_ERROR, |shared| Control { shared }.attach(request))
    }
}

impl State {
    fn call(&mut self, name: &str, given: Option<&Value>) -> Outcome {
        let method = methods::find(name).ok_or_else(|| methods::unknown(name))?;
        match method.run {
            Run::WithoutEffect(_) => {
                if !self.without_effect.contains(&method.name) {
                    self.without_effect.push(method.name);
                }
                Ok(Value::Bool(true))
            }
            Run::Do(run) => {
                let params = Params::check(method.name, method.params, given)?;
                if let Some(other) = params.as_given().get("tgt_name").filter(|name| **name != TARGET_NAME) {
                    return Err(RpcError::failed(format!("Unable to find target {other}: there is {TARGET_NAME}")));
                }
                self.in_time(method.when)?;
                run(self, &params)
            }
            Run::DoInSteps(_) => Err(RpcError::failed(format!("{name} makes calls of its own"))),
        }
    }

    fn in_time(&self, when: When) -> Result<(), RpcError> {
        if when == When::Initialized && !self.initialized {
            let message = "Method may only be called after framework is initialized using framework_start_init RPC.";
            return Err(RpcError::new(code::INVALID_STATE, message));
        }
        Ok(())
    }

    /// Saves the configuration, if there is a directory to keep it.
    pub(super) fn save(&mut self) -> Result<(), String> {
        match &mut self.directory {
            Some(directory) if self.saves => directory.save(&self.made),
            _ => Ok(()),
        }
    }

    /// The answer to a call that found `changes` changes. An error follows a change that was not saved; the next
    /// call tries to save it again.
    fn saved(&mut self, changes: u64, outcome: Outcome) -> Outcome {
        let Err(why) = self.save() else { return outcome };
        if self.changes == changes {
            return outcome;
        }
        let why = format!("the change is in force, but not saved: {why}");
        if outcome.is_ok() {
            return Err(RpcError::new(code::INTERNAL_ERROR, why));
        }
        self.warnings.push(why);
        outcome
    }

    /// Has the answer to the present call wait for these ops, too.
    pub(super) fn await_departure(&mut self, departure: Departure) {
        self.departure = std::mem::take(&mut self.departure).and(departure);
    }

    /// Remembers a call that configures something.
    pub(super) fn remember(&mut self, subsystem: &str, method: &str, params: Map<String, Value>) {
        let params = Some(Value::Object(params));
        self.changes += 1;
        self.made.push(Step { subsystem: subsystem.into(), method: method.into(), params });
    }

    /// Forgets the calls for which `gone` holds, given their method and parameters.
    pub(super) fn forget(&mut self, mut gone: impl FnMut(&str, &Value) -> bool) {
        let before = self.made.len();
        self.made.retain(|step| !gone(&step.method, step.params.as_ref().unwrap_or(&Value::Null)));
        self.changes += (before - self.made.len()) as u64;
    }

    /// Changes a remembered call's parameter; null takes it away.
    pub(super) fn amend(&mut self, is_it: impl Fn(&str, &Value) -> bool, param: &str, value: Value) {
        for Step { method, params, .. } in &mut self.made {
            let Some(params) = params.as_mut().filter(|params| is_it(method, params)) else { continue };
            self.changes += 1;
            match (&value, params.as_object_mut()) {
                (Value::Null, Some(params)) => drop(params.remove(param)),
                (value, Some(params)) => drop(params.insert(param.into(), value.clone())),
                (_, None) => {}
            }
        }
    }

    /// True if a call of this method is in force.
    pub(super) fn has_made(&self, method: &str) -> bool {
        self.made.iter().any(|step| step.method == method)
    }
}
