//! TLS 1.3 with pre-shared keys (RFC 8446) on a connected socket, by OpenSSL 3, which is opened at run time.
//!
//! Both ends know a key under an identity; there are no certificates. The handshake always agrees on fresh
//! Diffie-Hellman secrets too (`psk_dhe_ke`), so that a key that becomes known later does not open what was recorded.
//!
//! ```text
//! Psk ──► Connector ───────────► Stream: handshake, read, write
//!     └─► Acceptor ──► Pending ─┘  └─ binder: which of several keys the client proved
//! ```
//!
//! rustls, which would be the library to prefer, knows no external keys (docs/decisions/tls-by-openssl.md).

mod binder;
mod error;
pub mod key_schedule;
mod library;
mod pending;
mod psk;
mod stream;

pub use binder::proven_key;
pub use error::Error;
pub use pending::Pending;
pub use psk::{Cipher, Psk};
pub use stream::{Acceptor, Connector, Find, Handshake, Stream};
