//! The difference between two configurations: what a target has, and what it is to have. Pure: nothing is called here.
//!
//! Each call of a configuration makes one thing, which has a name (`subsystem nqn...`). Two calls of one name make the
//! same thing, and their parameters tell whether it is to change. A thing that a method can change in place keeps the
//! connections of its hosts; other things are removed and made anew, with everything that stands on them.

use std::collections::BTreeSet;

use nvme::spec::DISCOVERY_NQN;
use serde_json::{Map, Value, json};

use super::config::Step;
use super::methods::{self, Run};
use super::params::{Need, Param, ParamKind, Params};
use super::saved::make_paths_absolute;

/// Methods that set what holds anyway, or nothing: a configuration may have them.
const SETTINGS: [&str; 8] = [
    "bdev_nvme_set_hotplug",
    "framework_set_scheduler",
    "framework_start_init",
    "keyring_linux_set_options",
    "log_set_level",
    "log_set_print_level",
    "nvmf_set_crdt",
    "sock_set_default_impl",
];
/// Parameters that stay as they are where a configuration does not give them: the target, the administrator or a host
/// has set them since.
const KEPT: [&str; 5] = ["nsid", "anagrpid", "detached_hosts", "ana_state", "max_io_qpairs_per_ctrlr"];
/// The size of a device's parts: the target fills it in where a configuration divides the whole device.
const SIZES: [&str; 2] = ["split_size_mb", "split_blocks"];
const LATENCIES: [&str; 4] = ["avg_read", "p99_read", "avg_write", "p99_write"];
const LIMITS: [&str; 4] = ["rw_ios_per_sec", "rw_mbytes_per_sec", "r_mbytes_per_sec", "w_mbytes_per_sec"];
const KEYS: [&str; 3] = ["dhchap_key", "dhchap_ctrlr_key", "psk"];

/// A call to make.
pub(super) type Call = (String, Value);

/// A change of one thing.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// The thing stays as it is.
    None,
    /// These calls change the thing in place.
    InPlace(Vec<Call>),
    /// The key of this name is in this file now, or the file has another key.
    Key { name: String, path: String },
    /// The thing is removed, and this call makes it again.
    Anew(Call),
    /// The thing is not there, and this call makes it.
    New(Call),
}

/// The way from one configuration to another one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// First, with their names: the calls that remove things. Those whose things are made anew are among them.
    pub remove: Vec<(String, Call)>,
    /// Then, with their names: the changes, in an order in which they are possible.
    pub change: Vec<(String, Change)>,
    /// At last: the keys that nobody uses any more.
    pub remove_keys: Vec<(String, Call)>,
    /// The names of things that go, and do not come back.
    pub gone: BTreeSet<String>,
    /// The number of things that are there, and that the new configuration does not have: they stay.
    pub left_alone: usize,
}

/// A thing of a configuration.
#[derive(Clone, Debug)]
struct Thing<'a> {
    name: String,
    step: &'a Step,
    /// The parameters, each in one notation, without those that change nothing.
    values: Map<String, Value>,
}

