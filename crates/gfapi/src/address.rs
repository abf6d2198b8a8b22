//! Where a volume is: `gluster[+TRANSPORT]://HOST[:PORT]/VOLUME[/PATH][?KEY=VALUE[&...]]`, as QEMU writes it.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// The TCP port on which glusterd listens unless the address names another.
const PORT: u16 = 24007;

/// The transport by which the client reaches the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// TCP: the scheme `gluster` or `gluster+tcp`.
    #[default]
    Tcp,
    /// RDMA: of versions up to 7.
    Rdma,
    /// A Unix socket of this host; `host` is its path.
    Unix,
}

impl Transport {
    /// The name of the transport, as libgfapi and URLs write it.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Rdma => "rdma",
            Transport::Unix => "unix",
        }
    }
}

impl FromStr for Transport {
    type Err = Error;

    fn from_str(text: &str) -> Result<Transport, Error> {
        let known = [Transport::Tcp, Transport::Rdma, Transport::Unix];
        let found = known.into_iter().find(|transport| transport.name() == text);
        found.ok_or_else(|| Error::Address(format!("unknown transport {text}: there are tcp, rdma and unix")))
    }
}

/// A volume and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or number of the server that the volume's description is fetched from; the path of a Unix socket.
    pub host: String,
    /// The TCP port of the server; of no use for a Unix socket.
    pub port: u16,
    /// The transport that reaches the server.
    pub transport: Transport,
    /// The volume's name.
    pub volume: String,
    /// libgfapi's own log: 0 (nothing) to 9 (everything).
    pub log_level: u8,
    /// The file of that log; None writes no log.
    pub log_file: Option<String>,
}

impl Address {
    /// A volume by its server and name, everything else as usual: TCP, port 24007, no log.
    pub fn new(host: impl Into<String>, volume: impl Into<String>) -> Address {
        Address {
            host: host.into(),
            port: PORT,
            transport: Transport::Tcp,
            volume: volume.into(),
            log_level: 0,
            log_file: None,
        }
    }

    /// The server as messages name it.
    pub fn server(&self) -> String {
        match self.transport {
            Transport::Unix => self.host.clone(),
            _ if self.host.contains(':') => format!("[{}]:{}", self.host, self.port),
            _ => format!("{}:{}", self.host, self.port),
        }
    }

