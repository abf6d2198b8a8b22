//! The engines `net` and `netsplice`: one job sends, another receives, and fio may be either of them.

mod common;
use common::served::free_port;
use common::*;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

/// The two ends of a connection: options of the receiver and of the sender.
fn ends(protocol: &str, directory: &Path) -> (Vec<String>, Vec<String>) {
    let port = format!("--port={}", free_port());
    let protocol_option = format!("--protocol={protocol}");
    let host = match protocol {
        "unix" => format!("--hostname={}", directory.join("socket").display()),
        "tcpv6" | "udpv6" => "--hostname=::1".into(),
        _ => "--hostname=127.0.0.1".into(),
    };
    let mut receiver = vec!["--rw=read".into(), protocol_option.clone()];
    let mut sender = vec!["--rw=write".into(), protocol_option, host.clone()];
    if protocol == "unix" {
        receiver.push(host);
    } else {
        receiver.push(port.clone());
        sender.push(port);
    }
    if protocol.starts_with("tcp") {
        receiver.push("--listen".into());
    }
    (receiver, sender)
}

/// Requests, bytes and losses of a direction of the job.
fn counts(result: &Value, job: usize, direction: &str) -> (u64, u64, u64) {
    let found = &result["jobs"][job][direction];
    let number = |key: &str| found[key].as_u64().expect(key);
    (number("total_ios"), number("io_bytes"), number("drop_ios"))
}

/// The result of a run with a receiver and a sender, both with these options too.
fn pair(directory: &Path, engine: &str, protocol: &str, more: &[&str]) -> Value {
    let (receiver, sender) = ends(protocol, directory);
    let mut words = vec!["run".to_string(), "--output-format=json".into()];
    let engine = format!("--ioengine={engine}");
    for (name, own) in [("--name=recv", receiver), ("--name=send", sender)] {
        words.extend([name.to_string(), engine.clone()]);
        words.extend(own);
        words.extend(more.iter().map(|word| (*word).to_string()));
    }
    json(&succeed(directory, &words.iter().map(String::as_str).collect::<Vec<_>>()))
}

#[test]
fn a_stream_arrives_whole_and_is_verified() {
    let directory = directory();
    let place = directory.path();
    let v6 = TcpListener::bind("[::1]:0").is_ok();
    let protocols = ["tcp", "unix", "tcpv6"];
    for protocol in protocols.into_iter().filter(|protocol| v6 || *protocol != "tcpv6") {
        let tuning = ["--bs=3k", "--size=3m", "--window_size=32k", "--mss=1000", "--nodelay=1", "--verify=crc32c"];
        let result = pair(place, "net", protocol, &tuning);
        assert_eq!(counts(&result, 0, "read"), (1024, 3 << 20, 0), "{protocol}");
        assert_eq!(counts(&result, 1, "write"), (1024, 3 << 20, 0), "{protocol}");
    }
    // Larger than a pipe, so that an op takes several turns.
    let result = pair(place, "netsplice", "tcp", &["--bs=100k", "--size=1000k", "--verify=md5"]);
    assert_eq!(counts(&result, 0, "read"), (10, 1_024_000, 0));
    assert!(names(place).is_empty(), "the socket is removed: {:?}", names(place));
}

#[test]
fn pingpong_answers_every_block() {
    let directory = directory();
    for protocol in ["tcp", "udp", "unix"] {
        let result = pair(directory.path(), "net", protocol, &["--bs=1k", "--size=200k", "--pingpong"]);
        assert_eq!(counts(&result, 0, "read"), (200, 200 << 10, 0), "{protocol}");
        assert_eq!(counts(&result, 1, "write"), (200, 200 << 10, 0), "{protocol}");
    }
}

#[test]
fn datagrams_that_do_not_arrive_are_counted_as_dropped() {
    let directory = directory();
    let result = pair(directory.path(), "net", "udp", &["--bs=1k", "--size=4m", "--window_size=4k"]);
    let (sent, ..) = counts(&result, 1, "write");
    let (received, bytes, dropped) = counts(&result, 0, "read");
    assert_eq!((sent, bytes), (4096, received << 10));
    // Losses behind the last datagram that arrives cannot be seen.
    assert!(received + dropped <= sent, "{received} received, {dropped} dropped");
}

