//! Reasons why a connection cannot be secured.

use std::io;

/// The reasons why TLS cannot begin. Every message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The shared library is missing, or lacks a function.
    #[error("cannot open libssl.so.3: {0} (TLS needs OpenSSL 3: Debian's package libssl3)")]
    Library(String),
    /// OpenSSL refuses to make an object: memory, as a rule.
    #[error("OpenSSL cannot {what}: {why}")]
    Setup {
        /// The act that failed.
        what: &'static str,
        /// OpenSSL's reason.
        why: String,
    },
    /// The two ends do not agree: no common key, as a rule.
    #[error("the TLS handshake failed: {0}")]
    Handshake(String),
    /// The connection broke during the handshake.
    #[error("the connection broke during the TLS handshake: {0}")]
    Io(#[from] io::Error),
}

impl Error {
    /// True if the peer may not know the key: it says so, or it ends the connection, as Linux's target does.
    pub fn is_refusal(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        match self {
            Error::Handshake(_) => true,
            Error::Io(error) => {
                matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
            }
            Error::Library(_) | Error::Setup { .. } => false,
        }
    }
}
