//! The target with the initiator that most hosts have: the NVMe/TCP driver of a stock Debian kernel, and nvme-cli, in
//! QEMU (rigs/nvme-kernel-client.sh).

mod common;
use common::guest::{guest, guest_of, guest_with, has_rig, key};
use common::served::{NQN, Served};
use common::*;

/// Every way to look at the target and to change it that nvme-cli has, data on the raw device and in a file system,
/// with and without digests, over several queues, with namespaces that come, go and grow.
#[test]
fn a_stock_kernel_finds_uses_and_checks_the_target() {
    if !has_rig() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let mut target = Served::one_line(directory, &["--mem", "96m", "--file", "disk.img", "--create", "16m"]);
    let log = target.log();
    let script = r#"
says "subnqn: +$SUBSYSTEM" nvme discover $AT
says "current discovery subsystem" nvme discover $AT
# connect-all connects to all that it finds by discovery, and asks for TLS only where discovery says so. Discovery names
# the listener's address, which is another machine's loopback here: a relay takes its place.
nc -ll -p $PORT -e /bin/nc 10.0.2.2 $PORT &
relay=$!
try nvme connect-all $AT -k 20
wait_for sh -c 'ls /dev/nvme1n1'
disconnect
kill $relay
wait_for [ ! -e /dev/nvme1n1 ]
connect -i 2
says 'Plimsoll.* 100.66 +MB' nvme list
says "nvme0 tcp traddr=10.0.2.2,trsvcid=[0-9]*.* live" nvme list-subsys
says "subnqn +: $SUBSYSTEM" nvme id-ctrl /dev/nvme0
says 'nsze +: 0x6000$' nvme id-ns /dev/nvme0n1
says 'uuid +: [0-9a-f]' nvme ns-descs /dev/nvme0n1
says '0x2' nvme list-ns /dev/nvme0
says 'critical_warning.*: 0' nvme smart-log /dev/nvme0
says 'afi +: 0x1' nvme fw-log /dev/nvme0
says 'error_count' nvme error-log /dev/nvme0
# (effects-log and show-regs of nvme-cli 2.3 show nothing of fabrics controllers.)
says '0400: 01 00 00 00 03 00 00 00 01 00 00 00' nvme get-log /dev/nvme0 -i 5 -l 4096
says 'Controller Status.*value: 1$' nvme get-property /dev/nvme0 -o 0x1c
for feature in 1 2 4 5 6 7 0xb 0xf 0x16 0x81; do try nvme get-feature /dev/nvme0 -f $feature; done
says 'Number of Queues.*00010001' nvme get-feature /dev/nvme0 -f 7
says 'Flush: success' nvme flush /dev/nvme0n1

# Data: what nvme-cli writes it reads, compares, and finds gone after zeroes.
dd if=/dev/urandom of=/tmp/data bs=4096 count=4 2> /dev/null
try nvme write /dev/nvme0n1 -s 100 -c 3 -z 16384 -d /tmp/data
try nvme read /dev/nvme0n1 -s 100 -c 3 -z 16384 -d /tmp/back
try cmp /tmp/data /tmp/back
try nvme compare /dev/nvme0n1 -s 100 -c 3 -z 16384 -d /tmp/data
dd if=/dev/zero of=/tmp/zero bs=4096 count=4 2> /dev/null
nvme compare /dev/nvme0n1 -s 100 -c 3 -z 16384 -d /tmp/zero > /tmp/said 2>&1 && failed 'unequal data compare as equal'
grep -qi 'compare failure' /tmp/said || { cat /tmp/said; failed 'no Compare Failure'; }
try nvme write-zeroes /dev/nvme0n1 -s 100 -c 1
try nvme dsm /dev/nvme0n1 --ad -s 102 -b 2
try nvme read /dev/nvme0n1 -s 100 -c 3 -z 16384 -d /tmp/back
try cmp /tmp/zero /tmp/back
nvme read /dev/nvme0n1 -s 24576 -c 0 -z 4096 -d /tmp/back > /tmp/said 2>&1 && failed 'read beyond the end'
grep -qi 'range' /tmp/said || { cat /tmp/said; failed 'no LBA Out of Range'; }
nvme admin-passthru /dev/nvme0 -o 0xc1 > /tmp/said 2>&1 && failed 'an opcode that is none'
says 'live' nvme list-subsys

verified --filename=/dev/nvme0n1 --rw=randwrite --bsrange=4k-256k --size=12m --iodepth=16
try mkfs.ext4 -q -F /dev/nvme0n1
try mount /dev/nvme0n1 /mnt
verified --directory=/mnt --rw=randrw --bs=4k --size=2m --iodepth=8 --numjobs=2 --fsync=32
try umount /mnt
try e2fsck -fn /dev/nvme0n1

# Namespaces grow, go and come while the host is connected.
outside grow
wait_for sh -c '[ "$(cat /sys/block/nvme0n2/size)" = 65536 ]'
verified --filename=/dev/nvme0n2 --rw=write --bs=64k --offset=16m --size=16m --iodepth=4
outside remove
wait_for [ ! -e /dev/nvme0n2 ]
outside add
wait_for [ -b /dev/nvme0n2 ]
try nvme reset /dev/nvme0
disconnect

# Every mix of digests, over what was written without.
for digests in -g -G '-g -G'; do
  connect $digests -i 1 -k 8
  try e2fsck -fn /dev/nvme0n1
  [ "$digests" != '-g -G' ] || sleep 10 # alive by its keep-alives alone
  verified --filename=/dev/nvme0n2 --rw=randwrite --bsrange=512-128k --size=2m --iodepth=8
  disconnect
done
nvme connect $AT -n nqn.2016-06.io.spdk:other > /tmp/said 2>&1 && failed 'connected to no subsystem'
dmesg | grep -iE 'nvme.*(timeout|I/O error|reset|digest)' | grep -v 'resetting controller' && failed 'errors'
echo "all of it"
"#;
    let said = guest(directory, target.port(), script, |action| match action {
        "grow" => {
            let image = std::fs::File::options().write(true).open(directory.join("disk.img")).unwrap();
            image.set_len(32 << 20).unwrap();
            target.rpc(&["bdev_uring_rescan", "name=File0"]);
        }
        "remove" => drop(target.rpc(&["nvmf_subsystem_remove_ns", &format!("nqn={NQN}"), "nsid=2"])),
        "add" => {
            let namespace = "namespace={\"bdev_name\": \"File0\", \"nsid\": 2}";
            target.rpc(&["nvmf_subsystem_add_ns", &format!("nqn={NQN}"), namespace]);
        }
        other => panic!("{other}"),
    });
    assert!(said.contains("all of it"), "{said}");
    target.end();
    // The log has the kernel's name, and each of its steps.
    let log: Vec<String> = log.collect();
    let host = "host \"nqn.2014-08.org.nvmexpress:uuid:9f2c1b1e-3c5b-4f57-8d2e-6a0d1f0b7c11\" at 127.0.0.1";
    for (step, end) in [
        (format!("plimsoll: notice: {host} connects on {NQN}, controller "), ""),
        (format!("plimsoll: notice: {host} leaves {NQN}, controller "), ": it has shut its controller down"),
        (
            format!("plimsoll: warning: {host} is refused on "),
            " for \"nqn.2016-06.io.spdk:other\": there is no such subsystem (nvmf_get_subsystems lists them)",
        ),
    ] {
        assert!(log.iter().any(|line| line.starts_with(&step) && line.ends_with(end)), "{step}{end}: {log:#?}");
    }
}