#[test]
fn a_receiver_ends_with_its_sender() {
    let directory = directory();
    for protocol in ["tcp", "unix"] {
        let (receiver, sender) = ends(protocol, directory.path());
        let mut words = vec!["run", "--output-format=json", "--name=recv", "--ioengine=net", "--bs=4k", "--size=1g"];
        words.extend(receiver.iter().map(String::as_str));
        words.extend(["--name=send", "--ioengine=net", "--bs=1000", "--size=10000"]);
        words.extend(sender.iter().map(String::as_str));
        let result = json(&succeed(directory.path(), &words));
        assert_eq!(counts(&result, 0, "read"), (3, 10_000, 0), "{protocol}");
        assert_eq!(counts(&result, 1, "write"), (10, 10_000, 0), "{protocol}");
    }
}

/// The receiver's blocks cut the closing message: its first bytes come with the last block of data.
#[test]
fn the_closing_message_is_not_counted_wherever_blocks_cut_it() {
    let directory = directory();
    let (receiver, sender) = ends("tcp", directory.path());
    let mut words = vec!["run", "--output-format=json", "--name=recv", "--ioengine=net", "--bs=1000", "--size=1g"];
    words.extend(receiver.iter().map(String::as_str));
    words.extend(["--name=send", "--ioengine=net", "--bs=1498", "--size=2996"]);
    words.extend(sender.iter().map(String::as_str));
    let result = json(&succeed(directory.path(), &words));
    assert_eq!(counts(&result, 0, "read"), (3, 2996, 0));
}

