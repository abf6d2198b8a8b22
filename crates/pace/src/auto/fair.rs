//! The order of those that wait: deficit round robin over drives, then tenants, then queues, charged by bytes.
//!
//! Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit Round-Robin" (1996), nested three deep. Each op costs
//! its bytes plus 4 KiB, so that a flood of tiny ops is not free. Two size classes, small and large ops, each with a
//! ring of drives; a drive that may not send at present leaves the ring and comes back when something of its own
//! completes or shares change. A queue that is paused leaves its rings when its turn comes, and its parents leave their
//! rings when nothing else is in them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::slab::{List, NONE, Slab};

/// The cost of an op beyond its bytes.
pub(crate) const OP_COST_BYTES: u64 = 4096;
const QUANTUM_BYTES: i64 = 128 << 10;

/// Small ops go first while they fill a part of the window; large ops get the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SizeClass {
    Small = 0,
    Large = 1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum In {
    /// The node is in no ring: it is empty or blocked, or no node below it may send.
    Nothing,
    /// The node is in its parent's ring; for drives, the ring of drives that may send.
    Ring,
    /// For drives: the drive is over its share and below its cap.
    Debt,
    /// For queues: the queue is paused.
    Pause,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    parent: u32,
    key: u32,
    next: u32,
    prev: u32,
    /// The child whose turn it is; for leaves unused.
    turn: u32,
    ops: List,
    held: u32,
    deficit: i64,
    place: In,
}

const EMPTY: Node = Node {
    parent: NONE,
    key: 0,
    next: NONE,
    prev: NONE,
    turn: NONE,
    ops: List::EMPTY,
    held: 0,
    deficit: 0,
    place: In::Nothing,
};

/// Keys are small integers: one multiplication mixes them well enough, and no attacker picks node numbers.
#[derive(Default)]
struct MixHasher(u64);

impl Hasher for MixHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

pub(crate) struct FairQueues {
    /// First the drives of the small class, then those of the large class, then tenants and queues as they are needed.
    nodes: Box<[Node]>,
    free: u32,
    index: HashMap<u64, u32, BuildHasherDefault<MixHasher>>,
    drives: u32,
    /// Per size class: the drive whose turn it is.
    ready: [u32; 2],
    debt: [u32; 2],
    /// Queues that are paused, each with the ring of its nodes that have left their rings.
    paused: HashMap<u32, u32, BuildHasherDefault<MixHasher>>,
    quantum: i64,
}

impl FairQueues {
    pub fn new(drives: u32, ops: u32) -> FairQueues {
        let fixed = 2 * drives as usize;
        // Every held op needs at most a tenant node and a queue node of its own.
        let total = fixed + 2 * ops as usize;
        let mut nodes = vec![EMPTY; total].into_boxed_slice();
        for (i, node) in nodes.iter_mut().enumerate().skip(fixed) {
            node.next = if i + 1 < total { i as u32 + 1 } else { NONE };
        }
        FairQueues {
            nodes,
            free: fixed as u32,
            // Twice the live entries, so that deletions never make it grow.
            index: HashMap::with_capacity_and_hasher(4 * ops as usize, BuildHasherDefault::default()),
            drives,
            ready: [NONE; 2],
            debt: [NONE; 2],
            paused: HashMap::default(),
            quantum: QUANTUM_BYTES,
        }
    }

    fn drive_node(&self, drive: u32, class: SizeClass) -> u32 {
        class as u32 * self.drives + drive
    }

    /// True if a drive of this size class may send.
    pub fn has_ready(&self, class: SizeClass) -> bool {
        self.ready[class as usize] != NONE
    }

    pub fn has_debtor(&self, class: SizeClass) -> bool {
        self.debt[class as usize] != NONE
    }

    #[inline]
    pub fn any_ready(&self) -> bool {
        self.ready != [NONE; 2] || self.debt != [NONE; 2]
    }

    /// True if ops of that drive wait that are not paused.
    #[inline]
    pub fn drive_waits(&self, drive: u32, class: SizeClass) -> bool {
        self.nodes[self.drive_node(drive, class) as usize].turn != NONE
    }

    /// The child of `parent` for `key`, made if it is not there; in no ring yet.
    fn child(&mut self, parent: u32, key: u32) -> u32 {
        let map_key = u64::from(parent) << 32 | u64::from(key);
        if let Some(&node) = self.index.get(&map_key) {
            return node;
        }
        let node = self.free;
        self.free = self.nodes[node as usize].next;
        self.nodes[node as usize] = Node { parent, key, ..EMPTY };
        self.index.insert(map_key, node);
        node
    }

    fn drop_child(&mut self, node: u32) {
        self.detach(node);
        let Node { parent, key, .. } = self.nodes[node as usize];
        self.index.remove(&(u64::from(parent) << 32 | u64::from(key)));
        self.nodes[node as usize].next = self.free;
        self.free = node;
    }