/// Linux with native multipath takes two targets that were started with the same words for two, even under one NQN: no
/// block that it writes to one ever goes to the other.
#[test]
fn two_targets_with_defaults_are_never_one_disk() {
    if !has_rig() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let one = Served::one_line(directory, &["--mem", "16m"]);
    let other = Served::one_line(directory, &["--mem", "16m"]);
    let named = Served::one_line(directory, &["--mem", "16m", "--nqn", "nqn.2016-06.io.spdk:cnode2"]);
    let script = r#"
[ "$(cat /sys/module/nvme_core/parameters/multipath)" = Y ] || failed 'this kernel has no native multipath'
OTHER="-t tcp -a 10.0.2.2 -s $OTHER_PORT" NAMED="-t tcp -a 10.0.2.2 -s $NAMED_PORT"
disks() { cd /dev; echo $(ls -d nvme[0-9]n[0-9] nvme[0-9]n[0-9][0-9] 2> /dev/null | sort); cd /; }
paths() { cd /sys/class/nvme-subsystem/nvme-subsys0; echo $(ls -d nvme[0-9] | sort); cd /; }
uuid() { cat /sys/block/$1/uuid; }
connect
try nvme connect $OTHER -n $SUBSYSTEM -k 20
# Both are controllers of one subsystem to Linux, because the NQN is the same; the namespaces are not one.
wait_for [ "$(paths)" = 'nvme0 nvme1' ]
wait_for sh -c "dmesg | grep -qE \"nvme1: IDs don't match for shared namespace 1|nvme1: ignoring nsid 1\""
[ "$(disks)" = nvme0n1 ] || failed "disks: $(disks)"
[ "$(ls -d /sys/class/nvme-subsystem/nvme-subsys0/nvme*/nvme*c*n1 | wc -l)" = 1 ] || failed 'a second path'
verified --filename=/dev/nvme0n1 --rw=randwrite --bs=4k --size=4m --iodepth=8
# Under another number, or another NQN, there are disks, each with one path.
outside two
wait_for sh -c 'ls /dev/nvme0n2'
try nvme connect $NAMED -n nqn.2016-06.io.spdk:cnode2 -k 20
wait_for sh -c 'ls /dev/nvme2n1'
[ "$(disks)" = 'nvme0n1 nvme0n2 nvme2n1' ] || failed "disks: $(disks)"
seen=$(for disk in $(disks); do uuid $disk; done | sort -u | wc -l)
[ $seen = 3 ] || failed "$seen UUIDs of 3 disks"
seed=0
for disk in $(disks); do
  seed=$((seed + 1))
  fio --name=v --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --rw=randwrite --bs=4k --size=8m --iodepth=8 \
    --randseed=$seed --verify_pattern=0x$seed$seed --filename=/dev/$disk > /tmp/fio$seed 2>&1 &
  eval pid$seed=$!
done
for seed in 1 2 3; do eval wait \$pid$seed || { cat /tmp/fio$seed; failed "fio $seed"; }; done
# And once more, now that all are written: what is on each is its own.
seed=0
for disk in $(disks); do
  seed=$((seed + 1))
  try fio --name=v --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --rw=randwrite --bs=4k --size=8m --iodepth=8 \
    --randseed=$seed --verify_pattern=0x$seed$seed --filename=/dev/$disk --verify_only
done
echo "all of it"
"#;
    let ports = format!("OTHER_PORT={} NAMED_PORT={}\n{script}", other.port(), named.port());
    let said = guest(directory, one.port(), &ports, |action| match action {
        "two" => {
            let device = ["bdev_malloc_create", "name=Malloc1", "num_blocks=4096", "block_size=4096"];
            other.rpc(&device);
            let namespace = ["namespace.bdev_name=Malloc1", "namespace.nsid=2"];
            other.rpc(&[&["nvmf_subsystem_add_ns", &format!("nqn={NQN}")][..], &namespace].concat());
        }
        other => panic!("{other}"),
    });
    assert!(said.contains("all of it"), "{said}");
    for target in [one, other, named] {
        target.end();
    }
}

