//! The requirements, each a function of the engine under test.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use job::workload::OpKind;
use load::engine::{Completion, Queued, Request, Slot};

use super::rig::*;

pub fn written_data_is_read_back_exactly_where_it_was_written(subject: &Subject) {
    let Some(mut rig) = Rig::new(subject, 4, 2) else { return };
    let place = Place::new(subject);
    let (first, path) = place.file("a", &[0xaa; 128 << 10], subject);
    let (second, other) = place.file("b", &[0xbb; 64 << 10], subject);
    rig.open(0, &first);
    rig.open(1, &second);
    let mut expected = vec![0xaa; 128 << 10];
    let odd = [(0, 1), (4095, 2), (5000, 777), (70_000, 16_384), (131_071, 1)];
    let even = [(0, 4096), (8192, 16_384), (4096, 4096), (122_880, 8192), (65_536, 512 * 8)];
    for (offset, len) in if subject.align == 1 { odd } else { even } {
        let bytes = pattern(offset, len);
        assert_eq!(rig.write(0, offset, &bytes), len as i64);
        expected[offset as usize..][..len].copy_from_slice(&bytes);
    }
    assert_eq!(rig.op(OpKind::Sync, 0, 0, 0), 0);
    assert_eq!(fs::read(&path).unwrap(), expected);
    assert_eq!(fs::read(&other).unwrap(), [0xbb; 64 << 10], "the other file is as it was");

    // Back through the engine, and into the middle of the buffer: what lies around is not touched.
    let skip = subject.align.max(100) as usize;
    let (offset, len) = if subject.align == 1 { (4999, 999) } else { (4096, 8192) };
    let mut request = rig.request(READ, 0, offset, len);
    request.skip = skip as u32;
    rig.slots.bytes_mut(&mut request.slot).fill(0x55);
    let (result, bytes) = rig.carry_out(request);
    assert_eq!(result, len as i64);
    assert_eq!(bytes[skip..][..len], expected[offset as usize..][..len]);
    assert!(bytes[..skip].iter().chain(&bytes[skip + len..]).all(|&byte| byte == 0x55));
}

pub fn short_reads_at_the_end_are_results(subject: &Subject) {
    let Some(mut rig) = Rig::new(subject, 4, 1) else { return };
    let place = Place::new(subject);
    // Namespaces end with a block.
    let size = if subject.namespaces.is_some() { 5120 } else { 5000 };
    let (file, _) = place.file("short", &vec![7; size], subject);
    rig.open(0, &file);
    assert_eq!(rig.op(READ, 0, 4096, 8192), size as i64 - 4096);
    assert_eq!(rig.op(READ, 0, 8192, 4096), 0);
    assert_eq!(rig.op(READ, 0, 0, 4096), 4096);
}

pub fn errors_are_results(subject: &Subject) {
    let Some(mut rig) = Rig::new(subject, 4, 4) else { return };
    let place = Place::new(subject);
    let (file, path) = place.file("errors", &[7; 8192], subject);
    rig.open(0, &file);
    if subject.descriptors {
        for kind in [READ, WRITE, OpKind::Sync, OpKind::DataSync, TRIM] {
            assert_eq!(rig.op(kind, 1, 0, 4096), -i64::from(libc::EBADF), "{kind:?} on a file that is not open");
        }
        let write_only = File::options().write(true).open(&path).unwrap();
        rig.open(2, &write_only);
        assert_eq!(rig.op(READ, 2, 0, 4096), -i64::from(libc::EBADF));
    }
    let mut beyond = rig.op(WRITE, 0, 1 << 61, 4096);
    if !subject.descriptors && beyond == 4096 {
        beyond = rig.op(OpKind::Sync, 0, 0, 0); // acknowledged by a cache, which has to tell later
    }
    assert!([libc::EFBIG, libc::EINVAL].contains(&(-beyond as i32)), "beyond any file: {beyond}");
    if subject.any_descriptor {
        let full = File::options().read(true).write(true).open("/dev/full").unwrap();
        rig.open(3, &full);
        assert_eq!(rig.op(WRITE, 3, 0, 4096), -i64::from(libc::ENOSPC));
        rig.engine.close(3);
        // Address 0 of this process is not mapped.
        let memory = File::open("/proc/self/mem").unwrap();
        rig.open(3, &memory);
        assert_eq!(rig.op(READ, 3, 0, 4096), -i64::from(libc::EIO));
    }
    assert_eq!(rig.op(READ, 0, 0, 4096), 4096, "the engine goes on");
}

