//! Keys as they are handed from one administrator to another: `DHHC-1:hh:base64:`.

use std::io;
use std::path::Path;

use zeroize::Zeroizing;

use super::hash::Hash;
use super::interchange::{self, SecretError};

const FORM: &str = "DHHC-1:hh:base64: (`nvme gen-dhchap-key` makes such keys)";

/// A key: 32, 48 or 64 secret bytes, and the hash function that ties it to one NQN, if any. Wiped from memory when
/// dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    bytes: Zeroizing<Vec<u8>>,
    hash: Option<Hash>,
}

impl Secret {
    /// The key in this text; blanks around it do not matter.
    ///
    /// # Errors
    /// The part of the text that is wrong.
    pub fn parse(text: &str) -> Result<Secret, SecretError> {
        let (hash, decoded) = interchange::split(text, "DHHC-1", FORM)?;
        let hash = match hash {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(SecretError::Hash("00, 01, 02, 03")),
        };
        let length = decoded.len().saturating_sub(4);
        let fits = hash.map_or([32, 48, 64].contains(&length), |hash| length == hash.bytes());
        match fits {
            true => Ok(Secret { bytes: interchange::checked(&decoded)?, hash }),
            false => Err(SecretError::Length(length, "32, 48 or 64")),
        }
    }

    /// The key in a file that only its owner may read.
    ///
    /// # Errors
    /// The error of open(2) or read(2); `PermissionDenied` if others may read or change the file; `InvalidInput`, with
    /// the reason, if the file holds no key.
    pub fn read(path: &Path) -> io::Result<Secret> {
        interchange::read(path, Secret::parse)
    }

    /// The key as text, for a peer that is to have it too.
    pub fn to_text(&self) -> Zeroizing<String> {
        interchange::text("DHHC-1", self.hash.map_or(0, |hash| hash as u8), &self.bytes)
    }

    /// The key as it is used for `nqn`: as it is, or transformed.
    pub(super) fn key_for(&self, nqn: &str) -> Zeroizing<Vec<u8>> {
        match self.hash {
            None => self.bytes.clone(),
            Some(hash) => Zeroizing::new(hash.hmac(&self.bytes, &[nqn.as_bytes(), b"NVMe-over-Fabrics"])),
        }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({} bytes, {})", self.bytes.len(), self.hash.map_or("not tied to an NQN", Hash::name))
    }
}
