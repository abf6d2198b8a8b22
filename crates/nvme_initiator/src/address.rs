//! Where a namespace is, as SPDK's tools write it: `trtype=tcp adrfam=ipv4 traddr=127.0.0.1 trsvcid=4420 subnqn=...
//! ns=1`.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use nvme::spec::Nqn;
use nvme::spec::log::DiscoveryEntry;
use nvme::spec::rdma::KeyedSgl;

/// The way in which bytes travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// TCP, plain or secured by TLS.
    #[default]
    Tcp,
    /// RDMA: InfiniBand, RoCE, iWARP.
    Rdma,
}

impl Transport {
    /// The word for `trtype=`.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Rdma => "rdma",
        }
    }

    /// TRTYPE of discovery entries.
    pub(super) fn trtype(self) -> u8 {
        match self {
            Transport::Tcp => DiscoveryEntry::TCP,
            Transport::Rdma => DiscoveryEntry::RDMA,
        }
    }

    /// Bytes that one command can move, whatever the controller takes; a multiple of 4096.
    pub(super) fn max_command_bytes(self) -> u32 {
        match self {
            Transport::Tcp => 1 << 30,
            Transport::Rdma => KeyedSgl::MAX_BYTES / 4096 * 4096,
        }
    }
}

/// A transport address, with the subsystem and the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The transport.
    pub transport: Transport,
    /// Host name or IP address of the target.
    pub traddr: String,
    /// Port of the target: a TCP port, or that of the connection manager.
    pub port: u16,
    /// Some(true) permits IPv6 addresses only, Some(false) IPv4 only, None both.
    pub ipv6: Option<bool>,
    /// The subsystem; None for the only one that discovery finds.
    pub subnqn: Option<Nqn>,
    /// The namespace; 0 for the only one.
    pub nsid: u32,
}

/// The error for a text that is not a valid [`Address`] of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why} in {text:?} (like trtype=tcp traddr=127.0.0.1 trsvcid=4420 subnqn=nqn.2016-06.io.spdk:cnode1 ns=1)")]
pub struct AddressError {
    text: String,
    why: String,
}

impl Address {
    /// The port that IANA has assigned, also to discovery services that are not well-known.
    pub const PORT: u16 = 4420;

    /// True if a text is meant to be an address: it begins with `trtype=`, `traddr=` or the like.
    pub fn is_one(text: &str) -> bool {
        let key = text.trim_start().split(['=', ':']).next().unwrap_or_default().to_ascii_lowercase();
        ["trtype", "adrfam", "traddr", "trsvcid", "subnqn", "ns"].contains(&key.as_str())
    }

    /// The address in a text of `key=value` (or `key:value`) pairs between spaces.
    ///
    /// # Errors
    /// An unknown key or value, one that is given twice, an unknown transport, no `traddr`.
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        let wrong = |why: String| AddressError { text: text.trim().to_string(), why };
        let (mut transport, mut traddr, mut port, mut ipv6) = (None, None, None, None);
        let (mut subnqn, mut nsid) = (None, None);
        for pair in text.split_whitespace() {
            let Some((key, value)) = pair.split_once(['=', ':']) else {
                return Err(wrong(format!("{pair:?} is not key=value")));
            };
            let no = |what: &str| Err(wrong(format!("{key}={value} {what}")));
            let lower = value.to_ascii_lowercase();
            let repeated = match key.to_ascii_lowercase().as_str() {
                "trtype" if lower == "tcp" => transport.replace(Transport::Tcp).is_some(),
                "trtype" if lower == "rdma" => transport.replace(Transport::Rdma).is_some(),
                "trtype" => return no("is another transport: there are tcp and rdma"),
                "adrfam" if lower == "ipv4" || lower == "ipv6" => ipv6.replace(lower == "ipv6").is_some(),
                "adrfam" => return no("is neither ipv4 nor ipv6"),
                "traddr" => traddr.replace(value.trim_matches(['[', ']']).to_string()).is_some(),
                "trsvcid" => match value.parse() {
                    Ok(number) if number > 0 => port.replace(number).is_some(),
                    _ => return no("is not a port"),
                },
                "subnqn" => subnqn.replace(value.parse().map_err(|error| wrong(format!("{error}")))?).is_some(),
                "ns" => match value.parse() {
                    Ok(number) if number > 0 && number < u32::MAX => nsid.replace(number).is_some(),
                    _ => return no("is not the number of a namespace, which begin at 1"),
                },
                _ => return no("is not known"),
            };
            if repeated {
                return no("comes twice");
            }
        }
        Ok(Address {
            transport: transport.unwrap_or_default(),
            traddr: traddr.ok_or_else(|| wrong("traddr= is missing".into()))?,
            port: port.unwrap_or(Address::PORT),
            ipv6,
            subnqn,
            nsid: nsid.unwrap_or(0),
        })
    }

    /// The socket addresses that it may mean, at least one.
    ///
    /// # Errors
    /// A name that cannot be resolved, or not in the family asked for.
    pub fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        let family = |address: &SocketAddr| self.ipv6.is_none_or(|ipv6| address.is_ipv6() == ipv6);
        let found: Vec<_> = (self.traddr.as_str(), self.port).to_socket_addrs()?.filter(family).collect();
        if found.is_empty() {
            let family = if self.ipv6 == Some(true) { "IPv6" } else { "IPv4" };
            return Err(std::io::Error::new(std::io::ErrorKind::NotFound, format!("it has no {family} address")));
        }
        Ok(found)
    }

    /// True if both mean the same subsystem, so that one controller serves both.
    pub fn is_same_subsystem(&self, other: &Address) -> bool {
        Address { nsid: 0, ..self.clone() } == Address { nsid: 0, ..other.clone() }
    }

    /// The place of the target, for messages.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.traddr, self.port)
    }
}

