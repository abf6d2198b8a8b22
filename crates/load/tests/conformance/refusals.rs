//! Engines refuse with one line that says why and what to do.

use job::Job;
use load::engine::{Maker, Setup, Slots};
use sys::buffer::Memory;

#[test]
fn more_buffers_than_may_be_locked_or_files_than_may_be_open() {
    let job = Job { engine: "io_uring".into(), name: "j".into(), ..Job::default() };
    let (slots, _) = Slots::new(2, 4096, 0, &Memory::Anonymous).unwrap();
    let mut job = job;
    job.ring.register_files = true;
    let setup = Setup { job: &job, slots, depth: 2, files: (1 << 20) + 1, names: &[], clone: 0 };
    let error = Maker::find("io_uring").unwrap().make(&setup).map(drop).unwrap_err().to_string();
    assert!(!error.contains('\n') && (error.contains("registerfiles") || error.contains("not available")), "{error}");
}

/// Run by the test below in a separate process, in which the system call is forbidden.
#[test]
#[ignore = "needs the seccomp filter that forbidden_io_uring_is_said_to_be_forbidden sets up"]
fn inside_the_filter() {
    let (slots, _) = Slots::new(2, 4096, 0, &Memory::Anonymous).unwrap();
    let job = Job { engine: "io_uring".into(), name: "j".into(), ..Job::default() };
    let setup = Setup { job: &job, slots, depth: 2, files: 1, names: &[], clone: 0 };
    let error = Maker::find("io_uring").unwrap().make(&setup).map(drop).unwrap_err();
    assert_eq!(error.errno(), libc::EPERM);
    println!("refused with: {error}");
}

#[test]
fn forbidden_io_uring_is_said_to_be_forbidden() {
    use std::os::unix::process::CommandExt;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", "--nocapture", "refusals::inside_the_filter"]);
    // SAFETY: between fork and exec, forbid_io_uring makes only two system calls, with memory on its own stack.
    unsafe { child.pre_exec(forbid_io_uring) };
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let line = text.lines().find(|line| line.contains("refused with")).expect("the test ran");
    assert!(line.contains("io_uring_disabled") && line.contains("libaio"), "{line}");
}

/// A seccomp filter under which io_uring_setup(2) fails with EPERM, as containers have it.
fn forbid_io_uring() -> std::io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let mut steps = [
        step(LOAD, 0, 0), // the number of the system call
        step(JUMP_IF_EQUAL, 1, libc::SYS_io_uring_setup as u32),
        step(RETURN, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: this prctl takes numbers only, and no memory.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: program describes the steps above, which are valid during the call.
    if unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}
