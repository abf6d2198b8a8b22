use std::collections::BTreeSet;

use proptest::prelude::*;

use super::message::Message;
use super::response::Transcript;
use super::*;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:0fd5a7e4-8c5b-4bdb-9b1b-3f4d2f7c1a10";
const SUBSYSTEM: &str = "nqn.2016-06.io.spdk:cnode1";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that count up from `first`.
fn counting(first: u8, count: usize) -> Vec<u8> {
    (0..count).map(|i| first.wrapping_add(i as u8)).collect()
}

/// The key of those bytes, tied to an NQN by the hash.
fn secret(hash: Hash, key: &[u8]) -> Secret {
    use base64::Engine;
    let crc = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC).checksum(key).to_le_bytes();
    let base64 = base64::engine::general_purpose::STANDARD.encode([key, &crc].concat());
    Secret::parse(&format!("DHHC-1:{:02}:{base64}:", hash as u8)).expect("a key")
}

fn entropy(seed: u8) -> Entropy {
    let bytes = std::array::from_fn(|i| (i as u8).wrapping_mul(31).wrapping_add(seed));
    Entropy::from_bytes(&bytes)
}

fn only(hash: Hash, group: Group) -> Policy {
    Policy { hashes: vec![hash], groups: vec![group] }
}

/// Made with nvme-cli 2.3: `nvme gen-dhchap-key --secret=000102... -m 1 -n HOST` prints the transformed key.
#[test]
fn keys_are_transformed_as_nvme_cli_does() {
    for (plain, transformed) in [
        (secret(Hash::Sha256, &counting(0, 32)), "DHHC-1:01:Zd+BwWWhFj/AcgXNAiaAB31intBt8+VR1+lssk28fWX31QJy:"),
        (
            secret(Hash::Sha384, &counting(0, 48)),
            "DHHC-1:02:rIwZqArDTpWDn7mgaXtw402ra15++GN0TXdocc4GtYa7XT3RnD4VgqWJlV0Vst0BB13s3g==:",
        ),
    ] {
        let printed = Secret::parse(transformed).expect("a key");
        let untied = Secret::parse(&printed.to_text().replace(&transformed[..10], "DHHC-1:00:")).expect("a key");
        assert_eq!(plain.key_for(HOST), untied.key_for("any"));
    }
    let untransformed = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    assert_eq!(Secret::parse(untransformed).expect("a key").key_for(HOST).to_vec(), counting(0, 32));
    assert_eq!(*Secret::parse(untransformed).expect("a key").to_text(), untransformed);
}

#[test]
fn what_is_no_key_is_told_why() {
    let good = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let form = Secret::parse("").expect_err("no key");
    assert!(form.to_string().starts_with("not of the form DHHC-1:hh:base64:"), "{form}");
    for (text, why) in [
        ("DHHC-2:00:AAECAwQF:".into(), form),
        (good.trim_end_matches(':').into(), form),
        (good.replace("AAEC", "A*EC"), form),
        (good.replace(":00:", ":04:"), SecretError::Hash("00, 01, 02, 03")),
        (good.replace(":00:", ":02:"), SecretError::Length(32, "32, 48 or 64")),
        ("DHHC-1:00:AAECAwQF:".into(), SecretError::Length(2, "32, 48 or 64")),
        (good.replace("AAEC", "AAED"), SecretError::Checksum),
    ] {
        let error = Secret::parse(&text).expect_err("no key");
        assert_eq!(error, why, "{text}");
        assert!(!error.to_string().contains("AAE"), "a secret is not repeated");
    }
    assert!(Secret::parse(&format!(" {good}\n")).is_ok(), "as it stands in a file");
    assert_eq!(format!("{:?}", Secret::parse(good).expect("a key")), "Secret(32 bytes, not tied to an NQN)");
}

