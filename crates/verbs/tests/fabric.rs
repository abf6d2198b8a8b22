//! The fabric in memory does what [`both`] says, and what tests ask of it beyond.

mod both;

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