    /// Puts `node` last in the ring whose turn is at `turn`; the ring's turn afterwards.
    fn link(&mut self, turn: u32, node: u32, place: In) -> u32 {
        self.nodes[node as usize].place = place;
        if turn == NONE {
            self.nodes[node as usize].next = node;
            self.nodes[node as usize].prev = node;
            return node;
        }
        let last = self.nodes[turn as usize].prev;
        self.nodes[node as usize].next = turn;
        self.nodes[node as usize].prev = last;
        self.nodes[last as usize].next = node;
        self.nodes[turn as usize].prev = node;
        turn
    }

    /// Takes `node` out of its ring; the ring's turn afterwards.
    fn unlink(&mut self, turn: u32, node: u32) -> u32 {
        let Node { next, prev, .. } = self.nodes[node as usize];
        self.nodes[node as usize].place = In::Nothing;
        if next == node {
            return NONE;
        }
        self.nodes[prev as usize].next = next;
        self.nodes[next as usize].prev = prev;
        if turn == node { next } else { turn }
    }

    /// Puts a tenant or queue into its parent's ring, and the parent into its own if that was empty.
    fn attach(&mut self, node: u32) {
        let parent = self.nodes[node as usize].parent;
        let turn = self.nodes[parent as usize].turn;
        self.nodes[parent as usize].turn = self.link(turn, node, In::Ring);
        if turn == NONE {
            match self.nodes[parent as usize].parent {
                NONE => self.move_drive(parent, In::Ring),
                _ => self.attach(parent),
            }
        }
    }

    /// Takes a tenant or queue out of the ring that it is in, and its parent out of its own if nobody is left.
    fn detach(&mut self, node: u32) {
        let Node { parent, key, place, .. } = self.nodes[node as usize];
        match place {
            In::Nothing | In::Debt => {}
            In::Pause => {
                let turn = self.paused.get(&key).copied().unwrap_or(NONE);
                let turn = self.unlink(turn, node);
                self.paused.insert(key, turn);
            }
            In::Ring => {
                let turn = self.nodes[parent as usize].turn;
                let turn = self.unlink(turn, node);
                self.nodes[parent as usize].turn = turn;
                if turn == NONE {
                    match self.nodes[parent as usize].parent {
                        NONE => self.move_drive(parent, In::Nothing),
                        _ => self.detach(parent),
                    }
                }
            }
        }
    }

    /// Pauses the queue: from now on none of its ops is sent.
    pub fn pause(&mut self, queue: u32) {
        self.paused.entry(queue).or_insert(NONE);
    }

    /// The queue takes its turns again, after those that wait already.
    pub fn resume(&mut self, queue: u32) {
        let Some(mut turn) = self.paused.remove(&queue) else { return };
        while turn != NONE {
            let leaf = turn;
            turn = self.unlink(turn, leaf);
            self.attach(leaf);
        }
    }

    #[inline]
    pub fn is_paused(&self, queue: u32) -> bool {
        !self.paused.is_empty() && self.paused.contains_key(&queue)
    }

    /// Takes a paused queue's node out of its ring, until it is resumed.
    fn park(&mut self, leaf: u32) {
        self.detach(leaf);
        let queue = self.nodes[leaf as usize].key;
        let turn = self.paused.get(&queue).copied().unwrap_or(NONE);
        let turn = self.link(turn, leaf, In::Pause);
        self.paused.insert(queue, turn);
    }

    /// The link of a drive's node in the ring of `place`.
    fn ring_of(&mut self, drive_node: u32, place: In) -> &mut u32 {
        let class = usize::from(drive_node >= self.drives);
        if place == In::Debt { &mut self.debt[class] } else { &mut self.ready[class] }
    }

    fn move_drive(&mut self, drive_node: u32, to: In) {
        let from = self.nodes[drive_node as usize].place;
        if from == to {
            return;
        }
        if from != In::Nothing {
            let turn = *self.ring_of(drive_node, from);
            *self.ring_of(drive_node, from) = self.unlink(turn, drive_node);
        }
        if to != In::Nothing {
            let turn = *self.ring_of(drive_node, to);
            *self.ring_of(drive_node, to) = self.link(turn, drive_node, to);
        }
    }

    /// Appends a held op to its queue.
    pub fn push(&mut self, slab: &mut Slab, index: u32, class: SizeClass) {
        let op = slab[index].op;
        let drive = self.drive_node(op.drive, class);
        let tenant = self.child(drive, op.tenant);
        let leaf = self.child(tenant, op.queue);
        slab[index].leaf = leaf;
        self.nodes[leaf as usize].ops.push(slab, index);
        self.quantum = self.quantum.max(i64::from(op.bytes) + OP_COST_BYTES as i64);
        for node in [leaf, tenant, drive] {
            self.nodes[node as usize].held += 1;
        }
        if self.nodes[leaf as usize].held == 1 {
            self.attach(leaf);
        }
    }

