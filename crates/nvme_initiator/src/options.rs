//! The options of a host: its identity, and the limits that it requests.

use std::fs;
use std::time::Duration;

use nvme::auth::{Secret, TlsKey};
use nvme::spec::Nqn;
use nvme::uuid;
use sha2::{Digest, Sha256};

use super::RdmaHost;

/// The settings that a [`Controller`](super::Controller) is connected with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The NQN by which the host connects.
    pub hostnqn: Nqn,
    /// The host's identifier: one for all its connections.
    pub hostid: [u8; 16],
    /// True if the host asks for digests of headers.
    pub header_digest: bool,
    /// True if the host asks for digests of data.
    pub data_digest: bool,
    /// I/O queues, 1 to 65535, each a connection. A controller may grant fewer.
    pub queues: u16,
    /// Commands outstanding on each I/O queue, 1 to 65535. A controller may take fewer.
    pub depth: u32,
    /// The silence after which the controller may drop the host; zero for never. The initiator sends a keep-alive
    /// each half of this time.
    pub keep_alive: Duration,
    /// The time that connecting, or any answer of the admin queue, may take.
    pub timeout: Duration,
    /// The secret that proves the identity of this host to controllers that demand it (DH-HMAC-CHAP).
    pub secret: Option<Secret>,
    /// The secret that controllers must prove to have, discovery services that do not demand authentication excepted;
    /// `None` if controllers need not prove themselves.
    pub controller_secret: Option<Secret>,
    /// The key of TLS: with it, every connection is secured, and to a controller that knows the key.
    pub tls_key: Option<TlsKey>,
    /// True if the host authenticates on a plain connection, and secures all others with the key that this makes
    /// (secure channel concatenation). Needs `secret`, and no `tls_key`.
    pub concatenation: bool,
    /// The time for which the host seeks a lost controller before everything fails; zero fails at once. It counts from
    /// the end of the last association on which a request completed.
    pub controller_loss: Duration,
    /// The time from the beginning of one attempt to reach the controller to that of the next.
    pub reconnect_delay: Duration,
    /// The stack and the memory for addresses over RDMA.
    pub rdma: RdmaHost,
}

impl Default for Options {
    /// This host; one queue of 128 commands; no digests; keep-alive of 15 s; 10 s for an answer; 30 s for a controller
    /// to come back.
    fn default() -> Options {
        let (hostnqn, hostid) = this_host();
        Options {
            hostnqn,
            hostid,
            header_digest: false,
            data_digest: false,
            queues: 1,
            depth: 128,
            keep_alive: Duration::from_secs(15),
            timeout: Duration::from_secs(10),
            secret: None,
            controller_secret: None,
            tls_key: None,
            concatenation: false,
            controller_loss: Duration::from_secs(30),
            reconnect_delay: Duration::from_secs(1),
            rdma: RdmaHost::default(),
        }
    }
}

/// The name and identifier of this host: those of `/etc/nvme`, as nvme-cli keeps them, or such as follow from
/// `/etc/machine-id`, so that they stay the same.
pub fn this_host() -> (Nqn, [u8; 16]) {
    let line = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_string());
    let derived = derived(&line("/etc/machine-id").unwrap_or_default());
    let hostnqn = line("/etc/nvme/hostnqn").and_then(|name| name.parse().ok());
    let hostid = line("/etc/nvme/hostid").and_then(|uuid| uuid::parse(&uuid));
    match (hostnqn, hostid) {
        (Some(hostnqn), Some(hostid)) => (hostnqn, hostid),
        // A name goes with one identifier only: Base specification 2.0, section 5.27.1.25.
        (Some(hostnqn), None) => (hostnqn, derived),
        (None, _) => (Nqn::of_host(derived), derived),
    }
}

/// A UUID that follows from a text and tells nothing of it (machine-id(5) asks for that).
fn derived(text: &str) -> [u8; 16] {
    let digest = Sha256::digest(format!("plimsoll host {text}"));
    let mut uuid: [u8; 16] = std::array::from_fn(|index| digest[index]);
    uuid[6] = uuid[6] & 0x0f | 0x80; // RFC 9562: version 8, custom
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

impl Options {
    /// The keys of TLS that may open the subsystem, by the configured key: none without one.
    pub(super) fn tls_keys(&self, subsystem: &Nqn) -> Vec<tls::Psk> {
        self.tls_key.as_ref().map_or(Vec::new(), |key| key.offers(self.hostnqn.as_str(), subsystem.as_str()))
    }

    /// Takes a host's name, with the identifier that goes with it: the UUID of a name that is made from one, otherwise
    /// one that follows from the name.
    pub fn set_host(&mut self, hostnqn: Nqn) {
        let uuid = hostnqn.as_str().rsplit_once(":uuid:").and_then(|(_, uuid)| uuid::parse(uuid));
        self.hostid = uuid.unwrap_or_else(|| derived(hostnqn.as_str()));
        self.hostnqn = hostnqn;
    }

    /// Takes a host's identifier.
    ///
    /// # Errors
    /// The text is not a UUID.
    pub fn set_host_id(&mut self, uuid: &str) -> Result<(), String> {
        self.hostid = uuid::parse(uuid).ok_or_else(|| format!("{uuid:?} is not a UUID"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_keeps_its_name_and_identifier() {
        assert_eq!(this_host(), this_host());
        assert_ne!(derived("a"), derived("b"));
        let mut options = Options::default();
        options.set_host("nqn.2014-08.org.nvmexpress:uuid:00010203-0405-0607-0809-0a0b0c0d0e0f".parse().unwrap());
        assert_eq!(options.hostid, std::array::from_fn(|index| index as u8));
        options.set_host("nqn.2016-06.io.spdk:host1".parse().unwrap());
        assert_eq!(options.hostid, derived("nqn.2016-06.io.spdk:host1"));
        assert!(options.set_host_id("0001020304050607-08090a0b0c0d0e0f").is_ok());
        assert!(options.set_host_id("00").is_err() && options.set_host_id(&"\u{e9}".repeat(16)).is_err());
    }
}
