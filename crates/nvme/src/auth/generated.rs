//! Keys of TLS that an authentication has made (NVM Express Base Specification 2.1, 8.3.4.5.9: secure channel
//! concatenation).
//!
//! ```text
//! session key, C1, C2 ──► generated key ── HKDF, identity ──► key of TLS
//! ```
//!
//! The specification's session key is the hash of the Diffie-Hellman secret. Linux (7.2) takes the secret itself. The
//! identity tells the two ways apart, because it has a digest of the key: both ends try both.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use tls::{Cipher, Psk};
use zeroize::Zeroizing;

use super::hash::Hash;
use super::tls_key::Identity;

/// A key that a host and a controller have made. Wiped from memory when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct GeneratedKey {
    bytes: Zeroizing<Vec<u8>>,
    cipher: Cipher,
}

impl GeneratedKey {
    /// The keys that come of one exchange: that of the specification, and that of Linux. None for SHA-512, which no
    /// cipher suite of TLS has.
    pub(super) fn of(hash: Hash, shared: &[u8], controllers: &[u8], hosts: &[u8]) -> Vec<GeneratedKey> {
        let cipher = match hash {
            Hash::Sha256 => Cipher::Aes128GcmSha256,
            Hash::Sha384 => Cipher::Aes256GcmSha384,
            Hash::Sha512 => return Vec::new(),
        };
        let hashed = Zeroizing::new(hash.digest(shared));
        let key = |session: &[u8]| GeneratedKey { bytes: hash.hmac(session, &[controllers, hosts]).into(), cipher };
        vec![key(&hashed), key(shared)]
    }

    /// The key of TLS for this host and this subsystem.
    pub fn key(&self, host_nqn: &str, subsystem_nqn: &str) -> Psk {
        Identity::of_generated(self.cipher, host_nqn, subsystem_nqn, &self.bytes).generated_key(&self.bytes)
    }
}

impl std::fmt::Debug for GeneratedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GeneratedKey({})", self.cipher.name())
    }
}

/// Keys that hosts have made, by subsystem and host NQN: the latest of each. They end with the target.
#[derive(Debug, Default)]
pub struct GeneratedKeys(Mutex<BTreeMap<(String, String), VecDeque<GeneratedKey>>>);

/// Keys of one host and one subsystem at the most: each association of the host makes two, of which it uses one.
const KEPT: usize = 128;

impl GeneratedKeys {
    /// Takes the keys of an exchange that has ended well.
    pub fn add(&self, subsystem_nqn: &str, host_nqn: &str, keys: Vec<GeneratedKey>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = all.entry((subsystem_nqn.into(), host_nqn.into())).or_default();
        kept.extend(keys);
        while kept.len() > KEPT {
            kept.pop_front();
        }
    }

    /// The key that the identity names.
    pub fn find(&self, identity: &Identity) -> Option<Psk> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = all.get(&(identity.subsystem_nqn.clone(), identity.host_nqn.clone()))?;
        let text = identity.to_string();
        kept.iter()
            .rev()
            .map(|key| key.key(&identity.host_nqn, &identity.subsystem_nqn))
            .find(|key| key.identity == text)
    }

    /// Drops the keys of a host.
    pub fn forget(&self, subsystem_nqn: &str, host_nqn: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&(subsystem_nqn.to_string(), host_nqn.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tls_key::Kind;
    use super::*;

    #[test]
    fn an_identity_finds_its_key_until_it_is_forgotten() {
        let keys = GeneratedKeys::default();
        let made = GeneratedKey::of(Hash::Sha384, b"secret", &[1; 48], &[2; 48]);
        assert!(GeneratedKey::of(Hash::Sha512, b"secret", &[1; 64], &[2; 64]).is_empty());
        keys.add("subsystem", "host", made.clone());
        for made in &made {
            let key = made.key("host", "subsystem");
            assert!(key.identity.starts_with("NVMe1G02 host subsystem "), "{}", key.identity);
            let identity = Identity::parse(&key.identity).unwrap();
            assert_eq!((identity.kind, keys.find(&identity)), (Kind::Generated, Some(key)));
        }
        let identity = |host| Identity::parse(&made[0].key(host, "subsystem").identity).unwrap();
        assert_eq!(keys.find(&identity("other")), None);
        keys.forget("subsystem", "host");
        assert_eq!(keys.find(&identity("host")), None);
    }

    #[test]
    fn the_latest_keys_of_a_host_are_kept() {
        let keys = GeneratedKeys::default();
        let made = |number: u8| GeneratedKey::of(Hash::Sha256, b"secret", &[number; 32], &[2; 32]);
        let known =
            |number: u8| keys.find(&Identity::parse(&made(number)[0].key("h", "s").identity).unwrap()).is_some();
        for number in 0..=KEPT as u8 / 2 {
            keys.add("s", "h", made(number));
        }
        assert!(!known(0) && known(1) && known(KEPT as u8 / 2));
    }
}
