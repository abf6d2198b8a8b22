//! The binder of a ClientHello: the client's proof that it has a key (RFC 8446, section 4.2.11.2).
//!
//! Some identities stand for several keys, because programs derive them in different ways. The binder tells which one
//! the client has.

use crate::key_schedule::{expand_label, extract};
use crate::{Cipher, Psk};

/// The extension's number.
const PRE_SHARED_KEY: u16 = 41;

/// Identities of one ClientHello that are looked at: a client offers one or two.
const IDENTITIES: usize = 8;

/// The key with which the client made a binder. `find` gives the keys of an identity; `hello` is the whole ClientHello,
/// with its header of four bytes, and the first one of its connection. `None` if the client proves none of the keys, or
/// the text is not a ClientHello.
pub fn proven_key(hello: &[u8], find: &dyn Fn(&str) -> Vec<Psk>) -> Option<Psk> {
    let offer = Offer::of(hello)?;
    let (mut identities, mut binders) = (Text(offer.identities), Text(offer.binders));
    for _ in 0..IDENTITIES {
        let identity = identities.counted(2)?;
        identities.take(4)?; // the age of a ticket
        let binder = binders.counted(1)?;
        let keys = std::str::from_utf8(identity).map_or(Vec::new(), find);
        if let Some(key) = keys.into_iter().find(|key| proves(key, offer.bound, binder)) {
            return Some(key);
        }
    }
    None
}

/// True if `binder` is the binder of the key over the text.
fn proves(key: &Psk, bound: &[u8], binder: &[u8]) -> bool {
    let cipher: Cipher = key.cipher;
    let bytes = cipher.hash_bytes();
    let early = extract(cipher, &key.secret);
    let finished = expand_label(cipher, &early, "ext binder", &cipher.hash(b""), bytes)
        .and_then(|binder_key| expand_label(cipher, &binder_key, "finished", b"", bytes));
    finished.is_some_and(|finished| cipher.is_hmac(&finished, &cipher.hash(bound), binder))
}

/// The keys that a ClientHello offers.
struct Offer<'a> {
    identities: &'a [u8],
    binders: &'a [u8],
    /// The part of the ClientHello that binders cover: all that is before their list.
    bound: &'a [u8],
}

impl<'a> Offer<'a> {
    fn of(hello: &'a [u8]) -> Option<Offer<'a>> {
        const CLIENT_HELLO: u8 = 1;
        let mut text = Text(hello);
        if text.number(1)? != usize::from(CLIENT_HELLO) || text.number(3)? != text.0.len() {
            return None;
        }
        text.take(2 + 32)?; // version and random
        text.counted(1)?; // session
        text.counted(2)?; // cipher suites
        text.counted(1)?; // compression
        let mut extensions = Text(text.counted(2)?);
        if !text.0.is_empty() {
            return None;
        }
        while !extensions.0.is_empty() {
            let kind = extensions.number(2)?;
            let content = extensions.counted(2)?;
            if kind == usize::from(PRE_SHARED_KEY) {
                // It is the last one: else the binders would not cover what follows.
                let is_last = extensions.0.is_empty();
                let mut content = Text(content);
                let identities = content.counted(2)?;
                let bound = &hello[..hello.len() - content.0.len()];
                let binders = content.counted(2)?;
                return (is_last && content.0.is_empty()).then_some(Offer { identities, binders, bound });
            }
        }
        None
    }
}

/// Bytes that are taken from the front.
struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of up to four bytes, the highest first.
    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Bytes behind their count.
    fn counted(&mut self, bytes_of_count: usize) -> Option<&'a [u8]> {
        let count = self.number(bytes_of_count)?;
        self.take(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hostile_hellos_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..200) {
            let key = Psk { identity: "a".into(), secret: vec![1; 32].into(), cipher: Cipher::Aes128GcmSha256 };
            let find = |_: &str| vec![key.clone()];
            prop_assert!(proven_key(&bytes, &find).is_none());
            // A ClientHello whose lengths are right up to its extensions.
            let body = [&[3, 3][..], &[0; 32], &[0], &[0, 2, 0x13, 1], &[1, 0]].concat();
            let extensions = [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat();
            let length = body.len() + extensions.len();
            let mut hello = [&[1, 0][..], &(length as u16).to_be_bytes(), &body, &extensions].concat();
            prop_assert!(proven_key(&hello, &find).is_none());
            let at = at % hello.len();
            hello[at] ^= 0x81;
            prop_assert!(proven_key(&hello, &find).is_none());
        }
    }
}
