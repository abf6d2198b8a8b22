//! NVMe Qualified Names (Base specification 2.0, section 4.5).

use std::fmt;
use std::str::FromStr;

/// The name of every discovery service.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";
/// Bytes of a name at most, the NUL that ends it in structures not counted.
const MAX_BYTES: usize = 223;

/// The name of a host or subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nqn(Box<str>);

/// The reason why a text is not a valid [`Nqn`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not an NVMe qualified name: {why} (like nqn.2016-06.io.spdk:cnode1)")]
pub struct NqnError {
    name: String,
    why: &'static str,
}

impl Nqn {
    /// The name with which a host of that UUID goes.
    pub fn of_host(uuid: [u8; 16]) -> Nqn {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let [a, b, c, d, e] = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex);
        Nqn(format!("{UUID_PREFIX}{a}-{b}-{c}-{d}-{e}").into())
    }

    /// The name in a field of a structure: ended by a NUL. Peers are taken at their word: the name need not be
    /// well-formed.
    ///
    /// # Errors
    /// The name in the field is empty, too long, not ended by a NUL, or not UTF-8.
    pub fn from_field(field: &[u8; 256]) -> Result<Nqn, NqnError> {
        let wrong = |why| NqnError { name: String::from_utf8_lossy(field).trim_end_matches('\0').to_string(), why };
        let end = field.iter().position(|&byte| byte == 0).ok_or_else(|| wrong("no NUL ends it"))?;
        match std::str::from_utf8(&field[..end]) {
            Ok("") => Err(wrong("it is empty")),
            Ok(name) if name.len() <= MAX_BYTES => Ok(Nqn(name.into())),
            Ok(_) => Err(wrong("it has more than 223 bytes")),
            Err(_) => Err(wrong("it is not UTF-8")),
        }
    }

    /// The name in a field that a host fills in: up to the first NUL, or to the end of the field. It may be empty, as
    /// that of SPDK's perf, identify and reconnect, or have another form; bytes that are not UTF-8 are replaced.
    pub fn of_peer(field: &[u8; 256]) -> Nqn {
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len() - 1);
        let text = String::from_utf8_lossy(&field[..end]);
        // A replacement is longer than the bytes replaced: the cut makes a name always fit into a field, with a NUL
        // after it.
        let most = (0..=text.len().min(255)).rev().find(|&bytes| text.is_char_boundary(bytes)).unwrap_or(0);
        Nqn(text[..most].into())
    }

    /// True if the name has the form that the standard lays down.
    pub fn is_well_formed(&self) -> bool {
        fault(&self.0).is_none()
    }

    /// The name as structures have it.
    pub fn field(&self) -> [u8; 256] {
        let mut field = [0; 256];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }

    /// The NQN as a string, without trailing zeros.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for the name of discovery services.
    pub fn is_discovery(&self) -> bool {
        &*self.0 == DISCOVERY_NQN
    }
}

impl FromStr for Nqn {
    type Err = NqnError;

    /// Takes a well-formed name: `nqn.YYYY-MM.DOMAIN:STRING`, or `nqn.2014-08.org.nvmexpress:uuid:UUID`, or
    /// [`DISCOVERY_NQN`].
    fn from_str(name: &str) -> Result<Nqn, NqnError> {
        match fault(name) {
            None => Ok(Nqn(name.into())),
            Some(why) => Err(NqnError { name: name.to_string(), why }),
        }
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(&self.0)
    }
}

