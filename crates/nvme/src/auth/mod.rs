//! In-band authentication: DH-HMAC-CHAP (NVM Express Base Specification 2.0c, 8.13; TP 8006).
//!
//! ```text
//!  host                                     controller
//!    ── AUTH_Negotiate: hashes, groups ──────►
//!    ◄─ Challenge: C1, S1, g^x ───────────────
//!    ── Reply: R1 [, C2, S2], g^y ───────────►   R1 proves the host's key
//!    ◄─ Success1 [: R2] ──────────────────────   R2 proves the controller's, where the host asks for it
//!    ── [Success2] ──────────────────────────►
//! ```
//!
//! Both sides are state machines that take messages and make messages: no socket, no clock, and their randomness is
//! passed in ([`Entropy`]). Keys of TLS ([`TlsKey`]) are the same kind of secret. With secure
//! channel concatenation an exchange makes such a key ([`GeneratedKey`]).

mod authenticator;
mod controller;
mod exchange;
mod generated;
mod group;
mod hash;
mod host;
mod interchange;
mod key;
mod message;
mod response;
mod secret;
mod tls_key;

pub use authenticator::{Credentials, Keys, Policy};
pub use controller::Controller;
pub use exchange::{Authenticator, Channel, Closed, Exchange, ExchangeState, Means};
pub use generated::{GeneratedKey, GeneratedKeys};
pub use group::Group;
pub use hash::Hash;
pub use host::{Host, Proof};
pub use interchange::SecretError;
pub use key::Key;
pub use message::Failure;
pub use secret::Secret;
pub use tls_key::{Identity, Kind, TlsKey};

use zeroize::Zeroize;

/// The random numbers of one exchange: fresh for each, and never seen by anyone else.
pub struct Entropy {
    /// The challenge: as much of it as the hash is long.
    challenge: [u8; 64],
    /// The exponent of the Diffie-Hellman exchange.
    exponent: [u8; group::EXPONENT_BYTES],
    /// The sequence number that goes with the challenge; not zero.
    sequence: u32,
    /// The transaction identifier, of a host.
    transaction: u16,
}

impl Entropy {
    /// Takes random bytes from the system's source.
    ///
    /// # Errors
    /// The errors of getrandom(2).
    pub fn from_system() -> std::io::Result<Entropy> {
        let mut bytes = [0; 64 + group::EXPONENT_BYTES + 6];
        getrandom::fill(&mut bytes).map_err(std::io::Error::from)?;
        let entropy = Entropy::from_bytes(&bytes);
        bytes.zeroize();
        Ok(entropy)
    }

    /// Makes the values from these bytes, which must be random.
    fn from_bytes(bytes: &[u8; 64 + group::EXPONENT_BYTES + 6]) -> Entropy {
        let (challenge, rest) = bytes.split_at(64);
        let (exponent, rest) = rest.split_at(group::EXPONENT_BYTES);
        Entropy {
            challenge: challenge.try_into().expect("64 bytes"),
            exponent: exponent.try_into().expect("the exponent's bytes"),
            sequence: u32::from_le_bytes(rest[..4].try_into().expect("4 bytes")).max(1),
            transaction: u16::from_le_bytes(rest[4..6].try_into().expect("2 bytes")),
        }
    }
}

impl Drop for Entropy {
    fn drop(&mut self) {
        self.exponent.zeroize();
        self.challenge.zeroize();
    }
}

#[cfg(test)]
mod tests;
