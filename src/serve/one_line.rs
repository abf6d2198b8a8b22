//! The target that the options of `plimsoll serve` describe, without a configuration file: as calls.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, bail};
use clap::ArgMatches;
use nvme_target::{Portal, TransportType};
use serde_json::{Map, Value, json};

use super::{BLOCK_BYTES, NQN, PORT, bytes, cntlids, size};
use crate::output;

/// A method of the control plane, and its parameters.
type Call = (&'static str, Value);

/// The calls that configure what the command line names.
///
/// # Errors
/// Options that do not go together, sizes and addresses that cannot be read, hosts that nobody has named.
pub fn calls(matches: &ArgMatches) -> anyhow::Result<Vec<Call>> {
    let options = Options { matches };
    let (devices, namespaces) = options.devices()?;
    if namespaces.is_empty() {
        options.refuse_useless()?;
        return Ok(devices);
    }
    let listeners = options.listeners()?;
    let admitted = options.admitted(&listeners)?;
    let mut calls = transports(&listeners);
    calls.extend(devices);
    calls.push(options.subsystem(namespaces.len(), admitted)?);
    calls.extend(options.keys_and_hosts());
    calls.extend(options.namespaces(&namespaces));
    calls.extend(listeners.iter().map(|listener| options.listener(listener)));
    Ok(calls)
}

struct Options<'a> {
    matches: &'a ArgMatches,
}

impl<'a> Options<'a> {
    fn texts(&self, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.matches.get_many::<String>(name).into_iter().flatten().map(String::as_str)
    }