/// The way from the calls in force to those of a configuration. `keeps`: things that the configuration does not have
/// stay.
///
/// # Errors
/// One line: a call is not valid, two calls make one thing, or something cannot change while the target runs.
pub(super) fn plan(made: &[Step], wanted: &[Step], keeps: bool) -> Result<Plan, String> {
    let wanted = named(wanted)?;
    for step in &wanted {
        check(step)?;
    }
    let have: Vec<Thing<'_>> = made.iter().filter_map(thing).collect();
    let mut matched: Vec<Option<usize>> = vec![None; have.len()];
    let mut want: Vec<(Thing<'_>, Option<usize>)> =
        wanted.iter().filter_map(|step| Some((thing(step)?, None))).collect();
    // Things that the configuration names in full come first: the others take what is left.
    for loose in [false, true] {
        for (at, (new, found)) in want.iter_mut().enumerate() {
            if found.is_some() || is_loose(&new.values, &new.step.method) != loose {
                continue;
            }
            let fits = |old: &Thing<'_>| if loose { fits_loosely(old, new) } else { old.name == new.name };
            let place = have.iter().zip(&matched).position(|(old, taken)| taken.is_none() && fits(old));
            if let Some(place) = place {
                matched[place] = Some(at);
                (new.name, *found) = (have[place].name.clone(), Some(place));
            }
        }
    }
    let mut names = BTreeSet::new();
    if let Some((twice, _)) = want.iter().find(|(new, _)| !names.insert(&new.name)) {
        return Err(format!("{} stands there twice", twice.name));
    }

    let mut changes: Vec<Change> = Vec::new();
    for (new, found) in &want {
        changes.push(match found {
            None => Change::New(call(new.step)),
            Some(place) => change(&have[*place], new)?,
        });
    }
    // The parts of a whole device have another size with it.
    let resized: BTreeSet<&String> =
        want.iter().zip(&changes).filter(|(_, change)| resizes(change)).map(|((new, _), _)| &new.name).collect();
    let divides = |new: &Thing<'_>| {
        new.step.method == "bdev_split_create"
            && divides_all(&new.values)
            && stands_on(new).iter().any(|below| resized.contains(below))
    };
    let mut gone = BTreeSet::new();
    for (old, matched) in have.iter().zip(&matched) {
        let goes = match matched {
            Some(at) => matches!(changes[*at], Change::Anew(_)) || divides(&want[*at].0),
            None => !keeps && undo(old).is_some(),
        };
        if goes || stands_on(old).iter().any(|below| is_gone(&gone, below)) {
            gone.insert(old.name.clone());
        }
    }
    // A thing that stays comes back, with its parts, where the thing below it goes.
    let mut again: Vec<(u8, String, Change)> = Vec::new();
    for (old, matched) in have.iter().zip(&matched).filter(|(old, _)| gone.contains(&old.name)) {
        match matched {
            Some(at) => changes[*at] = Change::Anew(with_kept(old, want[*at].0.step)),
            None if keeps => again.push((rank(&old.step.method), old.name.clone(), Change::Anew(call(old.step)))),
            None => {}
        }
    }
    let of_want = want.iter().zip(changes).map(|((new, _), change)| (rank(&new.step.method), new.name.clone(), change));
    let mut change: Vec<(u8, String, Change)> = of_want.chain(again).collect();
    change.sort_by_key(|(rank, ..)| *rank);

    let is_key = |old: &&Thing<'_>| old.step.method == "keyring_file_add_key";
    let undone = |old: &Thing<'_>| Some((old.name.clone(), undo(old)?));
    let goes = |old: &&Thing<'_>| gone.contains(&old.name);
    let by_itself = |old: &&Thing<'_>| goes_with_another(old).is_some_and(|other| is_gone(&gone, &other));
    let come_back: BTreeSet<&String> = change.iter().map(|(_, name, _)| name).collect();
    Ok(Plan {
        remove: have
            .iter()
            .rev()
            .filter(goes)
            .filter(|old| !is_key(old) && !by_itself(old))
            .filter_map(undone)
            .collect(),
        remove_keys: have.iter().filter(goes).filter(is_key).filter_map(undone).collect(),
        left_alone: matched.iter().filter(|matched| keeps && matched.is_none()).count(),
        gone: gone.iter().filter(|name| !come_back.contains(name)).cloned().collect(),
        change: change.into_iter().map(|(_, name, change)| (name, change)).collect(),
    })
}

/// True for a change of a device's size in place.
fn resizes(change: &Change) -> bool {
    matches!(change, Change::InPlace(calls) if calls.iter().any(|(method, _)| method == "bdev_null_resize"))
}

/// The calls, with the names that the target would give to memory devices without one.
fn named(steps: &[Step]) -> Result<Vec<Step>, String> {
    let mut steps = steps.to_vec();
    let name_of = |step: &Step| step.params.as_ref().and_then(|params| params["name"].as_str()).map(str::to_string);
    let mut taken: BTreeSet<String> =
        steps.iter().filter(|step| step.method.starts_with("bdev_")).filter_map(name_of).collect();
    for step in steps.iter_mut().filter(|step| step.method == "bdev_malloc_create") {
        if let Some(Value::Object(params)) = step.params.as_mut().filter(|params| params.get("name").is_none()) {
            let free = (0..).map(|number| format!("Malloc{number}")).find(|name| !taken.contains(name));
            let free = free.unwrap_or_default();
            taken.insert(free.clone());
            params.insert("name".into(), json!(free));
        }
    }
    Ok(steps)
}

