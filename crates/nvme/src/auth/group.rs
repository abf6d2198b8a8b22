//! The Diffie-Hellman groups ffdhe2048 to ffdhe8192 of RFC 7919, appendix A.

use std::sync::OnceLock;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Limb, NonZero, Odd, Resize};
use zeroize::Zeroizing;

/// Bytes of a secret exponent: twice the strength of the strongest group (RFC 7919, 5.2: 400 bits for ffdhe8192), for
/// all.
pub(super) const EXPONENT_BYTES: usize = 56;

/// A group, under its identifier (figure "DH-HMAC-CHAP Diffie-Hellman Group Identifiers").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// No exchange: the key alone protects the responses.
    Null = 0,
    /// The group ffdhe2048, of 2048 bits.
    Ffdhe2048 = 1,
    /// The group ffdhe3072, of 3072 bits.
    Ffdhe3072 = 2,
    /// The group ffdhe4096, of 4096 bits.
    Ffdhe4096 = 3,
    /// The group ffdhe6144, of 6144 bits.
    Ffdhe6144 = 4,
    /// The group ffdhe8192, of 8192 bits.
    Ffdhe8192 = 5,
}

impl Group {
    /// All groups, the weakest first.
    pub const ALL: [Group; 6] =
        [Group::Null, Group::Ffdhe2048, Group::Ffdhe3072, Group::Ffdhe4096, Group::Ffdhe6144, Group::Ffdhe8192];

    /// The group of that identifier.
    pub fn from_id(id: u8) -> Option<Group> {
        Group::ALL.into_iter().find(|group| *group as u8 == id)
    }

    /// The name of the group as SPDK and Linux write it: `null`, `ffdhe2048`.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Null => "null",
            Group::Ffdhe2048 => "ffdhe2048",
            Group::Ffdhe3072 => "ffdhe3072",
            Group::Ffdhe4096 => "ffdhe4096",
            Group::Ffdhe6144 => "ffdhe6144",
            Group::Ffdhe8192 => "ffdhe8192",
        }
    }

    /// Bits of the prime, and the number that appendix A adds to make it one; 0 of the null group.
    const fn shape(self) -> (u32, u64) {
        match self {
            Group::Null => (0, 0),
            Group::Ffdhe2048 => (2048, 560_316),
            Group::Ffdhe3072 => (3072, 2_625_351),
            Group::Ffdhe4096 => (4096, 5_736_041),
            Group::Ffdhe6144 => (6144, 15_705_020),
            Group::Ffdhe8192 => (8192, 10_965_728),
        }
    }

    /// Bytes of a public value and of the shared secret; 0 of the null group.
    pub const fn bytes(self) -> usize {
        self.shape().0 as usize / 8
    }

    /// The public value `g^exponent`, which is sent to the other side.
    pub(super) fn public(self, exponent: &[u8; EXPONENT_BYTES]) -> Vec<u8> {
        match self.parameters() {
            None => Vec::new(),
            Some(parameters) => {
                let two = BoxedUint::from(2u8).resize(self.shape().0);
                power(two, exponent, parameters).to_vec()
            }
        }
    }

    /// The shared secret `public^exponent`, which both sides compute; None if `public` is not of this group's length or
    /// is one of the values that give the secret away (0, 1, p - 1, and what is not below p).
    pub(super) fn shared(self, exponent: &[u8; EXPONENT_BYTES], public: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let Some(parameters) = self.parameters() else {
            return public.is_empty().then(Zeroizing::default);
        };
        if public.len() != self.bytes() {
            return None;
        }
        let value = BoxedUint::from_be_slice(public, self.shape().0).ok()?;
        let one = BoxedUint::one_with_precision(self.shape().0);
        let last = parameters.modulus().as_ref().wrapping_sub(&one);
        if value <= one || value >= last {
            return None;
        }
        Some(power(value, exponent, parameters))
    }

    /// The prime, ready for arithmetic: made when it is first needed.
    fn parameters(self) -> Option<&'static BoxedMontyParams> {
        static PARAMETERS: [OnceLock<BoxedMontyParams>; 6] = [const { OnceLock::new() }; 6];
        let (bits, x) = self.shape();
        (bits > 0).then(|| PARAMETERS[self as usize].get_or_init(|| BoxedMontyParams::new(prime(bits, x))))
    }
}