/// The formulas of the specification, carried out with Python's hmac, hashlib and pow: hash, group, R1, R2.
const RESPONSES: [(Hash, Group, &str, &str); 6] = [
    (
        Hash::Sha256,
        Group::Null,
        "a1ad7e22fb2e448242d1ff001d14a613151a6db7f0d08b3d018a9068b223e85f",
        "fe8135f4f644f6e65d47e69d32f34115de5a4b498b9429fcf66605830209fdff",
    ),
    (
        Hash::Sha256,
        Group::Ffdhe2048,
        "46436102488f8786eea1c4c5e41c7855319a6719b3f50835fca6ef2b9c6d2a7b",
        "9cb865bd6477cfd13279508076ea8aea15077c06dd6c6a9d5e23d503196e7ff0",
    ),
    (
        Hash::Sha384,
        Group::Null,
        "f8a751d623cda8d4159a0e905eb969dc348046ea9c61c43665e37c8cdf52654de2b921a839ae6325d184fc3e8768fdff",
        "fac951fdee91d71bdf93adc27c6ee846ac892557ef632a301c079ec1bf53af04242e940bddba98af4bb3cfa0a507510a",
    ),
    (
        Hash::Sha384,
        Group::Ffdhe2048,
        "6f856b779acd64ce26d32df52577c7dfdcfa097a02fabba8f6fa60db534ec89e6bb2c1a8e96bf010e51b8df66e940349",
        "045ff96fecaf2b1be9d57b6268e56e485a233e2ab96da5dd2e0af3d2775a8063068d587ad0aa544d8c56392bf6ea0a9b",
    ),
    (
        Hash::Sha512,
        Group::Null,
        "2832b4adf752ee80ac9f8880fac22f81347e102e293a35ef9827a4fcec1742c7547acccf061a31a182bc1a1b805b7bf3831ad90a3adbd8c7bc36c2be975c3884",
        "05406bc6c8ba0a8930dfae7a970d74309e1775f3e251cea4aa122eb45c8876989dfa5f4dd9222bc2fccaad7f34fba81fd62ccab80062528ad40fee4eaa90d91e",
    ),
    (
        Hash::Sha512,
        Group::Ffdhe2048,
        "a858c2c62fee9a3258a01afbfd5d0390df1e3e7ef6adc6ba4481f7375c622d448dc15852ad7b98ea52d27969cd7e83338c00ace0905b79ec39bb29547aed1f2f",
        "99f428f55dced4eb32cd470d8a9a2228321a79f927517bfdfc177fb36f1feffd24afbc2ed02ae534df252016afa9475234b1ed2a0cdc8a30f3138ce4893211fa",
    ),
];

#[test]
fn responses_are_those_of_the_formulas() {
    let x: [u8; group::EXPONENT_BYTES] = counting(1, group::EXPONENT_BYTES).try_into().expect("its length");
    let y: [u8; group::EXPONENT_BYTES] = counting(101, group::EXPONENT_BYTES).try_into().expect("its length");
    let public = Group::Ffdhe2048.public(&x);
    let sha = |bytes: &[u8]| hex(&Hash::Sha256.digest(bytes));
    assert_eq!(sha(&public), "714d10b0c7ac786ab0ba4d0692fdba6db46525a19efd67fdf5536f4edbb33bc9");
    let secret_value = Group::Ffdhe2048.shared(&y, &public).expect("a good value");
    assert_eq!(sha(&secret_value), "75a598db1f1a0d93e29d74d2b4b548c6044f454c7f2d58c149841866dcad6968");
    for (hash, group, r1, r2) in RESPONSES {
        let n = hash.bytes();
        let shared = if group == Group::Null { &[][..] } else { &secret_value };
        let challenge = |step: u8, first: u8| -> Vec<u8> {
            (0..n).map(|i| (i as u8).wrapping_mul(step).wrapping_add(first)).collect()
        };
        let (c1, c2) = (challenge(7, 1), challenge(5, 2));
        let transcript = |challenge, sequence| Transcript {
            hash,
            shared,
            challenge,
            sequence,
            transaction: 0x1234,
            concatenation: 0,
            host_nqn: HOST,
            subsystem_nqn: SUBSYSTEM,
        };
        let (host, controller) = (secret(hash, &counting(0, n)), secret(hash, &counting(100, n)));
        let first = transcript(&c1, 0x0102_0304);
        let second = transcript(&c2, 0x0a0b_0c0d);
        let (host_key, controller_key) = (host.key_for(HOST), controller.key_for(SUBSYSTEM));
        assert_eq!((hex(&first.host(&host_key)).as_str(), hex(&second.controller(&controller_key)).as_str()), (r1, r2));
        assert!(first.is_host(&host_key, &first.host(&host_key)));
        assert!(!first.is_host(&host_key, &first.controller(&host_key)), "roles are not interchangeable");
    }
}

/// The outcome of an exchange between these two.
fn exchange(host: &mut Host, controller: &mut Controller) -> Result<Proof, Failure> {
    let mut to_controller = host.start();
    loop {
        controller.receive(&to_controller);
        let to_host = controller.send(4096);
        match host.receive(&to_host) {
            Ok((last, Some(proof))) => {
                if !last.is_empty() {
                    controller.receive(&last);
                }
                return Ok(proof);
            }
            Ok((next, None)) => to_controller = next,
            Err((why, last)) => {
                if !last.is_empty() {
                    controller.receive(&last);
                }
                return Err(why);
            }
        }
    }
}

