//! Keys of TLS: `NVMeTLSkey-1:hh:base64:`, and the keys of one host and one subsystem that are derived from them
//! (NVMe/TCP Transport Specification 1.1, section 3.6.1).
//!
//! ```text
//! configured key ── HKDF, host NQN ──► retained key ── HKDF, identity ──► key of TLS
//! ```
//!
//! Older releases of libnvme derive keys without the lengths that HKDF-Expand-Label puts before its parts. The
//! identity is the same for both ways. A target therefore tries both, and the client's binder tells which one is right.

use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tls::key_schedule::{expand, expand_label, extract};
use tls::{Cipher, Psk};
use zeroize::Zeroizing;

use super::interchange::{self, SecretError};

const FORM: &str = "NVMeTLSkey-1:hh:base64: (`nvme gen-tls-key` makes such keys)";

/// A configured key: 32 or 48 secret bytes, and the hash that makes the retained key of a host, if any. Wiped from
/// memory when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsKey {
    bytes: Zeroizing<Vec<u8>>,
    hash: Option<Cipher>,
}

/// The two ways to put the parts of HKDF's information together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Of the specification: HKDF-Expand-Label of RFC 8446.
    Labelled,
    /// Of older releases of libnvme: the length in the machine's order, and no length before a part.
    Bare,
}

impl Way {
    fn derive(self, cipher: Cipher, secret: &[u8], label: &str, context: &[u8], bytes: usize) -> Zeroizing<Vec<u8>> {
        let key = extract(cipher, secret);
        let derived = match self {
            Way::Labelled => expand_label(cipher, &key, label, context, bytes),
            Way::Bare => {
                let length = (bytes as u16).to_le_bytes();
                expand(cipher, &key, &[&length[..], b"tls13 ", label.as_bytes(), context].concat(), bytes)
            }
        };
        derived.unwrap_or_default() // NQNs of up to 223 bytes always fit
    }
}

impl TlsKey {
    /// The key in this text; blanks around it do not matter.
    ///
    /// # Errors
    /// The part of the text that is wrong.
    pub fn parse(text: &str) -> Result<TlsKey, SecretError> {
        let (hash, decoded) = interchange::split(text, "NVMeTLSkey-1", FORM)?;
        let hash = match hash {
            "00" => None,
            "01" => Some(Cipher::Aes128GcmSha256),
            "02" => Some(Cipher::Aes256GcmSha384),
            _ => return Err(SecretError::Hash("00, 01, 02")),
        };
        let length = decoded.len().saturating_sub(4);
        match hash.map_or(length == 32 || length == 48, |hash| length == hash.hash_bytes()) {
            true => Ok(TlsKey { bytes: interchange::checked(&decoded)?, hash }),
            false => Err(SecretError::Length(length, "32 or 48")),
        }
    }

    /// The key in a file that only its owner may read.
    ///
    /// # Errors
    /// The error of open(2) or read(2); `PermissionDenied` if others may read or change the file; `InvalidInput`, with
    /// the reason, if the file holds no key.
    pub fn read(path: &Path) -> io::Result<TlsKey> {
        interchange::read(path, TlsKey::parse)
    }

    /// The suite that a host offers with this key: the one with a hash as long as the key.
    pub fn cipher(&self) -> Cipher {
        match self.bytes.len() {
            32 => Cipher::Aes128GcmSha256,
            _ => Cipher::Aes256GcmSha384,
        }
    }

    fn retained(&self, way: Way, host_nqn: &str) -> Zeroizing<Vec<u8>> {
        match self.hash {
            None => self.bytes.clone(),
            Some(hash) => way.derive(hash, &self.bytes, "HostNQN", host_nqn.as_bytes(), self.bytes.len()),
        }
    }

