//! The proofs of both sides: the responses R1 and R2 (NVM Express Base Specification 2.0c, 8.13.5.4 and 8.13.5.5).

use super::hash::Hash;

/// Everything that goes into a response beside the key.
pub(super) struct Transcript<'a> {
    pub hash: Hash,
    /// The shared secret of the exchange; empty for the null group.
    pub shared: &'a [u8],
    pub challenge: &'a [u8],
    pub sequence: u32,
    pub transaction: u16,
    /// SC_C of the host's AUTH_Negotiate.
    pub concatenation: u8,
    pub host_nqn: &'a str,
    pub subsystem_nqn: &'a str,
}

impl Transcript<'_> {
    /// Carries `work` out on what is authenticated, in order.
    fn with<R>(&self, role: &[u8], first: &str, second: &str, work: impl FnOnce(&[&[u8]]) -> R) -> R {
        // The challenge is augmented by the hashed secret: Ca = HMAC(H(g^xy mod p), C).
        let augmented;
        let challenge = if self.shared.is_empty() {
            self.challenge
        } else {
            let key = zeroize::Zeroizing::new(self.hash.digest(self.shared));
            augmented = self.hash.hmac(&key, &[self.challenge]);
            &augmented
        };
        let (sequence, transaction) = (self.sequence.to_le_bytes(), self.transaction.to_le_bytes());
        let concatenation = [self.concatenation];
        work(&[challenge, &sequence, &transaction, &concatenation, role, first.as_bytes(), &[0], second.as_bytes()])
    }

    /// R1: the host's response to the controller's challenge.
    pub fn host(&self, key: &[u8]) -> Vec<u8> {
        self.with(b"HostHost", self.host_nqn, self.subsystem_nqn, |parts| self.hash.hmac(key, parts))
    }

    /// True for R1, false for R2.
    pub fn is_host(&self, key: &[u8], response: &[u8]) -> bool {
        self.with(b"HostHost", self.host_nqn, self.subsystem_nqn, |parts| self.hash.verify(key, parts, response))
    }

    /// R2: the controller's response to the host's challenge.
    pub fn controller(&self, key: &[u8]) -> Vec<u8> {
        self.with(b"Controller", self.subsystem_nqn, self.host_nqn, |parts| self.hash.hmac(key, parts))
    }
}