fn pair(hash: Hash, group: Group, mutual: bool) -> (Host, Controller) {
    let (key, back) = (secret(hash, &counting(3, hash.bytes())), secret(hash, &counting(9, hash.bytes())));
    let credentials = Credentials { host: key.clone(), controller: Some(back.clone()) };
    let host = Host::new(HOST, SUBSYSTEM, key, mutual.then_some(back), Policy::default(), entropy(1));
    (host, Controller::new(HOST, SUBSYSTEM, credentials, only(hash, group), entropy(2), None))
}

#[test]
fn both_sides_agree_with_every_hash_and_group() {
    for hash in Hash::ALL {
        for group in Group::ALL {
            for mutual in [false, true] {
                let (mut host, mut controller) = pair(hash, group, mutual);
                assert_eq!(exchange(&mut host, &mut controller), Ok(Proof { hash, group, mutual }));
                assert_eq!(controller.state(), ExchangeState::Done);
                let means = Means { hash: hash.name(), group: group.name() };
                assert_eq!(controller.proof(), Some(means));
            }
        }
    }
}

#[test]
fn another_key_another_name_or_a_missing_key_fails() {
    let (hash, group) = (Hash::Sha256, Group::Ffdhe2048);
    let good = secret(hash, &counting(3, 32));
    let bad = secret(hash, &counting(4, 32));
    let controller = |host: &Secret, back: Option<&Secret>, nqn: &str| {
        let credentials = Credentials { host: host.clone(), controller: back.cloned() };
        Controller::new(nqn, SUBSYSTEM, credentials, only(hash, group), entropy(2), None)
    };
    let host = |key: &Secret, back: Option<&Secret>| {
        Host::new(HOST, SUBSYSTEM, key.clone(), back.cloned(), Policy::default(), entropy(1))
    };
    for (mut host, mut controller) in [
        (host(&bad, None), controller(&good, None, HOST)),
        (host(&good, None), controller(&good, None, "nqn.2014-08.org.nvmexpress:uuid:someone-else")),
        (host(&good, Some(&good)), controller(&good, Some(&bad), HOST)),
        (host(&good, Some(&good)), controller(&good, None, HOST)),
    ] {
        assert_eq!(exchange(&mut host, &mut controller), Err(Failure::Failed));
        assert_eq!(controller.state(), ExchangeState::Failed);
        assert!(!controller.receive(&[0; 64]), "it is over");
    }
}

#[test]
fn without_anything_in_common_it_fails_and_says_why() {
    let cases = [
        (only(Hash::Sha512, Group::Null), only(Hash::Sha256, Group::Null), Failure::HashNotUsable),
        (only(Hash::Sha256, Group::Ffdhe2048), only(Hash::Sha256, Group::Null), Failure::GroupNotUsable),
    ];
    for (ours, theirs, why) in cases {
        let key = secret(Hash::Sha256, &counting(3, 32));
        let mut host = Host::new(HOST, SUBSYSTEM, key.clone(), None, theirs, entropy(1));
        let credentials = Credentials { host: key, controller: None };
        let mut controller = Controller::new(HOST, SUBSYSTEM, credentials, ours, entropy(2), None);
        assert_eq!(exchange(&mut host, &mut controller), Err(why));
        assert_eq!(controller.state(), ExchangeState::Failed);
    }
}

#[test]
fn a_reflected_challenge_proves_nothing() {
    let hash = Hash::Sha256;
    let (mut host, mut controller) = pair(hash, Group::Null, true);
    controller.receive(&host.start());
    let Ok(Message::Challenge { challenge, sequence, .. }) = Message::parse(&controller.send(4096)) else {
        panic!("a challenge")
    };
    let key = secret(hash, &counting(3, 32));
    let transaction = entropy(1).transaction;
    let transcript = Transcript {
        hash,
        shared: &[],
        challenge: &challenge,
        sequence,
        transaction,
        concatenation: 0,
        host_nqn: HOST,
        subsystem_nqn: SUBSYSTEM,
    };
    let response = transcript.host(&key.key_for(HOST));
    let reply = Message::Reply { transaction, sequence, response, challenge: Some(challenge.clone()), public: vec![] };
    controller.receive(&reply.to_bytes());
    assert_eq!(controller.state(), ExchangeState::Failed);
}

