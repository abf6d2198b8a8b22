//! The Rust API: buffers come back, files stay open, nothing is lost with any driver of the ring.
#![cfg(not(loom))]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use guasi::{Completion, Config, Drive, Guasi, Status};

type Plain = Guasi<Vec<u8>>;

/// Every way to run a context: with each driver of the ring, with the ring and without, and with a ring that is far too
/// small.
fn ways() -> Vec<Config> {
    let mut ways = Vec::new();
    for drive in [Drive::Thread, Drive::Caller] {
        for (use_ring, ring_entries) in [(true, 0), (true, 2), (false, 0)] {
            ways.push(Config { drive, use_ring, ring_entries, cancelable: true, ..Config::default() });
        }
    }
    ways
}

fn fetch_all(guasi: &Plain, count: usize) -> Vec<Completion<Vec<u8>>> {
    let mut done = Vec::new();
    while done.len() < count {
        guasi.fetch(1, count, None, &mut done).unwrap();
    }
    done
}

fn file_of(bytes: &[u8]) -> Arc<OwnedFd> {
    let mut file = tempfile();
    file.write_all(bytes).unwrap();
    Arc::new(file.into())
}

fn tempfile() -> File {
    // SAFETY: the name is a NUL-terminated literal.
    let fd = unsafe { libc::memfd_create(c"guasi-test".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: the call has just made the descriptor, and nobody else owns it.
    unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }
}

fn pipe() -> (Arc<OwnedFd>, File) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Arc::new(OwnedFd::from(reader)), File::from(OwnedFd::from(writer)))
}

/// The calls of io_uring_enter(2) tell how a thread waits in the ring. A context that looks submits, looks in vain, and
/// sleeps in a second call. One that does not look submits and sleeps in one call.
#[test]
fn a_thread_that_drives_the_ring_looks_before_it_sleeps() {
    // SAFETY: gettid takes nothing and cannot fail.
    let thread = unsafe { libc::gettid() };
    let call = format!("/proc/self/task/{thread}/syscall");
    let sleeps_in_ring =
        || std::fs::read_to_string(&call).unwrap().starts_with(&format!("{} ", libc::SYS_io_uring_enter));
    for looks in [true, false] {
        let guasi = Plain::new(Config { drive: Drive::Caller, looks, ..Config::default() }).unwrap();
        let (reader, mut writer) = pipe();
        guasi.read_at(0, reader, vec![0; 1], 0).unwrap();
        if guasi.stats().ring_requests == 0 {
            return println!("skipped: the kernel refuses io_uring");
        }
        let mut done = Vec::new();
        let before = guasi.stats().ring_enters;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !sleeps_in_ring() {
                    std::thread::yield_now();
                }
                writer.write_all(b"x").unwrap();
            });
            assert_eq!(guasi.fetch(1, 1, None, &mut done).unwrap(), 1);
        });
        assert_eq!(guasi.stats().ring_enters - before, 1 + u64::from(looks), "looks: {looks}");
        assert_eq!(done[0].buffer.as_deref(), Some(&b"x"[..]));
    }
}

#[test]
fn ten_thousand_reads_at_once_all_come_back_with_their_own_bytes() {
    let bytes: Vec<u8> = (0..40_000u32).flat_map(|index| (index / 4).to_le_bytes().into_iter().take(1)).collect();
    for way in ways() {
        let file = file_of(&bytes);
        let guasi = Plain::new(way.clone()).unwrap();
        for key in 0..10_000u64 {
            guasi.read_at(key, Arc::clone(&file), vec![0xff; 4], key * 4).unwrap();
        }
        let mut seen = vec![false; 10_000];
        for completion in fetch_all(&guasi, 10_000) {
            assert_eq!(completion.result.unwrap(), 4, "{way:?}");
            assert_eq!(completion.buffer.unwrap(), vec![completion.key as u8; 4], "{way:?}");
            assert!(!std::mem::replace(&mut seen[completion.key as usize], true), "twice: {way:?}");
        }
        let stats = guasi.stats();
        assert_eq!((stats.submitted, stats.finished, stats.queued), (10_000, 10_000, 0));
        // The tests of the sizing know how few workers it takes: on a busy machine a worker that does not get to run
        // looks blocked.
        assert!(stats.threads_peak < 2_000, "{} threads: {way:?}", stats.threads_peak);
        assert_eq!(Arc::strong_count(&file), 1, "the files are let go");
    }
}