/// Holds a call against its method.
fn check(step: &Step) -> Result<(), String> {
    let Step { subsystem, method: name, params } = step;
    let method = methods::find(name).ok_or_else(|| format!("{subsystem}: {}", methods::unknown(name).message))?;
    if !matches!(method.run, Run::WithoutEffect(_)) {
        Params::check(name, method.params, params.as_ref()).map_err(|error| format!("{subsystem}: {error}"))?;
        if thing(step).is_none() && !SETTINGS.contains(&name.as_str()) {
            return Err(format!("{subsystem}: {name}: a configuration has calls that make things, and no others"));
        }
    }
    Ok(())
}

fn call(step: &Step) -> Call {
    (step.method.clone(), step.params.clone().unwrap_or_else(|| json!({})))
}

/// The thing that a call makes; `None` if the call makes none.
fn thing(step: &Step) -> Option<Thing<'_>> {
    let table = methods::find(&step.method)?.params;
    let mut given = step.params.clone().unwrap_or_else(|| json!({}));
    make_paths_absolute(&mut given);
    let mut values = Map::new();
    canonical(table, given.as_object()?, &mut values);
    if step.method == "nvmf_create_transport" {
        let all = values.remove("max_qpairs_per_ctrlr").and_then(|all| all.as_u64());
        if let Some(all) = all.filter(|_| !values.contains_key("max_io_qpairs_per_ctrlr")) {
            values.insert("max_io_qpairs_per_ctrlr".into(), json!(all.saturating_sub(1)));
        }
        if let Some(queues) = values.get_mut("max_io_qpairs_per_ctrlr") {
            *queues = json!(queues.as_u64().unwrap_or(0).min(64));
        }
    }
    let name = name_of(&step.method, &values)?;
    Some(Thing { name, step, values })
}

/// Brings each value into one notation; members of objects stand beside their object's other parameters.
fn canonical(table: &[Param], given: &Map<String, Value>, values: &mut Map<String, Value>) {
    for param in table.iter().filter(|param| counts(param)) {
        let Some(value) = given.get(param.name) else { continue };
        let text = value.as_str();
        let value = match (param.name, param.kind) {
            ("listen_address" | "address", _) => address(value),
            (_, ParamKind::Object(members)) => {
                value.as_object().into_iter().for_each(|members_given| canonical(members, members_given, values));
                continue;
            }
            ("nqn" | "subnqn", _) if text == Some("discovery") => json!(DISCOVERY_NQN),
            ("trtype", _) => json!(text.map(str::to_uppercase)),
            ("nsid" | "split_size_mb" | "split_blocks", _) if *value == 0 => continue,
            ("uuid" | "nguid" | "eui64", _) => {
                let digits = text.unwrap_or_default().replace('-', "").to_lowercase();
                if digits.bytes().all(|digit| digit == b'0') {
                    continue; // SPDK's way to say that there is none
                }
                json!(digits)
            }
            _ => value.clone(),
        };
        values.insert(param.name.into(), value);
    }
}

/// True if the parameter can make a difference.
fn counts(param: &Param) -> bool {
    !matches!(param.need, Need::Only(_) | Need::Ignored) && !["tgt_name", "create_size"].contains(&param.name)
}

/// `tcp 10.0.0.1 4420`: an address in one notation.
fn address(given: &Value) -> Value {
    let text = |name: &str| given[name].as_str();
    let trtype = text("trtype").or(text("transport")).unwrap_or("TCP").to_uppercase();
    let ip = text("traddr").unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let ip = ip.parse().map_or_else(|_| ip.to_string(), |ip: std::net::IpAddr| ip.to_string());
    json!(format!("{trtype} {ip} {}", text("trsvcid").unwrap_or("4420")))
}