/// A peer that is silent does not keep the job beyond its runtime, and bytes that came count.
#[test]
fn a_silent_peer_does_not_hold_the_job() {
    let directory = directory();
    let port = free_port().to_string();
    let mut receiver = plimsoll(directory.path())
        .args(["run", "--output-format=json", "--name=recv", "--ioengine=net", "--listen", "--rw=read", "--bs=4k"])
        .args(["--size=1g", "--runtime=1", "--verify_state_save=0", &format!("--port={port}")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut peer = loop {
        match TcpStream::connect(format!("127.0.0.1:{port}")) {
            Ok(peer) => break peer,
            Err(_) => assert!(receiver.try_wait().unwrap().is_none(), "the receiver has ended"),
        }
    };
    peer.write_all(&[1; 10_000]).unwrap();
    let output = receiver.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(counts(&json(&output), 0, "read"), (3, 10_000, 0));
}

/// A relay that changes one byte on the way.
#[test]
fn a_byte_that_changes_on_the_way_is_found() {
    let directory = directory();
    let relay = TcpListener::bind("127.0.0.1:0").unwrap();
    let (to, from) = (free_port().to_string(), relay.local_addr().unwrap().port().to_string());
    let forward = to.clone();
    let thread = std::thread::spawn(move || {
        let (mut input, _) = relay.accept().unwrap();
        let mut data = Vec::new();
        input.read_to_end(&mut data).unwrap();
        data[50_000] ^= 1;
        let mut output = TcpStream::connect(format!("127.0.0.1:{forward}")).unwrap();
        // The receiver ends at the mismatch: it need not take the rest.
        let _ = output.write_all(&data);
    });
    let job = |name: &'static str| [name, "--ioengine=net", "--bs=4k", "--size=256k", "--verify=crc32c"];
    let mut words = vec!["run", "--output-format=json"];
    words.extend(job("--name=recv"));
    let (to, from) = (format!("--port={to}"), format!("--port={from}"));
    words.extend(["--rw=read", "--listen", &to]);
    words.extend(job("--name=send"));
    words.extend(["--rw=write", "--hostname=127.0.0.1", &from]);
    let output = run(directory.path(), &words);
    thread.join().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let result = json(&output);
    assert_eq!(result["jobs"][0]["error"], libc_eilseq(), "{}", stderr(&output));
    assert_eq!(result["jobs"][1]["error"], 0);
}

/// EILSEQ, the error of a mismatch.
fn libc_eilseq() -> i32 {
    84
}

#[test]
fn fio_is_a_good_peer() {
    if !has_program("fio") {
        return skip("fio is not installed", true);
    }
    let directory = directory();
    let place = directory.path();
    // fio's jobs on UNIX sockets end with EISCONN, because of its closing message.
    for (protocol, more, we_receive) in [
        ("tcp", "", true),
        ("tcp", "", false),
        ("udp", "--pingpong", true),
        ("udp", "--pingpong", false),
        ("tcp", "--pingpong", true),
        ("tcp", "--verify=crc32c", true),
    ] {
        let (receiver, sender) = ends(protocol, place);
        let side = |ours: bool| {
            let mut command = if ours { plimsoll(place) } else { Command::new("fio") };
            if ours {
                command.arg("run");
            }
            command.current_dir(place).args(["--output-format=json", "--name=j", "--ioengine=net", "--bs=2k"]);
            command.arg("--size=400k").args(Some(more).filter(|more| !more.is_empty()));
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        let receiving = side(we_receive).args(&receiver).spawn().unwrap();
        await_listener(protocol, &receiver, place);
        let sent = side(!we_receive).args(&sender).output().unwrap();
        let received = receiving.wait_with_output().unwrap();
        let context = format!("{protocol} {more}, we receive: {we_receive}");
        assert!(received.status.success(), "{context}: {}{}", stdout(&received), stderr(&received));
        assert!(sent.status.success(), "{context}: {}{}", stdout(&sent), stderr(&sent));
        let read = |output| json_behind_notes(&stdout(output));
        // fio's receiver forgets the rest of a block that comes in parts, also from a sender that is fio.
        if we_receive || more == "--pingpong" {
            assert_eq!(counts(&read(&received), 0, "read").1, 400 << 10, "{context}");
        }
        assert_eq!(counts(&read(&sent), 0, "write").1, 400 << 10, "{context}");
    }
}

/// fio prints notes before its JSON.
fn json_behind_notes(text: &str) -> Value {
    let start = text.find('{').expect("JSON");
    serde_json::from_str(&text[start..]).expect("JSON")
}

/// Waits until the kernel knows the socket of the side that listens.
fn await_listener(protocol: &str, receiver: &[String], directory: &Path) {
    let port = receiver.iter().find_map(|word| word.strip_prefix("--port=")).unwrap_or("0");
    let port = format!(":{:04X} ", port.parse::<u16>().unwrap());
    for _ in 0..3000 {
        let there = match protocol {
            "unix" => directory.join("socket").exists(),
            protocol => std::fs::read_to_string(format!("/proc/net/{protocol}")).unwrap().contains(&port),
        };
        if there {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("nobody listens");
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let directory = directory();
    let job = ["run", "--name=j", "--ioengine=net", "--size=1m"];
    for (words, expected) in [
        (&["--rw=write", "--hostname=localhost"][..], "needs port"),
        (&["--rw=write", "--port=5000"], "needs hostname"),
        (&["--rw=randread", "--listen", "--port=5000"], "not possible on a socket"),
        (&["--rw=read", "--listen", "--protocol=udp", "--port=5000"], "listen is not an option of protocol=udp"),
        (&["--rw=rw", "--protocol=udp", "--port=5000"], "not possible with protocol=udp"),
        (&["--rw=read", "--protocol=unix", "--port=5000", "--hostname=s"], "has no port"),
        (&["--rw=read", "--protocol=unix"], "needs hostname"),
        (&["--rw=read", "--listen", "--port=65535", "--numjobs=2"], "too large"),
        (&["--rw=read", "--protocol=sctp", "--port=5000"], "sctp"),
    ] {
        let said = refused(directory.path(), &[&job[..], words].concat());
        assert!(said.contains(expected), "{words:?}: {said}");
    }
    // A file that is not a socket is not removed to make room for one.
    let path = file(directory.path(), "kept", "data");
    let output = run(directory.path(), &[&job[..], &["--rw=read", "--protocol=unix", "--hostname=kept"]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(std::fs::read(path).unwrap(), b"data");
}

/// Two jobs receive what is sent to a group, and one of them answers: fio's netio_multicast.fio.
#[test]
fn every_message_goes_to_the_group_whoever_answers() {
    let directory = directory();
    let group = ["--ioengine=net", "--protocol=udp", "--hostname=239.0.0.77", "--interface=127.0.0.1", "--bs=64"];
    let port = format!("--port={}", free_port());
    let mut words = vec!["run", "--output-format=json"];
    for own in [
        &["--name=answers", "--rw=read", "--pingpong"][..],
        &["--name=listens", "--rw=read"],
        &["--name=sends", "--rw=write", "--pingpong"],
    ] {
        words.extend(own);
        words.extend(group);
        words.extend(["--size=64k", &port]);
    }
    let result = json(&succeed(directory.path(), &words));
    assert_eq!(counts(&result, 2, "write"), (1024, 64 << 10, 0));
    assert_eq!(counts(&result, 0, "read"), (1024, 64 << 10, 0));
    let (received, _, dropped) = counts(&result, 1, "read");
    assert!(received > 0 && received + dropped <= 1024, "{received} received, {dropped} dropped");
}
