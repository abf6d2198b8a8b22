//! nvme-cli, of Debian 12 and of Debian 13, with the target: each subcommand that means something for a controller, and
//! its output read.

mod common;
use common::guest::{has_rig, newer_guest};
use common::served::Served;
use common::*;

#[test]
fn nvme_cli_of_debian_12_reads_the_target() {
    read_the_target("nvme");
}

#[test]
#[ignore = "half a minute of emulation: make test-guest"]
fn nvme_cli_of_debian_13_reads_the_target() {
    read_the_target("newer nvme");
}

/// nvme-cli reads the target's structures, changes what can be changed, and says what the target does not have.
fn read_the_target(nvme: &str) {
    if !has_rig() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let target = Served::one_line(directory, &["--mem", "64m", "--null", "1g"]);
    let script = r#"
# It must fail, and say why.
refuses() { what=$1; shift; "$@" > /tmp/said 2>&1 && failed "$* succeeds"
  grep -qE -- "$what" /tmp/said || { cat /tmp/said; failed "$* does not say: $what"; }; }
absent() { refuses 'Invalid Command Opcode' "$@"; }
dd if=/dev/urandom of=/tmp/data bs=4096 count=2 2> /dev/null
says 'version 2' $nvme version
says 'subtype: +nvme subsystem' $nvme discover $AT
says '"treq":"not specified, sq flow control disable supported"' $nvme discover $AT -o json
try $nvme connect $AT -n $SUBSYSTEM -k 20
wait_for [ -b /dev/nvme0n2 ]
# Linux 6.12 looks at namespaces side by side, and numbers its disks as it finds them.
ONE=/dev/$(disk 1) TWO=/dev/$(disk 2)
says '"ModelNumber": *"Plimsoll"' $nvme list -o json
says 'nvme0n. .*1.07 +GB' $nvme list -v
says '"State": *"live"' $nvme list-subsys -o json
says 'ns 2' $nvme show-topology
says 'SQ Associations|subnqn +: nqn.2016-06.io.spdk:cnode1' $nvme id-ctrl /dev/nvme0 -H
says '"cntrltype": *1' $nvme id-ctrl /dev/nvme0 -o json
says '"nn": *32' $nvme id-ctrl /dev/nvme0 -o json
says 'lbads:12' $nvme id-ns $ONE
says '"nsze": *262144' $nvme id-ns $ONE -o json
says 'nsze +: 0$' $nvme id-ns /dev/nvme0 -n 7
says '"uuid": *"[0-9a-f-]{36}"' $nvme ns-descs $ONE -o json
says '"nsid": *2' $nvme list-ns /dev/nvme0 -o json
says 'vsl +: 8' $nvme nvm-id-ctrl /dev/nvme0
says 'mdts +: 8' $nvme id-ctrl /dev/nvme0
says 'fuses +: (0x)?1' $nvme id-ctrl /dev/nvme0
says 'mcl +: 256' $nvme id-ns $ONE
says 'lbads:0 +\(in use\)|pic' $nvme nvm-id-ns $ONE
says 'namespace-id: ?1' $nvme get-ns-id $ONE
says '"critical_warning": *0' $nvme smart-log /dev/nvme0 -o json
says '"avail_spare": *100' $nvme smart-log /dev/nvme0 -o json
says 'Active Firmware Slot.*1' $nvme fw-log /dev/nvme0 -o json
try $nvme changed-ns-list-log /dev/nvme0
says 'ACS6 +\[Identify' $nvme effects-log /dev/nvme0 --csi=0
says 'NVM Command Set' $nvme effects-log /dev/nvme0 --csi=0
says '00000000' $nvme get-feature /dev/nvme0 -f 2
says 'Allocated \(NSQA\): 1' $nvme get-feature /dev/nvme0 -f 7 -H
says 'Namespace Attribute Notices +: Send' $nvme get-feature /dev/nvme0 -f 0xb -H
says 'milliseconds: 20000' $nvme get-feature /dev/nvme0 -f 0xf -H
says '9f 2c 1b 1e' $nvme get-feature /dev/nvme0 -f 0x81
says 'value: ?(0x)?0*1$' $nvme get-feature /dev/nvme0 -f 6
try $nvme set-feature /dev/nvme0 -f 4 --value=0x140
says '140$' $nvme get-feature /dev/nvme0 -f 4
refuses 'Feature Not Changeable' $nvme set-feature /dev/nvme0 -f 6 --value=0
refuses 'Invalid Field' $nvme get-feature /dev/nvme0 -f 0x7f
says 'cap +: ' $nvme show-regs /dev/nvme0
says 'csts +: (0x)?1' $nvme show-regs /dev/nvme0
says '1.4' $nvme get-property /dev/nvme0 --offset=8 -H
try $nvme write $TWO -s 8 -c 1 -z 8192 -d /tmp/data
try $nvme read $TWO -s 8 -c 1 -z 8192 -d /tmp/back
try cmp /tmp/data /tmp/back
try $nvme compare $TWO -s 8 -c 1 -z 8192 -d /tmp/data
refuses 'Compare Failure' $nvme compare $TWO -s 9 -c 1 -z 8192 -d /tmp/data
try $nvme write-zeroes $TWO -s 8 -c 0
try $nvme dsm $TWO -d -s 9 -b 1
try $nvme read $TWO -s 8 -c 1 -z 8192 -d /tmp/back
dd if=/dev/zero bs=4096 count=2 2> /dev/null | cmp -s - /tmp/back || failed 'not zeroed'
try $nvme flush $TWO
# A reservation: the host registers, holds it, writes on, releases it and goes. Persistence needs a file.
refuses 'Invalid Field' $nvme resv-register $TWO --nrkey=0x11 --rrega=0 --cptpl=3
try $nvme resv-register $TWO --nrkey=0x11 --rrega=0 --cptpl=0
refuses 'Reservation Conflict' $nvme resv-acquire $TWO --crkey=0x12 --rtype=2 --racqa=0
try $nvme resv-acquire $TWO --crkey=0x11 --rtype=2 --racqa=0
says 'rtype +: 2' $nvme resv-report $TWO --eds
says 'regctl +: 1' $nvme resv-report $TWO --eds
says 'rkey +: 11' $nvme resv-report $TWO --eds
try $nvme write $TWO -s 8 -c 1 -z 8192 -d /tmp/data
says '00000000|value: ?0' $nvme get-feature $TWO -n 2 -f 0x83
refuses 'Feature Not Changeable' $nvme set-feature $TWO -n 2 -f 0x83 --value=1
try $nvme resv-release $TWO --crkey=0x11 --rtype=2 --rrela=0
try $nvme resv-register $TWO --crkey=0x11 --rrega=1
says 'regctl +: 0' $nvme resv-report $TWO --eds
try $nvme resv-notif-log /dev/nvme0
# The blocks that the reserved disk took are copied and verified.
try $nvme copy $TWO -d 100 -s 8 -b 1
try $nvme read $TWO -s 100 -c 1 -z 8192 -d /tmp/back
try cmp /tmp/data /tmp/back
refuses 'LBA Out of Range' $nvme copy $TWO -d 16383 -s 8 -b 1
try $nvme verify $TWO -s 100 -c 1
refuses 'LBA Out of Range' $nvme verify $TWO -s 16384 -c 0
refuses 'LBA Out of Range' $nvme read $TWO -s 16384 -c 0 -z 4096 -d /tmp/back
says 'Success' $nvme io-passthru $ONE --opcode=2 -n 1 -l 4096 -r --cdw10=0 --cdw12=0
says 'Success' $nvme admin-passthru /dev/nvme0 --opcode=6 -l 4096 -r --cdw10=1
# Byte 3 of the health log is 100 % of spare, byte 0 of the firmware log is slot 1.
says '0000: 00 .. .. 64 ' $nvme admin-passthru /dev/nvme0 --opcode=2 -l 512 -r --cdw10=0x007f0002
says '0000: 00 .. .. 64 ' $nvme get-log /dev/nvme0 --log-id=2 --log-len=512
says '0000: 01 00 ' $nvme get-log /dev/nvme0 --log-id=3 --log-len=512 --lpo=0
# All of them, which nvme-cli 2.3 cannot ask for. The status is that of the last one.
[ "$nvme" = nvme ] || { $nvme get-feature /dev/nvme0 > /tmp/said 2>&1
[ $(grep -c 'get-feature: *0x.*value:' /tmp/said) -ge 11 ] || { cat /tmp/said; failed 'features are missing'; }; }
# The one command set, and the time that Linux has set.
says 'I/O Command Set Combination\[0\]:1' $nvme id-iocs /dev/nvme0
says '0000: .. .. .. .. .. .. 02 00' $nvme get-feature /dev/nvme0 -f 0x0e -l 8
# The target refuses what it does not have; nothing stops, and the log of errors has the refusals.
for page in supported-log-pages ana-log self-test-log endurance-log sanitize-log 'persistent-event-log -a 0 -l 512'; do refuses 'Invalid Log Page' $nvme $page /dev/nvme0; done
for structure in list-ctrl primary-ctrl-caps; do refuses 'Invalid Field' $nvme $structure /dev/nvme0; done
absent $nvme write-uncor $ONE -s 0 -c 0
absent $nvme format $ONE -f
absent $nvme sanitize /dev/nvme0 -a 2
absent $nvme delete-ns /dev/nvme0 -n 1
absent $nvme attach-ns /dev/nvme0 -n 1 -c 1
absent $nvme security-recv /dev/nvme0 -p 0 -s 0 -t 16 -x 16
absent $nvme device-self-test /dev/nvme0 -s 1
absent $nvme fw-commit /dev/nvme0 -s 1 -a 1
absent $nvme dir-receive /dev/nvme0 -n 1 -D 0 -O 1
refuses 'not supported' $nvme subsystem-reset /dev/nvme0
says 'Invalid Command Opcode' $nvme error-log /dev/nvme0 -e 4
try $nvme ns-rescan /dev/nvme0
try $nvme reset /dev/nvme0
wait_for grep -q live /sys/class/nvme/nvme0/state
[ -b $ONE ] && [ -b $TWO ] || failed 'namespaces went with a reset'
says 'disconnected 1' $nvme disconnect -n $SUBSYSTEM
# Discovery names the address that the target listens on: it has to be there in the guest, too.
nc -ll -p $PORT -e nc 10.0.2.2 $PORT &
# All that discovery names is connected to, and the discovery controller stays for what changes.
echo "-t tcp -a 10.0.2.2 -s $PORT" > /etc/nvme/discovery.conf
try $nvme connect-all -k 20
connected() { grep -qx $1 /sys/class/nvme/nvme[0-9]/subsysnqn; }
wait_for connected $SUBSYSTEM
says 'disconnected 1' $nvme disconnect -n $SUBSYSTEM
# A discovery controller that stays is told when there is more to connect to.
uevent sh -c 'echo "$NVME_AEN $NVME_EVENT" >> /tmp/events' &
watcher=$!
try $nvme connect-all $AT -k 20 --persistent
wait_for connected $SUBSYSTEM
outside 'second subsystem'
wait_for grep -q 0x70f002 /tmp/events
kill $watcher
try $nvme connect-all $AT -k 20
wait_for connected nqn.2016-06.io.spdk:second
says 'nqn.2016-06.io.spdk:second' $nvme list-subsys
says 'disconnected 1' $nvme disconnect -n nqn.2016-06.io.spdk:second
says 'disconnected 1' $nvme disconnect -n $SUBSYSTEM
try $nvme disconnect-all
refuses 'could not add|failed|Failed' $nvme connect $AT -n nqn.2016-06.io.spdk:other
dmesg | grep -iE 'nvme.*(timeout|I/O error)' && failed 'errors'
echo "all of it"
"#;
    let script = format!("nvme='{nvme}'\n{script}");
    let said = newer_guest(directory, target.port(), &script, |action| {
        assert_eq!(action, "second subsystem");
        target.rpc(&["nvmf_create_subsystem", "nqn=nqn.2016-06.io.spdk:second", "allow_any_host=true"]);
        let address = format!("listen_address.trsvcid={}", target.port());
        let listen = ["nvmf_subsystem_add_listener", "nqn=nqn.2016-06.io.spdk:second"];
        target.rpc(&[&listen[..], &["listen_address.traddr=127.0.0.1", &address]].concat());
    });
    assert!(said.contains("all of it"), "{said}");
    target.end();
}