/// The kernel refuses a priority of a class that it does not know: the priority of a request arrives there.
pub fn priorities_of_requests_reach_the_kernel(subject: &Subject) {
    let spec = job::engines::find(subject.engine).unwrap();
    if !spec.options.contains(&"cmdprio_percentage") {
        return;
    }
    let Some(mut rig) = Rig::new(subject, 4, 1) else { return };
    let place = Place::new(subject);
    let (file, _) = place.file("priorities", &[7; 8192], subject);
    rig.open(0, &file);
    for (kind, class, expected) in
        [(READ, 2, 4096), (WRITE, 3, 4096), (READ, 7, -i64::from(libc::EINVAL)), (WRITE, 7, -i64::from(libc::EINVAL))]
    {
        let mut request = rig.request(kind, 0, 0, 4096);
        request.priority = class << 13;
        assert_eq!(rig.carry_out(request).0, expected, "{kind:?} of class {class}");
    }
}

pub fn syncs_succeed_and_trims_make_holes(subject: &Subject) {
    let Some(mut rig) = Rig::new(subject, 4, 1) else { return };
    let place = Place::new(subject);
    let (file, path) = place.file("trim", &[7; 64 << 10], subject);
    rig.open(0, &file);
    for kind in [OpKind::Sync, OpKind::DataSync, OpKind::SyncRange] {
        assert_eq!(rig.op(kind, 0, 0, 0), 0, "{kind:?}");
    }
    assert_eq!(rig.op(TRIM, 0, 8192, 16_384), 16_384);
    let content = fs::read(&path).unwrap();
    assert_eq!(content.len(), 64 << 10, "the size stays");
    assert!(content[8192..24_576].iter().all(|&byte| byte == 0));
    assert!(content[..8192].iter().chain(&content[24_576..]).all(|&byte| byte == 7));
}

pub fn many_in_flight_complete_exactly_once(subject: &Subject) {
    const BLOCKS: u64 = 256;
    let Some(mut rig) = Rig::new(subject, 64, 1) else { return };
    let place = Place::new(subject);
    let (file, _) = place.file("many", &pattern(0, BLOCKS as usize * 4096), subject);
    rig.open(0, &file);
    let mut at = vec![None; rig.slots.count() as usize];
    let (mut issued, mut finished, mut seed) = (0_u64, 0, 1_u64);
    let mut done = Vec::new();
    while finished < 5000 {
        while issued < 5000
            && let Some(slot) = rig.free.pop()
        {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let block = seed >> 33 & (BLOCKS - 1);
            let index = slot.index() as usize;
            assert!(at[index].replace(block).is_none(), "a slot was given out twice");
            issued += 1;
            match rig.engine.queue(Request {
                slot,
                kind: READ,
                file: 0,
                offset: block * 4096,
                len: 4096,
                skip: 0,
                priority: 0,
            }) {
                Queued::Later => {}
                Queued::Done(completion) => done.push(completion),
                Queued::Full(request) => {
                    issued -= 1;
                    at[index] = None;
                    rig.free.push(request.slot);
                    break;
                }
            }
            if issued.is_multiple_of(7) {
                rig.engine.submit().unwrap();
            }
        }
        if subject.asynchronous {
            let (min, max) = (1 + (seed % 16) as usize, 1 + (seed % 37) as usize);
            let before = done.len();
            rig.engine.submit_and_reap(min, max, None, &mut done).unwrap();
            assert!(done.len() - before <= max, "more than was asked for");
        }
        for Completion { slot, result } in done.drain(..) {
            let block = at[slot.index() as usize].take().expect("completed twice, or never issued");
            assert_eq!(result, 4096);
            assert_eq!(rig.slots.bytes(&slot)[..4096], pattern(block * 4096, 4096));
            finished += 1;
            rig.free.push(slot);
        }
    }
    assert_eq!((issued, finished), (5000, 5000));
    let tokens: HashSet<u32> = rig.free.iter().map(Slot::index).collect();
    assert_eq!(tokens.len() + at.iter().flatten().count(), rig.slots.count() as usize);
}

pub fn a_full_engine_hands_the_request_back(subject: &Subject) {
    if !subject.asynchronous {
        return;
    }
    let Some(mut rig) = Rig::new(subject, 4, 1) else { return };
    let place = Place::new(subject);
    let (file, _) = place.file("full", &[1; 64 << 10], subject);
    rig.open(0, &file);
    for index in 0..4 {
        let request = rig.request(READ, 0, index * 4096, 4096);
        assert!(matches!(rig.engine.queue(request), Queued::Later));
    }
    let request = rig.request(READ, 0, 4 * 4096, 512);
    let (slot, offset) = (request.slot.index(), request.offset);
    let Queued::Full(back) = rig.engine.queue(request) else { panic!("a fifth request at depth 4") };
    assert_eq!((back.slot.index(), back.offset, back.len), (slot, offset, 512));
    let mut done = Vec::new();
    rig.finish(4, &mut done);
    assert!(matches!(rig.engine.queue(back), Queued::Later), "there is room again");
    rig.finish(5, &mut done);
}