#[test]
fn writes_syncs_and_functions() {
    for way in ways() {
        let file = file_of(b"");
        let guasi = Plain::new(way).unwrap();
        guasi.write_at(1, Arc::clone(&file), b"written".to_vec(), 5).unwrap();
        assert_eq!(fetch_all(&guasi, 1)[0].result.as_ref().unwrap(), &7);
        guasi.sync(2, Arc::clone(&file), true, None).unwrap();
        guasi.sync(3, Arc::clone(&file), false, Some(vec![1])).unwrap();
        guasi.call(4, None, || Ok(42)).unwrap();
        guasi.call(5, None, || Err(std::io::Error::from_raw_os_error(libc::EXDEV))).unwrap();
        // resume_unwind panics without a message on standard error, which nobody has to read.
        guasi.call(6, None, || std::panic::resume_unwind(Box::new("in a function"))).unwrap();
        let mut done = fetch_all(&guasi, 5);
        done.sort_by_key(|completion| completion.key);
        let results: Vec<_> =
            done.iter().map(|done| done.result.as_ref().map_err(|error| error.raw_os_error().unwrap())).collect();
        assert_eq!(results, [Ok(&0), Ok(&0), Ok(&42), Err(libc::EXDEV), Err(libc::ENOTRECOVERABLE)]);
        assert_eq!(done[1].buffer, Some(vec![1]));
    }
}

#[test]
fn a_blocked_read_is_cancelled_and_gives_its_buffer_back() {
    for way in ways() {
        let (reader, _writer) = pipe();
        let guasi = Plain::new(way.clone()).unwrap();
        // The test uses a function, because a pipe has no position: a read of the Rust API is a pread.
        let (begun, begin) = mpsc::channel();
        let fd = Arc::clone(&reader);
        guasi
            .call(7, Some(vec![1, 2, 3]), move || {
                begun.send(()).unwrap();
                // std retries after EINTR, so this is the bare call.
                let mut byte = 0u8;
                // SAFETY: the call fills one byte, which this function owns.
                let result = unsafe { libc::read(std::os::fd::AsRawFd::as_raw_fd(&*fd), (&raw mut byte).cast(), 1) };
                usize::try_from(result).map_err(|_| std::io::Error::last_os_error())
            })
            .unwrap();
        begin.recv().unwrap();
        assert!(guasi.cancel(7).unwrap().is_some_and(|status| status >= Status::Active), "{way:?}");
        let done = fetch_all(&guasi, 1).remove(0);
        assert_eq!(done.result.unwrap_err().raw_os_error(), Some(libc::EINTR), "{way:?}");
        assert_eq!(done.buffer, Some(vec![1, 2, 3]));
        assert_eq!(guasi.cancel(7).unwrap(), None);
    }
}

/// Sixteen calls that block are broken off, again and again, for GUASI_STRESS_SECONDS (1 unless told). A signal that
/// hits a later call, or a worker between two calls, breaks off the wrong call or ends the process; a signal that is
/// lost leaves a call blocked for ever.
#[test]
fn sixteen_blocked_calls_are_cancelled_in_a_loop() {
    let seconds = std::env::var("GUASI_STRESS_SECONDS").map_or(1, |text| text.parse().expect("seconds"));
    let end = std::time::Instant::now() + Duration::from_secs(seconds);
    let (reader, _writer) = pipe();
    let guasi = Plain::new(Config { use_ring: false, cancelable: true, ..Config::default() }).unwrap();
    let mut rounds = 0;
    while rounds < 10 || std::time::Instant::now() < end {
        for key in 0..16 {
            let fd = Arc::clone(&reader);
            let blocks = move || {
                let mut byte = 0u8;
                // SAFETY: the call fills one byte, which this function owns.
                let result = unsafe { libc::read(std::os::fd::AsRawFd::as_raw_fd(&*fd), (&raw mut byte).cast(), 1) };
                usize::try_from(result).map_err(|_| std::io::Error::last_os_error())
            };
            guasi.call(key, Some(vec![key as u8]), blocks).unwrap();
        }
        for key in 0..16 {
            assert!(guasi.cancel(key).unwrap().is_some());
        }
        let done = fetch_all(&guasi, 16);
        let mut keys: Vec<_> = done.iter().map(|done| done.key).collect();
        keys.sort_unstable();
        assert_eq!(keys, (0..16).collect::<Vec<_>>(), "each call has one answer");
        for done in done {
            let errno = done.result.unwrap_err().raw_os_error().unwrap();
            assert!([libc::EINTR, libc::ECANCELED].contains(&errno), "{errno}");
            assert_eq!(done.buffer, Some(vec![done.key as u8]));
        }
        rounds += 1;
    }
    println!("{rounds} rounds");
}

#[test]
fn dropping_a_busy_context_waits_for_the_kernel() {
    for way in ways() {
        let file = file_of(&[5; 1 << 16]);
        let guasi = Plain::new(way).unwrap();
        for key in 0..1000 {
            guasi.read_at(key, Arc::clone(&file), vec![0; 4096], key % 16 * 4096).unwrap();
        }
        drop(guasi);
        assert_eq!(Arc::strong_count(&file), 1, "everything that was in flight has been given back");
    }
}

