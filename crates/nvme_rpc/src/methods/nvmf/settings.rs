//! Methods about the target's settings as a whole.

use std::collections::BTreeSet;

use nvme::auth::Policy;
use serde_json::{Value, json};

use super::{TARGET_NAME, TGT_NAME};
use crate::jsonrpc::{Outcome, RpcError};
use crate::methods::{Method, When, method};
use crate::params::{Param, ParamKind, Params, U16, U32};
use crate::state::State;

const DIGESTS: ParamKind = ParamKind::ListOf(&["sha256", "sha384", "sha512"]);
const DHGROUPS: ParamKind =
    ParamKind::ListOf(&["null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"]);

/// The methods of this module.
pub static METHODS: &[Method] = &[
    Method {
        when: When::Always,
        ..method(
            "nvmf_set_config",
            "Set how hosts may authenticate; a parameter that is left out returns to its default",
            &[
                Param::optional("dhchap_digests", DIGESTS, "all", "hash functions that DH-HMAC-CHAP may use"),
                Param::optional("dhchap_dhgroups", DHGROUPS, "all", "groups that DH-HMAC-CHAP may use"),
                Param::ignored(
                    "acceptor_poll_rate",
                    U32,
                    "the most that a new connection waits: it is accepted at once",
                ),
                Param::only(
                    "conn_sched",
                    ParamKind::Text,
                    "\"roundrobin\"",
                    "connections go to the reactors in turn, the least loaded first",
                ),
                Param::optional(
                    "poll_groups_mask",
                    ParamKind::Text,
                    "the processors of `plimsoll serve --cores`",
                    "mask of processors; all those of --cores must be in it",
                ),
                Param::only(
                    "discovery_filter",
                    ParamKind::Text,
                    "\"match_any\"",
                    "discovery names all listeners of the subsystems of a host",
                ),
                Param::only(
                    "discovery_filters",
                    ParamKind::Any,
                    "[\"match_any\"]",
                    "discovery names all listeners of the subsystems of a host",
                ),
                Param::optional(
                    "dup_host_policy",
                    ParamKind::OneOf(&["allow", "restrict_per_listener"]),
                    "allow",
                    "restrict_per_listener: a host has one controller at most on each listener of a subsystem",
                ),
                Param::optional(
                    "admin_cmd_passthru",
                    ParamKind::Any,
                    "none",
                    "all members must be false: the target passes no command through",
                ),
                Param::only(
                    "passthru_identify_ctrlr",
                    ParamKind::Bool,
                    "false",
                    "the target passes no command through",
                ),
            ],
            "true",
            set_config,
        )
    },
    Method {
        when: When::Always,
        ..method(
            "nvmf_set_max_subsystems",
            "Limit the number of subsystems; existing ones stay",
            &[
                Param::required(
                    "max_subsystems",
                    U32,
                    "highest number of subsystems, discovery included; 0 for any number",
                ),
                TGT_NAME,
            ],
            "true",
            set_max_subsystems,
        )
    },
    Method {
        when: When::Always,
        ..method(
            "nvmf_set_crdt",
            "Set command retry delays; only 0 (no delay) is possible",
            &[
                Param::only("crdt1", U16, "0", "hosts may send a command again without a delay"),
                Param::only("crdt2", U16, "0", "hosts may send a command again without a delay"),
                Param::only("crdt3", U16, "0", "hosts may send a command again without a delay"),
                TGT_NAME,
            ],
            "true",
            |_, _| Ok(Value::Bool(true)),
        )
    },
    method(
        "nvmf_delete_target",
        "Delete a target; refused, because the one target ends with the program (spdk_kill_instance)",
        &[Param::required("name", ParamKind::Text, "name of the target")],
        "always an error",
        |_, params| match params.text("name") {
            TARGET_NAME => {
                Err(RpcError::failed(format!("{TARGET_NAME} ends with the program: spdk_kill_instance ends both")))
            }
            _ => Err(RpcError::params("The specified target doesn't exist, cannot delete it.")),
        },
    ),
    method("nvmf_get_targets", "List the targets", &[], "an array with one name", |_, _| Ok(json!([TARGET_NAME]))),
];

fn set_config(state: &mut State, params: &Params) -> Outcome {
    let passed = params.as_given().get("admin_cmd_passthru").and_then(Value::as_object);
    if let Some((command, _)) = passed.into_iter().flatten().find(|(_, value)| **value != json!(false)) {
        return Err(RpcError::params(format!(
            "admin_cmd_passthru.{command} must be false: the target passes no command through"
        )));
    }
    let mut policy = Policy::default();
    if let Some(names) = params.list_if("dhchap_digests") {
        policy.hashes.retain(|hash| names.contains(&hash.name()));
    }
    if let Some(names) = params.list_if("dhchap_dhgroups") {
        policy.groups.retain(|group| names.contains(&group.name()));
    }
    if let Some(mask) = params.text_if("poll_groups_mask") {
        let cpus = &state.settings.options.cpus;
        let allowed = processors(mask).ok_or_else(|| {
            RpcError::params(format!("poll_groups_mask {mask:?} is not a mask of processors, such as 0xF or [0,1]"))
        })?;
        if cpus.is_empty() || cpus.iter().any(|cpu| !allowed.contains(cpu)) {
            let list = allowed.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            return Err(RpcError::params(format!(
                "poll_groups_mask {mask} does not hold: start `plimsoll serve` with --cores {list}, or leave it out"
            )));
        }
    }
    state.target.restrict_hosts(params.text_if("dup_host_policy") == Some("restrict_per_listener"));
    state.keys.set_policy(policy);
    state.forget(|method, _| method == "nvmf_set_config");
    state.remember("nvmf", "nvmf_set_config", params.as_given().clone());
    Ok(Value::Bool(true))
}

/// The processors of a mask as SPDK writes it: hexadecimal digits, or a list of processors in brackets.
fn processors(mask: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    if let Some(list) = mask.strip_prefix('[') {
        for part in list.strip_suffix(']')?.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            cpus.extend(u32::from(first)..=u32::from(last));
        }
    } else {
        let digits = mask.strip_prefix("0x").or(mask.strip_prefix("0X")).unwrap_or(mask);
        for (place, digit) in digits.replace(',', "").chars().rev().enumerate() {
            let digit = digit.to_digit(16)?;
            cpus.extend((0..4).filter(|bit| digit >> bit & 1 == 1).map(|bit| 4 * place as u32 + bit));
        }
    }
    (!cpus.is_empty()).then_some(cpus)
}

fn set_max_subsystems(state: &mut State, params: &Params) -> Outcome {
    state.max_subsystems = params.u32_if("max_subsystems").filter(|most| *most > 0);
    state.forget(|method, _| method == "nvmf_set_max_subsystems");
    state.remember("nvmf", "nvmf_set_max_subsystems", params.as_given().clone());
    Ok(Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::processors;

    #[test]
    fn masks_are_those_of_spdk() {
        let of = |mask: &str| processors(mask).map(|cpus| cpus.into_iter().collect::<Vec<_>>());
        assert_eq!(of("0x13"), Some(vec![0, 1, 4]));
        assert_eq!(of("f"), Some(vec![0, 1, 2, 3]));
        assert_eq!(of("[0,2-3]"), Some(vec![0, 2, 3]));
        for wrong in ["", "0x", "0", "xyz", "[", "[]", "[1", "[a-b]", "[70000]"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
