//! The place of the files: a local path, or a path in a Gluster volume (`--fs`).

use std::ffi::CString;
use std::fmt;
use std::str::FromStr;

use super::fs::FileSystem;
use super::{gluster, posix};
use crate::Error;

/// The file system that `--fs` names.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Target {
    /// Paths of this machine: a local file system, FUSE, NFS, whatever is mounted.
    #[default]
    Posix,
    /// A volume, through libgfapi. Paths are then paths in the volume.
    Gluster(Volume),
}

/// A Gluster volume, with the settings that libgfapi needs to connect to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The server that the volume's description is fetched from.
    pub host: String,
    /// The port of the server; 24007 by default.
    pub port: u16,
    /// The volume's name.
    pub volume: String,
    /// The directory within the volume that relative paths start at; `/` by default.
    pub path: String,
    /// `tcp` (the default), `rdma`, or `unix`.
    pub transport: String,
    /// The level of libgfapi's log, as in glfs_set_logging: 0 for none to 9 for trace.
    pub log_level: i32,
    /// The file of libgfapi's log; None writes no log.
    pub log_file: Option<String>,
}

impl Volume {
    /// A volume by its server and name, with the default of every other setting.
    pub fn new(host: impl Into<String>, volume: impl Into<String>) -> Volume {
        Volume {
            host: host.into(),
            port: 24007,
            volume: volume.into(),
            path: "/".into(),
            transport: "tcp".into(),
            log_level: 0,
            log_file: None,
        }
    }
}

impl FromStr for Target {
    type Err = Error;

    /// Reads `posix`, or `gluster[+TRANSPORT]://HOST[:PORT]/VOLUME[/PATH]`; an IPv6 address stands in brackets.
    fn from_str(text: &str) -> Result<Target, Error> {
        let bad = |hint: &str| Error::usage("--fs:", format!("'{text}'"), hint);
        if text == "posix" {
            return Ok(Target::Posix);
        }
        if !gfapi::Address::is_url(text) {
            return Err(bad("expected posix or gluster://HOST[:PORT]/VOLUME[/PATH]"));
        }
        let (address, path) = gfapi::Address::parse_url(text).map_err(|error| bad(&error.to_string()))?;
        let mut found = Volume::new(address.host, address.volume);
        found.port = address.port;
        found.path = format!("/{}", path.trim_matches('/'));
        found.transport = address.transport.name().into();
        Ok(Target::Gluster(found))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target::Gluster(at) = self else { return f.write_str("posix") };
        f.write_str("gluster")?;
        if at.transport != "tcp" {
            write!(f, "+{}", at.transport)?;
        }
        f.write_str("://")?;
        if at.host.contains(':') {
            write!(f, "[{}]", at.host)?
        } else {
            f.write_str(&at.host)?
        }
        if at.port != 24007 {
            write!(f, ":{}", at.port)?;
        }
        write!(f, "/{}", at.volume)?;
        if at.path != "/" { f.write_str(&at.path) } else { Ok(()) }
    }
}

impl Target {
    /// The file system, opened in this process.
    ///
    /// # Errors
    /// libgfapi is not installed, or the volume cannot be reached.
    pub fn open(&self) -> Result<Box<dyn FileSystem>, Error> {
        match self {
            Target::Posix => Ok(Box::new(posix::Posix)),
            Target::Gluster(volume) => gluster::open(volume),
        }
    }

    /// The user's directory as a path for the file system's calls. Within a volume, a relative directory starts at the
    /// URL's path.
    ///
    /// # Errors
    /// The directory's name holds a NUL byte.
    pub fn directory(&self, dir: &str) -> Result<CString, Error> {
        let path = match self {
            Target::Gluster(volume) if !dir.starts_with('/') => {
                format!("{}/{dir}", volume.path.trim_end_matches('/'))
            }
            _ => dir.to_string(),
        };
        CString::new(path).map_err(|_| Error::usage("--dir", dir.escape_default().to_string(), "it holds a NUL byte"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_written() {
        let parsed = |text: &str| text.parse::<Target>().map_err(|error| error.to_string());
        for text in [
            "posix",
            "gluster://h/gv0",
            "gluster://h:24008/gv0/a/b",
            "gluster+rdma://10.0.0.1/v",
            "gluster://[fe80::1]:7/v/x",
            "gluster://[::1]/v",
        ] {
            assert_eq!(parsed(text).unwrap().to_string(), text);
        }
        let Target::Gluster(volume) = parsed("gluster://h/gv0/").unwrap() else { panic!() };
        assert_eq!(volume, Volume::new("h", "gv0"));
        for (text, part) in [
            ("nfs://h/v", "expected posix"),
            ("gluster://h", "volume is missing"),
            ("gluster:///v", "host is missing"),
            ("gluster://h/", "volume is missing"),
            ("gluster://h:0/v", "port"),
            ("gluster://h:x/v", "port"),
            ("gluster+udp://h/v", "transport"),
        ] {
            assert!(parsed(text).unwrap_err().contains(part), "{text}");
        }
    }

    #[test]
    fn directories_in_a_volume_start_at_its_path() {
        let target: Target = "gluster://h/v/base".parse().unwrap();
        assert_eq!(target.directory("x").unwrap().as_c_str(), c"/base/x");
        assert_eq!(target.directory("/x").unwrap().as_c_str(), c"/x");
        assert_eq!(Target::Posix.directory("x").unwrap().as_c_str(), c"x");
        assert!(Target::Posix.directory("a\0b").is_err());
    }
}