/// The messages of a whole exchange, host and controller in turn.
fn conversation(mutual: bool) -> Vec<Vec<u8>> {
    let (mut host, mut controller) = pair(Hash::Sha384, Group::Ffdhe2048, mutual);
    let mut all = vec![host.start()];
    while controller.state() == ExchangeState::Pending {
        controller.receive(all.last().expect("one"));
        if controller.state() != ExchangeState::Pending {
            break;
        }
        all.push(controller.send(4096));
        let (next, _) = host.receive(all.last().expect("one")).expect("it goes on");
        if next.is_empty() {
            break;
        }
        all.push(next);
    }
    all
}

#[test]
fn messages_have_the_lengths_of_the_figures_and_read_back() {
    let dh = Group::Ffdhe2048.bytes();
    let lengths: Vec<usize> = conversation(true).iter().map(Vec::len).collect();
    assert_eq!(lengths, [8 + 64, 16 + 48 + dh, 16 + 2 * 48 + dh, 16 + 48, 16]);
    assert_eq!(
        conversation(false).iter().map(Vec::len).collect::<Vec<_>>(),
        [8 + 64, 16 + 48 + dh, 16 + 2 * 48 + dh, 16]
    );
    for bytes in conversation(true) {
        assert_eq!(Message::parse(&bytes).expect("it reads back").to_bytes(), bytes);
    }
    let failure = Message::Failure1 { transaction: 7, why: Failure::HashNotUsable };
    assert_eq!(failure.to_bytes(), [0x00, 0xf1, 0, 0, 7, 0, 0x01, 0x04]);
}

#[test]
fn a_message_cut_short_or_with_a_flipped_bit_lets_nobody_in() {
    let reply = conversation(false)[2].clone();
    let mut ends = BTreeSet::new();
    let bits = reply.len() * 8;
    for damage in (0..reply.len()).chain(reply.len()..reply.len() + bits) {
        let (mut host, mut controller) = pair(Hash::Sha384, Group::Ffdhe2048, false);
        controller.receive(&host.start());
        controller.send(4096);
        let mut bad = reply.clone();
        match damage.checked_sub(reply.len()) {
            None => bad.truncate(damage),
            Some(bit) => bad[bit / 8] ^= 1 << (bit % 8),
        }
        controller.receive(&bad);
        // Reserved bytes, S2 and C2 of a host that asks for no proof may be anything.
        let sent = Message::parse(&controller.send(4096));
        let harmless = damage >= reply.len() && {
            let at = (damage - reply.len()) / 8;
            [2, 3, 7, 9].contains(&at) || (12..16).contains(&at) || (16 + 48..16 + 96).contains(&at) || at == 8
        };
        assert!(harmless || controller.state() == ExchangeState::Failed, "byte or bit {damage}: {sent:?}");
        ends.insert(format!("{:?}", controller.state()));
        if damage > reply.len() + 8 * 200 {
            break; // the rest is the public value: each costs an exponentiation
        }
    }
    assert!(ends.contains("Failed"));
}

#[test]
fn out_of_turn_is_told_and_ends_it() {
    let whole = conversation(true);
    // Each message at each point where another one is due.
    for due in [0, 2, 4] {
        for (number, message) in whole.iter().enumerate().filter(|(number, _)| *number != due) {
            let (_, mut controller) = pair(Hash::Sha384, Group::Ffdhe2048, true);
            for before in whole[..due].iter().step_by(2) {
                controller.receive(before);
                controller.send(4096);
            }
            controller.receive(message);
            assert_eq!(controller.state(), ExchangeState::Failed, "message {number} instead of {due}");
            let Ok(Message::Failure1 { why, .. }) = Message::parse(&controller.send(4096)) else {
                panic!("the host is told")
            };
            assert_eq!(why, Failure::IncorrectMessage);
        }
    }
    let (mut host, mut controller) = pair(Hash::Sha256, Group::Null, false);
    controller.receive(&host.start());
    assert!(controller.send(15).is_empty(), "the host's buffer is too small");
    assert_eq!(controller.state(), ExchangeState::Failed);
}