/// The name of the thing that a call makes.
fn name_of(method: &str, values: &Map<String, Value>) -> Option<String> {
    let of = |name: &str| match values.get(name).unwrap_or(&Value::Null) {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        other => other.to_string(),
    };
    let nqn = of("nqn");
    Some(match method {
        "keyring_file_add_key" => format!("key {}", of("name")),
        "bdev_set_qos_limit" => format!("limits of device {}", of("name")),
        "bdev_split_create" => format!("parts of device {}", of("base_bdev")),
        "bdev_error_create" => format!("device EE_{}", of("base_name")),
        "bdev_null_create" | "bdev_malloc_create" | "bdev_aio_create" | "bdev_uring_create" | "bdev_delay_create" => {
            format!("device {}", of("name"))
        }
        "nvmf_create_transport" => format!("transport {}", of("trtype")),
        "nvmf_set_config" => "settings of nvmf_set_config".into(),
        "nvmf_set_max_subsystems" => "limit of subsystems".into(),
        "nvmf_create_subsystem" => format!("subsystem {nqn}"),
        "nvmf_subsystem_add_host" => format!("host {} of {nqn}", of("host")),
        "nvmf_subsystem_add_ns" => format!("namespace {} of {nqn}", of("nsid")),
        "nvmf_ns_add_host" => format!("host {} of namespace {} of {nqn}", of("host"), of("nsid")),
        "nvmf_subsystem_add_ns_manager" => format!("namespace manager {} of {nqn}", of("host")),
        "nvmf_subsystem_add_listener" => format!("listener {} of {nqn}", of("listen_address")),
        "nvmf_subsystem_listener_set_ana_state" => {
            format!("ANA state of group {} on {} of {nqn}", of("anagrpid"), of("listen_address"))
        }
        "nvmf_discovery_add_referral" => {
            let nqn = values.get("subnqn").and_then(Value::as_str).unwrap_or(DISCOVERY_NQN);
            format!("referral to {nqn} at {}", of("address"))
        }
        _ => return None,
    })
}

/// True for a namespace without its number, and for a listener on any free port.
fn is_loose(values: &Map<String, Value>, method: &str) -> bool {
    match method {
        "nvmf_subsystem_add_ns" => !values.contains_key("nsid"),
        "nvmf_subsystem_add_listener" => any_port(values).is_some(),
        _ => false,
    }
}

/// `tcp 10.0.0.1 ` of a listener on any free port.
fn any_port(values: &Map<String, Value>) -> Option<&str> {
    values.get("listen_address")?.as_str()?.strip_suffix('0').filter(|address| address.ends_with(' '))
}

fn fits_loosely(old: &Thing<'_>, new: &Thing<'_>) -> bool {
    let same = |name: &str| old.values.get(name) == new.values.get(name);
    let fits = match any_port(&new.values) {
        None => same("bdev_name"),
        Some(address) => {
            old.values.get("listen_address").and_then(Value::as_str).is_some_and(|it| it.starts_with(address))
        }
    };
    old.step.method == new.step.method && same("nqn") && fits
}

/// True for a call that divides the whole device.
fn divides_all(values: &Map<String, Value>) -> bool {
    !SIZES.iter().any(|size| values.contains_key(*size))
}

/// The value that holds where a call does not give the parameter; null if only words tell it.
fn default_of(param: &Param) -> Value {
    let Need::Default(words) = param.need else { return Value::Null };
    if LIMITS.contains(&param.name) {
        return json!(0);
    }
    let first = words.split([',', ':']).next().unwrap_or_default();
    match serde_json::from_str(first) {
        Ok(value) => value,
        Err(_) if words.contains(' ') || ["none", "all"].contains(&words) => Value::Null,
        Err(_) => json!(words),
    }
}

/// The parameters in which two calls that make one thing differ.
fn differing(old_thing: &Thing<'_>, new_thing: &Thing<'_>) -> Vec<&'static str> {
    let mut table: Vec<&'static Param> = Vec::new();
    flatten(methods::find(&new_thing.step.method).map(|method| method.params).unwrap_or_default(), &mut table);
    let device_makes = new_thing.step.method.starts_with("bdev_");
    let differs = |param: &&&'static Param| {
        let (old, new) = (old_thing.values.get(param.name), new_thing.values.get(param.name));
        if new.is_none() && (KEPT.contains(&param.name) || device_makes && param.name == "uuid") {
            return false;
        }
        if param.name == "listen_address" || SIZES.contains(&param.name) && divides_all(&new_thing.values) {
            return false; // the address is a part of the name, or any free port
        }
        let default = default_of(param);
        old.unwrap_or(&default) != new.unwrap_or(&default)
    };
    table.iter().filter(differs).map(|param| param.name).collect()
}

