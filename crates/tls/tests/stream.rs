//! Secured connections: between both of our ends, and with the program openssl at the other end.

use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;

#[path = "../../../tests/common/free_port.rs"]
mod free_port;
use free_port::free_port;
use tls::{Acceptor, Cipher, Connector, Error, Find, Handshake, Pending, Psk, Stream};

const CIPHERS: [Cipher; 2] = [Cipher::Aes128GcmSha256, Cipher::Aes256GcmSha384];

fn key(identity: &str, byte: u8, cipher: Cipher) -> Psk {
    Psk { identity: identity.into(), secret: vec![byte; cipher.hash_bytes()].into(), cipher }
}

/// The keys that a server knows.
fn known(keys: Vec<Psk>) -> Find {
    Arc::new(move |identity| keys.iter().filter(|key| key.identity == identity).cloned().collect())
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    for socket in [&client, &server] {
        socket.set_nonblocking(true).unwrap();
    }
    (client, server)
}

/// Both ends after their handshakes, which take turns.
fn meet(offered: Psk, find: Find) -> (Result<Stream, Error>, Result<Stream, Error>) {
    let (client, server) = sockets();
    let mut client = Some(Connector::new().unwrap().connect(client, offered).unwrap());
    let mut server = Some(Acceptor::new().unwrap().accept(server, find).unwrap());
    let mut ends = (None, None);
    let step = |stream: &mut Option<Stream>, end: &mut Option<Result<Stream, Error>>| {
        let Some(open) = stream else { return };
        match open.handshake() {
            Ok(Handshake::Done) => *end = stream.take().map(Ok),
            Ok(_) => {}
            Err(error) => {
                *end = Some(Err(error));
                *stream = None; // the peer sees the end of the connection
            }
        }
    };
    while ends.0.is_none() || ends.1.is_none() {
        step(&mut client, &mut ends.0);
        step(&mut server, &mut ends.1);
    }
    (ends.0.unwrap(), ends.1.unwrap())
}

/// Sends all bytes from one end to the other, in slices of many sizes, and takes them in pieces of other sizes.
fn send(from: &mut Stream, to: &mut Stream, bytes: &[u8]) -> Vec<u8> {
    let (mut sent, mut got, mut turn) = (0, Vec::new(), 0);
    let mut room = vec![0; 70_000];
    while got.len() < bytes.len() {
        turn += 1;
        let rest = &bytes[sent..];
        // The same bytes are cut otherwise after a refusal.
        let cut = |at: usize| rest.len().min(at * turn % 20_011);
        let (first, second) = (cut(7), cut(7).max(cut(13)));
        let slices = [&rest[..first], &[], &rest[first..second], &rest[second..]].map(IoSlice::new);
        match from.write_vectored(&slices) {
            Ok(now) => sent += now,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
        }
        let most = 1 + turn * 997 % room.len();
        match to.read(&mut room[..most]) {
            Ok(now) => got.extend_from_slice(&room[..now]),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
                assert!(!to.has_more(), "bytes that are here can be read");
            }
        }
    }
    got
}

#[test]
fn bytes_arrive_in_both_directions_with_both_suites() {
    for cipher in CIPHERS {
        let (client, server) = meet(key("a", 7, cipher), known(vec![key("b", 8, cipher), key("a", 7, cipher)]));
        let (mut client, mut server) = (client.unwrap(), server.unwrap());
        assert_eq!(server.key(), Some(&key("a", 7, cipher)));
        let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        assert!(send(&mut client, &mut server, &bytes) == bytes);
        assert!(send(&mut server, &mut client, &bytes) == bytes);
        client.close();
        drop(client);
        let mut room = [0; 10];
        let end = loop {
            match server.read(&mut room) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                other => break other,
            }
        };
        assert_eq!(end.unwrap(), 0);
    }
}

#[test]
fn of_several_keys_the_one_that_the_client_has_is_taken() {
    for cipher in CIPHERS {
        let keys: Vec<Psk> = (1..=3).map(|byte| key("a", byte, cipher)).collect();
        for offered in &keys {
            let (client, server) = meet(offered.clone(), known(keys.clone()));
            assert!(client.is_ok());
            assert_eq!(server.unwrap().key(), Some(offered));
        }
    }
}

#[test]
fn without_the_key_nothing_is_agreed() {
    let cipher = Cipher::Aes128GcmSha256;
    for keys in [vec![], vec![key("a", 2, cipher)], vec![key("b", 1, cipher)], vec![key("a", 1, CIPHERS[1])]] {
        let (client, server) = meet(key("a", 1, cipher), known(keys.clone()));
        assert!(client.is_err() && server.is_err(), "{keys:?}");
    }
}