pub fn a_bad_request_in_a_batch_fails_alone(subject: &Subject) {
    if !subject.descriptors {
        return;
    }
    let Some(mut rig) = Rig::new(subject, 8, 2) else { return };
    let place = Place::new(subject);
    let (file, _) = place.file("batch", &[1; 64 << 10], subject);
    rig.open(0, &file);
    let bad = [0, 1, 1, 0, 0, 1, 0, 0];
    let mut done = Vec::new();
    let mut file_of = vec![None; rig.slots.count() as usize];
    for (index, file) in bad.into_iter().enumerate() {
        let request = rig.request(READ, file, index as u64 * 4096, 4096);
        file_of[request.slot.index() as usize] = Some(file);
        rig.start(request, &mut done);
    }
    rig.finish(bad.len(), &mut done);
    for Completion { slot, result } in done {
        let expected = if file_of[slot.index() as usize].take() == Some(0) { 4096 } else { -i64::from(libc::EBADF) };
        assert_eq!(result, expected);
    }
}

pub fn files_open_and_close_while_others_are_in_flight(subject: &Subject) {
    let Some(mut rig) = Rig::new(subject, 16, 3) else { return };
    let place = Place::new(subject);
    let (steady, _) = place.file("steady", &[1; 64 << 10], subject);
    rig.open(0, &steady);
    for round in 0..20_u8 {
        let mut done = Vec::new();
        for index in 0..8 {
            let request = rig.request(READ, 0, index * 4096, 4096);
            rig.start(request, &mut done);
        }
        rig.engine.submit().unwrap();
        let content = if subject.descriptors { round } else { round % 2 };
        let (passing, _) = place.file("passing", &[content; 4096], subject);
        let file = 1 + u32::from(round % 2);
        rig.open(file, &passing);
        let request = rig.request(READ, file, 0, 4096);
        let mine = request.slot.index();
        rig.start(request, &mut done);
        rig.finish(9, &mut done);
        rig.engine.close(file);
        drop(passing);
        for Completion { slot, result } in done {
            let byte = if slot.index() == mine { content } else { 1 };
            assert_eq!(result, 4096);
            assert!(rig.slots.bytes(&slot)[..4096].iter().all(|&b| b == byte));
            rig.free.push(slot);
        }
        if subject.descriptors {
            assert_eq!(rig.op(READ, file, 0, 4096), -i64::from(libc::EBADF), "closed means closed");
        }
    }
}

pub fn polling_and_waiting_for_nothing_return_at_once(subject: &Subject) {
    let Some(mut rig) = Rig::new(subject, 4, 1) else { return };
    let mut done = Vec::new();
    assert_eq!(rig.engine.submit().unwrap(), 0);
    rig.engine.reap(0, usize::MAX, None, &mut done).unwrap();
    rig.engine.reap(3, usize::MAX, None, &mut done).unwrap(); // nothing is in flight: nothing to wait for
    rig.engine.submit_and_reap(1, 1, Some(u64::MAX), &mut done).unwrap();
    assert!(done.is_empty());
}

pub fn dropping_an_engine_waits_for_what_is_in_flight(subject: &Subject) {
    let place = Place::new(subject);
    let (file, _) = place.file("drop", &pattern(0, 1 << 20), subject);
    for round in 0..20 {
        let Some(mut rig) = Rig::new(subject, 32, 1) else { return };
        rig.open(0, &file);
        let mut done = Vec::new();
        for index in 0..32 {
            let request = rig.request(READ, 0, (index * 7 % 64) * SLOT_BYTES as u64, SLOT_BYTES);
            rig.start(request, &mut done);
        }
        if round % 2 == 0 {
            rig.engine.submit().unwrap();
        }
        drop(rig); // the memory goes with it: a write by the kernel afterwards would be seen by the address sanitizer
    }
}

pub fn a_wait_ends_with_its_timeout(subject: &Subject) {
    let Some((mut rig, _read, mut write)) = waiting_rig(subject) else { return };
    let mut done = Vec::new();
    let start = Instant::now();
    rig.engine.reap(1, 1, Some(3_000_000), &mut done).unwrap();
    assert!(done.is_empty() && start.elapsed() >= Duration::from_millis(3));
    rig.engine.submit_and_reap(1, 1, Some(1_000_000), &mut done).unwrap();
    assert!(done.is_empty());
    write.write_all(b"now").unwrap();
    rig.engine.reap(1, 1, Some(60_000_000_000), &mut done).unwrap();
    assert_eq!(done[0].result, 3);
    assert_eq!(&rig.slots.bytes(&done[0].slot)[..3], b"now");
}