impl From<SocketAddr> for Address {
    /// The address over TCP, without a subsystem.
    fn from(socket: SocketAddr) -> Address {
        Address {
            transport: Transport::Tcp,
            traddr: socket.ip().to_string(),
            port: socket.port(),
            ipv6: Some(matches!(socket.ip(), IpAddr::V6(_))),
            subnqn: None,
            nsid: 0,
        }
    }
}

impl fmt::Display for Address {
    /// Writes the address in the form that [`Address::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "trtype={}", self.transport.name())?;
        if let Some(ipv6) = self.ipv6 {
            write!(f, " adrfam={}", if ipv6 { "ipv6" } else { "ipv4" })?;
        }
        write!(f, " traddr={} trsvcid={}", self.traddr, self.port)?;
        if let Some(subnqn) = &self.subnqn {
            write!(f, " subnqn={subnqn}")?;
        }
        if self.nsid > 0 { write!(f, " ns={}", self.nsid) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_other_tools_write_them() {
        let text = "trtype=TCP adrfam=IPv4 traddr=127.0.0.1 trsvcid=4421 subnqn=nqn.2016-06.io.spdk:cnode1 ns=2";
        let address = Address::parse(text).unwrap();
        assert_eq!(
            (address.traddr.as_str(), address.port, address.ipv6, address.nsid),
            ("127.0.0.1", 4421, Some(false), 2)
        );
        assert_eq!(address.to_string(), text.replace("TCP", "tcp").replace("IPv4", "ipv4"));
        assert_eq!(Address::parse("trtype:TCP traddr:127.0.0.1").unwrap().port, 4420);
        let rdma = "trtype=rdma traddr=10.0.2.15 trsvcid=4420";
        assert_eq!(Address::parse(rdma).unwrap().transport, Transport::Rdma);
        assert_eq!(Address::parse(rdma).unwrap().to_string(), rdma);
        let six = Address::parse("traddr=[::1] adrfam=ipv6").unwrap();
        assert_eq!(six.resolve().unwrap(), ["[::1]:4420".parse().unwrap()]);
        assert_eq!((six.subnqn, six.nsid), (None, 0));
        assert!(
            Address::is_one("trtype=tcp traddr=h") && Address::is_one("traddr=h") && !Address::is_one("/dev/nvme0n1")
        );
    }

    #[test]
    fn what_is_none_is_refused_with_the_reason() {
        for (text, why) in [
            ("trtype=tcp", "traddr= is missing"),
            ("trtype=fc traddr=h", "there are tcp and rdma"),
            ("trtype=rdma trtype=rdma traddr=h", "twice"),
            ("traddr=h traddr=i", "twice"),
            ("traddr=h trsvcid=70000", "is not a port"),
            ("traddr=h ns=0", "begin at 1"),
            ("traddr=h subnqn=x", "not an NVMe qualified name"),
            ("traddr=h hostnqn=x", "is not known"),
            ("traddr", "key=value"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains('\n'), "{text}: {error}");
        }
        let four = Address { ipv6: Some(false), ..Address::parse("traddr=::1").unwrap() };
        assert!(four.resolve().unwrap_err().to_string().contains("no IPv4 address"));
    }
}