fn fault(name: &str) -> Option<&'static str> {
    if name.len() > MAX_BYTES {
        return Some("it has more than 223 bytes");
    }
    if name == DISCOVERY_NQN {
        return None;
    }
    if name.contains(char::is_control) {
        return Some("it has control characters");
    }
    if let Some(uuid) = name.strip_prefix(UUID_PREFIX) {
        let groups: Vec<&str> = uuid.split('-').collect();
        let hex = |text: &&str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
        return (lengths != [8, 4, 4, 4, 12] || !groups.iter().all(hex)).then_some("its UUID is not valid");
    }
    let Some(rest) = name.strip_prefix("nqn.") else { return Some("it must begin with nqn.") };
    let date = rest.as_bytes();
    let digits = |range: std::ops::Range<usize>| date[range].iter().all(u8::is_ascii_digit);
    if date.len() < 8 || date[4] != b'-' || date[7] != b'.' || !digits(0..4) || !digits(5..7) {
        return Some("after nqn. a year and a month must come: YYYY-MM.");
    }
    if !(1..=12).contains(&((date[5] - b'0') * 10 + date[6] - b'0')) {
        return Some("its month is not 01 to 12");
    }
    let Some((domain, own)) = rest.get(8..).and_then(|rest| rest.split_once(':')) else {
        return Some("a colon must follow the domain");
    };
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let inner = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
        (1..=63).contains(&bytes.len()) && inner && bytes[0] != b'-' && bytes[bytes.len() - 1] != b'-'
    };
    if !domain.split('.').all(label) {
        return Some("its domain is not valid");
    }
    own.is_empty().then_some("nothing follows the colon")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_names_are_taken_and_others_refused_with_the_reason() {
        for name in [
            "nqn.2016-06.io.spdk:cnode1",
            "nqn.2014-08.org.nvmexpress:uuid:2b0b5a3e-5ef2-4f0b-9d68-4d7c7f1e6c5a",
            "nqn.2014-08.com.example:nvme.host.sys:xyz",
            DISCOVERY_NQN,
        ] {
            assert_eq!(name.parse::<Nqn>().unwrap().as_str(), name);
        }
        for (name, why) in [
            ("", "begin with nqn."),
            ("iqn.2016-06.io.spdk:cnode1", "begin with nqn."),
            ("nqn.2016.io.spdk:cnode1", "YYYY-MM"),
            ("nqn.2016-13.io.spdk:cnode1", "month"),
            ("nqn.2016-06.io.spdk", "colon"),
            ("nqn.2016-06.io..spdk:a", "domain"),
            ("nqn.2016-06.-io:a", "domain"),
            ("nqn.2016-06.io.spdk:", "nothing follows"),
            ("nqn.2016-06.io.spdk:a\nb", "control"),
            ("nqn.2014-08.org.nvmexpress:uuid:2b0b5a3e", "UUID"),
            ("nqn.2016-0\u{e9}.io:a", "YYYY-MM"),
        ] {
            let error = name.parse::<Nqn>().unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains('\n'), "{error}");
        }
        assert!(format!("nqn.2016-06.io.spdk:{}", "a".repeat(203)).parse::<Nqn>().is_ok());
        assert!(format!("nqn.2016-06.io.spdk:{}", "a".repeat(204)).parse::<Nqn>().is_err());
    }

    #[test]
    fn a_field_ends_with_a_nul() {
        let name: Nqn = "nqn.2016-06.io.spdk:cnode1".parse().unwrap();
        assert_eq!(Nqn::from_field(&name.field()).unwrap(), name);
        for (field, why) in [([0; 256], "empty"), ([b'a'; 256], "NUL")] {
            assert!(Nqn::from_field(&field).unwrap_err().to_string().contains(why));
        }
        let mut field = [b'a'; 256];
        field[223] = 0;
        assert!(Nqn::from_field(&field).is_ok());
        (field[223], field[224]) = (b'a', 0);
        assert!(Nqn::from_field(&field).is_err());
    }

    #[test]
    fn hosts_may_leave_their_name_out_or_give_one_of_another_form() {
        let field = |text: &[u8]| {
            let mut field = [0; 256];
            field[..text.len()].copy_from_slice(text);
            field
        };
        assert_eq!(Nqn::of_peer(&field(b"")).as_str(), "");
        assert_eq!(Nqn::of_peer(&field(b"iqn.2016-06.io.spdk:host")).as_str(), "iqn.2016-06.io.spdk:host");
        assert_eq!(Nqn::of_peer(&[b'a'; 256]).as_str(), "a".repeat(255));
        assert!(!Nqn::of_peer(&[b'a'; 256]).is_well_formed());
        let replaced = Nqn::of_peer(&[0xff; 256]);
        assert_eq!(Nqn::of_peer(&replaced.field()), replaced);
        let name = "nqn.2016-06.io.spdk:host";
        assert!(Nqn::of_peer(&field(name.as_bytes())).is_well_formed());
    }

    #[test]
    fn a_host_is_named_for_its_uuid() {
        let name = Nqn::of_host([0xab; 16]);
        assert_eq!(name.as_str().parse::<Nqn>().unwrap(), name);
    }
}
