//! Facts about this process and its machine: processor time, where threads may run, names of the host.

use std::io;
use std::mem::MaybeUninit;

/// Resources used so far (getrusage(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Nanoseconds in user mode.
    pub user_ns: u64,
    /// Nanoseconds in the kernel.
    pub system_ns: u64,
    /// Voluntary and involuntary context switches.
    pub context_switches: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Page faults that did not.
    pub minor_faults: u64,
}

/// The threads whose resources are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Only the calling thread (RUSAGE_THREAD).
    Thread,
    /// All threads of the process, kernel workers of its rings included.
    Process,
}

/// The resources that the thread or process has used so far.
pub fn usage(who: Who) -> Usage {
    let who = match who {
        Who::Thread => libc::RUSAGE_THREAD,
        Who::Process => libc::RUSAGE_SELF,
    };
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: usage is large enough; the call cannot fail with these arguments.
    unsafe { libc::getrusage(who, usage.as_mut_ptr()) };
    // SAFETY: zeroed memory is a valid rusage, filled in or not.
    let usage = unsafe { usage.assume_init() };
    let nanos = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    Usage {
        user_ns: nanos(usage.ru_utime),
        system_ns: nanos(usage.ru_stime),
        context_switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
        major_faults: usage.ru_majflt as u64,
        minor_faults: usage.ru_minflt as u64,
    }
}

/// Nanoseconds for which the calling thread was ready to run and waited for a processor: the second field of
/// /proc/thread-self/schedstat (Documentation/scheduler/sched-stats.rst of Linux). None where the kernel does not count
/// them.
pub fn waited_for_cpu_ns() -> Option<u64> {
    let fields = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// True if the calling thread is the first of its process: the only one that fork(2) left, for instance.
pub fn is_main_thread() -> bool {
    // SAFETY: gettid and getpid take no argument and cannot fail.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    // SAFETY: gettid and getpid take no argument and cannot fail.
    thread == libc::c_long::from(unsafe { libc::getpid() })
}

/// The processors on which the calling thread may run, ascending.
///
/// # Errors
/// EINVAL on machines with more processors than a cpu_set_t has bits.
pub fn affinity() -> io::Result<Vec<u32>> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: set is as large as is said.
    checked(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) })?;
    // SAFETY: the set was zeroed, and the successful call has filled it in.
    let set = unsafe { set.assume_init() };
    // SAFETY: the numbers are below the size of the set.
    Ok((0..libc::CPU_SETSIZE as u32).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu as usize, &set) }).collect())
}

/// Lets the kernel wake the calling thread at most this much later than a timer asks (PR_SET_TIMERSLACK of prctl(2)).
///
/// # Errors
/// Those of prctl(2).
pub fn set_timer_slack(ns: u32) -> io::Result<()> {
    // SAFETY: the option takes a number and no memory.
    checked(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, libc::c_ulong::from(ns)) })
}

/// Lets the calling thread run on these processors only.
///
/// # Errors
/// EINVAL if one of them does not exist, or none is online or allowed.
pub fn set_affinity(cpus: &[u32]) -> io::Result<()> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: an all-zero set is the empty set.
    let set = unsafe { set.assume_init_mut() };
    // SAFETY: the call takes no memory.
    let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.clamp(0, libc::CPU_SETSIZE.into()) as u32;
    for &cpu in cpus {
        if cpu >= configured {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: the number is below the size of the set, to which the bound is clamped.
        unsafe { libc::CPU_SET(cpu as usize, set) };
    }
    // SAFETY: set is as large as is said.
    checked(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) })
}

/// A policy of set_mempolicy(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// The node that the thread runs on.
    Local,
    /// The first of the nodes, and others where it has no memory left.
    Prefer,
    /// The nodes and no others.
    Bind,
    /// The nodes, page by page.
    Interleave,
}

