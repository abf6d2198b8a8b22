//! The fabric in memory does what [`both`] says, and what tests ask of it beyond.

mod both;

use both::{Listening, event, words};
use verbs::double::Fabric;
use verbs::stack::Event;
use verbs::{Either, Verbs};

#[test]
fn the_fabric_in_memory_keeps_the_rules_of_both_stacks() {
    both::everything(&Fabric::default(), "127.0.0.1:0".parse().expect("an address"));
}

/// The stack that is chosen at run time passes every call on.
#[test]
fn either_stack_keeps_the_rules_of_both() {
    let stack = Either::Fabric(Fabric::default());
    both::everything(&stack, "127.0.0.1:0".parse().expect("an address"));
}

/// A listener hears that the device goes.
#[test]
fn an_unplugged_device_is_an_event() {
    let fabric = Fabric::default();
    let channel = fabric.channel().expect("a channel");
    let _listener = fabric.listen(&channel, "127.0.0.1:0".parse().expect("an address"), 3).expect("listening");
    fabric.unplug();
    assert!(matches!(fabric.next_event(&channel), Ok(Some(Event::Removed { number: 3 }))));
    assert!(matches!(fabric.next_event(&channel), Ok(None)));
}

/// Over a cut cable nobody is reached, and the end of a connection is known to the side that ends it.
#[test]
fn words_of_connection_managers_are_lost_in_a_cut_cable() {
    let fabric = Fabric::default();
    let listening = Listening::new(&fabric, "127.0.0.1:0".parse().expect("an address"));
    let (target, host) = listening.connection(10);
    fabric.cut();
    fabric.disconnect(&host.pair).expect("connected");
    assert_eq!(host.event(), "11 disconnected");
    let channel = fabric.channel().expect("a channel");
    let unreachable = "20 failed: reaching the peer: Connection timed out (os error 110)";
    let _outgoing = fabric.dial(&channel, listening.address(), 20).expect("an attempt");
    assert_eq!(words(&event(&fabric, &channel)), unreachable);
    fabric.mend();
    assert!(matches!(fabric.next_event(&target.channel), Ok(None)));
    fabric.disconnect(&target.pair).expect("still connected");
    assert_eq!(target.event(), "10 disconnected");

    // The cable is cut between a request and its answer.
    let (host, incoming) = listening.request(30);
    fabric.cut();
    fabric.refuse(incoming, b"no").expect("an answer");
    assert!(host.event().starts_with("30 failed"));
    fabric.mend();
}
