//! Connections that have ended before their work: the card may still use their buffers.
//!
//! A pair is disconnected, so that the card flushes its work. The buffers go back to the pool when the last completion
//! has come. A card that does not flush in time loses the pair: without it the card touches nothing (ibv_destroy_qp(3)
//! ends when the pair has).

use std::rc::Rc;

use slab::Slab;
use verbs::Verbs;
use verbs::work::Completion;

use super::Rdma;
use super::adapter::{Adapter, Owner};
use crate::core::Core;

/// The time that a card has to flush the work of a pair.
const PATIENCE_NS: u64 = 5_000_000_000;

/// A connection that has ended.
struct Ended {
    rdma: Box<Rdma>,
    until_ns: u64,
    /// True once the completions have been acted on that were in the completion queue when the connection ended.
    has_had_turn: bool,
}

/// The pairs of connections that have ended.
#[derive(Default)]
pub(super) struct Retiring(Slab<Ended>);

impl Retiring {
    /// Takes a connection that has ended. `is_gone` is true if its device has gone: it flushes nothing any more.
    pub fn take(&mut self, core: &mut Core, rdma: Box<Rdma>, owner: Owner, is_gone: bool) {
        let (pair, adapter) = (rdma.pair_number(), Rc::clone(rdma.adapter()));
        if is_gone {
            adapter.forget_owner(pair, owner);
            return end(core, *rdma);
        }
        // It may have never been connected, or not be any more.
        let _ = adapter.verbs.disconnect(&rdma.pair);
        let key = self.0.insert(Ended { rdma, until_ns: core.now_ns + PATIENCE_NS, has_had_turn: false });
        adapter.set_owner(pair, Owner::Retiring(key as u32));
    }

    /// True if a pair only waits for its turn: its work has ended.
    pub fn wants_turn(&self) -> bool {
        self.0.iter().any(|(_, ended)| ended.rdma.queue.is_quiet())
    }

    /// Takes note of the end of work of the send queue.
    pub fn completed(&mut self, core: &mut Core, key: u32, completion: &Completion) {
        let Some(Ended { rdma, .. }) = self.0.get_mut(key as usize) else { return };
        // Its data go nowhere: the command has ended.
        let mut ended = Vec::new();
        rdma.queue.completed(completion.id, false, &mut ended);
        for one in ended {
            if let super::send_queue::Ended::Fetched { buffer, is_pooled: true, .. } = one {
                core.free.push(buffer);
            }
        }
        give_back(core, rdma);
    }

    /// Ends the pairs whose work has ended. The completion queues have just been empty, and their completions been
    /// acted on: the second call has found all that a pair had left there when its connection ended.
    pub fn sweep(&mut self, core: &mut Core) {
        let now_ns = core.now_ns;
        let mut over = Vec::new();
        for (key, ended) in &mut self.0 {
            let had_turn = std::mem::replace(&mut ended.has_had_turn, true);
            if had_turn && (ended.rdma.queue.is_quiet() || now_ns >= ended.until_ns) {
                over.push(key);
            }
        }
        over.into_iter().for_each(|key| self.end(core, key));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ends all pairs at once.
    pub fn end_all(&mut self, core: &mut Core) {
        for key in self.0.iter().map(|(key, _)| key).collect::<Vec<_>>() {
            self.end(core, key);
        }
    }

    /// Ends all pairs of an adapter at once.
    pub fn end_of(&mut self, core: &mut Core, adapter: &Rc<Adapter>) {
        let its = self.0.iter().filter(|(_, ended)| Rc::ptr_eq(ended.rdma.adapter(), adapter));
        for key in its.map(|(key, _)| key).collect::<Vec<_>>() {
            self.end(core, key);
        }
    }

    fn end(&mut self, core: &mut Core, key: usize) {
        let Ended { rdma, .. } = self.0.remove(key);
        rdma.adapter().forget_owner(rdma.pair_number(), Owner::Retiring(key as u32));
        end(core, *rdma);
    }
}

/// Ends a pair, and then gives back what its work had.
fn end(core: &mut Core, rdma: Rdma) {
    let Rdma { pair, mut queue, adapter, .. } = rdma;
    drop(pair);
    queue.end_all();
    adapter.redeem(queue.sends());
    queue.take_loose(&mut core.free);
    for op in queue.take_ops() {
        core.complete(op);
    }
    core.give_free();
}

fn give_back(core: &mut Core, rdma: &mut Rdma) {
    rdma.queue.take_loose(&mut core.free);
    for op in rdma.queue.take_ops() {
        core.complete(op);
    }
    core.give_free();
}