/// A target that is killed while it writes, and started again: the host comes back, and not a block is lost or wrong,
/// for it or for who looks at the file.
#[test]
fn a_target_killed_under_io_and_started_again_corrupts_nothing() {
    if !has_rig() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let mut target = Served::one_to_restart(directory, &["--file", "disk.img", "--create", "16m"]);
    let job = "--rw=randwrite --bsrange=4k-64k --size=16m --randseed=7 --verify=crc32c";
    let script = format!(
        r#"
connect -i 2 -g -G -c 1 -l 600
fio --name=v --ioengine=libaio --direct=1 --filename=/dev/nvme0n1 {job} --iodepth=16 --rate_iops=100 \
  --verify_fatal=1 --verify_backlog=64 --end_fsync=1 > /tmp/fio 2>&1 &
fio=$!
written() {{ [ "$(awk '{{print $7}}' /sys/block/nvme0c0n1/stat)" -gt "$1" ]; }}
for sectors in 3000 16000; do
  wait_for written $sectors
  outside kill
  sleep 1
  outside restart
  wait_for grep -q live /sys/class/nvme/nvme0/state
done
wait $fio || {{ cat /tmp/fio; failed fio; }}
dmesg | grep -q 'Successfully reconnected' || failed 'the target was not lost'
disconnect
echo "all of it"
"#
    );
    let port = target.port();
    let said = guest(directory, port, &script, |action| match action {
        "kill" => target.kill(),
        "restart" => target.restart(),
        other => panic!("{other}"),
    });
    assert!(said.contains("all of it"), "{said}");
    target.kill();
    // All data acknowledged after the last flush is in the file, now that the target was killed once more.
    let job: Vec<&str> = ["--name=v", "--ioengine=psync", "--filename=disk.img", "--verify_only"]
        .into_iter()
        .chain(job.split(' '))
        .collect();
    let seen = tool("fio", &job, directory);
    assert!(seen.contains("err= 0"), "{seen}");
}

/// Random reads, writes, discards, zeroings and flushes of several threads through Linux, held against a map of what
/// each block may hold: with digests, and with a device that is late, falls short, fails, or never answers so that
/// Linux gives up and connects again.
#[test]
fn what_linux_reads_is_what_it_wrote_whatever_the_device_does() {
    if !has_rig() || !has_program("cc") {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/block_model.c");
    let model = directory.join("block_model");
    let model = model.to_str().expect("text");
    tool("cc", &["-Wall", "-Wextra", "-Werror", "-O2", "-pthread", "-o", model, source], directory);
    let target = Served::one_line(directory, &["--null", "1g"]);
    target.rpc(&["bdev_malloc_create", "name=Malloc0", "num_blocks=4096", "block_size=4096"]);
    target.rpc(&["bdev_error_create", "base_name=Malloc0"]);
    target.rpc(&["nvmf_subsystem_add_ns", &format!("nqn={NQN}"), "namespace.bdev_name=EE_Malloc0", "namespace.nsid=2"]);
    let script = r#"
connect -i 4 -g -G -c 1
wait_for [ -b /dev/nvme0n2 ]
echo 64 > /sys/block/nvme0n2/queue/max_sectors_kb # most requests become several commands
until_said() { wait_for sh -c "grep -q '^$1 ' /tmp/model || ! kill -0 $model"; grep -q "^$1 " /tmp/model || { cat /tmp/model; failed "the model, $trouble"; }; }
seed=0
for trouble in none slow short failure pending; do
  seed=$((seed + 1))
  rm -f /tmp/go; mkfifo /tmp/go; : > /tmp/model
  $MODEL /dev/nvme0n2 8 200 $seed < /tmp/go >> /tmp/model 2>&1 &
  model=$!
  exec 8> /tmp/go
  until_said ready
  # What fails is tried once more, and may fail again; what is lost with a connection is to be tried until it ends.
  if [ $trouble = failure ]; then retries=1; else retries=100; fi
  echo $retries > /sys/module/nvme_core/parameters/max_retries
  [ $trouble != pending ] || echo 3000 > /sys/block/nvme0c0n2/queue/io_timeout
  [ $trouble = none ] || outside $trouble
  echo >&8
  until_said done
  [ $trouble = none ] || outside clear
  echo >&8; exec 8>&-
  wait $model || { cat /tmp/model; failed "the model, $trouble"; }
  grep -q 'all right' /tmp/model || failed 'no verdict'
  lost=$(sed -n 's/done \(.*\) failed/\1/p' /tmp/model)
  echo "$trouble: $lost failed, after $(cut -d. -f1 /proc/uptime) s"
  case $trouble in
    failure) [ "$lost" -gt 0 ] || failed 'nothing failed' ;;
    *) [ "$lost" = 0 ] || { cat /tmp/model; failed "$lost ops failed, $trouble"; } ;;
  esac
