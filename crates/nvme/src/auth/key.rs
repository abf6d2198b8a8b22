//! A key of either kind, as a keyring holds it.

use std::io;
use std::path::Path;

use super::interchange::{self, SecretError};
use super::{Secret, TlsKey};

/// A key, for one of two uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// For DH-HMAC-CHAP: `DHHC-1:hh:base64:`.
    Chap(Secret),
    /// For TLS: `NVMeTLSkey-1:hh:base64:`.
    Tls(TlsKey),
}

impl Key {
    /// The key in this text, whose beginning tells the use.
    ///
    /// # Errors
    /// The part of the text that is wrong.
    pub fn parse(text: &str) -> Result<Key, SecretError> {
        match text.trim_start().starts_with("NVMeTLSkey") {
            true => TlsKey::parse(text).map(Key::Tls),
            false => Secret::parse(text).map(Key::Chap),
        }
    }

    /// The key in a file that only its owner may read.
    ///
    /// # Errors
    /// The error of open(2) or read(2); `PermissionDenied` if others may read or change the file; `InvalidInput`, with
    /// the reason, if the file holds no key.
    pub fn read(path: &Path) -> io::Result<Key> {
        interchange::read(path, Key::parse)
    }
}
