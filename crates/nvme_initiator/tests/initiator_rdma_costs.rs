//! The work that a command costs the initiator over RDMA: posts, completions, allocations. docs/nvme-rdma.md has the
//! figures.

mod arena;
mod double;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use arena::{Ops, Slots};
use double::rdma::{Answer, Mood, Server};
use double::{BLOCK, PATIENCE, Style};
use nvme::spec::{Command, opcode::io as op};
use nvme_initiator::{Address, Controller, Link, Options, RdmaHost, Transfer};
use verbs::double::{Counts, counts, is_inside};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread, without those of the fabric.
struct Counting;

// SAFETY: all calls go to the system's allocator as they come.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_inside() {
            ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        }
        // SAFETY: the layout has bytes, as the caller of `alloc` promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `alloc` gave the pointer for this layout, as the caller of `dealloc` promises.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const COMMANDS: u64 = 320;
const DEPTH: u64 = 8;

/// Carries out commands, eight at a time, and tells the calls and allocations that they cost.
fn cost(link: &mut Link, ops: &mut Ops, command: impl Fn(u32) -> (Command, Transfer)) -> (Counts, u64) {
    let mut done = Vec::with_capacity(64);
    let mut before = (counts(), ALLOCATIONS.get());
    // The first round makes room that the others use again.
    for round in 0..=COMMANDS / DEPTH {
        for tag in 0..DEPTH as u32 {
            let (command, transfer) = command(tag);
            assert!(link.issue(tag, command, transfer, ops));
        }
        link.send(ops).unwrap();
        let until = Instant::now() + PATIENCE;
        while done.len() < DEPTH as usize || link.is_expecting() {
            assert!(Instant::now() < until, "commands do not end");
            link.receive(ops, &mut done).unwrap();
        }
        assert!(done.drain(..).all(|done| done.status.is_ok()));
        if round == 0 {
            before = (counts(), ALLOCATIONS.get());
        }
    }
    let (now, allocations) = (counts(), ALLOCATIONS.get());
    let counted = Counts {
        posts: now.posts - before.0.posts,
        signaled: now.signaled - before.0.signaled,
        receives: now.receives - before.0.receives,
        completions: now.completions - before.0.completions,
        arms: now.arms - before.0.arms,
        ..Counts::default()
    };
    (counted, allocations - before.1)
}

#[test]
fn a_command_costs_a_post_a_receive_and_little_more_than_a_completion() {
    let style = Style { capsule_bytes: 4096, ..Style::default() };
    let server = Server::start(style, 256 << 10, Arc::new(|_| Mood::Serve), Arc::new(|_| Answer::Accept));
    let slots = Slots::new(DEPTH as u32);
    let rdma = RdmaHost { stack: Some(server.stack.clone()), arena: Some(slots.clone()), writable: true };
    let options = Options { depth: 2 * DEPTH as u32, rdma, ..Options::default() };
    let address = Address { subnqn: Some(Style::default().subnqn.parse().unwrap()), ..server.address.clone() };
    let (_controller, mut queues) = Controller::connect(&address, &options).unwrap();
    let mut ops = Ops::new(slots);
    let blocks = |opcode, tag: u32, len: u32| Command::blocks(opcode, 1, u64::from(tag) * 64, len / BLOCK);

    let (every, sixteenth) = (COMMANDS, COMMANDS / 16);
    let few = Counts {
        posts: every,
        signaled: sixteenth,
        receives: every,
        completions: every + sixteenth,
        ..Counts::default()
    };
    let all = Counts { signaled: every, completions: 2 * every, ..few };
    let read = cost(&mut queues[0], &mut ops, |tag| (blocks(op::READ, tag, 4096), Transfer::In { at: 0, len: 4096 }));
    assert_eq!(read, (few, 0), "reads");
    let write =
        cost(&mut queues[0], &mut ops, |tag| (blocks(op::WRITE, tag, 8192), Transfer::Out { at: 0, len: 8192 }));
    assert_eq!(write, (few, 0), "writes whose data the controller fetches");
    let write =
        cost(&mut queues[0], &mut ops, |tag| (blocks(op::WRITE, tag, 4096), Transfer::Out { at: 0, len: 4096 }));
    assert_eq!(write, (all, 0), "writes with their data in the capsule");
}