fn flatten(table: &'static [Param], all: &mut Vec<&'static Param>) {
    for param in table.iter().filter(|param| counts(param)) {
        match param.kind {
            ParamKind::Object(members) if !["listen_address", "address"].contains(&param.name) => flatten(members, all),
            _ => all.push(param),
        }
    }
}

/// The change that makes the thing of one call that of another one of its name.
fn change(old: &Thing<'_>, new: &Thing<'_>) -> Result<Change, String> {
    let value = |name: &str| new.values.get(name).cloned().unwrap_or(Value::Null);
    let text = |name: &str| value(name).as_str().unwrap_or_default().to_string();
    let method = new.step.method.as_str();
    if method == "keyring_file_add_key" {
        // The file may have another key, whatever the calls say.
        return Ok(Change::Key { name: text("name"), path: text("path") });
    }
    let differing = if old.step.method == new.step.method { differing(old, new) } else { vec!["method"] };
    if differing.is_empty() {
        return Ok(Change::None);
    }
    let only = |allowed: &[&str]| differing.iter().all(|name| allowed.contains(name));
    let nqn = value("nqn");
    let calls: Option<Vec<(&str, Value)>> = match method {
        "bdev_null_create" if only(&["num_blocks"]) => {
            let bytes = value("num_blocks").as_u64().zip(value("block_size").as_u64());
            let bytes =
                bytes.and_then(|(blocks, size)| blocks.checked_mul(size)).filter(|bytes| bytes % (1 << 20) == 0);
            bytes.map(|bytes| vec![("bdev_null_resize", json!({ "name": value("name"), "new_size": bytes >> 20 }))])
        }
        "bdev_delay_create" if only(&LATENCIES.map(latency_param)) => Some(
            LATENCIES
                .map(|latency| {
                    let us = value(latency_param(latency));
                    let params = json!({ "delay_bdev_name": value("name"), "latency_type": latency, "latency_us": us });
                    ("bdev_delay_update_latency", params)
                })
                .to_vec(),
        ),
        "bdev_set_qos_limit" => {
            let mut params = json!({ "name": value("name") });
            LIMITS.iter().for_each(|limit| params[*limit] = json!(value(limit).as_u64().unwrap_or(0)));
            Some(vec![(method, params)])
        }
        "nvmf_set_config" | "nvmf_set_max_subsystems" | "nvmf_subsystem_listener_set_ana_state" => {
            Some(vec![(method, call(new.step).1)])
        }
        "nvmf_create_subsystem" if only(&["allow_any_host"]) => {
            let any = value("allow_any_host").as_bool().unwrap_or(false);
            Some(vec![("nvmf_subsystem_allow_any_host", json!({ "nqn": nqn, "allow_any_host": any }))])
        }
        "nvmf_subsystem_add_host" => {
            keys_in_place(old, new, &differing).map(|params| vec![("nvmf_subsystem_set_keys", params)])
        }
        "nvmf_subsystem_add_ns" if only(&["anagrpid", "detached_hosts"]) => {
            Some(namespace_in_place(old, new, &differing))
        }
        "nvmf_subsystem_add_listener" if only(&["ana_state"]) => {
            let at = call(old.step).1["listen_address"].clone();
            let params = json!({ "nqn": nqn, "listen_address": at, "ana_state": value("ana_state") });
            Some(vec![("nvmf_subsystem_listener_set_ana_state", params)])
        }
        "nvmf_create_transport" if only(&["max_io_qpairs_per_ctrlr"]) => Some(vec![(
            "nvmf_set_max_io_qpairs",
            json!({ "max_io_qpairs_per_ctrlr": value("max_io_qpairs_per_ctrlr") }),
        )]),
        "nvmf_create_transport" => {
            return Err(format!(
                "{} cannot change while the target runs ({}): restart the target",
                new.name,
                differing.join(", ")
            ));
        }
        _ => None,
    };
    Ok(match calls {
        Some(calls) => {
            Change::InPlace(calls.into_iter().map(|(method, params)| (method.to_string(), params)).collect())
        }
        None => Change::Anew(with_kept(old, new.step)),
    })
}

