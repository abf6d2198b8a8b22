//! Promises that hold for any bytes on the control socket, in a configuration, and in an authentication.

use nvme::auth::{Authenticator, Channel, Credentials, Entropy, ExchangeState, Host, Keys, Policy, Secret};
use nvme_rpc::jsonrpc::{self, RpcError};
use nvme_rpc::params::Params;
use nvme_rpc::stream::{Piece, Splitter};
use nvme_rpc::{METHODS, parse_configuration, parse_state};

/// A stream: the same values come out however they are cut, their text in order is what went in, and those that are
/// JSON are cut where the parser would cut them.
pub fn rpc_stream(data: &[u8]) {
    let all = |piece_bytes: usize| {
        let mut splitter = Splitter::new(64);
        let mut pieces = Vec::new();
        for bytes in data.chunks(piece_bytes.max(1)) {
            splitter.push(bytes);
            pieces.extend(std::iter::from_fn(|| splitter.take()));
        }
        pieces
    };
    let whole = all(data.len());
    for piece_bytes in [1, 2, 7] {
        assert_eq!(all(piece_bytes), whole, "cut into pieces of {piece_bytes} bytes");
    }
    let mut rest = data;
    for piece in &whole {
        let Piece::Value(value) = piece else { break };
        let start =
            rest.windows(value.len()).position(|window| window == value).expect("every value that comes out went in");
        assert!(rest[..start].iter().all(|byte| byte.is_ascii_whitespace() || *byte == 0), "only blanks are left out");
        rest = &rest[start..];
        let mut parser = serde_json::Deserializer::from_slice(rest).into_iter::<serde_json::Value>();
        if let Some(Ok(_)) = parser.next() {
            assert_eq!(parser.byte_offset(), value.len(), "the parser agrees");
        }
        rest = &rest[value.len()..];
        request(value);
    }
}

/// A request: an answer of one line for each that has an id, whatever the parameters are.
fn request(text: &[u8]) {
    let answer = jsonrpc::answer(text, &mut |name, given| {
        let method = METHODS.iter().copied().flatten().find(|method| method.name == name);
        let method = method.ok_or_else(|| RpcError::new(jsonrpc::code::METHOD_NOT_FOUND, "none"))?;
        Params::check(method.name, method.params, given).map(|_| serde_json::Value::Null)
    });
    for answer in answer.iter().flat_map(|answer| answer.as_array().map_or(std::slice::from_ref(answer), Vec::as_slice))
    {
        assert!(answer["result"].is_null() || answer["error"].is_null());
        assert!(answer["error"]["message"].as_str().is_none_or(|message| !message.contains('\n')));
    }
}

/// A configuration: calls in order, or one line.
pub fn rpc_configuration(data: &[u8]) {
    if let Err(why) = parse_configuration(&String::from_utf8_lossy(data)) {
        assert_eq!(why.lines().count(), 1);
    }
}

/// The file of a state directory: calls in order, which create no file, or one line.
pub fn saved_state(data: &[u8]) {
    match parse_state(&String::from_utf8_lossy(data)) {
        Ok((_, steps)) => {
            let params = steps.iter().filter_map(|step| step.params.as_ref());
            assert!(params.into_iter().all(|params| params.get("create_size").is_none()));
        }
        Err(why) => assert_eq!(why.lines().count(), 1),
    }
}

/// Messages of a peer that has no key, the first byte of each its length: the peer never gets in, nor is it believed,
/// nor does it make a key of TLS.
pub fn authentication(data: &[u8]) {
    for channel in [Channel::Usual, Channel::Concatenating] {
        authentication_on(channel, data);
    }
    let _ = Secret::parse(&String::from_utf8_lossy(data));
}

fn authentication_on(channel: Channel, data: &[u8]) {
    let key = Secret::parse("DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:").expect("a key");
    let keys = Keys::new(Policy::default());
    keys.set("subsystem", "host", Some(Credentials { host: key.clone(), controller: Some(key.clone()) }));
    let mut exchange = keys.begin("host", "subsystem", channel).expect("it must authenticate");
    let entropy = Entropy::from_system().expect("randomness");
    let mut host = Host::new("host", "subsystem", key.clone(), Some(key), Policy::default(), entropy);
    if channel == Channel::Concatenating {
        host = host.concatenating();
    }
    host.start();
    let (mut rest, mut trusts) = (data, true);
    while let Some((&length, bytes)) = rest.split_first() {
        let (message, left) = bytes.split_at(usize::from(length).min(bytes.len()));
        rest = left;
        exchange.receive(message);
        exchange.send(4096);
        assert!(exchange.state() != ExchangeState::Done);
        match host.receive(message) {
            Ok((_, proof)) => assert!(!trusts || proof.is_none(), "it is proven to"),
            Err(_) => trusts = false,
        }
        if !trusts {
            break;
        }
    }
}
