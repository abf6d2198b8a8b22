//! /proc/self/mountstats: the requests of NFS mounts (nfsiostat(8); `rpc_clnt_show_stats` of net/sunrpc/stats.c).

use sys::block::unescape;

use super::numbers;
use crate::counters::Counters;

/// One NFS mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// The export: `server:/export`.
    pub source: String,
    /// The directory that it is mounted on.
    pub place: String,
    /// The requests of the mount: reads and writes, and all others together.
    pub counters: Counters,
}

/// Every NFS mount of the text. Lines that make no sense are left out.
pub fn parse(text: &str) -> Vec<Mount> {
    let mut found: Vec<Mount> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let line = line.trim();
        if let Some(device) = line.strip_prefix("device ") {
            let mount = mount(device);
            inside = mount.is_some();
            found.extend(mount);
        } else if inside && let Some(mount) = found.last_mut() {
            add(line, &mut mount.counters);
        }
    }
    found
}

/// `server:/export mounted on /mnt/x with fstype nfs statvers=1.1`.
fn mount(device: &str) -> Option<Mount> {
    let (source, rest) = device.split_once(" mounted on ")?;
    let (place, kind) = rest.split_once(" with fstype ")?;
    let is_nfs = matches!(kind.split(' ').next(), Some("nfs" | "nfs4"));
    let counters = Counters { has_times: true, queue_ns: Some(0), round_trip_ns: Some(0), ..Counters::default() };
    is_nfs.then(|| Mount { source: unescape(source), place: unescape(place), counters })
}

/// `READ: ops transmissions timeouts bytes_sent bytes_received queue_ms round_trip_ms execute_ms [errors]`.
///
/// The bytes are those of the calls and replies, headers included; `bytes:` has the bytes of data:
/// `normal_read normal_write direct_read direct_write server_read server_write pages_read pages_written`.
fn add(line: &str, counters: &mut Counters) {
    const MS: u64 = 1_000_000;
    let Some((name, rest)) = line.split_once(':') else { return };
    let n: Vec<u64> = numbers(rest.split_whitespace()).collect();
    if name == "bytes" {
        if let [_, _, _, _, read, written, ..] = n[..] {
            (counters.read.bytes, counters.write.bytes) = (read, written);
        }
        return;
    }
    // Statistics per op have capitals; `age`, `caps`, `events`, `xprt` do not.
    if !name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_') {
        return;
    }
    let [ops, transmissions, _timeouts, _sent, _received, queue, round_trip, execute, ..] = n[..] else { return };
    let flow = match name {
        "READ" => &mut counters.read,
        "WRITE" => &mut counters.write,
        _ => &mut counters.other,
    };
    flow.ops = flow.ops.saturating_add(ops);
    flow.time_ns = flow.time_ns.saturating_add(execute.saturating_mul(MS));
    let add = |sum: &mut Option<u64>, ms: u64| *sum = Some(sum.unwrap_or(0).saturating_add(ms.saturating_mul(MS)));
    add(&mut counters.queue_ns, queue);
    add(&mut counters.round_trip_ns, round_trip);
    counters.sent_again = counters.sent_again.saturating_add(transmissions.saturating_sub(ops));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Flow;

    #[test]
    fn four_mounts_of_a_real_client() {
        let mounts = parse(include_str!("../../../lanes/tests/golden/mountstats-nfs-3.txt"));
        let places: Vec<&str> = mounts.iter().map(|mount| mount.place.as_str()).collect();
        assert_eq!(places, ["/mnt/v32", "/mnt/v33", "/mnt/v34", "/mnt/v35"]);
        let first = &mounts[0];
        assert_eq!(first.source, "127.0.0.32:/run/export");
        // NULL 1, GETATTR 2, FSINFO 2 with 23 ms, PATHCONF 1.
        assert_eq!(first.counters.other, Flow { ops: 6, bytes: 0, time_ns: 23_000_000 });
        assert_eq!(first.counters.round_trip_ns, Some(23_000_000));
    }

    #[test]
    fn reads_writes_and_what_is_sent_again() {
        let text = "device a:/b mounted on /mnt/with\\040blank with fstype nfs4 statvers=1.1\n\tbytes:\t1 2 3 4 4096 8192 1 2\n\
                    \t        READ: 10 12 1 900 4500 5 40 60 0\n\t       WRITE: 4 4 0 9000 500 1 30 31\n\t age: 77\n";
        let [mount] = &parse(text)[..] else { panic!() };
        assert_eq!(mount.place, "/mnt/with blank");
        assert_eq!(mount.counters.read, Flow { ops: 10, bytes: 4096, time_ns: 60_000_000 });
        assert_eq!(mount.counters.write, Flow { ops: 4, bytes: 8192, time_ns: 31_000_000 });
        assert_eq!((mount.counters.queue_ns, mount.counters.round_trip_ns), (Some(6_000_000), Some(70_000_000)));
        assert_eq!(mount.counters.sent_again, 2);
    }
}
