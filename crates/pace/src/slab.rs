//! The slots that remember ops from admission or hold to completion. All memory is taken at construction.

use crate::{Op, OpId};

/// The index that stands for the absence of a slot.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Held,
    InFlight,
    /// The op is in flight, but is not counted in the window.
    Aside,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub op: Op,
    /// The time when the op was held; from admission on, the time of its admission.
    pub since_ns: u64,
    pub next: u32,
    pub prev: u32,
    /// The fair queue's leaf that a held op hangs on; unused by FIFO methods.
    pub leaf: u32,
    generation: u32,
    pub state: State,
}

/// A fixed number of slots, with a free list through them.
#[derive(Debug)]
pub(crate) struct Slab {
    slots: Box<[Slot]>,
    free: u32,
}

impl Slab {
    pub fn new(ops: u32) -> Slab {
        let op = Op { drive: 0, tenant: 0, queue: 0, bytes: 0, write: false, admin: false, cookie: 0 };
        let slots = (0..ops)
            .map(|i| Slot {
                op,
                since_ns: 0,
                next: if i + 1 < ops { i + 1 } else { NONE },
                prev: NONE,
                leaf: NONE,
                generation: 0,
                state: State::Free,
            })
            .collect();
        Slab { slots, free: if ops == 0 { NONE } else { 0 } }
    }

    /// The slot now taken by `op`, or `None` when all are.
    #[inline]
    pub fn insert(&mut self, op: Op, state: State, now_ns: u64) -> Option<u32> {
        let index = self.free;
        let slot = self.slots.get_mut(index as usize)?;
        self.free = slot.next;
        slot.op = op;
        slot.state = state;
        slot.since_ns = now_ns;
        slot.next = NONE;
        slot.prev = NONE;
        Some(index)
    }

    #[inline]
    pub fn remove(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next = self.free;
        self.free = index;
    }

    #[inline]
    pub fn id(&self, index: u32) -> OpId {
        OpId::new(index, self.slots[index as usize].generation)
    }

    /// The slot of `id` if it is in `state`; stale handles match nothing.
    #[inline]
    pub fn find(&self, id: OpId, state: State) -> Option<u32> {
        let index = id.slot();
        let slot = self.slots.get(index as usize)?;
        (slot.generation == id.generation() && slot.state == state).then_some(index)
    }

    /// The first held op that `which` matches.
    pub fn find_held(&self, which: crate::Purge) -> Option<u32> {
        self.slots.iter().position(|s| s.state == State::Held && which.matches(&s.op)).map(|i| i as u32)
    }
}

impl std::ops::Index<u32> for Slab {
    type Output = Slot;
    #[inline]
    fn index(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Slab {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }
}

/// A doubly linked list through slots: a FIFO whose middle can be cut out (abort).
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub head: u32,
    pub tail: u32,
}

impl List {
    pub const EMPTY: List = List { head: NONE, tail: NONE };

    pub fn is_empty(&self) -> bool {
        self.head == NONE
    }

    pub fn push(&mut self, slab: &mut Slab, index: u32) {
        slab[index].prev = self.tail;
        slab[index].next = NONE;
        if self.tail == NONE {
            self.head = index;
        } else {
            slab[self.tail].next = index;
        }
        self.tail = index;
    }

    pub fn unlink(&mut self, slab: &mut Slab, index: u32) {
        let (prev, next) = (slab[index].prev, slab[index].next);
        if prev == NONE {
            self.head = next;
        } else {
            slab[prev].next = next;
        }
        if next == NONE {
            self.tail = prev;
        } else {
            slab[next].prev = prev;
        }
    }
}
