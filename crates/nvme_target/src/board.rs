//! The board that `plimsoll top` shows of a target while it runs: a row per reactor, namespace and host.
//!
//! Each reactor writes separate rows, so that counting takes no locked instruction and no other processor's memory;
//! with several reactors a namespace has a row on each, marked `@` and the reactor's number.

use live::{Board, BoardKind, Gauge, Op, Row, RowKind};
use pace::{Admission, Stats};

/// Rows of all reactors together.
const ROWS: usize = 4096;

/// A board for the whole target; none where there is no place for it, and nothing is shown.
pub(super) fn board(is_wanted: bool) -> Option<Board> {
    if !is_wanted {
        return None;
    }
    Board::create(BoardKind::Target, "plimsoll serve", ROWS).ok()
}

/// A reactor's rows on the board.
pub(super) struct Rows {
    reactor: Option<Row>,
    /// The rows of hosts, by tenant id.
    hosts: Vec<Option<Row>>,
    suffix: String,
}

impl Rows {
    pub fn new(board: Option<&Board>, reactor: u32, reactors: usize) -> Rows {
        let suffix = if reactors > 1 { format!(" @{reactor}") } else { String::new() };
        let row = board.and_then(|board| board.add(RowKind::Reactor, "", &format!("reactor_{reactor}")));
        Rows { reactor: row, hosts: Vec::new(), suffix }
    }

    /// A row for a namespace.
    pub fn namespace(&self, board: Option<&Board>, subsystem: &str, nsid: u32, device: &str) -> Option<Row> {
        board?.add(RowKind::Namespace, subsystem, &format!("{nsid} {device}{}", self.suffix))
    }

    /// Makes sure that a host has a row.
    pub fn host(&mut self, board: Option<&Board>, tenant: u32, nqn: &str) {
        let Some(board) = board else { return };
        let index = tenant as usize;
        if index >= self.hosts.len() {
            self.hosts.resize(index + 1, None);
        }
        if self.hosts[index].is_none() {
            self.hosts[index] = board.add(RowKind::Host, "", &format!("{nqn}{}", self.suffix));
        }
    }

    /// Counts an op that has ended.
    #[inline]
    pub fn count(&self, board: &Board, op: Op, namespace: Option<Row>, tenant: u32, bytes: u64, latency_ns: u64) {
        let host = self.hosts.get(tenant as usize).copied().flatten();
        for row in [namespace, host, self.reactor].into_iter().flatten() {
            board.counters(row).count_alone(op, bytes, latency_ns);
        }
    }

    /// Counts an op that has failed.
    pub fn error(&self, board: &Board, op: Op, namespace: Option<Row>, tenant: u32) {
        let host = self.hosts.get(tenant as usize).copied().flatten();
        for row in [namespace, host, self.reactor].into_iter().flatten() {
            board.counters(row).error(op);
        }
    }

    /// Sets what goes up and down: of the reactor, and of namespaces given as (row, drive).
    pub fn gauges(
        &self,
        board: &Board,
        pacer: &dyn Admission,
        namespaces: impl Iterator<Item = (Row, u32)>,
        busy_ns: u64,
        connections: usize,
    ) {
        let stats: &Stats = pacer.stats();
        let set = |row: Row, of: &pace::Counters| {
            let counters = board.counters(row);
            counters.set(Gauge::OutstandingOps, of.in_flight);
            counters.set(Gauge::OutstandingBytes, of.in_flight_bytes);
            counters.set(Gauge::HeldOps, of.held_now);
            counters.set(Gauge::HeldBytes, of.held_bytes_now);
        };
        for (row, drive) in namespaces {
            if let Some(of) = stats.drives.get(drive as usize) {
                set(row, of);
            }
        }
        for (tenant, row) in self.hosts.iter().enumerate() {
            if let (Some(row), Some(of)) = (row, stats.tenants.get(tenant)) {
                set(*row, of);
            }
        }
        if let Some(row) = self.reactor {
            set(row, &stats.total);
            let window = pacer.window_bytes();
            let counters = board.counters(row);
            counters.set(Gauge::WindowBytes, if window == u64::MAX { 0 } else { window });
            counters.set(Gauge::BusyNs, busy_ns);
            counters.set(Gauge::Connections, connections as u64);
        }
    }
}
