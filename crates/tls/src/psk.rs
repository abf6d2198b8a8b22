//! A pre-shared key.

use std::ffi::CStr;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha384};
use zeroize::Zeroizing;

/// A cipher suite of TLS 1.3, with its hash function (RFC 8446, section B.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cipher {
    /// TLS_AES_128_GCM_SHA256.
    Aes128GcmSha256,
    /// TLS_AES_256_GCM_SHA384.
    Aes256GcmSha384,
}

impl Cipher {
    /// The suite's two bytes on the wire.
    pub fn code(self) -> [u8; 2] {
        match self {
            Cipher::Aes128GcmSha256 => [0x13, 0x01],
            Cipher::Aes256GcmSha384 => [0x13, 0x02],
        }
    }

    /// The suite's registered name.
    pub fn name(self) -> &'static str {
        self.c_name().to_str().unwrap_or_default()
    }

    /// The suite's registered name for OpenSSL.
    pub(crate) fn c_name(self) -> &'static CStr {
        match self {
            Cipher::Aes128GcmSha256 => c"TLS_AES_128_GCM_SHA256",
            Cipher::Aes256GcmSha384 => c"TLS_AES_256_GCM_SHA384",
        }
    }

    /// Bytes of a value of the suite's hash function.
    pub fn hash_bytes(self) -> usize {
        match self {
            Cipher::Aes128GcmSha256 => 32,
            Cipher::Aes256GcmSha384 => 48,
        }
    }

    /// The hash of a text.
    pub fn hash(self, text: &[u8]) -> Vec<u8> {
        match self {
            Cipher::Aes128GcmSha256 => Sha256::digest(text).to_vec(),
            Cipher::Aes256GcmSha384 => Sha384::digest(text).to_vec(),
        }
    }

    /// True if `expected` is the HMAC of the text; takes the same time for every wrong value.
    pub(crate) fn is_hmac(self, key: &[u8], text: &[u8], expected: &[u8]) -> bool {
        match self {
            Cipher::Aes128GcmSha256 => verify(Hmac::<Sha256>::new_from_slice(key), text, expected),
            Cipher::Aes256GcmSha384 => verify(Hmac::<Sha384>::new_from_slice(key), text, expected),
        }
    }

    /// The HMAC of the parts, one after another.
    pub fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Cipher::Aes128GcmSha256 => compute(Hmac::<Sha256>::new_from_slice(key), parts),
            Cipher::Aes256GcmSha384 => compute(Hmac::<Sha384>::new_from_slice(key), parts),
        }
    }
}

/// HMAC takes keys of every length.
fn verify<M: Mac, E>(hmac: Result<M, E>, text: &[u8], expected: &[u8]) -> bool {
    hmac.is_ok_and(|mut hmac| {
        hmac.update(text);
        hmac.verify_slice(expected).is_ok()
    })
}

fn compute<M: Mac, E>(hmac: Result<M, E>, parts: &[&[u8]]) -> Vec<u8> {
    hmac.map_or(Vec::new(), |mut hmac| {
        parts.iter().for_each(|part| hmac.update(part));
        hmac.finalize().into_bytes().to_vec()
    })
}

/// A key that both ends know under an identity, for one cipher suite. Wiped from memory when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Psk {
    /// The name of the key, which travels in the clear.
    pub identity: String,
    /// The key.
    pub secret: Zeroizing<Vec<u8>>,
    /// The suite that the key is for.
    pub cipher: Cipher,
}

impl std::fmt::Debug for Psk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Psk({}, {} bytes, {})", self.identity, self.secret.len(), self.cipher.name())
    }
}
