//! Promises of the readers of the crates `lanes` and `live` that hold for any bytes.

use lanes::Pools;
use lanes::doctor::{connections, mounts, program};
use live::{Gauge, Op, Snapshot};

/// /proc/self/mountinfo and /proc/self/mountstats: whatever is read has a place.
pub fn mounts(data: &[u8]) {
    for mount in mounts::parse(data) {
        let _ = (mount.nfs_version(), mount.trunks(), mount.option("vers"));
        assert!(!mount.kind.chars().any(char::is_control));
    }
    for mount in connections::parse(data) {
        assert!(!mount.all.is_empty() && !mount.point.as_os_str().is_empty());
    }
}

/// A program: what becomes of it is one line.
pub fn program(data: &[u8]) {
    let read = |at: u64, room: &mut [u8]| {
        let from = usize::try_from(at).unwrap_or(usize::MAX).min(data.len());
        let length = room.len().min(data.len() - from);
        room[..length].copy_from_slice(&data[from..from + length]);
        length
    };
    if let program::Contents::Elf(found) = program::contents(&read) {
        assert!(!found.to_string().contains('\n'));
    }
}

/// Pools in every way that they are written: sound ones, which a pool file holds, or an error of one line.
pub fn pools(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let one = Pools::one(&text).and_then(|pool| Pools::new(vec![pool]));
    for found in [Pools::from_mount_pools(&text), Pools::from_toml(&text), one] {
        match found {
            Ok(pools) => assert_eq!(Pools::from_toml(&pools.to_toml()), Ok(pools)),
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
    }
}

/// A board, also one whose header is sound: it is shown without harm, or refused.
pub fn board(data: &[u8]) {
    let mut sound: Vec<u8> = b"PLIMLIVE".to_vec();
    for word in [1u64, 1, 1, 42, 7, 4026531836, 0, 0, 1, u64::MAX] {
        sound.extend_from_slice(&word.to_ne_bytes());
    }
    sound.extend_from_slice(data);
    for bytes in [data, &sound] {
        let Ok(seen) = Snapshot::parse(bytes) else { continue };
        for row in &seen.rows {
            let _ = (row.state(), row.gauge(Gauge::OutstandingBytes), row.op(Op::Write).since(row.op(Op::Read)));
            let _ = row.op(Op::Read).latencies().quantile(0.99);
        }
        live::together(&[seen.clone(), seen]);
    }
}
