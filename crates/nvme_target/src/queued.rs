//! Memory that peers make a reactor hold besides data buffers: responses that they do not take, and bytes received that
//! cannot be acted on yet. A connection beyond its bound is not read from until it has taken some of its responses.
//!
//! The bound is as much as is left, as for data on the network (`afloat.rs`): of the bytes that guests may have
//! together, or that the host of the connection may have, and of the bytes that all may have. Guests are connections
//! that have proven nothing: a single reactor holds thousands of them in a few megabytes, and hosts never wait for
//! memory that guests have.

use super::connection::Connection;
use super::core::Core;
use super::transport::Transport;

/// Bytes that all reactors together hold for peers, data buffers excepted.
const TARGET_BYTES: u64 = 16 << 20;
/// The least bytes that one reactor may hold for peers.
const LEAST_BYTES: u64 = 1 << 20;
/// Bytes that an I/O queue has queued at most: the headers of 1000 reads.
const IO_QUEUE_BYTES: u64 = 64 << 10;
/// Bytes that any other connection has queued at most, plus one answer.
const OTHER_BYTES: u64 = 4 << 10;
/// Bytes that are received in one call: this many where memory is short, up to the whole receive buffer.
const LEAST_RECEIVE: usize = 4 << 10;
/// Bytes received in one call from a connection that is not an I/O queue: some ten commands, so that others have their
/// turn soon.
const OTHER_RECEIVE: usize = 1 << 10;
const MOST_RECEIVE: usize = 64 << 10;

/// The peers for whom memory is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Holder {
    #[default]
    Guests,
    /// A host, by its tenant id.
    Host(u32),
}

/// The bytes that one connection has queued, as its reactor counts them.
#[derive(Debug, Default)]
pub(super) struct Account {
    holder: Holder,
    bytes: u64,
}

/// The bytes that all connections of a reactor have queued.
#[derive(Debug)]
pub(super) struct Queued {
    most: u64,
    total: u64,
    guests: u64,
    /// The bytes of each host, by tenant id.
    hosts: Vec<u64>,
}

impl Queued {
    /// A reactor's equal part of the memory.
    pub fn new(reactors: usize) -> Queued {
        let most = (TARGET_BYTES / reactors.max(1) as u64).max(LEAST_BYTES);
        Queued { most, total: 0, guests: 0, hosts: Vec::new() }
    }

    fn held(&mut self, holder: Holder) -> &mut u64 {
        match holder {
            Holder::Guests => &mut self.guests,
            Holder::Host(tenant) => {
                let index = tenant as usize;
                if index >= self.hosts.len() {
                    self.hosts.resize(index + 1, 0);
                }
                &mut self.hosts[index]
            }
        }
    }

    /// Bytes that one more connection of this holder may have queued.
    fn left(&mut self, holder: Holder) -> u64 {
        let share = match holder {
            Holder::Guests => self.most / 4,
            Holder::Host(_) => self.most / 2,
        };
        let held = *self.held(holder);
        share.saturating_sub(held).min(self.most.saturating_sub(self.total))
    }

    /// The number of bytes to receive in one call from a connection: bytes that the connection cannot act on stay in
    /// memory.
    pub fn receive_bytes(&self, is_io_queue: bool) -> usize {
        let left = self.most.saturating_sub(self.total) / 64;
        if is_io_queue { (left as usize).clamp(LEAST_RECEIVE, MOST_RECEIVE) } else { OTHER_RECEIVE }
    }

    fn change(&mut self, account: &mut Account, holder: Holder, bytes: u64) {
        if *account == (Account { holder, bytes }) {
            return;
        }
        *self.held(account.holder) -= account.bytes;
        self.total = self.total - account.bytes + bytes;
        *self.held(holder) += bytes;
        *account = Account { holder, bytes };
    }
}

impl PartialEq for Account {
    fn eq(&self, other: &Account) -> bool {
        (self.holder, self.bytes) == (other.holder, other.bytes)
    }
}

/// Counts the bytes that the connection has queued now.
pub(super) fn count(conn: &mut Connection, core: &mut Core) {
    let bytes = conn.transport.memory();
    let holder = holder_of(conn);
    core.queued.change(&mut conn.queued, holder, bytes);
}

/// Counts the connection as having nothing queued: it ends.
pub(super) fn forget(conn: &mut Connection, core: &mut Core) {
    core.queued.change(&mut conn.queued, Holder::Guests, 0);
}

/// True if the connection has more output queued than it may. A connection that has nothing queued is never beyond its
/// bound.
#[inline]
pub(super) fn is_beyond(conn: &Connection, core: &mut Core) -> bool {
    let bytes = conn.transport.output_memory();
    bytes > 0 && !conn.transport.is_empty() && bytes > bound(conn, core)
}

#[inline]
fn bound(conn: &Connection, core: &mut Core) -> u64 {
    let most = if conn.is_io_queue() { IO_QUEUE_BYTES } else { OTHER_BYTES };
    most.min(core.queued.left(holder_of(conn)))
}

fn holder_of(conn: &Connection) -> Holder {
    if conn.is_guest() { Holder::Guests } else { Holder::Host(conn.tenant) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_leave_memory_to_hosts_and_hosts_to_each_other() {
        let mut queued = Queued::new(1);
        let mut accounts = Vec::new();
        let mut add = |queued: &mut Queued, holder| {
            let left = queued.left(holder);
            let mut account = Account::default();
            queued.change(&mut account, holder, left.min(OTHER_BYTES));
            accounts.push(account);
        };
        for _ in 0..100_000 {
            add(&mut queued, Holder::Guests);
        }
        assert!(queued.guests <= TARGET_BYTES / 4);
        assert_eq!(queued.left(Holder::Host(3)), TARGET_BYTES / 2);
        for _ in 0..100_000 {
            add(&mut queued, Holder::Host(3));
        }
        assert!(queued.left(Holder::Host(4)) >= TARGET_BYTES / 4);
        for mut account in accounts {
            queued.change(&mut account, Holder::Guests, 0);
        }
        assert_eq!((queued.total, queued.guests, queued.hosts[3]), (0, 0, 0));
    }

    #[test]
    fn less_is_received_at_once_when_memory_is_short() {
        let mut queued = Queued::new(1);
        assert_eq!((queued.receive_bytes(true), queued.receive_bytes(false)), (MOST_RECEIVE, OTHER_RECEIVE));
        queued.total = TARGET_BYTES;
        assert_eq!(queued.receive_bytes(true), LEAST_RECEIVE);
    }
}
