//! Reservations through the kernel of a host (pr_ops, linux/pr.h), beside a second host, and after the target was
//! killed.

mod common;
#[path = "../crates/nvme_target/tests/raw/mod.rs"]
mod raw;

use common::guest::{guest_with, guest_without_multipath, has_rig};
use common::served::Served;
use common::*;
use nvme::spec::Status;
use nvme::spec::reservation::{AcquireAction, RegisterAction, ReservationCommand, ReservationType};
use raw::Host;

/// The second host, which has one connection at a time.
struct Other {
    queue: Host,
    _admin: Host,
}

impl Other {
    fn of(target: &Served) -> Other {
        let address = format!("127.0.0.1:{}", target.port()).parse().expect("an address");
        let (admin, queue) = Host::pair_of(address, [0x22; 16]);
        Other { queue, _admin: admin }
    }

    /// The type of the reservation, and the keys of all registrants.
    fn reservation(&mut self) -> (u8, Vec<u64>) {
        let (reservation, registrants) = self.queue.reservation();
        (reservation.kind, registrants.iter().map(|registrant| registrant.key).collect())
    }

    /// True if the host may write; false if a reservation is in its way.
    fn may_write(&mut self) -> bool {
        let status = self.queue.write(1, 1024, &[0x22; 4096]);
        assert!(status.is_ok() || status.is(Status::RESERVATION_CONFLICT), "{status}");
        status.is_ok()
    }
}

/// A target of one disk whose reservations persist, with its files in that directory.
fn target(directory: &std::path::Path) -> Served {
    let words = ["--file", "disk.img", "--create", "16m", "--block-size", "512", "--state", "state"];
    Served::one_to_restart(directory, &words)
}

/// The program that calls pr_ops, built into that directory.
fn pr_ops(directory: &std::path::Path) -> String {
    let program = directory.join("pr_ops");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/pr_ops.c");
    let built = program.to_str().expect("text");
    tool("cc", &["-Wall", "-Wextra", "-Werror", "-O2", "-o", built, source], directory);
    built.into()
}

