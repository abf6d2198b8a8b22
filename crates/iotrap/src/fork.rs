//! The list of everything that a forked child must forget: the parent's requests, lanes and descriptors.

use crate::abi::{dispatch, own_stack, undisturbed};
use crate::aio::{async_io, changed_iocbs, context, inflight, posix, raw_ring, rings};
use crate::open::opener;
use crate::policy::split;
use crate::state::{closing, group, lane, node, reason, stats, writes};

/// Forgets the parent's state, in the child, which has one thread. Makes system calls and uses atomics only.
pub fn forget_all() {
    let _undisturbed = undisturbed::Undisturbed::begin();
    own_stack::run(forget_each);
}

fn forget_each() {
    undisturbed::forget_all();
    dispatch::forget_all();
    async_io::forget_all();
    posix::forget_all();
    raw_ring::forget_all();
    rings::forget_all();
    context::forget_all();
    inflight::forget_all();
    changed_iocbs::forget_all();
    split::forget_all();
    opener::forget_all();
    closing::forget_all();
    group::forget_all();
    node::forget_all();
    writes::forget_all();
    lane::forget_all();
    stats::forget_all();
    reason::forget_all();
}