    fn nqn(&self) -> &'a str {
        self.matches.get_one::<String>("nqn").map_or(NQN, String::as_str)
    }

    /// The calls that make the devices, and the devices' names: a namespace each.
    fn devices(&self) -> anyhow::Result<(Vec<Call>, Vec<String>)> {
        let (mut calls, mut names) = (Vec::new(), Vec::new());
        let block = size(self.matches, "block-size")?;
        for (option, method, prefix) in [("null", "bdev_null_create", "Null"), ("mem", "bdev_malloc_create", "Malloc")]
        {
            for (number, text) in self.texts(option).enumerate() {
                let (bytes, block) = (bytes(option, text)?, block.unwrap_or(BLOCK_BYTES));
                let name = format!("{prefix}{number}");
                calls.push((method, json!({ "name": name, "num_blocks": bytes / block, "block_size": block })));
                names.push(name);
            }
        }
        let create = size(self.matches, "create")?;
        for (number, path) in self.texts("file").enumerate() {
            let name = format!("File{number}");
            calls.push(("bdev_uring_create", self.file(&name, path, block, create)?));
            names.push(name);
        }
        Ok((calls, names))
    }

    fn file(&self, name: &str, path: &str, block: Option<u64>, create: Option<u64>) -> anyhow::Result<Value> {
        let mut params = json!({ "name": name, "filename": path });
        if let Some(block) = block {
            params["block_size"] = json!(block);
        }
        match create {
            Some(create) => params["create_size"] = json!(create),
            None if !Path::new(path).exists() => {
                bail!("--file {path}: it does not exist; --create SIZE creates it, or correct the path")
            }
            None => {}
        }
        if self.matches.get_flag("shared") {
            params["shared"] = json!(true);
        }
        Ok(params)
    }

    /// Options of a subsystem are refused where no namespace makes one.
    fn refuse_useless(&self) -> anyhow::Result<()> {
        let named = ["listen", "rdma", "nqn", "cntlid-range", "allow-host", "ns-manager"];
        let useless = named.into_iter().find(|name| self.matches.contains_id(name));
        match useless.or(self.matches.get_flag("ana").then_some("ana")) {
            Some(useless) => bail!("--{useless} has no effect without --null, --mem or --file"),
            None => Ok(()),
        }
    }

    fn listeners(&self) -> anyhow::Result<Vec<Portal>> {
        let on = |option: &'static str, of: fn(SocketAddr) -> Portal| {
            self.texts(option).map(|text| address(option, text).map(of)).collect::<anyhow::Result<Vec<Portal>>>()
        };
        let mut listeners = on("listen", Portal::from)?;
        listeners.extend(on("rdma", Portal::rdma)?);
        if listeners.is_empty() {
            listeners.push(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)).into());
        }
        if self.matches.contains_id("tls-key") && self.matches.contains_id("rdma") {
            bail!(
                "--tls-key goes with --listen alone: RDMA has no TLS; --dhchap-key has hosts prove themselves over both"
            );
        }
        Ok(listeners)
    }

    /// True if any host may connect: as asked for, or on loopback where no host is named.
    fn admitted(&self, listeners: &[Portal]) -> anyhow::Result<bool> {
        let no_host = !self.matches.contains_id("allow-host");
        let outside = listeners.iter().find(|portal| !portal.address.ip().is_loopback());
        let any = self.matches.get_flag("allow-any-host") || (outside.is_none() && no_host);
        if let Some(outside) = outside.filter(|_| !any && no_host) {
            bail!(
                "{} {}: other machines can reach it, so say who may connect: --allow-host NQN (of a Linux host, \
                 /etc/nvme/hostnqn), or --allow-any-host",
                if outside.transport == TransportType::Rdma { "--rdma" } else { "--listen" },
                outside.address
            );
        }
        if let Some(outside) = outside.filter(|_| !self.matches.contains_id("nqn")) {
            output::warn(&[format!(
                "other machines can reach {outside} under the default NQN ({NQN}): a host that uses two such targets \
                 needs a different --nqn for each"
            )]);
        }
        Ok(any)
    }

    fn subsystem(&self, namespaces: usize, any_host: bool) -> anyhow::Result<Call> {
        let most = namespaces.max(32);
        let mut subsystem = json!({ "nqn": self.nqn(), "allow_any_host": any_host, "max_namespaces": most });
        if let Some(range) = self.matches.get_one::<String>("cntlid-range") {
            let (first, last) = cntlids(range)?;
            (subsystem["min_cntlid"], subsystem["max_cntlid"]) = (json!(first), json!(last));
        }
        if self.matches.get_flag("ana") {
            subsystem["ana_reporting"] = json!(true);
        }
        Ok(("nvmf_create_subsystem", subsystem))
    }

    fn keys_and_hosts(&self) -> Vec<Call> {
        let (mut calls, mut keys) = (Vec::new(), Map::new());
        for (option, param) in
            [("dhchap-key", "dhchap_key"), ("dhchap-ctrlr-key", "dhchap_ctrlr_key"), ("tls-key", "psk")]
        {
            if let Some(path) = self.matches.get_one::<String>(option) {
                calls.push(("keyring_file_add_key", json!({ "name": param, "path": path })));
                keys.insert(param.into(), json!(param));
            }
        }
        let of = |host: &str| json!({ "nqn": self.nqn(), "host": host });
        for host in self.texts("allow-host") {
            let mut params = of(host);
            keys.iter().for_each(|(param, key)| params[param] = key.clone());
            calls.push(("nvmf_subsystem_add_host", params));
        }
        calls.extend(self.texts("ns-manager").map(|host| ("nvmf_subsystem_add_ns_manager", of(host))));
        calls
    }

    fn namespaces(&self, names: &[String]) -> Vec<Call> {
        // The targets of a shared file find its reservations beside it. Files come last.
        let shared = self.texts("file").filter(|_| self.matches.get_flag("shared"));
        let mut files: Vec<Option<String>> = shared.map(|path| Some(format!("{path}.reservations"))).collect();
        files.splice(0..0, std::iter::repeat_n(None, names.len() - files.len()));
        let namespace = |(name, reservations): (&String, &Option<String>)| {
            let mut namespace = json!({ "bdev_name": name });
            if let Some(file) = reservations {
                namespace["ptpl_file"] = json!(file);
            }
            ("nvmf_subsystem_add_ns", json!({ "nqn": self.nqn(), "namespace": namespace }))
        };
        names.iter().zip(&files).map(namespace).collect()
    }

    fn listener(&self, Portal { transport, address }: &Portal) -> Call {
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let to = json!({ "trtype": transport.name(), "traddr": ip, "trsvcid": port });
        let mut params = json!({ "nqn": self.nqn(), "listen_address": to });
        if self.matches.contains_id("tls-key") {
            params["secure_channel"] = json!(true);
        }
        ("nvmf_subsystem_add_listener", params)
    }
}

/// The calls that make the transports of these listeners.
fn transports(listeners: &[Portal]) -> Vec<Call> {
    let used = |transport: &TransportType| listeners.iter().any(|portal| portal.transport == *transport);
    let create = |transport: TransportType| ("nvmf_create_transport", json!({ "trtype": transport.name() }));
    [TransportType::Tcp, TransportType::Rdma].into_iter().filter(used).map(create).collect()
}

fn address(option: &str, text: &str) -> anyhow::Result<SocketAddr> {
    let bare = || text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, PORT));
    text.parse().ok().or_else(bare).with_context(|| {
        format!("--{option} {text}: not an IP address (expected one as 127.0.0.1, 127.0.0.1:{PORT} or [::1]:{PORT})")
    })
}