#[test]
fn linux_reserves_through_pr_ops_and_a_kill_of_the_target_changes_nothing() {
    if !has_rig() || !has_program("cc") {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let built = pr_ops(directory);
    let mut target = target(directory);
    let script = r#"
connect -c 1 -l 600
pr() { try $PR_OPS /dev/nvme0n1 "$@"; }
no_pr() { $PR_OPS /dev/nvme0n1 "$@" > /tmp/said 2>&1 && failed "done: $*"; grep -q : /tmp/said || failed "$*"; }
writes() { fio --name=w --ioengine=psync --direct=1 --filename=/dev/nvme0n1 --rw=write --bs=4k --size=4k > /tmp/fio 2>&1; }
may() { writes || { cat /tmp/fio; failed "may not write: $1"; }; }
may_not() { writes && failed "may write: $1"; true; }

no_pr reserve 1 0x11
pr register 0 0x11
no_pr register 0x12 0x13
pr reserve 1 0x11
may 'write exclusive, its own'
outside conflict
outside register
outside conflict
pr release 1 0x11
outside reserve
may_not 'exclusive access of the other host'
# Linux takes the first key for the host's own (CRKEY), and the second one for the key to preempt (PRKEY).
pr preempt 2 0x11 0x22
may 'after it preempted'
outside preempted
outside kill
outside restart
wait_for grep -q live /sys/class/nvme/nvme0/state
may 'after the restart'
outside preempted
outside register
pr abort 2 0x11 0x22
outside preempted
pr clear 0x11
outside free
may 'without a reservation'
disconnect
echo "all of it"
"#;
    let script = format!("PR_OPS={built}\n{script}");
    let mut other = Some(Other::of(&target));
    let port = target.port();
    let said = guest_with(&built, directory, port, &script, |action| {
        if action == "kill" {
            other = None;
            return target.kill();
        }
        if action == "restart" {
            target.restart();
        }
        let other = other.get_or_insert_with(|| Other::of(&target));
        match action {
            "restart" => {}
            "conflict" => {
                assert!(!other.may_write(), "Linux has reserved");
                assert_eq!(other.reservation().0, ReservationType::WriteExclusive as u8);
            }
            "register" => {
                let (action, ignores_key, persists, current) = (RegisterAction::Register, false, None, 0);
                let command = ReservationCommand::Register { action, ignores_key, persists, current, new: 0x22 };
                assert!(other.queue.reserve(command).is_ok());
            }
            "reserve" => {
                let (action, kind) = (AcquireAction::Acquire, ReservationType::ExclusiveAccess);
                assert!(
                    other
                        .queue
                        .reserve(ReservationCommand::Acquire { action, kind, current: 0x22, preempted: 0 })
                        .is_ok()
                );
            }
            "preempted" => {
                assert!(!other.may_write(), "Linux has preempted");
                assert_eq!(other.reservation(), (ReservationType::ExclusiveAccess as u8, vec![0x11]));
            }
            "free" => {
                assert!(other.may_write(), "nothing is reserved");
                assert_eq!(other.reservation(), (0, vec![]));
            }
            order => panic!("{order}"),
        }
    });
    assert!(said.contains("all of it"), "{said}");
    target.end();
}

/// Two hosts of the kernel at once: one kernel without native multipath connects under two names, and has a disk for
/// each. They reserve in turn and against each other.
#[test]
#[ignore = "takes minutes of emulation: make test-guest"]
fn two_hosts_of_linux_reserve_against_each_other() {
    if !has_rig() || !has_program("cc") {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let built = pr_ops(directory);
    let target = target(directory);
    let script = r#"
# nvme-cli takes a second host of one machine for the first.
host() {
  echo "transport=tcp,traddr=10.0.2.2,trsvcid=$PORT,nqn=$SUBSYSTEM,nr_io_queues=1,keep_alive_tmo=20,reconnect_delay=1,hostid=$2,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$2" \
    > /dev/nvme-fabrics || failed "host $1"
  wait_for [ -b /dev/nvme${1}n1 ]
}
host 0 aaaaaaaa-0000-4000-8000-000000000001
host 1 bbbbbbbb-0000-4000-8000-000000000002
pr() { disk=/dev/nvme${1}n1; shift; try $PR_OPS $disk "$@"; }
no_pr() { disk=/dev/nvme${1}n1; shift; $PR_OPS $disk "$@" > /tmp/said 2>&1 && failed "done: $disk $*"; true; }
writes() { dd if=/dev/zero of=/dev/nvme${1}n1 bs=4k count=1 oflag=direct > /dev/null 2>&1; }
reads() { dd if=/dev/nvme${1}n1 of=/dev/null bs=4k count=1 iflag=direct > /dev/null 2>&1; }
# Fails unless host $1 may do exactly this: "rw", "r-" or "--".
may() {
  now=; reads $1 && now=r || now=-; writes $1 && now=${now}w || now=${now}-
  [ $now = $2 ] || failed "host $1: $now and not $2: $3"
}
pr 0 register 0 0x11
pr 1 register 0 0x22
for type in 1 2 3 4 5 6; do
  case $type in 1) other=r- ;; 2) other=-- ;; *) other=rw ;; esac
  pr 0 reserve $type 0x11
  may 0 rw "its own $type"; may 1 $other "type $type of the other"
  case $type in 5 | 6) pr 1 reserve $type 0x22 ;; *) no_pr 1 reserve $type 0x22 ;; esac
  pr 0 release $type 0x11
  may 1 rw "type $type released"
done
# The second host preempts the first one's exclusive access, and the first one loses its registration.
pr 0 reserve 2 0x11
may 1 -- 'exclusive access'
pr 1 preempt 2 0x22 0x11
may 0 -- 'preempted'; may 1 rw 'after it preempted'
no_pr 0 reserve 2 0x11
pr 0 register 0 0x11
may 0 -- 'registered without holding the reservation'
pr 0 abort 1 0x11 0x22
may 0 rw 'after it preempted and aborted'; may 1 r- 'write exclusive of the other'
pr 1 register 0 0x22
pr 0 release 1 0x11
# Both reserve at the same moment: one of them gets it.
for round in 1 2 3 4 5 6 7 8 9 10; do
  for host in 0 1; do
    { $PR_OPS /dev/nvme${host}n1 reserve 1 0x$((host + 1))$((host + 1)) > /dev/null 2>&1 && echo $host; } > /tmp/won$host &
  done
  wait
  won=$(cat /tmp/won0 /tmp/won1)
  case $won in 0 | 1) ;; *) failed "round $round: won by: $won" ;; esac
  may $won rw "it has won"; may $((1 - won)) r- "the other one has won"
  pr $won release 1 0x$((won + 1))$((won + 1))
done
pr 1 clear 0x22
may 0 rw 'cleared'; may 1 rw 'cleared'
no_pr 0 reserve 1 0x11
for host in 0 1; do echo 1 > /sys/class/nvme/nvme$host/delete_controller; done
echo "all of it"
"#;
    let script = format!("PR_OPS={built}\n{script}");
    let said = guest_without_multipath(&built, directory, target.port(), &script);
    assert!(said.contains("all of it"), "{said}");
    target.end();
}
