//! Keys as they are handed from one administrator to another: `DHHC-1:hh:base64:`.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::hash::Hash;

/// A key: 32, 48 or 64 secret bytes, and the hash function that ties it to one NQN, if any. Wiped from memory when
/// dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    bytes: Zeroizing<Vec<u8>>,
    hash: Option<Hash>,
}

/// The reason why a text is not a key. The error does not repeat the text, which may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The text does not have the form `DHHC-1:hh:base64:`.
    #[error("not of the form DHHC-1:hh:base64: (`nvme gen-dhchap-key` makes such keys)")]
    Form,
    /// The hash is not one of the four.
    #[error("the hash after DHHC-1: is not one of 00, 01, 02, 03")]
    Hash,
    /// The length is not 32, 48 or 64 bytes, or not that of the hash.
    #[error("the key has {0} bytes, not 32, 48 or 64 as its hash wants")]
    Length(usize),
    /// The CRC-32 of the key does not fit the key.
    #[error("its checksum is wrong: a character is missing or mistyped")]
    Checksum,
}

/// Bytes of a file with a key at the most: the text of a key has some 100.
const LONGEST_FILE: u64 = 4096;
/// CRC-32 of IEEE 802.3, little-endian behind the key.
const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);

impl Secret {
    /// The key in this text; blanks around it do not matter.
    ///
    /// # Errors
    /// The part of the text that is wrong.
    pub fn parse(text: &str) -> Result<Secret, SecretError> {
        let rest = text.trim().strip_prefix("DHHC-1:").ok_or(SecretError::Form)?;
        let (hash, rest) = rest.split_once(':').ok_or(SecretError::Form)?;
        let hash = match hash {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(SecretError::Hash),
        };
        let base64 = rest.strip_suffix(':').ok_or(SecretError::Form)?;
        let decoded = Zeroizing::new(STANDARD.decode(base64).map_err(|_| SecretError::Form)?);
        let length = decoded.len().saturating_sub(4);
        let fits = hash.map_or([32, 48, 64].contains(&length), |hash| length == hash.bytes());
        if !fits {
            return Err(SecretError::Length(length));
        }
        let (key, checksum) = decoded.split_at(length);
        if checksum != CRC.checksum(key).to_le_bytes() {
            return Err(SecretError::Checksum);
        }
        Ok(Secret { bytes: Zeroizing::new(key.to_vec()), hash })
    }

    /// The key in a file that only its owner may read.
    ///
    /// # Errors
    /// The error of open(2) or read(2); `PermissionDenied` if others may read or change the file; `InvalidInput`, with
    /// the reason, if the file holds no key.
    pub fn read(path: &Path) -> io::Result<Secret> {
        let metadata = std::fs::metadata(path)?;
        // Before it is opened: the open of a pipe, and the read of a terminal or of /dev/zero, never end.
        if !metadata.is_file() || metadata.len() > LONGEST_FILE {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("it holds no key: give a regular file of at most {LONGEST_FILE} bytes"),
            ));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "other users may read or change it; chmod 600 it",
            ));
        }
        let text = Zeroizing::new(std::fs::read_to_string(path)?);
        Secret::parse(&text)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("it holds no key: {error}")))
    }

    /// The key as text, for a peer that is to have it too.
    pub fn to_text(&self) -> Zeroizing<String> {
        let with_checksum = Zeroizing::new([self.bytes.as_slice(), &CRC.checksum(&self.bytes).to_le_bytes()].concat());
        let base64 = Zeroizing::new(STANDARD.encode(&*with_checksum));
        Zeroizing::new(format!("DHHC-1:{:02}:{}:", self.hash.map_or(0, |hash| hash as u8), *base64))
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
