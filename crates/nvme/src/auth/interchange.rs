//! Keys as text, as one administrator hands them to another: `PREFIX:hh:base64:`, the key with its CRC-32 behind it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// The reason why a text is not a key. The error does not repeat the text, which may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The text does not have the form.
    #[error("not of the form {0}")]
    Form(&'static str),
    /// The number of the hash is not known.
    #[error("the hash after the first colon is not one of {0}")]
    Hash(&'static str),
    /// The length is not one of those allowed, or not that of the hash.
    #[error("the key has {0} bytes, not {1} as its hash wants")]
    Length(usize, &'static str),
    /// The CRC-32 of the key does not fit the key.
    #[error("its checksum is wrong: a character is missing or mistyped")]
    Checksum,
}

/// Bytes of a file with a key at the most: the text of a key has some 100.
const LONGEST_FILE: u64 = 4096;
/// CRC-32 of IEEE 802.3, little-endian behind the key.
const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);

/// The digits of the hash, and the bytes of the key with their checksum, of a text that begins with `prefix`; blanks
/// around it do not matter.
pub(super) fn split<'a>(
    text: &'a str,
    prefix: &str,
    form: &'static str,
) -> Result<(&'a str, Zeroizing<Vec<u8>>), SecretError> {
    let form = SecretError::Form(form);
    let rest = text.trim().strip_prefix(prefix).and_then(|rest| rest.strip_prefix(':')).ok_or(form)?;
    let (hash, rest) = rest.split_once(':').ok_or(form)?;
    let base64 = rest.strip_suffix(':').ok_or(form)?;
    let decoded = STANDARD.decode(base64).map_err(|_| form)?;
    Ok((hash, Zeroizing::new(decoded)))
}

/// The key in front of its checksum.
pub(super) fn checked(decoded: &[u8]) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let (key, checksum) = decoded.split_last_chunk::<4>().ok_or(SecretError::Checksum)?;
    match CRC.checksum(key).to_le_bytes() == *checksum {
        true => Ok(Zeroizing::new(key.to_vec())),
        false => Err(SecretError::Checksum),
    }
}

/// A key as text.
pub(super) fn text(prefix: &str, hash: u8, key: &[u8]) -> Zeroizing<String> {
    let with_checksum = Zeroizing::new([key, &CRC.checksum(key).to_le_bytes()].concat());
    let base64 = Zeroizing::new(STANDARD.encode(&*with_checksum));
    Zeroizing::new(format!("{prefix}:{hash:02}:{}:", *base64))
}

/// The key in a file that only its owner may read.
///
/// # Errors
/// The error of open(2) or read(2); `PermissionDenied` if others may read or change the file; `InvalidInput`, with the
/// reason, if the file holds no key.
pub(super) fn read<K>(path: &Path, parse: fn(&str) -> Result<K, SecretError>) -> io::Result<K> {
    let metadata = std::fs::metadata(path)?;
    // Before it is opened: the open of a pipe, and the read of a terminal or of /dev/zero, never end.
    if !metadata.is_file() || metadata.len() > LONGEST_FILE {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("it holds no key: give a regular file of at most {LONGEST_FILE} bytes"),
        ));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "other users may read or change it; chmod 600 it"));
    }
    let text = Zeroizing::new(std::fs::read_to_string(path)?);
    parse(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("it holds no key: {error}")))
}
