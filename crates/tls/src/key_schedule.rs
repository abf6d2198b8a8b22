//! HKDF with the labels of TLS 1.3 (RFC 8446, section 7.1), for those who derive keys as TLS does.

use hkdf::Hkdf;
use sha2::{Sha256, Sha384};
use zeroize::Zeroizing;

use crate::Cipher;

/// HKDF-Extract with a salt of zeros: a pseudorandom key as long as a hash value.
pub fn extract(cipher: Cipher, secret: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(match cipher {
        Cipher::Aes128GcmSha256 => Hkdf::<Sha256>::extract(None, secret).0.to_vec(),
        Cipher::Aes256GcmSha384 => Hkdf::<Sha384>::extract(None, secret).0.to_vec(),
    })
}

/// HKDF-Expand of a pseudorandom key, with information in any form. `None` if the key is shorter than a hash value, or
/// `bytes` more than 255 of them.
pub fn expand(cipher: Cipher, key: &[u8], info: &[u8], bytes: usize) -> Option<Zeroizing<Vec<u8>>> {
    let mut out = Zeroizing::new(vec![0; bytes]);
    match cipher {
        Cipher::Aes128GcmSha256 => Hkdf::<Sha256>::from_prk(key).ok()?.expand(info, &mut out).ok()?,
        Cipher::Aes256GcmSha384 => Hkdf::<Sha384>::from_prk(key).ok()?.expand(info, &mut out).ok()?,
    }
    Some(out)
}

/// HKDF-Expand-Label. `None` as in [`expand`], and for a label or context of more than 255 bytes.
pub fn expand_label(
    cipher: Cipher,
    key: &[u8],
    label: &str,
    context: &[u8],
    bytes: usize,
) -> Option<Zeroizing<Vec<u8>>> {
    let label = [b"tls13 ", label.as_bytes()].concat();
    let mut info = u16::try_from(bytes).ok()?.to_be_bytes().to_vec();
    for part in [&label[..], context] {
        info.push(u8::try_from(part.len()).ok()?);
        info.extend_from_slice(part);
    }
    expand(cipher, key, &info, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    }

    #[test]
    fn the_example_of_the_rfc_comes_out() {
        // RFC 8448, section 3: the early secret without a key, and the secret derived from it.
        let early = extract(Cipher::Aes128GcmSha256, &[0; 32]);
        assert_eq!(*early, hex("33ad0a1c607ec03b09e6cd9893680ce210adf300aa1f2660e1b22e10f170f92a"));
        let derived =
            expand_label(Cipher::Aes128GcmSha256, &early, "derived", &Cipher::Aes128GcmSha256.hash(b""), 32).unwrap();
        assert_eq!(*derived, hex("6f2615a108c702c5678f54fc9dbab69716c076189c48250cebeac3576c3611ba"));
    }

    #[test]
    fn what_does_not_fit_is_none() {
        assert!(expand(Cipher::Aes256GcmSha384, &[0; 32], b"", 48).is_none(), "a key that is too short");
        assert!(expand(Cipher::Aes128GcmSha256, &[0; 32], b"", 255 * 32 + 1).is_none());
        assert!(expand_label(Cipher::Aes128GcmSha256, &[0; 32], "x", &[0; 256], 32).is_none());
    }
}