done
dmesg | grep -q 'Successfully reconnected' || failed 'what never ends was not given up'
dmesg | grep -i 'digest error' && failed 'digests'
disconnect
echo "all of it"
"#;
    let script = format!("MODEL={model}\n{script}");
    let said = guest_with(model, directory, target.port(), &script, |action| {
        let trouble: &[&str] = match action {
            "slow" => &["io_type=all", "num=0", "one_in=9", "slow_us=20000"],
            "short" => &["io_type=all", "num=0", "one_in=5"],
            "failure" => &["io_type=all", "num=0", "one_in=4"],
            "pending" => &["io_type=all", "num=1", "one_in=50"],
            "clear" => &["io_type=clear"],
            other => panic!("{other}"),
        };
        let kind = if action == "clear" { "failure" } else { action };
        let call = ["bdev_error_inject_error", "name=EE_Malloc0", &format!("error_type={kind}")];
        target.rpc(&[&call[..], trouble].concat());
    });
    assert!(said.contains("all of it"), "{said}");
    target.end();
}

/// Linux and the target prove to each other who they are, with every hash function, group and kind of key. The kernel
/// of Debian 13 has authentication.
#[test]
fn a_kernel_with_authentication_and_the_target_prove_themselves() {
    const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:2cc3c3a1-7d5d-4d4c-8a5e-0c8f6a9b1d10";
    if !has_rig() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let target = Served::one_line(directory, &["--mem", "64m", "--allow-host", "nqn.2016-06.io.spdk:nobody"]);
    let nqn = format!("nqn={NQN}");
    let mut keys = String::new();
    for hmac in 0..=3 {
        let (host, host_path) = key(directory, &format!("host{hmac}.key"), hmac, HOST);
        let (back, back_path) = key(directory, &format!("back{hmac}.key"), hmac, NQN);
        target.rpc(&["keyring_file_add_key", &format!("name=host{hmac}"), &format!("path={host_path}")]);
        target.rpc(&["keyring_file_add_key", &format!("name=back{hmac}"), &format!("path={back_path}")]);
        keys.push_str(&format!("HOST{hmac}='{host}' BACK{hmac}='{back}'\n"));
    }
    let script = r#"
join() { nvme connect $AT -n $SUBSYSTEM -q $HOST -I ${HOST##*:} -k 20 "$@" > /tmp/said 2>&1; }
leave() { wait_for [ -b /dev/nvme0n1 ]; dd if=/dev/nvme0n1 of=/dev/null bs=64k count=16 2> /dev/null || failed read; disconnect; }
refused() { join "$@" && failed "connected: $*"; dmesg -c > /tmp/log; }
# The kernel reports the admin queue only. The use of the other queues shows that they authenticate too.
met() { dmesg -c > /tmp/log; for line in "$@"; do grep -qF "$line" /tmp/log || { cat /tmp/log; failed "not said: $line"; }; done; }
BOTH='qid 0: controller authenticated'
how() { echo "authenticated with hash hmac($1) dhgroup $2"; }
dmesg -c > /dev/null

outside keys 0
refused
refused -S "$BACK0"
refused -S "$HOST0" -C "$HOST1"
join -S "$HOST0" -i 2 || { cat /tmp/said; failed 'with its key'; }
met "$(how sha512 ffdhe3072)" 'I/O queues'
leave

for hash in sha256 sha384 sha512; do
  for group in null ffdhe2048 ffdhe3072 ffdhe4096 ffdhe6144 ffdhe8192; do
    outside policy $hash $group
    join -S "$HOST0" -i 2 || { cat /tmp/said; dmesg | tail; failed "$hash $group"; }
    met "$(how $hash $group)"
    leave
    join -S "$HOST0" -C "$BACK0" -i 2 || { cat /tmp/said; dmesg | tail; failed "$hash $group, both ways"; }
    met "$(how $hash $group)" "$BOTH"
    leave
  done
done

for kind in 1 2 3; do
  outside keys $kind
  eval "host=\$HOST$kind back=\$BACK$kind"
  refused -S "$HOST0" -C "$back"
  refused -S "$host" -C "$BACK0"
  join -S "$host" -C "$back" -i 2 || { cat /tmp/said; dmesg | tail; failed "keys for hash $kind"; }
  met "$BOTH"
  leave
done
echo "all of it"
"#;
    let script = format!("HOST={HOST}\n{keys}{script}");
    let said = guest_of("13", directory, target.port(), &script, |action| {
        let words: Vec<&str> = action.split(' ').collect();
        match words[..] {
            ["keys", kind] => {
                let (host, back) = (format!("dhchap_key=host{kind}"), format!("dhchap_ctrlr_key=back{kind}"));
                let host_nqn = format!("host={HOST}");
                target.try_rpc(&["nvmf_subsystem_remove_host", &nqn, &host_nqn]); // the first time there is none
                target.rpc(&["nvmf_subsystem_add_host", &nqn, &host_nqn, &host, &back]);
            }
            ["policy", hash, group] => {
                let (digests, groups) =
                    (format!("dhchap_digests=[\"{hash}\"]"), format!("dhchap_dhgroups=[\"{group}\"]"));
                target.rpc(&["nvmf_set_config", &digests, &groups]);
            }
            _ => panic!("{action}"),
        }
    });
    assert!(said.contains("all of it"), "{said}");
    target.end();
}

/// The initiator of Debian 13's kernel writes and verifies while its controller is reset again and again, with and
/// without digests; then it looks at the target with what nvme-cli has for any controller.
#[test]
#[ignore = "takes minutes: make test-guest"]
fn linux_6_12_verifies_what_it_writes_while_it_is_reset() {
    if !has_rig() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let target = Served::one_line(directory, &["--mem", "32m"]);
    let script = r#"
for digests in '' -g -G '-g -G'; do
  connect $digests -i 2
  fio --name=v --ioengine=libaio --direct=1 --filename=/dev/nvme0n1 --rw=randwrite --bsrange=4k-64k --size=8m --iodepth=8 \
    --rate_iops=200 --verify=crc32c --verify_fatal=1 > /tmp/fio 2>&1 &
  fio=$!
  for round in 1 2 3; do
    sleep 1
    try nvme reset /dev/nvme0
    wait_for grep -q live /sys/class/nvme/nvme0/state
  done
  wait $fio || { cat /tmp/fio; failed "fio with digests: $digests"; }
  disconnect
done
connect
says 'cap +: ' nvme show-regs /dev/nvme0
says 'csts +: 1' nvme show-regs /dev/nvme0
says 'ACS|LBCC|CSUPP' nvme effects-log /dev/nvme0 --csi=0
disconnect
dmesg | grep -iE 'I/O error|digest error' && failed 'errors'
echo "all of it"
"#;
    let said = guest_of("13", directory, target.port(), script, |action| panic!("{action}"));
    assert!(said.contains("all of it"), "{said}");
    target.end();
}

/// Two paths to one namespace, through relays that are killed in turn while fio writes and verifies: Linux goes on over
/// the other path, no command fails, and a path that is back is used again.
#[test]
#[ignore = "takes minutes: make test-guest"]
fn a_path_that_is_killed_costs_nothing_and_comes_back() {
    if !has_rig() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let target = Served::one_line(directory, &["--mem", "32m"]);
    let script = r#"
relay() { nc -ll -p $1 -e /bin/nc 10.0.2.2 $PORT & eval "relay$1=$!"; }
# Kills the connections that a relay carries.
kill_children() { eval "parent=\$relay$1"; for pid in $(cat /tmp/children$1 2> /dev/null); do kill $pid 2> /dev/null; done; }
path() { nvme connect -t tcp -a 127.0.0.1 -s $1 -n $SUBSYSTEM -k 5 -c 1 -l 600 > /tmp/said 2>&1 || { cat /tmp/said; failed "path $1"; }
  ps | awk '/nc 10.0.2.2/ && !/awk/ {print $1}' | grep -vxFf /tmp/known > /tmp/children$1; cat /tmp/children$1 >> /tmp/known; }
: > /tmp/known; echo none >> /tmp/known
relay 5001; relay 5002; sleep 1
path 5001; path 5002
wait_for [ -b /dev/nvme0n1 ]
wait_for sh -c '[ "$(ls -d /sys/class/nvme-subsystem/nvme-subsys0/nvme*/nvme*c*n1 | wc -l)" = 2 ]'
fio --name=v --ioengine=libaio --direct=1 --filename=/dev/nvme0n1 --rw=randwrite --bsrange=4k-64k --size=24m --iodepth=8 \
  --rate_iops=60 --verify=crc32c --verify_fatal=1 --verify_backlog=64 > /tmp/fio 2>&1 &
fio=$!
for controller in 0 1; do
  port=$((5001 + controller))
  sleep 2
  kill_children $port; eval "kill \$relay$port"
  wait_for grep -q connecting /sys/class/nvme/nvme$controller/state
  sleep 2
  kill -0 $fio || { cat /tmp/fio; failed 'fio ended with its path'; }
  relay $port
  wait_for grep -q live /sys/class/nvme/nvme$controller/state
done
wait $fio || { cat /tmp/fio; failed fio; }
dmesg | grep -iE 'I/O error' && failed 'errors'
try nvme disconnect -n $SUBSYSTEM
echo "all of it"
"#;
    let said = guest(directory, target.port(), script, |action| panic!("{action}"));
    assert!(said.contains("all of it"), "{said}");
    target.end();
}

/// The beginning of scripts about two paths, nvme0c0n1 and nvme0c1n1, to the disk nvme0n1 of native multipath. `load`
/// keeps fio busy with the words that it is given.
const TWO_PATHS: &str = r#"
[ "$(cat /sys/module/nvme_core/parameters/multipath)" = Y ] || failed 'this kernel has no native multipath'
is() { wait_for grep -qx $2 /sys/block/nvme0c$1n1/ana_state; }
ops() { awk '{print $1 + $5}' /sys/block/nvme0c$1n1/stat; }
risen() { [ $(ops $1) -ge $2 ]; }
no_ops() { before="$(ops 0) $(ops 1)"; sleep 1; [ "$(ops 0) $(ops 1)" = "$before" ]; }
set_state() { outside state $1 $2; is $1 $(echo $2 | tr _ -); }
# All of the next sixty ops go by path $1, and none by path $2. (One that has chosen its path may be late.)
all_by() { first=$(ops $1) before=$(ops $2); wait_for risen $1 $((first + 60)); [ $(ops $2) = $before ]; }
# The I/O goes by path $1 alone.
all_on() {
  windows=0
  until all_by $1 $((1 - $1)); do
    windows=$((windows + 1)); [ $windows -lt 30 ] || failed "$2: I/O on the other path, too"
  done
  right "$2"
}
right() { [ ! -e /tmp/bad ] || { cat /tmp/fio; failed "fio: $1"; }; }
load() {
  touch /tmp/go
  while [ -e /tmp/go ]; do
    fio --name=v --ioengine=libaio --direct=1 --filename=/dev/nvme0n1 --loops=4 --iodepth=8 \
      --verify=crc32c --verify_fatal=1 "$@" > /tmp/fio 2>&1 || { touch /tmp/bad; break; }
  done &
  load=$!
}
unload() {
  rm /tmp/go; wait $load; right 'the end'
  # An emulated processor that stands still for long is a lockup to its kernel.
  dmesg | grep -iE 'I/O error|WARNING:|BUG:' | grep -v lockup && failed 'errors'
  try nvme disconnect -n $SUBSYSTEM
}
paths=0
for port in $PORTS; do
  try nvme connect -t tcp -a 10.0.2.2 -s $port -n $SUBSYSTEM -i 2 -k 20 -c 1 -l 600
  wait_for [ -e /sys/class/nvme/nvme$paths ]; paths=$((paths + 1))
done
wait_for [ -b /dev/nvme0n1 ]
is 0 optimized; is 1 ${SECOND:-optimized}
"#;

/// The ports of the listeners of a target.
fn ports(target: &Served) -> Vec<String> {
    let subsystem = &target.rpc(&["nvmf_get_subsystems", &format!("nqn={NQN}")])[0];
    let listeners = subsystem["listen_addresses"].as_array().expect("listeners").iter();
    listeners.map(|listener| listener["trsvcid"].as_str().expect("a port").to_string()).collect()
}

/// Sets an ANA state of the listener of a target on that port.
fn set_ana_state(target: &Served, port: &str, more: &[&str]) {
    let (nqn, port) = (format!("nqn={NQN}"), format!("listen_address.trsvcid={port}"));
    let at = [nqn.as_str(), "listen_address.traddr=127.0.0.1", &port];
    target.rpc(&[&["nvmf_subsystem_listener_set_ana_state"], &at[..], more].concat());
}

/// Two listeners are two paths of Linux's native multipath. Their ANA states change while fio writes and verifies: the
/// I/O goes where the states say, waits where no path is accessible, and not an op fails.
fn io_follows_ana_states(debian: &'static str) {
    if !has_rig() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let target = Served::one_line(directory, &["--mem", "32m", "--ana", "--listen", "127.0.0.1:0"]);
    let ports = ports(&target);
    let script = r#"
load --rw=randrw --bsrange=4k-64k --size=4m --verify_backlog=32
for round in 1 2; do
  set_state 0 inaccessible; all_on 1 'path 0 inaccessible'
  set_state 0 non_optimized; all_on 1 'path 0 not optimized'
  set_state 1 inaccessible; all_on 0 'path 1 inaccessible'
  # No path at all: the host waits, and goes on when one is back.
  set_state 0 inaccessible
  wait_for no_ops
  right 'no path'
  set_state 1 non_optimized; all_on 1 'path 1 is back'
  set_state 0 optimized; all_on 0 'path 0 is better'
  set_state 1 optimized
done
# A namespace that moves to a group which path 0 does not reach.
outside group 1 7 inaccessible
is 0 inaccessible; all_on 1 'group 7'
says 'grpid[[:space:]]*:[[:space:]]*7' nvme ana-log /dev/nvme0
says 'state[[:space:]]*:.*[Ii]naccessible' nvme ana-log /dev/nvme0
says 'anagrpid[[:space:]]*: 7' nvme id-ns /dev/nvme0n1
says 'anagrpmax[[:space:]]*: 32' nvme id-ctrl /dev/nvme0
unload
echo "all of it"
"#;
    let script = format!("PORTS='{}'\n{TWO_PATHS}{script}", ports.join(" "));
    let said =
        guest_of(debian, directory, target.port(), &script, |action| match action.split(' ').collect::<Vec<_>>()[..] {
            ["state", path, state] => {
                set_ana_state(&target, &ports[usize::from(path == "1")], &[&format!("ana_state={state}")]);
            }
            ["group", nsid, group, state] => {
                let (nsid, group) = (format!("nsid={nsid}"), format!("anagrpid={group}"));
                set_ana_state(&target, &ports[0], &[&format!("ana_state={state}"), &group]);
                target.rpc(&["nvmf_subsystem_set_ns_ana_group", &format!("nqn={NQN}"), &nsid, &group]);
            }
            _ => panic!("{action}"),
        });
    assert!(said.contains("all of it"), "{said}");
    target.end();
}

/// Two targets that serve one file in turn are two paths to one disk: the I/O of Linux goes where the file is, and to
/// the other target when one is killed amid writes. fio writes, and checks what it reads.
#[test]
fn two_targets_with_one_file_are_two_paths() {
    if !has_rig() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let mut targets: Vec<Served> = ["1-999", "1000-1999"]
        .iter()
        .map(|range| {
            let file = ["--file", "disk.img", "--create", "8m", "--ana", "--shared", "--cntlid-range", range];
            Served::one_line(directory, &file)
        })
        .collect();
    let ports: Vec<String> = targets.iter().flat_map(ports).collect();
    let script = r#"
load --rw=randrw --bsrange=4k-64k --size=4m --verify_backlog=32
for round in 1 2; do
  # The other target has the file as soon as this one has closed its path.
  set_state 0 inaccessible; is 1 optimized; all_on 1 'target 0 inaccessible'
  outside state 0 optimized
  set_state 1 inaccessible; is 0 optimized; all_on 0 'target 1 inaccessible'
  outside state 1 optimized
done
is 1 inaccessible
outside kill
is 1 optimized; all_on 1 'target 0 is dead'
unload
echo "all of it"
"#;
    let script = format!("PORTS='{}' SECOND=inaccessible\n{TWO_PATHS}{script}", ports.join(" "));
    let port = ports[0].parse().expect("a port");
    let said = guest(directory, port, &script, |action| match action.split(' ').collect::<Vec<_>>()[..] {
        ["state", path, state] => {
            let path = usize::from(path == "1");
            set_ana_state(&targets[path], &ports[path], &[&format!("ana_state={state}")]);
        }
        ["kill"] => targets[0].kill(),
        _ => panic!("{action}"),
    });
    assert!(said.contains("all of it"), "{said}");
}

#[test]
fn io_follows_ana_states_on_linux_6_1() {
    io_follows_ana_states("");
}

/// Linux manages namespaces with nvme-cli: it detaches and attaches its own disk, and finds its data again. Two
/// controllers of the host have the same namespaces, and so has the next one after a new connection.
#[test]
fn linux_6_1_attaches_and_detaches_namespaces() {
    if !has_rig() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let host = "nqn.2014-08.org.nvmexpress:uuid:9f2c1b1e-3c5b-4f57-8d2e-6a0d1f0b7c11";
    let target = Served::one_line(directory, &["--mem", "8m", "--mem", "8m", "--ns-manager", host]);
    let script = r#"
connect
id=$(cat /sys/class/nvme/nvme0/cntlid)
wait_for [ -b /dev/nvme0n2 ]
says 'oacs[[:space:]]*: 0x8' nvme id-ctrl /dev/nvme0
dd if=/dev/urandom of=/tmp/data bs=64k count=4 2> /dev/null
try dd if=/tmp/data of=/dev/nvme0n2 bs=64k oflag=direct
try nvme detach-ns /dev/nvme0 -n 2 -c $id
wait_for [ ! -e /dev/nvme0n2 ]
nvme list-ns /dev/nvme0 > /tmp/active
grep -q 0x2 /tmp/active && failed 'a detached namespace is active'
says '0x2' nvme list-ns /dev/nvme0 --all
nvme detach-ns /dev/nvme0 -n 2 -c $id > /tmp/again 2>&1 && failed 'detached twice'
grep -qi 'not attached' /tmp/again || failed "detached twice: $(cat /tmp/again)"
nvme create-ns /dev/nvme0 --nsze=1024 --ncap=1024 --flbas=0 > /tmp/created 2>&1 && failed 'created'
grep -qi 'capacity' /tmp/created || failed "created: $(cat /tmp/created)"
nvme delete-ns /dev/nvme0 -n 1 > /tmp/deleted 2>&1 && failed 'deleted'
# A new connection begins with what the last one had.
disconnect
connect
id=$(cat /sys/class/nvme/nvme0/cntlid)
wait_for [ -b /dev/nvme0n1 ]
[ ! -e /dev/nvme0n2 ] || failed 'a detached namespace came back'
try nvme attach-ns /dev/nvme0 -n 2 -c $id
wait_for [ -b /dev/nvme0n2 ]
try dd if=/dev/nvme0n2 of=/tmp/back bs=64k count=4 iflag=direct
try cmp /tmp/data /tmp/back
disconnect
echo "all of it"
"#;
    let said = guest(directory, target.port(), script, |order| panic!("{order}"));
    assert!(said.contains("all of it"), "{said}");
    target.end();
}

#[test]
#[ignore = "takes minutes: make test-guest"]
fn io_follows_ana_states_on_linux_6_12() {
    io_follows_ana_states("13");
}

/// The meaning of blktests' group nvme, on Linux 6.12: fio writes and verifies one namespace while another comes and
/// goes, the host scans and resets, and the target falls silent beyond the keep-alive timeout. The host disconnects
/// amid I/O and finds its data later. A masked namespace comes and goes for this host alone.
#[test]
#[ignore = "takes minutes: make test-guest"]
fn churn_beside_a_verified_load_costs_linux_nothing() {
    if !has_rig() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let target = Served::one_line(directory, &["--mem", "32m"]);
    target.rpc(&["bdev_malloc_create", "name=Comes", "num_blocks=2048", "block_size=4096"]);
    let script = r#"
load() { fio --name=v --ioengine=libaio --direct=1 --filename=/dev/nvme0n1 --rw=randwrite --bsrange=4k-64k --size=24m --iodepth=8 \
    --rate_iops=60 --verify=crc32c --verify_fatal=1 --verify_backlog=64 > /tmp/fio 2>&1 & fio=$!; }
loaded() { wait $fio || { cat /tmp/fio; failed "fio: $1"; }; }
live() { wait_for grep -q live /sys/class/nvme/nvme0/state; }
connect -c 1 -l 600
generation=$(nvme discover $AT | sed -n 's/.*Generation counter \([0-9]*\).*/\1/p')

# Namespaces come and go, scanned and read as they do.
load
for round in 1 2 3 4 5 6 7 8; do
  outside add
  wait_for [ -b /dev/nvme0n2 ]
  dd if=/dev/nvme0n2 of=/dev/null bs=64k count=200 2> /dev/null & reader=$!
  nvme ns-rescan /dev/nvme0
  outside remove
  wait_for [ ! -e /dev/nvme0n2 ]
  wait $reader # it may have lost its disk
done
loaded churn

# Rescans and resets at once.
load
(for scan in $(seq 20); do nvme ns-rescan /dev/nvme0 2> /dev/null; usleep 50000; done) & scanner=$!
for round in 1 2 3 4; do nvme reset /dev/nvme0; live; done
wait $scanner
loaded resets

# A target that stands still for longer than the keep-alive timeout: the host gives it up, and comes back.
disconnect; connect -c 1 -l 600 -k 3
load
outside stop
wait_for sh -c "dmesg | grep -qE 'nvme0: (failed nvme_keep_alive|starting error recovery|.*timeout)'"
outside continue
live
loaded silence
# (What was read of a namespace while it went is lost; nothing else is.)
dmesg | grep -iE 'I/O error|digest error|WARNING:|BUG:' | grep -v 'nvme0\(c0\)\?n2' && failed 'errors'

# The host disconnects amid I/O, and finds its data when it is back; nothing of the old connection is left.
dd if=/dev/urandom of=/tmp/data bs=64k count=8 2> /dev/null
try dd if=/tmp/data of=/dev/nvme0n1 bs=64k oflag=direct
dd if=/dev/nvme0n1 of=/dev/null bs=4k 2> /dev/null & reader=$!
nvme disconnect -n $SUBSYSTEM > /dev/null
wait $reader
connect -i 1
try dd if=/dev/nvme0n1 of=/tmp/back bs=64k count=8 iflag=direct
try cmp /tmp/data /tmp/back
wait_for [ "$(ls /sys/class/nvme | wc -l)" = 1 ]

# A masked namespace: this host sees it when it is named, without a scan of its own.
outside add-masked
try nvme ns-rescan /dev/nvme0
sleep 1; [ ! -e /dev/nvme0n2 ] || failed 'a masked namespace is there'
outside show
wait_for [ -b /dev/nvme0n2 ]
try dd if=/tmp/data of=/dev/nvme0n2 bs=64k oflag=direct
outside hide
wait_for [ ! -e /dev/nvme0n2 ]
says '0x1' nvme list-ns /dev/nvme0
grep -q 0x2 /tmp/said && failed 'a hidden namespace is listed'
disconnect

# Discovery: what changes counts, and a persistent controller is told.
outside listen
later=$(nvme discover $AT | sed -n 's/.*Generation counter \([0-9]*\).*/\1/p')
[ "$later" -gt "$generation" ] || failed "generation $generation, then $later"
echo "all of it"
"#;
    let nqn = format!("nqn={NQN}");
    let added = [&nqn, "namespace.bdev_name=Comes", "namespace.nsid=2"];
    let this_host = "host=nqn.2014-08.org.nvmexpress:uuid:9f2c1b1e-3c5b-4f57-8d2e-6a0d1f0b7c11";
    let said = guest_of("13", directory, target.port(), script, |action| match action {
        "add" => drop(target.rpc(&[&["nvmf_subsystem_add_ns"], &added[..]].concat())),
        "remove" => drop(target.rpc(&["nvmf_subsystem_remove_ns", &nqn, "nsid=2"])),
        "stop" => target.signal("STOP"),
        "continue" => target.signal("CONT"),
        "add-masked" => {
            let masked = [&["nvmf_subsystem_add_ns"], &added[..], &["namespace.no_auto_visible=true"]].concat();
            target.rpc(&masked);
        }
        "show" => drop(target.rpc(&["nvmf_ns_add_host", &nqn, "nsid=2", this_host])),
        "hide" => drop(target.rpc(&["nvmf_ns_remove_host", &nqn, "nsid=2", this_host])),
        "listen" => {
            let address = ["listen_address.traddr=127.0.0.1", "listen_address.trsvcid=0"];
            target.rpc(&[&["nvmf_subsystem_add_listener", &nqn], &address[..]].concat());
        }
        other => panic!("{other}"),
    });
    assert!(said.contains("all of it"), "{said}");
    target.end();
}