#[test]
fn only_hosts_with_keys_must_authenticate() {
    let keys = Keys::new(Policy::default());
    assert!(keys.begin(HOST, SUBSYSTEM, Channel::Usual).is_none());
    let key = secret(Hash::Sha256, &counting(3, 32));
    keys.set(SUBSYSTEM, HOST, Some(Credentials { host: key.clone(), controller: None }));
    let mut exchange = keys.begin(HOST, SUBSYSTEM, Channel::Usual).expect("an exchange");
    assert!(keys.begin(HOST, "nqn.2016-06.io.spdk:cnode2", Channel::Usual).is_none());
    let entropy = Entropy::from_system().expect("randomness");
    let mut host = Host::new(HOST, SUBSYSTEM, key, None, Policy::default(), entropy);
    exchange.receive(&host.start());
    let (reply, _) = host.receive(&exchange.send(4096)).expect("a challenge");
    exchange.receive(&reply);
    let (_, proof) = host.receive(&exchange.send(4096)).expect("success");
    assert_eq!(proof, Some(Proof { hash: Hash::Sha512, group: Group::Ffdhe3072, mutual: false }));
    assert_eq!(exchange.state(), ExchangeState::Done);
    keys.set(SUBSYSTEM, HOST, None);
    assert!(keys.begin(HOST, SUBSYSTEM, Channel::Usual).is_none());
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_a_failure(kind in 0u8..2, id in prop_oneof![0u8..6, 0xefu8..0xf3], rest: Vec<u8>) {
        let bytes = [&[kind, id][..], &rest].concat();
        if let Ok(message) = Message::parse(&bytes) {
            prop_assert_eq!(Message::parse(&message.to_bytes()), Ok(message));
        }
        let (mut host, mut controller) = pair(Hash::Sha256, Group::Null, false);
        controller.receive(&bytes);
        prop_assert!(controller.state() != ExchangeState::Done);
        host.start();
        prop_assert!(!matches!(host.receive(&bytes), Ok((_, Some(_)))));
    }
}

/// Both ends go through an exchange that makes a key, and one of the host's keys is among those that the target finds.
#[test]
fn a_concatenating_exchange_makes_the_same_key_on_both_ends() {
    for (hash, mutual) in [(Hash::Sha256, false), (Hash::Sha384, true)] {
        let (key, back) = (secret(hash, &counting(0, hash.bytes())), secret(hash, &counting(9, hash.bytes())));
        let credentials = Credentials { host: key.clone(), controller: mutual.then(|| back.clone()) };
        let keys = std::sync::Arc::new(GeneratedKeys::default());
        let policy = only(hash, Group::Ffdhe2048);
        let place = Some(std::sync::Arc::clone(&keys));
        let mut controller = Controller::new(HOST, SUBSYSTEM, credentials, policy, entropy(2), place);
        let host = Host::new(HOST, SUBSYSTEM, key, mutual.then_some(back), Policy::default(), entropy(1));
        let mut host = host.concatenating();
        let mut message = host.start();
        let found = |host: &Host| -> Vec<bool> {
            let offers = host.generated().iter().map(|key| key.key(HOST, SUBSYSTEM));
            offers.map(|offer| keys.find(&Identity::parse(&offer.identity).unwrap()) == Some(offer)).collect()
        };
        loop {
            assert!(controller.receive(&message));
            if controller.state() == ExchangeState::Done {
                break;
            }
            assert!(!found(&host).contains(&true), "a key counts when the exchange is over");
            let (next, proof) = host.receive(&controller.send(4096)).expect("its turn");
            if proof.is_some() && next.is_empty() {
                break;
            }
            message = next;
        }
        assert_eq!(controller.state(), ExchangeState::Done);
        assert_eq!(found(&host), [true, true]);
    }
}

#[test]
fn concatenation_is_agreed_on_or_nothing_is() {
    let key = secret(Hash::Sha256, &counting(0, 32));
    for (hosts, controllers) in [(true, false), (false, true)] {
        let credentials = Credentials { host: key.clone(), controller: None };
        let place = controllers.then(std::sync::Arc::default);
        let mut controller = Controller::new(HOST, SUBSYSTEM, credentials, Policy::default(), entropy(2), place);
        let host = Host::new(HOST, SUBSYSTEM, key.clone(), None, Policy::default(), entropy(1));
        let mut host = if hosts { host.concatenating() } else { host };
        controller.receive(&host.start());
        let (failure, _) = host.receive(&controller.send(4096)).expect_err("they differ");
        assert_eq!(failure, Failure::ConcatenationMismatch);
    }
    // A controller that knows nothing but SHA-512 or no group makes no key.
    for (hash, group) in [(Hash::Sha512, Group::Ffdhe2048), (Hash::Sha256, Group::Null)] {
        let credentials = Credentials { host: key.clone(), controller: None };
        let place = Some(std::sync::Arc::default());
        let mut controller = Controller::new(HOST, SUBSYSTEM, credentials, only(hash, group), entropy(2), place);
        let mut host = Host::new(HOST, SUBSYSTEM, key.clone(), None, Policy::default(), entropy(1)).concatenating();
        controller.receive(&host.start());
        let (failure, _) = host.receive(&controller.send(4096)).expect_err("no means");
        assert!(matches!(failure, Failure::HashNotUsable | Failure::GroupNotUsable));
    }
}
