//! The allocations that a command costs a target over RDMA, on the fabric in memory. target_rdma.rs counts the work.

mod rdma;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use nvme::spec::opcode::io;
use nvme::spec::{Command, Sgl};
use rdma::{Host, Served};
use verbs::double::is_inside;

thread_local! {
    /// True on the thread of the host.
    static IS_HOST: Cell<bool> = const { Cell::new(false) };
}
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Counts the allocations of all threads but the host's, without those of the fabric.
struct Counting;

impl Counting {
    fn count() {
        if !IS_HOST.get() && !is_inside() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// SAFETY: all calls go to the system's allocator as they come.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::count();
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

const COMMANDS: u64 = 2000;

/// The reactor allocates for its ticks, which come with the time: an allocation for each command would be far more.
#[test]
fn a_command_allocates_nothing() {
    IS_HOST.set(true);
    let served = Served::plain();
    let (_admin, mut queue) = Host::pair(&served);
    let range = queue.range(0, 4096);
    let blocks = |opcode| Command { sgl: range.descriptor(), ..Command::blocks(opcode, 1, 0, 8) };
    let in_capsule = Command { sgl: Sgl::in_capsule(4096), ..blocks(io::WRITE) };
    for (command, in_capsule) in [(blocks(io::READ), 0), (blocks(io::WRITE), 0), (in_capsule, 4096)] {
        let data = vec![1; in_capsule];
        let mut run = |commands| {
            for _ in 0..commands / 8 {
                for _ in 0..8 {
                    queue.send_command(command, &data);
                }
                (0..8).for_each(|_| assert!(queue.response().0.status.is_ok()));
            }
        };
        run(64); // this makes room that the others use again
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        assert!(before > 0, "those of the target's start");
        run(COMMANDS);
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        println!("{:#x}, {in_capsule} bytes in the capsule: {allocations} allocations", command.opcode);
        assert!(allocations < COMMANDS / 2, "{allocations} allocations for {COMMANDS} commands");
    }
}