    /// `HOST`, `HOST:PORT`, `[ADDRESS]:PORT` as a server and a port.
    ///
    /// # Errors
    /// The text has no host, or a port that is not a number from 1 to 65535.
    pub fn parse_server(text: &str) -> Result<(String, u16), Error> {
        let bad = |why: &str| Error::Address(format!("'{text}' is not a server: {why}"));
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(|| bad("a ] is missing"))?;
                let port = if rest.is_empty() {
                    None
                } else {
                    Some(rest.strip_prefix(':').ok_or_else(|| bad("a : is missing"))?)
                };
                (host, port)
            }
            // Two colons without brackets: an IPv6 address without a port.
            None if text.matches(':').count() > 1 => (text, None),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() {
            return Err(bad("the host is missing"));
        }
        let port = match port {
            None => PORT,
            Some(port) => port.parse().ok().filter(|&port| port > 0).ok_or_else(|| bad("a port is 1 to 65535"))?,
        };
        Ok((host.to_owned(), port))
    }

    /// True if the text begins like a URL of a volume.
    pub fn is_url(text: &str) -> bool {
        text.starts_with("gluster://") || text.starts_with("gluster+")
    }

    /// The volume that a URL names, and the path in it (`/` if it names none).
    ///
    /// After a question mark: `socket=PATH` with the transport `unix`
    /// (`gluster+unix:///VOLUME?socket=/run/glusterd.socket`), `log-level=0..9` and `log-file=PATH` for libgfapi's own
    /// log.
    ///
    /// # Errors
    /// The part of the text that is wrong, and the expected form.
    pub fn parse_url(text: &str) -> Result<(Address, String), Error> {
        const FORM: &str = "write gluster://HOST[:PORT]/VOLUME[/PATH]";
        let bad = |why: &str| Error::Address(format!("'{text}' is not a volume: {why}; {FORM}"));
        let rest = text.strip_prefix("gluster").ok_or_else(|| bad("it does not begin with gluster"))?;
        let (transport, rest) = rest.split_once("://").ok_or_else(|| bad(":// is missing"))?;
        let transport = match transport.strip_prefix('+') {
            Some(name) => name.parse()?,
            None if transport.is_empty() => Transport::Tcp,
            None => return Err(bad("a transport follows a +")),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (server, rest) = rest.split_once('/').ok_or_else(|| bad("the volume is missing"))?;
        let (volume, path) = rest.split_once('/').unwrap_or((rest, ""));
        if volume.is_empty() {
            return Err(bad("the volume is missing"));
        }
        let (host, port) = match transport {
            Transport::Unix => (String::new(), PORT),
            _ => Address::parse_server(server)?,
        };
        let mut address = Address { port, transport, ..Address::new(host, volume) };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("socket", path)) if transport == Transport::Unix => address.host = path.to_owned(),
                Some(("log-file", path)) => address.log_file = Some(path.to_owned()),
                Some(("log-level", level)) => {
                    let level = level.parse().ok().filter(|level| (0..=9).contains(level));
                    address.log_level = level.ok_or_else(|| bad("log-level is 0 to 9"))?;
                }
                _ => {
                    return Err(bad(&format!(
                        "after the question mark, socket=, log-level= and log-file= are possible, not {part}"
                    )));
                }
            }
        }
        if address.host.is_empty() {
            return Err(bad("?socket=PATH is missing"));
        }
        Ok((address, format!("/{}", path.trim_start_matches('/'))))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport {
            Transport::Unix => write!(f, "gluster+unix:///{}?socket={}", self.volume, self.host),
            Transport::Rdma => write!(f, "gluster+rdma://{}/{}", self.server(), self.volume),
            Transport::Tcp => write!(f, "gluster://{}/{}", self.server(), self.volume),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_server_a_volume_and_a_path() {
        let cases = [
            ("gluster://h/v", "h", 24007, Transport::Tcp, "v", "/"),
            ("gluster+tcp://10.0.0.1:7/v/a/b", "10.0.0.1", 7, Transport::Tcp, "v", "/a/b"),
            ("gluster+rdma://[fe80::1]:24008/v//f", "fe80::1", 24008, Transport::Rdma, "v", "/f"),
            ("gluster://[::1]/v", "::1", 24007, Transport::Tcp, "v", "/"),
            ("gluster+unix:///v/f?socket=/run/g.sock", "/run/g.sock", 24007, Transport::Unix, "v", "/f"),
        ];
        for (text, host, port, transport, volume, path) in cases {
            let (address, found) = Address::parse_url(text).unwrap();
            assert_eq!((address.host.as_str(), address.port, address.transport), (host, port, transport), "{text}");
            assert_eq!((address.volume.as_str(), found.as_str()), (volume, path), "{text}");
            let again = Address::parse_url(&address.to_string()).unwrap().0;
            assert_eq!(again, address, "{address}");
        }
    }

    #[test]
    fn the_log_is_told_after_a_question_mark() {
        let (address, path) = Address::parse_url("gluster://h/v/f?log-level=7&log-file=/tmp/log").unwrap();
        assert_eq!((address.log_level, address.log_file.as_deref(), path.as_str()), (7, Some("/tmp/log"), "/f"));
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said() {
        let cases = [
            ("nfs://h/v", "begin"),
            ("gluster:/h/v", "://"),
            ("gluster+udp://h/v", "udp"),
            ("gluster://h", "volume is missing"),
            ("gluster://h/", "volume is missing"),
            ("gluster:///v", "host is missing"),
            ("gluster://h:0/v", "1 to 65535"),
            ("gluster://h:x/v", "1 to 65535"),
            ("gluster+unix:///v/f", "socket"),
            ("gluster://h/v?log-level=10", "0 to 9"),
            ("gluster://h/v?loglevel=1", "loglevel"),
        ];
        for (text, part) in cases {
            let said = Address::parse_url(text).unwrap_err().to_string();
            assert!(said.contains(part) && !said.contains('\n'), "{text}: {said}");
        }
    }
}
