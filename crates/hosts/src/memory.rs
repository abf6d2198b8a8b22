//! Links between threads of one process, for tests and benchmarks: they lose a rank on command.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::link::Link;

/// The link of one rank, in the memory of one process.
#[derive(Debug)]
pub struct Memory {
    rank: u32,
    inbox: Receiver<(u32, Vec<u8>)>,
    outboxes: Vec<Sender<(u32, Vec<u8>)>>,
    lost: Arc<[AtomicBool]>,
}

/// Makes ranks fall silent, for tests.
#[derive(Clone, Debug)]
pub struct Fault(Arc<[AtomicBool]>);

impl Fault {
    /// From now on nothing comes from `rank`, and nothing reaches it.
    pub fn lose(&self, rank: u32) {
        self.0[rank as usize].store(true, Relaxed);
    }
}

/// The links of `size` ranks.
pub fn network(size: u32) -> (Vec<Memory>, Fault) {
    let lost: Arc<[AtomicBool]> = (0..size).map(|_| AtomicBool::new(false)).collect();
    let (outboxes, inboxes): (Vec<_>, Vec<_>) = (0..size).map(|_| channel()).unzip();
    let link = |(rank, inbox)| Memory { rank, inbox, outboxes: outboxes.clone(), lost: Arc::clone(&lost) };
    ((0..size).zip(inboxes).map(link).collect(), Fault(Arc::clone(&lost)))
}

impl Link for Memory {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.outboxes.len() as u32
    }

    fn send(&mut self, to: u32, bytes: Vec<u8>) {
        let lost = |rank: u32| self.lost[rank as usize].load(Relaxed);
        if !lost(self.rank) && !lost(to) {
            let _ = self.outboxes[to as usize].send((self.rank, bytes)); // a rank that has left reads no more
        }
    }

    fn receive(&mut self) -> Option<(u32, Vec<u8>)> {
        self.inbox.try_recv().ok().filter(|_| !self.lost[self.rank as usize].load(Relaxed))
    }

    fn close(&mut self) {}
}
