//! The hash functions, chosen by the controller at run time.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};

/// A hash function, under its identifier (figure "DH-HMAC-CHAP Hash Function Identifiers").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hash {
    /// SHA-256.
    Sha256 = 1,
    /// SHA-384.
    Sha384 = 2,
    /// SHA-512.
    Sha512 = 3,
}

/// Carries `$body` out with the type of the hash function as `$H`.
macro_rules! with {
    ($hash:expr, $H:ident => $body:expr) => {
        match $hash {
            Hash::Sha256 => {
                type $H = Sha256;
                $body
            }
            Hash::Sha384 => {
                type $H = Sha384;
                $body
            }
            Hash::Sha512 => {
                type $H = Sha512;
                $body
            }
        }
    };
}

impl Hash {
    /// All hash functions, the strongest first.
    pub const ALL: [Hash; 3] = [Hash::Sha512, Hash::Sha384, Hash::Sha256];

    /// The hash function of that identifier.
    pub fn from_id(id: u8) -> Option<Hash> {
        Hash::ALL.into_iter().find(|hash| *hash as u8 == id)
    }

    /// The name of the hash function as SPDK and Linux write it: `sha256`.
    pub const fn name(self) -> &'static str {
        match self {
            Hash::Sha256 => "sha256",
            Hash::Sha384 => "sha384",
            Hash::Sha512 => "sha512",
        }
    }

    /// Bytes of a digest, of a challenge and of a response.
    pub const fn bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }

    /// The digest of `data`.
    pub(super) fn digest(self, data: &[u8]) -> Vec<u8> {
        with!(self, H => H::digest(data).to_vec())
    }

    /// The HMAC of the parts, one after another.
    pub(super) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        with!(self, H => keyed::<Hmac<H>>(key, parts).finalize().into_bytes().to_vec())
    }

    /// True if `tag` is the HMAC of the parts, in time that does not depend on where they differ.
    pub(super) fn verify(self, key: &[u8], parts: &[&[u8]], tag: &[u8]) -> bool {
        with!(self, H => keyed::<Hmac<H>>(key, parts).verify_slice(tag).is_ok())
    }
}

fn keyed<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> M {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac
}