fn latency_param(latency: &str) -> &'static str {
    match latency {
        "avg_read" => "avg_read_latency",
        "p99_read" => "p99_read_latency",
        "avg_write" => "avg_write_latency",
        _ => "p99_write_latency",
    }
}

/// The parameters of nvmf_subsystem_set_keys, if that call can make the change: it takes no kind of key away.
fn keys_in_place(old: &Thing<'_>, new: &Thing<'_>, differing: &[&str]) -> Option<Value> {
    let goes = |key: &str| old.values.contains_key(key) && !new.values.contains_key(key);
    if goes("psk")
        || goes("dhchap_key") && new.values.contains_key("psk")
        || !differing.iter().all(|key| KEYS.contains(key))
    {
        return None;
    }
    let mut params = json!({ "nqn": new.values["nqn"], "host": new.values["host"] });
    for key in KEYS.iter().filter(|key| new.values.contains_key(**key)) {
        params[*key] = new.values[*key].clone();
    }
    Some(params)
}

/// The calls that move a namespace to another ANA group, and attach or detach it.
fn namespace_in_place(old: &Thing<'_>, new: &Thing<'_>, differing: &[&str]) -> Vec<(&'static str, Value)> {
    let (nqn, nsid) = (&new.values["nqn"], &old.values["nsid"]);
    let mut calls = Vec::new();
    if differing.contains(&"anagrpid") {
        let params = json!({ "nqn": nqn, "nsid": nsid, "anagrpid": new.values.get("anagrpid") });
        calls.push(("nvmf_subsystem_set_ns_ana_group", params));
    }
    let hosts = |thing: &Thing<'_>| -> BTreeSet<String> {
        let hosts = thing.values.get("detached_hosts").and_then(Value::as_array);
        hosts.into_iter().flatten().filter_map(Value::as_str).map(str::to_string).collect()
    };
    if differing.contains(&"detached_hosts") {
        let (before, after) = (hosts(old), hosts(new));
        let of = |host: &String| json!({ "nqn": nqn, "nsid": nsid, "host": host });
        calls.extend(before.difference(&after).map(|host| ("nvmf_ns_attach_host", of(host))));
        calls.extend(after.difference(&before).map(|host| ("nvmf_ns_detach_host", of(host))));
    }
    calls
}

/// The call that makes a thing again, with the values of the old one that stay.
fn with_kept(old: &Thing<'_>, new: &Step) -> Call {
    let (method, mut params) = call(new);
    let had = call(old.step).1;
    if old.step.method == new.method {
        for place in ["", "/namespace"] {
            let (Some(Value::Object(params)), Some(Value::Object(had))) =
                (params.pointer_mut(place), had.pointer(place))
            else {
                continue;
            };
            for name in KEPT {
                if let Some(value) = had.get(name).filter(|_| !params.contains_key(name)) {
                    params.insert(name.into(), value.clone());
                }
            }
        }
        if method == "nvmf_subsystem_add_listener" {
            params["listen_address"] = had["listen_address"].clone(); // any free port: the one that it had
        }
    }
    (method, params)
}

