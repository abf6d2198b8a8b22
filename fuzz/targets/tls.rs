//! Promises of the reader of ClientHellos that hold for any bytes of a client.

use tls::key_schedule::{expand_label, extract};
use tls::{Cipher, Psk, proven_key};

/// A ClientHello proves a key if its client has the key, and never otherwise: neither bytes of any kind, nor the
/// message of a client with the key in which one byte has changed.
pub fn client_hello(data: &[u8]) {
    for cipher in [Cipher::Aes128GcmSha256, Cipher::Aes256GcmSha384] {
        let key = |byte: u8| Psk {
            identity: "NVMe0R01 nqn.2014-08.org.example:host nqn.2014-08.org.example:subsystem".into(),
            secret: vec![byte; cipher.hash_bytes()].into(),
            cipher,
        };
        let (own, other) = (key(7), key(8));
        let find =
            |identity: &str| if identity == own.identity { vec![other.clone(), own.clone()] } else { Vec::new() };
        assert_eq!(proven_key(data, &find), None);
        let mut hello = hello(&own, data);
        assert_eq!(proven_key(&hello, &find).as_ref(), Some(&own));
        if let [high, low, change @ 1..=255, ..] = data {
            let at = usize::from(u16::from_be_bytes([*high, *low])) % hello.len();
            hello[at] ^= change;
            assert_eq!(proven_key(&hello, &find), None, "byte {at}");
        }
    }
}

/// The ClientHello of a client with the key; the bytes are its session and one of its extensions.
fn hello(key: &Psk, data: &[u8]) -> Vec<u8> {
    let of_16_bits = |part: &[u8]| [&(part.len() as u16).to_be_bytes()[..], part].concat();
    let of_8_bits = |part: &[u8]| [&[part.len() as u8][..], part].concat();
    let (session, rest) = data.split_at(data.len().min(32));
    let cipher = key.cipher;
    let unknown = [&[0x12, 0x34][..], &of_16_bits(&rest[..rest.len().min(4096)])].concat();
    let identities = of_16_bits(&[&of_16_bits(key.identity.as_bytes())[..], &[0; 4]].concat());
    let binders = |binder: &[u8]| of_16_bits(&of_8_bits(binder));
    let none = vec![0; cipher.hash_bytes()];
    let whole = |binder: &[u8]| {
        let keys = [&[0, 41][..], &of_16_bits(&[&identities[..], &binders(binder)].concat())].concat();
        let head = [&[3, 3][..], &[5; 32], &of_8_bits(session), &of_16_bits(&cipher.code()), &[1, 0]].concat();
        let body = [head, of_16_bits(&[unknown.clone(), keys].concat())].concat();
        let length = (body.len() as u32).to_be_bytes();
        [&[1][..], &length[1..], &body].concat()
    };
    let without = whole(&none);
    let bound = &without[..without.len() - binders(&none).len()];
    let early = extract(cipher, &key.secret);
    let bytes = cipher.hash_bytes();
    let derive = |secret: &[u8], label: &str, context: &[u8]| {
        expand_label(cipher, secret, label, context, bytes).expect("a label of TLS")
    };
    let finished = derive(&derive(&early, "ext binder", &cipher.hash(b"")), "finished", b"");
    whole(&cipher.hmac(&finished, &[&cipher.hash(bound)]))
}