    /// The keys that a host may offer to a subsystem, the likeliest first: with identities of version 1 and of version
    /// 0, derived as the specification says and as older releases of libnvme do.
    pub fn offers(&self, host_nqn: &str, subsystem_nqn: &str) -> Vec<Psk> {
        let mut offers: Vec<Psk> = Vec::new();
        for (version, way) in [(1, Way::Labelled), (1, Way::Bare), (0, Way::Labelled), (0, Way::Bare)] {
            let retained = self.retained(way, host_nqn);
            let (host_nqn, subsystem_nqn) = (host_nqn.into(), subsystem_nqn.into());
            let kind = Kind::Retained;
            let mut identity = Identity { kind, version, cipher: self.cipher(), host_nqn, subsystem_nqn, digest: None };
            if version == 1 {
                identity.digest = Some(identity.digest_with(&retained));
            }
            offers.push(identity.key(way, &retained));
        }
        offers
    }

    /// The keys that `identity` may stand for: by this key, in each way to derive it. None if the identity's digest is
    /// of another key.
    pub fn keys_of(&self, identity: &Identity) -> Vec<Psk> {
        let ways = [Way::Labelled, Way::Bare];
        let mut keys: Vec<Psk> = Vec::new();
        if identity.kind != Kind::Retained {
            return keys;
        }
        for retained in ways.map(|way| self.retained(way, &identity.host_nqn)) {
            let is_of_it = identity.digest.as_ref().is_none_or(|digest| *digest == identity.digest_with(&retained));
            for key in ways.map(|way| identity.key(way, &retained)).into_iter().filter(|_| is_of_it) {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        keys
    }
}

impl std::fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TlsKey({} bytes, {})", self.bytes.len(), self.hash.map_or("retained", Cipher::name))
    }
}

/// The origin of a key, by its letter in identities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `R`: somebody has given the key to both ends.
    Retained,
    /// `G`: an authentication has made the key.
    Generated,
}

/// The name of a key of TLS: `NVMe0Rhh HOST SUBSYSTEM`, or `NVMe1Rhh HOST SUBSYSTEM DIGEST`; of a generated key
/// `NVMe1Ghh HOST SUBSYSTEM DIGEST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The origin of the key.
    pub kind: Kind,
    version: u8,
    cipher: Cipher,
    /// The host's NQN.
    pub host_nqn: String,
    /// The subsystem's NQN.
    pub subsystem_nqn: String,
    /// Of version 1: proves which retained key the identity is of.
    digest: Option<String>,
}

impl Identity {
    /// The parts of an identity; `None` for any other text.
    pub fn parse(text: &str) -> Option<Identity> {
        let mut words = text.split(' ');
        let (version, kind, cipher) = match words.next()? {
            "NVMe0R01" => (0, Kind::Retained, Cipher::Aes128GcmSha256),
            "NVMe0R02" => (0, Kind::Retained, Cipher::Aes256GcmSha384),
            "NVMe1R01" => (1, Kind::Retained, Cipher::Aes128GcmSha256),
            "NVMe1R02" => (1, Kind::Retained, Cipher::Aes256GcmSha384),
            "NVMe1G01" => (1, Kind::Generated, Cipher::Aes128GcmSha256),
            "NVMe1G02" => (1, Kind::Generated, Cipher::Aes256GcmSha384),
            _ => return None,
        };
        let (host_nqn, subsystem_nqn) = (words.next()?.into(), words.next()?.into());
        let digest = words.next().map(Into::into);
        let is_whole = words.next().is_none() && digest.is_some() == (version == 1);
        is_whole.then_some(Identity { kind, version, cipher, host_nqn, subsystem_nqn, digest })
    }

    /// The identity of a generated key of these bytes.
    pub(super) fn of_generated(cipher: Cipher, host_nqn: &str, subsystem_nqn: &str, bytes: &[u8]) -> Identity {
        let (host_nqn, subsystem_nqn) = (host_nqn.into(), subsystem_nqn.into());
        let mut identity =
            Identity { kind: Kind::Generated, version: 1, cipher, host_nqn, subsystem_nqn, digest: None };
        identity.digest = Some(identity.digest_with(bytes));
        identity
    }

    /// The key of TLS that comes of the generated key of these bytes.
    pub(super) fn generated_key(&self, bytes: &[u8]) -> Psk {
        self.key(Way::Labelled, bytes)
    }

