//! Methods about NVMe over Fabrics: a file for each subject.

pub mod discovery;
pub mod host;
pub mod listener;
pub mod namespace;
pub mod settings;
pub mod statistics;
pub mod subsystem;
pub mod transport;

use std::net::{IpAddr, SocketAddr};

use nvme_target::{Portal, SubsystemInfo, TransportType};
use serde_json::{Value, json};

use crate::jsonrpc::RpcError;
use crate::params::{Param, ParamKind, Params};
use crate::state::{State, TARGET_NAME};

/// Bytes of a buffer, as the prototype counted buffers, unless the transport says otherwise.
const BUFFER_BYTES: u64 = 131_072;
const TGT_NAME: Param =
    Param::optional("tgt_name", ParamKind::Text, TARGET_NAME, "name of the target; nvmf_tgt is the only one");
const NQN: Param = Param::required("nqn", ParamKind::Text, "NQN of the subsystem");
const HOST: Param = Param::required("host", ParamKind::Text, "NQN of the host");
const SECURE_CHANNEL: Param =
    Param::optional("secure_channel", ParamKind::Bool, "false", "demand TLS 1.3 with a key of nvmf_subsystem_add_host");
/// Secure channel concatenation (Base specification 2.1, 8.3.4.5.9): a host may begin plainly.
const SECURE_CONCATENATION: Param = Param::optional(
    "secure_concatenation",
    ParamKind::Bool,
    "false",
    "with secure_channel: hosts may also authenticate plainly, and speak TLS with the key that this makes",
);
const TRTYPE: ParamKind = ParamKind::OneOf(&["TCP", "tcp", "RDMA", "rdma"]);
const ADDRESS: &[Param] = &[
    Param::required("traddr", ParamKind::Text, "IP address; 0.0.0.0 or :: for all addresses of this machine"),
    Param::optional("trsvcid", ParamKind::Text, "4420", "port; 0 for any free port"),
    Param::optional("trtype", TRTYPE, "TCP", "transport"),
    Param::optional("transport", TRTYPE, "TCP", "another name of trtype"),
    Param::optional(
        "adrfam",
        ParamKind::OneOf(&["IPv4", "ipv4", "IPv6", "ipv6"]),
        "the family of traddr",
        "address family",
    ),
];

/// The subsystem of that NQN.
fn subsystem(state: &State, nqn: &str) -> Result<SubsystemInfo, RpcError> {
    let found = state.target.subsystems().into_iter().find(|subsystem| subsystem.spec.nqn == nqn);
    found.ok_or_else(|| RpcError::errno(libc::ENODEV, format!("No such subsystem: {nqn}")))
}

fn address_of(portal: &Portal) -> Value {
    let Portal { transport, address } = portal;
    json!({
        "trtype": transport.name(),
        "adrfam": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "traddr": address.ip().to_string(),
        "trsvcid": address.port().to_string()
    })
}

/// The transport of that name, in small or large letters.
fn transport_type(name: &str) -> Option<TransportType> {
    [TransportType::Tcp, TransportType::Rdma].into_iter().find(|known| name.eq_ignore_ascii_case(known.name()))
}

/// The address that an object of [`ADDRESS`] gives.
fn portal(params: &Params, name: &str) -> Result<Portal, RpcError> {
    let Some(given) = params.object_if(name) else { return Err(RpcError::params(format!("{name} is missing"))) };
    let traddr = given.text("traddr");
    let address: IpAddr =
        traddr.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| {
            RpcError::params(format!("traddr {traddr:?} is not an IP address (names are not looked up)"))
        })?;
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    if let Some(other) = given.text_if("adrfam").filter(|adrfam| !adrfam.eq_ignore_ascii_case(family)) {
        return Err(RpcError::params(format!("traddr {traddr} is {family}, not {other}")));
    }
    let trsvcid = given.text_if("trsvcid").unwrap_or("4420");
    let port = trsvcid.parse().map_err(|_| RpcError::params(format!("trsvcid {trsvcid:?} is not a port")))?;
    let trtype = given.text_if("trtype").or(given.text_if("transport")).unwrap_or("TCP");
    let transport = transport_type(trtype).unwrap_or(TransportType::Tcp);
    Ok(Portal { transport, address: SocketAddr::new(address, port) })
}
