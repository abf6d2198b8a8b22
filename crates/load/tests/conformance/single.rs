//! Requirements of one engine.

use std::collections::HashSet;
use std::fs;
use std::io::Write;

use job::workload::OpKind;
use load::engine::{Completion, Queued, Slot};

use super::rig::*;
use super::{DIRECT_AIO, NAMESPACES};

/// Reads whose data are thrown away count every byte, leave the memory as it was, and do not disturb what lies between
/// them on the connection.
#[test]
fn discarded_reads_count_their_bytes_and_leave_the_memory_alone() {
    let subject = Subject {
        options: |job| job.ring.other.push(("discard_payload".into(), "1".into())),
        engine: "nvme_tcp",
        ..NAMESPACES
    };
    let mut rig = Rig::new(&subject, 8, 1).unwrap();
    let place = Place::new(&subject);
    let (file, path) = place.file("a", &[0xaa; 256 << 10], &subject);
    rig.open(0, &file);
    let mut done = Vec::new();
    for round in 0..50 {
        let sizes = [512, SLOT_BYTES, 4096, SLOT_BYTES / 2, 512, 16 << 10, SLOT_BYTES];
        for len in sizes {
            let mut request = rig.request(READ, 0, 0, len);
            rig.slots.bytes_mut(&mut request.slot).fill(0x55);
            rig.start(request, &mut done);
        }
        let mut request = rig.request(WRITE, 0, 128 << 10, 4096);
        rig.slots.bytes_mut(&mut request.slot).fill(round);
        rig.start(request, &mut done);
        rig.finish(8, &mut done);
        let bytes: i64 = done.iter().map(|completion| completion.result).sum();
        assert_eq!(bytes, sizes.iter().sum::<usize>() as i64 + 4096, "round {round}");
        for Completion { slot, .. } in done.drain(..) {
            let memory = rig.slots.bytes(&slot);
            assert!(memory.iter().all(|&byte| byte == 0x55) || memory.iter().all(|&byte| byte == round));
            rig.free.push(slot);
        }
    }
    assert_eq!(rig.op(READ, 0, (256 << 10) - 512, 4096), 512, "a read across the end is short");
    let mut expected = vec![0xaa; 256 << 10];
    expected[128 << 10..][..4096].fill(49);
    assert_eq!(fs::read(&path).unwrap(), expected);
}

/// The sleeps of the calling thread so far: voluntary context switches.
fn sleeps() -> i64 {
    // SAFETY: a rusage is plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one rusage to `usage`.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) }, 0);
    usage.ru_nvcsw
}

/// An engine waits for a read that does not come. With `poll=always` the thread does not sleep. With `adaptive` it
/// sleeps at last, and so it does without the option, as fio does.
#[test]
fn a_wait_for_the_ring_sleeps_as_poll_says() {
    let awake = Subject { options: |job| job.ring.other.push(("poll".into(), "always".into())), ..ASYNCHRONOUS };
    let adaptive = Subject { options: |job| job.ring.other.push(("poll".into(), "adaptive".into())), ..ASYNCHRONOUS };
    // SAFETY: gettid takes nothing and cannot fail.
    let call = format!("/proc/self/task/{}/syscall", unsafe { libc::gettid() });
    let sleeps_in_ring = || fs::read_to_string(&call).unwrap().starts_with(&format!("{} ", libc::SYS_io_uring_enter));
    let mut done = Vec::new();
    for subject in [adaptive, ASYNCHRONOUS] {
        let Some((mut rig, _read, mut write)) = waiting_rig(&subject) else { return };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !sleeps_in_ring() {
                    std::thread::yield_now();
                }
                write.write_all(b"at last").unwrap();
            });
            rig.engine.reap(1, 1, None, &mut done).unwrap();
        });
        assert_eq!(done.drain(..).map(|completion| completion.result).collect::<Vec<_>>(), [7]);
    }
    let Some((mut rig, _read, mut write)) = waiting_rig(&awake) else { return };
    let before = sleeps();
    rig.engine.reap(1, 1, Some(5_000_000), &mut done).unwrap();
    assert_eq!((sleeps(), done.len()), (before, 0));
    write.write_all(b"at last").unwrap();
    rig.finish(1, &mut done);
    assert_eq!((sleeps(), done[0].result), (before, 7));
}

/// libaio looks into the ring that the kernel shares, and asks the kernel only for what is there.
#[test]
fn a_wait_for_libaio_does_not_sleep_with_poll_always() {
    let subject = Subject { options: |job| job.ring.other.push(("poll".into(), "always".into())), ..DIRECT_AIO };
    let Some(mut rig) = Rig::new(&subject, 4, 1) else { return };
    let place = Place::new(&subject);
    let (file, _) = place.file("a", &[0xaa; 64 << 10], &subject);
    rig.open(0, &file);
    let mut done = Vec::new();
    for round in 0..50 {
        let request = rig.request(READ, 0, round % 16 * 4096, 4096);
        rig.start(request, &mut done);
        rig.engine.submit().unwrap();
        let before = sleeps();
        while done.is_empty() {
            rig.engine.reap(1, 1, None, &mut done).unwrap();
        }
        assert_eq!(sleeps(), before, "round {round}");
        assert_eq!(done[0].result, 4096);
        rig.free.extend(done.drain(..).map(|completion| completion.slot));
    }
}

/// The null engine transfers nothing, and keeps to the same rules.
#[test]
fn the_null_engine_completes_everything_once() {
    let subject = Subject { engine: "null", ..ASYNCHRONOUS };
    let mut rig = Rig::new(&subject, 8, 1).unwrap();
    let mut done = Vec::new();
    for round in 0..100 {
        for index in 0..8 {
            let request = rig.request(if index == 7 { OpKind::Sync } else { READ }, 0, 0, 4096);
            assert!(matches!(rig.engine.queue(request), Queued::Later));
        }
        let request = rig.request(READ, 0, 0, 4096);
        let Queued::Full(back) = rig.engine.queue(request) else { panic!("nine at depth 8") };
        rig.free.push(back.slot);
        rig.engine.reap(0, usize::MAX, None, &mut done).unwrap();
        assert!(done.is_empty(), "nothing is complete before it is submitted");
        assert_eq!(rig.engine.submit().unwrap(), 8);
        rig.engine.reap(1, 3, None, &mut done).unwrap();
        assert_eq!(done.len(), 3);
        rig.finish(8, &mut done);
        let results: i64 = done.iter().map(|completion| completion.result).sum();
        assert_eq!(results, 7 * 4096, "round {round}");
        rig.free.extend(done.drain(..).map(|completion| completion.slot));
        assert_eq!(rig.free.iter().map(Slot::index).collect::<HashSet<_>>().len(), 10);
    }
}