    /// Charges the path of an op that is about to be sent.
    pub fn charge(&mut self, slab: &Slab, index: u32) {
        let cost = i64::from(slab[index].op.bytes) + OP_COST_BYTES as i64;
        let leaf = slab[index].leaf;
        let tenant = self.nodes[leaf as usize].parent;
        let drive = self.nodes[tenant as usize].parent;
        for node in [leaf, tenant, drive] {
            self.nodes[node as usize].deficit -= cost;
        }
    }

    /// Takes a held op out of its queue: it is sent, aborted or purged.
    pub fn remove(&mut self, slab: &mut Slab, index: u32) {
        let leaf = slab[index].leaf;
        let tenant = self.nodes[leaf as usize].parent;
        let drive = self.nodes[tenant as usize].parent;
        let mut ops = self.nodes[leaf as usize].ops;
        ops.unlink(slab, index);
        self.nodes[leaf as usize].ops = ops;
        for node in [leaf, tenant, drive] {
            self.nodes[node as usize].held -= 1;
        }
        if self.nodes[leaf as usize].held == 0 {
            self.drop_child(leaf);
        }
        if self.nodes[tenant as usize].held == 0 {
            self.drop_child(tenant);
        }
        if self.nodes[drive as usize].held == 0 {
            // An idle flow saves up nothing (the paper, section 3).
            self.nodes[drive as usize].deficit = 0;
        }
    }

    /// The op whose turn it is among those of a class that may send, or that may borrow, and its drive; none if all of
    /// them turn out to be paused. Asking again gives the same answer until it is charged.
    pub fn next(&mut self, slab: &Slab, class: SizeClass, borrows: bool) -> Option<(u32, u32)> {
        loop {
            let drive = if borrows { self.debt[class as usize] } else { self.ready[class as usize] };
            if drive == NONE {
                return None;
            }
            let tenant = self.turn_within(slab, drive);
            let leaf = self.turn_within(slab, tenant);
            if self.is_paused(self.nodes[leaf as usize].key) {
                self.park(leaf);
                continue;
            }
            let index = self.nodes[leaf as usize].ops.head;
            if self.has_turn(drive, slab, index) {
                return Some((index, drive % self.drives));
            }
            let next = self.nodes[drive as usize].next;
            *(if borrows { &mut self.debt[class as usize] } else { &mut self.ready[class as usize] }) = next;
        }
    }

    /// The child of `parent` whose turn it is, after topping up those that cannot pay yet.
    fn turn_within(&mut self, slab: &Slab, parent: u32) -> u32 {
        loop {
            let child = self.nodes[parent as usize].turn;
            let head = self.head_of(child);
            if self.has_turn(child, slab, head) {
                return child;
            }
            self.nodes[parent as usize].turn = self.nodes[child as usize].next;
        }
    }

    /// The op that a tenant or queue node would send.
    fn head_of(&self, node: u32) -> u32 {
        let turn = self.nodes[node as usize].turn;
        if turn == NONE { self.nodes[node as usize].ops.head } else { self.nodes[turn as usize].ops.head }
    }

    /// True if `node` can pay for `index`; if not, it gets its quantum for the next round.
    fn has_turn(&mut self, node: u32, slab: &Slab, index: u32) -> bool {
        let cost = i64::from(slab[index].op.bytes) + OP_COST_BYTES as i64;
        let deficit = &mut self.nodes[node as usize].deficit;
        if *deficit >= cost {
            return true;
        }
        *deficit += self.quantum;
        false
    }

    /// The drive may not send until something changes.
    pub fn block(&mut self, drive: u32, class: SizeClass) {
        self.move_drive(self.drive_node(drive, class), In::Nothing);
    }

    /// The drive may send only if nobody within its share does.
    pub fn defer(&mut self, drive: u32, class: SizeClass) {
        self.move_drive(self.drive_node(drive, class), In::Debt);
    }

    /// Something of this drive's completed: look at it again.
    #[inline]
    pub fn unblock(&mut self, drive: u32) {
        for class in [SizeClass::Small, SizeClass::Large] {
            let node = self.drive_node(drive, class);
            if self.nodes[node as usize].turn != NONE && self.nodes[node as usize].place != In::Ring {
                self.move_drive(node, In::Ring);
            }
        }
    }

    /// Shares have changed: look at every drive again.
    pub fn unblock_all(&mut self) {
        for drive in 0..self.drives {
            self.unblock(drive);
        }
    }
}