#[test]
fn a_context_of_one_thread_refuses_the_second() {
    let guasi = Plain::new(Config { drive: Drive::Caller, ..Config::default() }).unwrap();
    guasi.call(1, None, || Ok(0)).unwrap();
    fetch_all(&guasi, 1);
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| guasi.call(2, None, || Ok(0)).unwrap_err().raw_os_error()).join().unwrap()
    });
    assert_eq!(refused, Some(libc::EPERM));
}

#[test]
fn a_fetch_keeps_its_limits() {
    for way in ways() {
        let guasi = Plain::new(way).unwrap();
        let mut done = Vec::new();
        assert_eq!(guasi.fetch(1, 1, Some(Duration::ZERO), &mut done).unwrap(), 0);
        for key in 0..10 {
            guasi.call(key, None, || Ok(1)).unwrap();
        }
        assert_eq!(guasi.fetch(3, 3, None, &mut done).unwrap(), 3);
        let mut rest = 0;
        while rest < 7 {
            rest += guasi.fetch(1, 4, None, &mut done).unwrap();
        }
        assert_eq!(guasi.fetch(0, 100, None, &mut done).unwrap(), 0);
    }
}

/// A function that ends just before the wait must not be waited for beside a request that never ends.
#[test]
fn a_function_and_a_read_that_never_ends() {
    for way in ways() {
        let (reader, _writer) = pipe();
        let guasi = Plain::new(way).unwrap();
        guasi.read_at(1, reader, vec![0; 1], 0).unwrap();
        let mut done = Vec::new();
        for key in 2..2000 {
            guasi.call(key, None, || Ok(0)).unwrap();
            while done.len() < key as usize - 1 {
                guasi.fetch(1, 1, None, &mut done).unwrap();
            }
        }
    }
}

#[test]
fn the_descriptor_becomes_readable() {
    for way in ways() {
        let guasi = Plain::new(way).unwrap();
        let fd = guasi.fd().unwrap();
        let file = file_of(b"some bytes");
        guasi.read_at(1, file, vec![0; 4], 0).unwrap();
        guasi.flush().unwrap();
        let mut ready = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: the call reads and fills one valid pollfd.
        assert_eq!(unsafe { libc::poll(&mut ready, 1, -1) }, 1);
        assert_eq!(fetch_all(&guasi, 1)[0].buffer.as_deref(), Some(&b"some"[..]));
    }
}

#[test]
fn pipes_still_deliver_after_a_context_is_gone() {
    let (reader, mut writer) = pipe();
    let guasi = Plain::new(Config::default()).unwrap();
    guasi.call(1, None, || Ok(0)).unwrap();
    drop(guasi);
    writer.write_all(b"x").unwrap();
    let mut byte = [0];
    File::from(Arc::into_inner(reader).unwrap()).read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
}

/// Threads of the kernel would carry out buffered writes to one file one after the other, and syncs a few at a time.
#[test]
fn the_ring_gets_no_call_that_it_would_pass_on_to_a_thread() {
    use std::os::unix::fs::OpenOptionsExt;
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ring-or-pool-{}", std::process::id()));
    let open = |flags| -> Arc<OwnedFd> {
        let file = File::options().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(&path);
        Arc::new(file.unwrap().into())
    };
    let (buffered, synced, direct) = (open(0), open(libc::O_DSYNC), open(libc::O_DIRECT));
    for drive in [Drive::Thread, Drive::Caller] {
        let guasi = Guasi::<sys::buffer::Buffer>::new(Config { drive, ..Config::default() }).unwrap();
        let block = || sys::buffer::Buffer::zeroed(4096, &sys::buffer::Memory::Anonymous).unwrap();
        let counts = |wanted: u64| {
            let mut done = Vec::new();
            while done.len() < wanted as usize {
                guasi.fetch(1, 8, None, &mut done).unwrap();
            }
            assert!(done.iter().all(|done| done.result.is_ok()), "{drive:?}: {done:?}");
            let stats = guasi.stats();
            (stats.backend, stats.ring_requests, stats.pool_requests)
        };
        guasi.write_at(0, Arc::clone(&buffered), block(), 0).unwrap();
        guasi.write_at(1, Arc::clone(&synced), block(), 4096).unwrap();
        guasi.sync(2, Arc::clone(&buffered), false, None).unwrap();
        guasi.sync(3, Arc::clone(&buffered), true, None).unwrap();
        let (backend, in_ring, in_pool) = counts(4);
        assert_eq!((in_ring, in_pool), (0, 4), "{drive:?}");
        guasi.read_at(4, Arc::clone(&buffered), block(), 0).unwrap();
        guasi.read_at(5, Arc::clone(&synced), block(), 0).unwrap();
        guasi.write_at(6, Arc::clone(&direct), block(), 0).unwrap();
        let (_, in_ring, in_pool) = counts(3);
        // A system without io_uring has no ring to choose.
        let expected = if backend == guasi::Backend::Ring { (3, 4) } else { (0, 7) };
        assert_eq!((in_ring, in_pool), expected, "{drive:?}");
    }
    std::fs::remove_file(&path).unwrap();
}
