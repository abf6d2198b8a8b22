//! rdma-core on Soft-RoCE does what [`both`] says: the test boots a guest, in which this program runs again.

mod both;

use std::process::Command;

use verbs::stack::Event;
use verbs::{Memory, Rdma, Verbs};

/// The guest's own address, with an RDMA device.
const ADDRESS: &str = "10.0.2.15:4420";
/// The word of the guest that everything has been checked there.
const DONE: &str = "both stacks agree";

#[test]
#[ignore = "boots a guest: make test-guest"]
fn soft_roce_keeps_the_rules_of_both_stacks() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = std::env::current_exe().expect("this program");
    let script = directory.path().join("script.sh");
    let run = format!("IN_GUEST=1 {} --ignored --exact --nocapture inside_the_guest\n", program.display());
    std::fs::write(&script, run).expect("written");
    let said = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../rigs/nvme-kernel-client.sh"))
        .arg(script)
        .arg(program)
        .env("RIG_DEBIAN", "13")
        .env("RIG_RDMA", "1")
        .output()
        .expect("the rig runs");
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success() && out.contains(DONE), "{}\n{out}\n{err}", said.status);
}

/// The part of the test above that runs in the guest.
#[test]
#[ignore = "soft_roce_keeps_the_rules_of_both_stacks runs it in its guest"]
fn inside_the_guest() {
    if std::env::var_os("IN_GUEST").is_some() {
        let stack = Rdma::open().expect("rdma-core");
        both::everything(&stack, ADDRESS.parse().expect("an address"));
        a_device_that_goes_is_an_event(&stack);
        println!("{DONE}");
    }
}

/// The listener hears that its device goes. Memory, queue and domain on the device end after everything of the
/// connection manager, without harm.
fn a_device_that_goes_is_an_event(stack: &Rdma) {
    let address = ADDRESS.parse().expect("an address");
    let channel = stack.channel().expect("a channel");
    let listener = stack.listen(&channel, address, 1).expect("listening");
    let outgoing = stack.dial(&channel, address, 2).expect("a way");
    let next = || loop {
        match stack.next_event(&channel).expect("the channel works") {
            Some(event) => break event,
            None => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    };
    assert!(matches!(next(), Event::Routed { number: 2 }));
    let device = stack.routed_device(&outgoing).expect("a device");
    let domain = stack.domain(&device).expect("a domain");
    let completions = stack.completions(&device, 16).expect("a queue");
    let memory = Memory::new(stack, &domain, 4096, Default::default()).expect("registered");
    // The deletion ends with this program at the latest: the kernel waits until nobody has the device open.
    let mut deletion = Command::new("rdma").args(["link", "delete", "rxe0"]).spawn().expect("rdma");
    while !matches!(next(), Event::Removed { number: 1 }) {}
    drop((outgoing, listener, device));
    drop(completions);
    drop(memory);
    drop(domain);
    let _ = deletion.try_wait();
}