#[test]
fn a_plain_client_gets_an_alert_at_the_most() {
    let (mut client, server) = sockets();
    client.write_all(&[0, 0, 128, 0, 128, 0, 0, 0].repeat(16)).unwrap(); // ICReq
    let mut server = Acceptor::new().unwrap().accept(server, known(vec![])).unwrap();
    let error = loop {
        match server.handshake() {
            Ok(Handshake::Done) => panic!("a handshake without TLS"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Handshake(_)), "{error}");
    drop(server);
    client.set_nonblocking(false).unwrap();
    let mut got = Vec::new();
    let _ = client.read_to_end(&mut got);
    assert!(got.is_empty() || got.len() == 7 && got[0] == 21, "{got:?}");
}

/// Starts the program openssl with these words; the test has its input and output.
fn openssl(words: &[&str]) -> std::process::Child {
    let mut command = Command::new("openssl");
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().expect("the program openssl (Debian's package openssl)")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_client_of_openssl_is_understood() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let shared = key("NVMe1R01 host subsystem digest", 9, Cipher::Aes128GcmSha256);
    let secret = hex(&shared.secret);
    let words = ["s_client", "-connect", &address, "-psk_identity", &shared.identity, "-psk", &secret];
    let mut program = openssl(&[&words[..], &["-tls1_3", "-quiet", "-nocommands"]].concat());
    let stream = listener.accept().unwrap().0;
    let mut server = Acceptor::new().unwrap().accept(stream, known(vec![shared])).unwrap();
    assert_eq!(server.handshake().unwrap(), Handshake::Done, "a blocking socket waits");
    program.stdin.as_mut().unwrap().write_all(b"0123456789\n").unwrap();
    let mut room = [0; 11];
    assert_eq!(server.read(&mut room).unwrap(), 11);
    assert_eq!(&room, b"0123456789\n");
    program.kill().unwrap();
    program.wait().unwrap();
}

/// The client takes new keys again and again and asks for the same (RFC 8446, section 4.6.3), while both ends send: no
/// byte is lost, although records wait in a socket that takes nothing more.
#[test]
fn a_client_may_change_its_keys_while_bytes_travel() {
    const UPDATES: usize = 20;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let place = std::env::temp_dir().join(format!("plimsoll-tls-update-{}", std::process::id()));
    let shared = key("Client_identity", 9, Cipher::Aes128GcmSha256);
    let secret = hex(&shared.secret);
    let words = ["s_client", "-connect", &address, "-psk", &secret, "-tls1_3", "-quiet", "-no_ign_eof", "-msg"];
    let mut program = openssl(&[&words[..], &["-msgfile", place.to_str().unwrap()]].concat());
    let messages = |direction: &str| {
        let all = std::fs::read_to_string(&place).unwrap_or_default();
        all.matches(&format!("{direction} TLS 1.3, Handshake [length 0005], KeyUpdate")).count()
    };
    let stream = listener.accept().unwrap().0;
    let mut server = Acceptor::new().unwrap().accept(stream, known(vec![shared])).unwrap();
    assert_eq!(server.handshake().unwrap(), Handshake::Done, "a blocking socket waits");
    server.tcp().set_nonblocking(true).unwrap();
    let sent: Vec<u8> = (0..8_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut output = program.stdout.take().unwrap();
    let printed = std::thread::spawn({
        let bytes = sent.len();
        move || {
            let mut all = vec![0; bytes];
            output.read_exact(&mut all).map(|()| all)
        }
    });
    let (mut at, mut came, mut asked) = (0, Vec::new(), 0);
    let mut room = [0; 4096];
    let lines: String = (0..UPDATES).map(|number| format!("line {number}\n")).collect();
    while at < sent.len() || came.len() < lines.len() {
        let is_through = came.iter().filter(|byte| **byte == b'\n').count() == asked;
        if asked < UPDATES && at >= sent.len() / UPDATES * asked && is_through {
            // A letter is a command where a read of the program's input begins with it: the line before has gone.
            program.stdin.as_mut().unwrap().write_all(b"K\n").unwrap();
            while messages(">>>") <= asked {
                assert!(program.try_wait().unwrap().is_none(), "the program has ended");
                std::thread::yield_now();
            }
            program.stdin.as_mut().unwrap().write_all(format!("line {asked}\n").as_bytes()).unwrap();
            asked += 1;
        }
        match server.write_vectored(&[IoSlice::new(&sent[at..(at + 100_000).min(sent.len())])]) {
            Ok(now) => at += now,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
        }
        match server.read(&mut room) {
            Ok(0) => panic!("the program has ended"),
            Ok(now) => came.extend_from_slice(&room[..now]),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
        }
    }
    assert_eq!(String::from_utf8(came).unwrap(), lines);
    assert!(printed.join().unwrap().unwrap() == sent);
    // The server takes new keys too, once for all requests that came since it sent last.
    let updates = messages("<<<");
    assert!((1..=UPDATES).contains(&updates), "{updates} of the server");
    program.kill().unwrap();
    program.wait().unwrap();
    std::fs::remove_file(&place).unwrap();
}

#[test]
fn a_server_with_a_certificate_and_no_key_is_refused() {
    let place = std::env::temp_dir().join(format!("plimsoll-tls-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    let (certificate, private) = (place.join("certificate"), place.join("private"));
    let (certificate, private) = (certificate.to_str().unwrap(), private.to_str().unwrap());
    let words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", private];
    assert!(openssl(&[&words[..], &["-out", certificate]].concat()).wait().unwrap().success());
    let port = free_port().to_string();
    let words = ["s_server", "-accept", &port, "-cert", certificate, "-key", private, "-tls1_3"];
    let mut program = openssl(&words);
    let stream = loop {
        match TcpStream::connect(format!("127.0.0.1:{port}")) {
            Ok(stream) => break stream,
            Err(_) => assert!(program.try_wait().unwrap().is_none(), "openssl has ended"),
        }
    };
    let offered = key("a", 1, Cipher::Aes128GcmSha256);
    let error = Connector::new().unwrap().connect(stream, offered).unwrap().handshake().unwrap_err();
    assert!(matches!(error, Error::Handshake(_)), "{error}");
    program.kill().unwrap();
    program.wait().unwrap();
    std::fs::remove_dir_all(place).unwrap();
}

/// The first message of a client.
fn hello(offered: Psk) -> Vec<u8> {
    let (client, mut server) = sockets();
    let mut client = Connector::new().unwrap().connect(client, offered).unwrap();
    assert_eq!(client.handshake().unwrap(), Handshake::WantsRead);
    let mut room = vec![0; 10_000];
    let length = server.read(&mut room).unwrap();
    room.truncate(length);
    room
}

fn is_readable(socket: &TcpStream) -> bool {
    let mut entry = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, as the count says; the call does not wait.
    unsafe { libc::poll(&raw mut entry, 1, 0) > 0 }
}

#[test]
fn a_clienthello_in_pieces_waits_in_the_socket_and_wakes_nobody() {
    let offered = key("a", 1, CIPHERS[0]);
    let hello = hello(offered.clone());
    for cut in [1, 4, 5, 8, 9, 100, hello.len() - 1] {
        let (mut client, server) = sockets();
        let pending = Pending::new(Arc::new(Acceptor::new().unwrap()), server, known(vec![offered.clone()]));
        assert!(pending.accept().unwrap().is_none());
        client.write_all(&hello[..cut]).unwrap();
        // The headers are looked at as soon as they are there; the rest is waited for.
        assert!(pending.accept().unwrap().is_none(), "{cut}");
        assert!(!is_readable(pending.tcp()), "{cut}");
        client.write_all(&hello[cut..]).unwrap();
        assert!(is_readable(pending.tcp()), "{cut}");
        let mut stream = loop {
            // One more look where the headers were cut.
            match pending.accept().unwrap() {
                Some(stream) => break stream,
                None => assert!(cut < 9 && is_readable(pending.tcp()), "{cut}"),
            }
        };
        assert_eq!(stream.handshake().unwrap(), Handshake::WantsRead);
        assert!(is_readable(&client), "the server has answered");
        client.write_all(&[0]).unwrap();
        assert!(is_readable(stream.tcp()), "one byte wakes again");
    }
}

#[test]
fn clients_that_do_not_begin_rightly_are_refused_before_anything_is_kept() {
    let hello = hello(key("a", 1, CIPHERS[0]));
    let plain = [0; 128];
    let long = [22, 3, 1, 0x40, 0, 1, 1, 0xff, 0]; // the first record of a ClientHello of 128 KiB
    for (sent, refused) in [(&plain[..], true), (&long[..], true), (&hello[..20], false), (&[][..], false)] {
        let (mut client, server) = sockets();
        let pending = Pending::new(Arc::new(Acceptor::new().unwrap()), server, known(vec![]));
        client.write_all(sent).unwrap();
        drop(client);
        let error = loop {
            match pending.accept() {
                Ok(None) => std::thread::yield_now(), // the end of the connection may be on its way
                Ok(Some(_)) => panic!("accepted"),
                Err(error) => break error,
            }
        };
        match error {
            Error::Handshake(_) => assert!(refused),
            Error::Io(error) => assert!(!refused && error.kind() == std::io::ErrorKind::UnexpectedEof),
            other => panic!("{other:?}"),
        }
    }
}