/// Exponents have their full length whatever their value, so that the time does not tell it.
fn power(base: BoxedUint, exponent: &[u8; EXPONENT_BYTES], parameters: &BoxedMontyParams) -> Zeroizing<Vec<u8>> {
    let bits = 8 * EXPONENT_BYTES as u32;
    let exponent = Zeroizing::new(BoxedUint::from_be_slice(exponent, bits).expect("it has that many bits"));
    let power = BoxedMontyForm::new(base, parameters).pow_bounded_exp(&exponent, bits).retrieve();
    Zeroizing::new(power.to_be_bytes().into_vec())
}

/// `2^b - 2^(b-64) + {[2^(b-130) e] + X} * 2^64 - 1`, as appendix A defines each of the primes.
fn prime(bits: u32, x: u64) -> Odd<BoxedUint> {
    // e = 1 + 1/1! + 1/2! + ..., with 64 bits to spare for what the divisions cut off.
    let spare = 64;
    let one = BoxedUint::one_with_precision(bits);
    let mut term = one.shl(bits - 130 + spare);
    let mut e = term.clone();
    for k in 1u64.. {
        let k = NonZero::new(Limb(k)).expect("not zero");
        term = term.div_rem_limb(k).0;
        if bool::from(term.is_zero()) {
            break;
        }
        e = e.wrapping_add(&term);
    }
    let middle = e.shr(spare).wrapping_add(BoxedUint::from(x).resize(bits)).shl(64);
    // Modulo 2^b the first power is zero.
    let prime = middle.wrapping_sub(one.shl(bits - 64)).wrapping_sub(&one);
    Odd::new(prime).expect("it ends in ones")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first and last 128 bits that all of appendix A's tables have in print.
    #[test]
    fn the_primes_are_those_of_the_standard() {
        let ends = [
            "",
            "886B423861285C97FFFFFFFFFFFFFFFF",
            "25E41D2B66C62E37FFFFFFFFFFFFFFFF",
            "C68A007E5E655F6AFFFFFFFFFFFFFFFF",
            "A40E329CD0E40E65FFFFFFFFFFFFFFFF",
            "D68C8BB7C5C6424CFFFFFFFFFFFFFFFF",
        ];
        for (group, end) in Group::ALL.into_iter().zip(ends).skip(1) {
            let bytes = group.parameters().expect("a prime").modulus().to_be_bytes();
            let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            assert_eq!(bytes.len(), group.bytes());
            assert!(hex.starts_with("FFFFFFFFFFFFFFFFADF85458A2BB4A9A"), "{}", group.name());
            assert!(hex.ends_with(end), "{}", group.name());
        }
    }

    /// Fermat's test: a digit that is wrong anywhere makes it fail.
    #[test]
    fn the_primes_are_prime() {
        for group in [Group::Ffdhe2048, Group::Ffdhe3072] {
            let parameters = group.parameters().expect("a prime");
            let p = parameters.modulus().as_ref();
            let less = p.wrapping_sub(BoxedUint::one_with_precision(group.shape().0));
            let three = BoxedUint::from(3u8).resize(group.shape().0);
            let power = BoxedMontyForm::new(three, parameters).pow(&less).retrieve();
            assert_eq!(power, BoxedUint::one_with_precision(group.shape().0), "{}", group.name());
        }
    }

    #[test]
    fn both_sides_come_to_the_same_secret() {
        for group in Group::ALL {
            let (x, y) = ([0x5a; EXPONENT_BYTES], [0xc3; EXPONENT_BYTES]);
            let (from_x, from_y) = (group.public(&x), group.public(&y));
            assert_eq!(from_x.len(), group.bytes());
            assert_eq!(group.shared(&x, &from_y), group.shared(&y, &from_x));
            assert!(group.shared(&x, &from_y).is_some());
        }
    }

    #[test]
    fn values_that_give_the_secret_away_are_refused() {
        let group = Group::Ffdhe2048;
        let x = [7; EXPONENT_BYTES];
        let p = group.parameters().expect("a prime").modulus().to_be_bytes().to_vec();
        let mut last = p.clone();
        *last.last_mut().expect("bytes") -= 1;
        let small = |value: u8| [vec![0; group.bytes() - 1], vec![value]].concat();
        for bad in [small(0), small(1), last, p, vec![255; group.bytes()], vec![2], Vec::new()] {
            assert!(group.shared(&x, &bad).is_none(), "{bad:?}");
        }
        assert!(group.shared(&x, &small(2)).is_some());
        assert!(Group::Null.shared(&x, &[1]).is_none());
    }
}