/// Lets the memory that the calling thread touches first come from these NUMA nodes.
///
/// # Errors
/// EINVAL if there is no such node, or none of them may be used.
pub fn set_memory_policy(policy: MemoryPolicy, nodes: &[u32]) -> io::Result<()> {
    let mut mask = [0u64; 128];
    for &node in nodes {
        let word = mask.get_mut(node as usize / 64).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        *word |= 1 << (node % 64);
    }
    // The kernel looks at one bit less than it is told of.
    let (mode, bits) = match policy {
        MemoryPolicy::Local => (libc::MPOL_LOCAL, 0usize),
        MemoryPolicy::Prefer => (libc::MPOL_PREFERRED, 8192 + 1),
        MemoryPolicy::Bind => (libc::MPOL_BIND, 8192 + 1),
        MemoryPolicy::Interleave => (libc::MPOL_INTERLEAVE, 8192 + 1),
    };
    let nodes = if bits == 0 { std::ptr::null() } else { mask.as_ptr() };
    // SAFETY: the mask has as many bits as the kernel looks at, and outlives the call.
    match unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::c_long::from(mode), nodes, bits) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets the calling thread, and those that it starts, run on every processor that the process's control group allows.
///
/// # Errors
/// ENOSYS, EPERM where a filter forbids the call.
pub fn unbind() -> io::Result<()> {
    set_affinity(&(0..libc::CPU_SETSIZE as u32).collect::<Vec<_>>())
}

/// The processors of NUMA nodes, ascending (`/sys/devices/system/node`).
///
/// # Errors
/// ENOENT: there is no such node.
pub fn cpus_of_nodes(nodes: &[u32]) -> io::Result<Vec<u32>> {
    let mut cpus = Vec::new();
    for node in nodes {
        cpus.extend(parse_list(&std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"))?));
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// The processors of the machine that are on, ascending (`/sys/devices/system/cpu/online`).
///
/// # Errors
/// ENOENT without sysfs.
pub fn online() -> io::Result<Vec<u32>> {
    std::fs::read_to_string("/sys/devices/system/cpu/online").map(|text| parse_list(&text))
}

/// `0-3,8` as numbers.
fn parse_list(text: &str) -> Vec<u32> {
    let number = |text: &str| text.trim().parse::<u32>().ok();
    text.split(',')
        .filter_map(|part| match part.split_once('-') {
            Some((first, last)) => Some(number(first)?..=number(last)?),
            None => number(part).map(|only| only..=only),
        })
        .flatten()
        .collect()
}

/// Gives the calling thread this niceness, -20..=19.
///
/// # Errors
/// EACCES, EPERM: only a privileged process may lower it.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: takes no memory; who 0 is the calling thread on Linux.
    checked(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) })
}

/// Gives the calling thread a name, of which the kernel keeps the first 15 bytes (PR_SET_NAME of prctl(2)).
///
/// # Errors
/// A name with a byte 0 in it.
pub fn set_thread_name(name: &str) -> io::Result<()> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: name is NUL-terminated, and lives until the call returns.
    checked(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) })
}

/// Gives the calling thread an I/O priority: class 1 real-time, 2 best-effort, 3 idle; level 0 (first) ..=7; a hint
/// from 0 (none) to 1023 (ioprio_set(2)).
///
/// # Errors
/// EPERM: real time needs CAP_SYS_ADMIN or CAP_SYS_NICE.
pub fn set_io_priority(class: u8, level: u8, hint: u16) -> io::Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_SHIFT: u32 = 13;
    const HINT_SHIFT: u32 = 3;
    let hint = libc::c_int::from(hint) << HINT_SHIFT;
    let priority = libc::c_int::from(class) << CLASS_SHIFT | hint | libc::c_int::from(level);
    // SAFETY: the call takes no memory.
    checked(unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, priority) } as libc::c_int)
}

/// Makes the calling thread act as this group and this user from here on; None leaves the present one. Supplementary
/// groups stay.
///
/// The group goes first: a thread that is no longer root may not change it. The system calls are made directly, because
/// those of the C library change every thread of the process (nptl(7)).
///
/// # Errors
/// EPERM: only a privileged process may become somebody else.
pub fn set_identity(user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    for (number, id) in [(libc::SYS_setresgid, group), (libc::SYS_setresuid, user)] {
        if let Some(id) = id {
            // SAFETY: the call takes three numbers and no memory.
            checked(unsafe { libc::syscall(number, id, id, id) } as libc::c_int)?;
        }
    }
    Ok(())
}

/// The host as it calls itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The name of the host (`uname -n`).
    pub name: String,
    /// Name and release of the kernel (`uname -sr`).
    pub kernel: String,
    /// The processor's model, as /proc/cpuinfo names it; the architecture where it does not.
    pub cpu: String,
    /// Processors online.
    pub cpus: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

