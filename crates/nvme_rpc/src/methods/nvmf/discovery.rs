//! Methods about other targets that the discovery service refers hosts to.

use nvme::spec::{DISCOVERY_NQN, NqnError};
use nvme_target::Referral;
use serde_json::{Value, json};

use super::{ADDRESS, TGT_NAME, address_of, portal};
use crate::jsonrpc::{Outcome, RpcError};
use crate::methods::{Method, method, refusal};
use crate::params::{Param, ParamKind, Params};
use crate::state::State;

const REFERRAL_NQN: Param = Param::optional(
    "subnqn",
    ParamKind::Text,
    "nqn.2014-08.org.nvmexpress.discovery",
    "NQN of a subsystem there, or that of discovery",
);
const REFERRED_ADDRESS: Param = Param::required("address", ParamKind::Object(ADDRESS), "address of the other target");
/// The rows of `nvmf_discovery_add_referral`, for calls that are remembered.
const PLAIN: Param =
    Param::only("secure_channel", ParamKind::Bool, "false", "hosts learn from the service itself that it demands TLS");
const CHECKED_REFERRAL: &[Param] = &[REFERRED_ADDRESS, REFERRAL_NQN, PLAIN, TGT_NAME];

/// The methods of this module.
pub static METHODS: &[Method] = &[
    method(
        "nvmf_discovery_add_referral",
        "Refer hosts that ask for discovery to another discovery service, or to a subsystem of another target",
        CHECKED_REFERRAL,
        "true",
        add_referral,
    ),
    method(
        "nvmf_discovery_remove_referral",
        "Remove a referral to another target",
        &[REFERRED_ADDRESS, REFERRAL_NQN, TGT_NAME],
        "true",
        remove_referral,
    ),
    method(
        "nvmf_discovery_get_referrals",
        "List the referrals to other targets",
        &[TGT_NAME],
        "an array of addresses with subnqn",
        get_referrals,
    ),
];

fn referral(params: &Params) -> Result<Referral, RpcError> {
    let address = portal(params, "address")?;
    let nqn = params.text_if("subnqn").filter(|nqn| *nqn != "discovery").unwrap_or(DISCOVERY_NQN);
    let nqn = nqn.parse().map_err(|error: NqnError| RpcError::params(error.to_string()))?;
    Ok(Referral { address, nqn })
}

fn add_referral(state: &mut State, params: &Params) -> Outcome {
    state.target.add_referral(referral(params)?).map_err(refusal)?;
    state.remember("nvmf", "nvmf_discovery_add_referral", params.as_given().clone());
    Ok(Value::Bool(true))
}

fn remove_referral(state: &mut State, params: &Params) -> Outcome {
    let gone = referral(params)?;
    state.target.remove_referral(&gone).map_err(refusal)?;
    state.forget(|method, given| {
        let is_it = || referral(&Params::check(method, CHECKED_REFERRAL, Some(given)).ok()?).ok();
        method == "nvmf_discovery_add_referral" && is_it().as_ref() == Some(&gone)
    });
    Ok(Value::Bool(true))
}

fn get_referrals(state: &mut State, _: &Params) -> Outcome {
    let one = |referral: &Referral| {
        json!({
            "address": address_of(&referral.address),
            "subtype": if referral.nqn.is_discovery() { "discovery" } else { "nvme" },
            "subnqn": referral.nqn.as_str(),
            "secure_channel": false
        })
    };
    Ok(state.target.referrals().iter().map(one).collect())
}