/// The call that removes a thing; `None` for what stays as long as the target, or goes by itself.
fn undo(old: &Thing<'_>) -> Option<Call> {
    let value = |name: &str| old.values.get(name).cloned().unwrap_or(Value::Null);
    let given = call(old.step).1;
    let pick =
        |names: &[&str]| -> Value { names.iter().map(|name| (name.to_string(), given[*name].clone())).collect() };
    let (method, params) = match old.step.method.as_str() {
        "keyring_file_add_key" => ("keyring_file_remove_key", pick(&["name"])),
        "bdev_null_create" => ("bdev_null_delete", pick(&["name"])),
        "bdev_malloc_create" => ("bdev_malloc_delete", pick(&["name"])),
        "bdev_aio_create" => ("bdev_aio_delete", pick(&["name"])),
        "bdev_uring_create" => ("bdev_uring_delete", pick(&["name"])),
        "bdev_delay_create" => ("bdev_delay_delete", pick(&["name"])),
        "bdev_error_create" => {
            ("bdev_error_delete", json!({ "name": format!("EE_{}", value("base_name").as_str().unwrap_or_default()) }))
        }
        "bdev_split_create" => ("bdev_split_delete", pick(&["base_bdev"])),
        "bdev_set_qos_limit" => {
            let mut params = pick(&["name"]);
            LIMITS.iter().for_each(|limit| params[*limit] = json!(0));
            ("bdev_set_qos_limit", params)
        }
        "nvmf_set_config" if !old.values.is_empty() => ("nvmf_set_config", json!({})),
        "nvmf_set_max_subsystems" if value("max_subsystems") != 0 => {
            ("nvmf_set_max_subsystems", json!({ "max_subsystems": 0 }))
        }
        "nvmf_create_subsystem" => ("nvmf_delete_subsystem", pick(&["nqn"])),
        "nvmf_subsystem_add_host" => ("nvmf_subsystem_remove_host", pick(&["nqn", "host"])),
        "nvmf_subsystem_add_ns" => ("nvmf_subsystem_remove_ns", json!({ "nqn": value("nqn"), "nsid": value("nsid") })),
        "nvmf_ns_add_host" => ("nvmf_ns_remove_host", pick(&["nqn", "nsid", "host"])),
        "nvmf_subsystem_add_ns_manager" => ("nvmf_subsystem_remove_ns_manager", pick(&["nqn", "host"])),
        "nvmf_subsystem_add_listener" => ("nvmf_subsystem_remove_listener", pick(&["nqn", "listen_address"])),
        "nvmf_discovery_add_referral" => {
            let mut params = pick(&["address"]);
            if let Some(nqn) = given.get("subnqn") {
                params["subnqn"] = nqn.clone();
            }
            ("nvmf_discovery_remove_referral", params)
        }
        _ => return None,
    };
    Some((method.into(), params))
}

/// The names of the things without which a thing cannot be.
fn stands_on(thing: &Thing<'_>) -> Vec<String> {
    let of = |name: &str| thing.values.get(name).and_then(Value::as_str).map(str::to_string);
    let device = ["base_bdev_name", "base_bdev", "base_name", "bdev_name"].into_iter().find_map(of);
    let mut below: Vec<String> = device.map(|device| format!("device {device}")).into_iter().collect();
    below.extend(goes_with_another(thing));
    below
}

/// The name of the thing whose removal removes this one by itself.
fn goes_with_another(thing: &Thing<'_>) -> Option<String> {
    let nqn = thing.values.get("nqn").and_then(Value::as_str);
    match thing.step.method.as_str() {
        "bdev_set_qos_limit" => Some(format!("device {}", thing.values.get("name")?.as_str()?)),
        "nvmf_ns_add_host" => Some(format!("namespace {} of {}", thing.values.get("nsid")?, nqn?)),
        "nvmf_subsystem_listener_set_ana_state" => {
            Some(format!("listener {} of {}", thing.values.get("listen_address")?.as_str()?, nqn?))
        }
        "nvmf_create_subsystem" => None,
        _ => nqn.map(|nqn| format!("subsystem {nqn}")),
    }
}

/// True if the thing of that name goes. A device may be a part of another one: `Disk0p3`.
fn is_gone(gone: &BTreeSet<String>, name: &str) -> bool {
    let divided = || {
        let (base, number) = name.strip_prefix("device ")?.rsplit_once('p')?;
        let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        is_number.then(|| gone.contains(&format!("parts of device {base}")))
    };
    // The subsystem takes its namespaces along, with their parts.
    let subsystem = || Some(gone.contains(&format!("subsystem {}", name.split_once(" of ")?.1)));
    gone.contains(name) || divided() == Some(true) || subsystem() == Some(true)
}

/// The place of a method in an order in which each call finds what it needs.
fn rank(method: &str) -> u8 {
    match method {
        "keyring_file_add_key" => 0,
        "bdev_set_qos_limit" => 2,
        _ if method.starts_with("bdev_") => 1,
        "nvmf_create_transport" | "nvmf_set_config" | "nvmf_set_max_subsystems" => 3,
        "nvmf_create_subsystem" => 4,
        "nvmf_subsystem_add_host" | "nvmf_subsystem_add_ns_manager" => 5,
        "nvmf_subsystem_add_ns" => 6,
        "nvmf_ns_add_host" => 7,
        "nvmf_subsystem_add_listener" => 8,
        _ => 9,
    }
}