pub fn an_interrupted_wait_returns_early(subject: &Subject) {
    extern "C" fn nothing(_: libc::c_int) {}
    let Some((mut rig, _read, mut write)) = waiting_rig(subject) else { return };
    // SAFETY: zero is a valid sigaction: no flags, so that waits are not restarted.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the handler does nothing, which is safe at any moment.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) }, 0);
    // SAFETY: pthread_self takes no arguments and cannot fail.
    let waiter = unsafe { libc::pthread_self() };
    let returned = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Again and again: the first may come before the wait has begun.
            while !returned.load(Ordering::Relaxed) {
                // SAFETY: the waiter lives as long as this scope.
                unsafe { libc::pthread_kill(waiter, libc::SIGUSR1) };
                std::thread::yield_now();
            }
        });
        let mut done = Vec::new();
        rig.engine.reap(1, 1, None, &mut done).unwrap();
        returned.store(true, Ordering::Relaxed);
        assert!(done.is_empty());
    });
    write.write_all(b"x").unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        rig.engine.reap(1, 1, None, &mut done).unwrap(); // late signals end waits early, too
    }
    assert_eq!(done[0].result, 1);
}

pub fn a_request_that_never_completes_is_called_back(subject: &Subject) {
    let Some((rig, read, mut write)) = waiting_rig(subject) else { return };
    let slots = Arc::clone(&rig.slots);
    drop(rig);
    assert_eq!(Arc::strong_count(&slots), 1, "nothing was left to the kernel");
    write.write_all(b"late").unwrap();
    let mut bytes = [0; 8];
    assert_eq!(std::io::Read::read(&mut File::from(read), &mut bytes).unwrap(), 4, "the read did not take the data");
}

/// On a device, trims are discards. Needs root and a free loop device.
pub fn trims_discard_on_devices(subject: &Subject) {
    if !subject.descriptors {
        return;
    }
    let place = Place::new(subject);
    let path = place.0.join("disk");
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let Some((device, name)) = attach_loop(&path) else { return eprintln!("skipped: no loop device (needs root)") };
    {
        use std::os::unix::fs::OpenOptionsExt;
        let Some(mut rig) = Rig::new(subject, 4, 1) else { return };
        let file = File::options().read(true).write(true).custom_flags(subject.flags).open(&name).unwrap();
        rig.open(0, &file);
        assert_eq!(rig.op(TRIM, 0, 64 << 10, 4096), 4096);
        assert_eq!(rig.op(TRIM, 0, 128 << 10, 16_384), 16_384);
        let misaligned = rig.op(TRIM, 0, 100, 100);
        assert_eq!(misaligned, -i64::from(libc::EINVAL));
        assert_eq!(rig.op(READ, 0, 64 << 10, 4096), 4096);
        assert_eq!(rig.op(TRIM, 0, 1 << 30, 4096), -i64::from(libc::EINVAL), "beyond the end");
    }
    let mut bytes = vec![0; 1 << 20];
    device.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[64 << 10..68 << 10].iter().all(|&byte| byte == 0));
    assert!(bytes[128 << 10..144 << 10].iter().all(|&byte| byte == 0));
    assert!(bytes[..64 << 10].iter().all(|&byte| byte == 7));
    detach_loop(&device);
}

/// Attaches a file to a free loop device: the device and its path (loop(4)).
pub fn attach_loop(path: &std::path::Path) -> Option<(File, String)> {
    const LOOP_SET_FD: libc::Ioctl = 0x4C00;
    const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
    let backing = File::options().read(true).write(true).open(path).unwrap();
    let control = File::options().read(true).write(true).open("/dev/loop-control").ok()?;
    for _ in 0..100 {
        // SAFETY: the request LOOP_CTL_GET_FREE neither reads nor writes memory of this process.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        let name = format!("/dev/loop{}", u32::try_from(number).ok()?);
        let device = File::options().read(true).write(true).open(&name).ok()?;
        // SAFETY: the request LOOP_SET_FD takes a descriptor and no memory. EBUSY: another test was faster.
        if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_FD, backing.as_raw_fd()) } == 0 {
            return Some((device, name));
        }
    }
    None
}

pub fn detach_loop(device: &File) {
    const LOOP_CLR_FD: libc::Ioctl = 0x4C01;
    // SAFETY: the request LOOP_CLR_FD neither reads nor writes memory of this process.
    unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD) };
}
