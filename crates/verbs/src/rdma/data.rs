//! The data path: post and poll, by the functions in the table of the driver, as the inline functions of
//! infiniband/verbs.h call them. Nothing here allocates but `into`, which keeps its room.

use std::ffi::c_int;
use std::{io, ptr};

use super::check_number;
use super::connection::Pair;
use super::resources::{Completions, Receives};
use crate::abi::{RdmaOrOther, RecvWr, RemoteRange, SendWr, Sge, Wc};
use crate::numbers::{
    IBV_SEND_SIGNALED, IBV_WC_WITH_INV, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_SEND_WITH_INV,
};
use crate::work::{Completion, Part, RESERVED_ID, Receive, Request, Status, Work};

const _: () = assert!(
    size_of::<Part>() == size_of::<Sge>()
        && std::mem::offset_of!(Part, address) == std::mem::offset_of!(Sge, addr)
        && std::mem::offset_of!(Part, length) == std::mem::offset_of!(Sge, length)
        && std::mem::offset_of!(Part, key) == std::mem::offset_of!(Sge, lkey)
);

/// Completions taken in one call of the driver.
const BATCH: usize = 32;

/// The list of a request: the driver reads it.
fn list(parts: &[Part], most: u32) -> io::Result<(*mut Sge, c_int)> {
    if parts.len() > most as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok((parts.as_ptr().cast::<Sge>().cast_mut(), parts.len() as c_int))
}

/// A receive as the driver takes it. A failed completion does not say whether it is of a receive: its number does.
fn receive_request(receive: &Receive<'_>, most: u32) -> io::Result<RecvWr> {
    debug_assert!(receive.id & RESERVED_ID == 0, "the bit is this module's");
    let (sg_list, num_sge) = list(receive.parts, most)?;
    Ok(RecvWr { wr_id: receive.id | RESERVED_ID, next: ptr::null_mut(), sg_list, num_sge })
}

impl Pair {
    pub(super) fn post(&self, work: Work<'_>) -> io::Result<()> {
        debug_assert!(work.id & RESERVED_ID == 0, "the bit is this module's");
        let (sg_list, num_sge) = list(work.parts, self.parts)?;
        if matches!(work.request, Request::Read { .. }) && !self.may_read {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (opcode, invalidate_rkey, remote) = match work.request {
            Request::Send { invalidate: None } => (IBV_WR_SEND, 0, (0, 0)),
            Request::Send { invalidate: Some(key) } => (IBV_WR_SEND_WITH_INV, key, (0, 0)),
            Request::Read { address, key } => (IBV_WR_RDMA_READ, 0, (address, key)),
            Request::Write { address, key } => (IBV_WR_RDMA_WRITE, 0, (address, key)),
        };
        let mut wr = RdmaOrOther { longest: [0; 4] };
        wr.rdma = RemoteRange { remote_addr: remote.0, rkey: remote.1 };
        let mut request = SendWr {
            wr_id: work.id,
            next: ptr::null_mut(),
            sg_list,
            num_sge,
            opcode,
            send_flags: if work.signaled { IBV_SEND_SIGNALED } else { 0 },
            invalidate_rkey,
            wr,
            xrc_remote_srqn: 0,
            unused: [0; 6],
        };
        let (pair, mut bad) = (self.pointer(), ptr::null_mut());
        // SAFETY: the pair is live.
        let context = unsafe { (*pair).context };
        // SAFETY: the context lives at least as long.
        let post = unsafe { (*context).ops.post_send };
        // SAFETY: the request and its list are valid during the call, which copies them.
        check_number(unsafe { post(pair, &raw mut request, &raw mut bad) })
    }

    pub(super) fn receive(&self, receive: Receive<'_>) -> io::Result<()> {
        if self.shares_receives() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut request = receive_request(&receive, self.parts)?;
        let (pair, mut bad) = (self.pointer(), ptr::null_mut());
        // SAFETY: the pair is live.
        let context = unsafe { (*pair).context };
        // SAFETY: the context lives at least as long.
        let post = unsafe { (*context).ops.post_recv };
        // SAFETY: the request and its list are valid during the call, which copies them.
        check_number(unsafe { post(pair, &raw mut request, &raw mut bad) })
    }
}

impl Receives {
    pub(super) fn receive(&self, receive: Receive<'_>) -> io::Result<()> {
        let mut request = receive_request(&receive, self.0.parts)?;
        let (queue, mut bad) = (self.0.pointer, ptr::null_mut());
        // SAFETY: the queue is live.
        let context = unsafe { (*queue).context };
        // SAFETY: the context lives at least as long.
        let post = unsafe { (*context).ops.post_srq_recv };
        // SAFETY: the request and its list are valid during the call, which copies them.
        check_number(unsafe { post(queue, &raw mut request, &raw mut bad) })
    }
}

impl Completions {
    pub(super) fn poll(&self, most: usize, into: &mut Vec<Completion>) -> io::Result<()> {
        let queue = self.0.pointer;
        // SAFETY: the queue is live.
        let context = unsafe { (*queue).context };
        // SAFETY: the context lives at least as long.
        let poll = unsafe { (*context).ops.poll_cq };
        let mut taken = [Wc::default(); BATCH];
        let mut rest = most;
        while rest > 0 {
            let room = rest.min(BATCH);
            // SAFETY: `taken` has room for `room` completions.
            let count = unsafe { poll(queue, room as c_int, taken.as_mut_ptr()) };
            let count = usize::try_from(count).map_err(|_| io::Error::from_raw_os_error(libc::EIO))?;
            into.extend(taken.iter().take(count).map(completion));
            if count < room {
                break;
            }
            rest -= count;
        }
        Ok(())
    }

    pub(super) fn arm(&self) -> io::Result<()> {
        let queue = self.0.pointer;
        // SAFETY: the queue is live.
        let context = unsafe { (*queue).context };
        // SAFETY: the context lives at least as long.
        let arm = unsafe { (*context).ops.req_notify_cq };
        // SAFETY: the queue is live; 0 asks for every completion.
        check_number(unsafe { arm(queue, 0) })
    }
}

/// ibv_poll_cq(3): of a failure only number, status and pair are valid.
fn completion(taken: &Wc) -> Completion {
    let (status, received) = (Status::of(taken.status), taken.wr_id & RESERVED_ID != 0);
    let has_message = received && status == Status::Success;
    let is_invalidated = has_message && taken.wc_flags & IBV_WC_WITH_INV != 0;
    Completion {
        id: taken.wr_id & !RESERVED_ID,
        pair: taken.qp_num,
        received,
        status,
        length: if has_message { taken.byte_len } else { 0 },
        invalidated: is_invalidated.then_some(taken.invalidated_rkey),
    }
}
