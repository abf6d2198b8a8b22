//! Where the soft limit of descriptors is the hard one, a program gets as many descriptors with the library as without
//! it, of every kind.

use crate::common;
use common::{Volume, compile, skipped, succeed, text};

const KINDS: [&str; 37] = [
    "open",
    "direct",
    "socket",
    "accept",
    "pipe",
    "dup",
    "fcntl",
    "socketpair",
    "epoll",
    "eventfd",
    "timerfd",
    "memfd",
    "inotify",
    "pidfd",
    "signalfd",
    "syscall",
    "ring",
    "fopen",
    "mkstemp",
    "tmpfile",
    "popen",
    "inline",
    "opendir",
    "messages",
    "large_messages",
    "shm_open",
    "openpty",
    "forkpty",
    "ioctl",
    "mq_open",
    "setmntent",
    "open_tree",
    "fsopen",
    "fspick",
    "fsmount",
    "ring_call",
    "ring_number",
];

/// Counts the descriptors of each kind in both runs.
fn same(rights: &[&str]) {
    if skipped() {
        return;
    }
    let program = compile("numbers", if rights.is_empty() { "privileged" } else { "unprivileged" }, &["-luring"]);
    let mut wrong = Vec::new();
    for kind in KINDS {
        let arguments = [&[kind], rights].concat();
        let plain = text(&succeed(&mut Volume::new().plain(&program, &arguments)).stdout);
        let mut volume = Volume::new();
        volume.pool = "policy = \"round-robin\"".into();
        let trapped = text(&succeed(&mut volume.trapped(&program, &arguments)).stdout);
        let ops = volume.counted().ops();
        assert!(ops.iter().all(|&ops| ops > 0), "{kind}: it is spread: {ops:?}");
        if plain != trapped {
            wrong.push(format!("{} without the library, {} with it", plain.trim(), trapped.trim()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn lanes_above_the_hard_limit() {
    same(&[]);
}

#[test]
fn lanes_below_the_limit() {
    same(&["unprivileged"]);
}