/// The host. Fields that the system does not tell are empty.
pub fn host() -> Host {
    let mut names = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: names is large enough; the call cannot fail with it.
    unsafe { libc::uname(names.as_mut_ptr()) };
    // SAFETY: zeroed memory is a valid utsname of empty strings.
    let names = unsafe { names.assume_init() };
    let text = |field: &[libc::c_char]| {
        let bytes: Vec<u8> = field.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        matches!(key.trim(), "model name" | "Model" | "cpu model" | "cpu").then(|| value.trim().to_owned())
    });
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    // SAFETY: the call takes no memory.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    Host {
        name: text(&names.nodename),
        kernel: format!("{} {}", text(&names.sysname), text(&names.release)),
        cpu: model.unwrap_or_else(|| text(&names.machine)),
        cpus: u32::try_from(cpus).unwrap_or(1),
        memory_bytes: kib.unwrap_or(0) * 1024,
    }
}

fn checked(status: libc::c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// True if the kernel can turn system calls from outside a range of addresses into signals (Syscall User Dispatch,
/// Linux 5.11, Documentation/admin-guide/syscall-user-dispatch.rst). The project uses the dispatch on x86-64 only.
pub fn calls_can_be_dispatched() -> bool {
    /// linux/prctl.h. The libc crate does not know it.
    const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
    /// Switches the dispatch off, which it is already.
    const PR_SYS_DISPATCH_OFF: usize = 0;
    // SAFETY: the call takes integers only.
    let off =
        unsafe { crate::raw::call(libc::SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0, 0) };
    cfg!(target_arch = "x86_64") && off == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_in_the_thread_that_did_it() {
        let before = usage(Who::Thread);
        let mut value = 1_u64;
        while usage(Who::Thread).user_ns + usage(Who::Thread).system_ns < before.user_ns + before.system_ns + 3_000_000
        {
            value = std::hint::black_box(value.wrapping_mul(3));
        }
        let other = std::thread::spawn(|| usage(Who::Thread)).join().unwrap();
        let (mine, all) = (usage(Who::Thread), usage(Who::Process));
        assert!(other.user_ns + other.system_ns < mine.user_ns + mine.system_ns);
        assert!(all.user_ns + all.system_ns + 1_000_000 >= mine.user_ns + mine.system_ns);
    }

    #[test]
    fn a_thread_is_confined_and_told_so() {
        std::thread::spawn(|| {
            let all = affinity().unwrap();
            set_affinity(&all[..1]).unwrap();
            assert_eq!(affinity().unwrap(), all[..1]);
            assert_eq!(set_affinity(&[]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
            // SAFETY: the call takes no memory.
            let beyond = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) } as u32;
            assert_eq!(set_affinity(&[all[0], beyond]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
            assert_eq!(set_affinity(&[1 << 20]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
            set_nice(5).unwrap();
            set_io_priority(2, 7, 0).unwrap();
            set_thread_name("a name of more than 15 bytes").unwrap();
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            assert_eq!(name, "a name of more \n");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn lists_of_processors() {
        assert_eq!(parse_list("0-2,8, 10-11\n"), [0, 1, 2, 8, 10, 11]);
        assert!(parse_list("\n").is_empty());
        assert!(cpus_of_nodes(&[100_000]).is_err());
    }

    #[test]
    fn the_host_has_a_name_and_memory() {
        let host = host();
        assert!(host.kernel.starts_with("Linux ") && !host.name.is_empty() && !host.cpu.is_empty());
        assert!(host.cpus >= 1 && host.memory_bytes > 1 << 20);
    }

    #[test]
    fn memory_comes_from_nodes_that_are_there() {
        // In a thread of its own: the policy is the thread's.
        let outcome = std::thread::spawn(|| {
            let on = |policy, nodes: &[u32]| set_memory_policy(policy, nodes).map_err(|error| error.raw_os_error());
            let none = on(MemoryPolicy::Bind, &[8000]);
            let beyond = on(MemoryPolicy::Bind, &[100_000]);
            (
                on(MemoryPolicy::Bind, &[0]),
                on(MemoryPolicy::Interleave, &[0]),
                on(MemoryPolicy::Local, &[]),
                none,
                beyond,
            )
        })
        .join()
        .expect("no panic");
        let refused = Err(Some(libc::EINVAL));
        assert_eq!(outcome, (Ok(()), Ok(()), Ok(()), refused, refused));
    }
}