    /// Base64 of the HMAC of both names with the retained key.
    fn digest_with(&self, retained: &[u8]) -> String {
        let parts = [&self.host_nqn, " ", &self.subsystem_nqn, " NVMe-over-Fabrics"].map(str::as_bytes);
        STANDARD.encode(self.cipher.hmac(retained, &parts))
    }

    fn key(&self, way: Way, retained: &[u8]) -> Psk {
        let text = self.to_string();
        let number = self.number();
        let context = self.digest.as_ref().map_or(text.clone(), |digest| format!("{number:02} {digest}"));
        let secret = way.derive(self.cipher, retained, "nvme-tls-psk", context.as_bytes(), self.cipher.hash_bytes());
        Psk { identity: text, secret, cipher: self.cipher }
    }

    /// The number of the hash function in identities.
    fn number(&self) -> u8 {
        match self.cipher {
            Cipher::Aes128GcmSha256 => 1,
            Cipher::Aes256GcmSha384 => 2,
        }
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letter = if self.kind == Kind::Retained { 'R' } else { 'G' };
        write!(f, "NVMe{}{letter}{:02} {} {}", self.version, self.number(), self.host_nqn, self.subsystem_nqn)?;
        self.digest.as_ref().map_or(Ok(()), |digest| write!(f, " {digest}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
    const SUBSYSTEM: &str = "nqn.2016-06.io.spdk:cnode1";
    /// Of SPDK's test scripts.
    const KEY: &str = "NVMeTLSkey-1:01:MDAxMTIyMzM0NDU1NjY3Nzg4OTlhYWJiY2NkZGVlZmZwJEiQ:";

    #[test]
    fn a_key_of_spdk_is_read_and_mistakes_are_named() {
        let key = TlsKey::parse(&format!(" {KEY}\n")).unwrap();
        assert_eq!(&**key.bytes, b"00112233445566778899aabbccddeeff");
        assert_eq!(key.cipher(), Cipher::Aes128GcmSha256);
        assert_eq!(TlsKey::parse(&KEY.replace("MDAx", "MDAy")), Err(SecretError::Checksum));
        assert_eq!(TlsKey::parse(&KEY.replace(":01:", ":02:")), Err(SecretError::Length(32, "32 or 48")));
        assert_eq!(TlsKey::parse(&KEY.replace(":01:", ":03:")), Err(SecretError::Hash("00, 01, 02")));
        assert_eq!(TlsKey::parse("NVMeTLSkey-1:01:AAAA:"), Err(SecretError::Length(0, "32 or 48")));
        assert!(matches!(TlsKey::parse(&KEY.replace("NVMeTLSkey", "DHHC")), Err(SecretError::Form(_))));
    }

    #[test]
    fn the_key_that_a_host_offers_is_among_those_that_the_target_tries() {
        for hash in ["00", "01"] {
            let key = TlsKey::parse(&KEY.replace(":01:", &format!(":{hash}:"))).unwrap();
            for offer in key.offers(HOST, SUBSYSTEM) {
                let identity = Identity::parse(&offer.identity).unwrap();
                assert_eq!((identity.host_nqn.as_str(), identity.subsystem_nqn.as_str()), (HOST, SUBSYSTEM));
                assert_eq!(identity.to_string(), offer.identity);
                assert!(key.keys_of(&identity).contains(&offer));
                let other = Identity { host_nqn: "nqn.2024-01.x:other".into(), ..identity };
                assert_eq!(key.keys_of(&other).is_empty(), other.version == 1, "the digest is of another host");
            }
        }
    }

    #[test]
    fn libnvme_1_13_derives_the_same_identity() {
        // `nvme check-tls-key --identity=1 --insert` of nvme-cli 2.13, as /proc/keys showed the key.
        let host = "nqn.2014-08.org.nvmexpress:uuid:9f2c1b1e-3c5b-4f57-8d2e-6a0d1f0b7c11";
        let identity = format!("NVMe1R01 {host} {SUBSYSTEM} mEiFAdg1/4AoIb533m0qhV6zQogTihaWqeP+mGUrxtU=");
        let offers = TlsKey::parse(KEY).unwrap().offers(host, SUBSYSTEM);
        assert_eq!(offers[1].identity, identity);
        assert_ne!(offers[0].identity, identity, "the specification's differs");
    }

    /// A key of 48 bytes in hexadecimal digits, of which SHA-256 takes the first 32.
    const BYTES: &str =
        "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03ffc344bcf442e2dd6d8bc4870b5d5b03";

    /// The identities are those that libnvme 1.15 has in its tests (test/psk.c), derived as the specification says and
    /// as older releases do. The keys of TLS come from RFC 5869 and the formulas of section 3.6.1.3, computed by
    /// Python's hmac.
    #[test]
    fn keys_and_identities_are_those_of_others() {
        let (host, subsystem) = ("nqn.psk-test-host", "nqn.psk-test-subsys");
        let text = [
            "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
            "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:",
            "NVMeTLSkey-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
            "NVMeTLSkey-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:",
        ];
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for (text, number, digest, of_older_ones, version_0, version_1) in [
            (
                text[0],
                1,
                "iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=",
                Some("66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM="),
                "05c6503551ad136e6ee32e6eeb3f6d500b69701d84ec71e328f65c7f51566f68",
                "8fc3c0badfd4c0c66fa3ca33aadd0314f85536cc9bc47338b60f3e6e563786ca",
            ),
            (
                text[1],
                2,
                "QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a",
                Some("RsKmYJ3nAn1ApjjMloJFbAkLPivONDAX/xW327YBUsn2eGShXSjCZvBaOxscLqmz"),
                "f42ba63824cdfe421914c582921f85b5b5b7e2d4df084caeedc9be20b212e8bb0fe8a23e9d59a1c8fc6449da4970a78d",
                "a2b2f943f479fc682555cec89857c80ed004ce92f32a973d5764155bb7e36b17a85368a0666d250afac9282dda2e62ca",
            ),
            (
                text[2],
                1,
                "quJVUJjp/BImWR0UQay/MjSfEgyAr6TyBOWybS/B404=",
                None,
                "ec85300ba827726bd3bc4fc07f3a34aec5fe7c8ccac05fefc2f021c74e0df9ef",
                "a45d08ee4639c7570729bb3e57e905e466a49a15ece5401af906830c4d3bdb0b",
            ),
            (
                text[3],
                2,
                "dyoPfSR5TBRaPMI5/FXUlJv2XMDtmQ7Q9Xrj89aBKbyRYkQeT5V1wNvIpnMDRTQW",
                None,
                "b5dd464067a9378ba2226d71f005d7ac90ed8696e4b2142084384365597201d33ba26f8aeeb529574d4267bd294a828e",
                "1569317890995e207ab4cf148bc53470561e148030cb019b1d87fb4bc5794a791ed5ee68676c952ce5f11f3786e900d4",
            ),
        ] {
            let key = TlsKey::parse(text).unwrap();
            assert!(BYTES.starts_with(&hex(&key.bytes)), "{text}");
            let offers = key.offers(host, subsystem);
            assert_eq!(offers[0].identity, format!("NVMe1R{number:02} {host} {subsystem} {digest}"));
            assert_eq!(offers[2].identity, format!("NVMe0R{number:02} {host} {subsystem}"));
            assert_eq!(
                (hex(&offers[0].secret), hex(&offers[2].secret)),
                (version_1.into(), version_0.into()),
                "{text}"
            );
            if let Some(digest) = of_older_ones {
                assert_eq!(offers[1].identity, format!("NVMe1R{number:02} {host} {subsystem} {digest}"));
            }
        }
    }

    #[test]
    fn identities_of_another_form_are_none() {
        let good = format!("NVMe0R01 {HOST} {SUBSYSTEM}");
        assert!(Identity::parse(&good).is_some());
        for bad in
            ["", "NVMe0R03 a b", "NVMe1R01 a b", "NVMe0R01 a", "NVMe0R01 a b c", "NVMe1R01 a b c d", "NVMe0G01 a b"]
        {
            assert_eq!(Identity::parse(bad), None, "{bad}");
        }
    }
}
