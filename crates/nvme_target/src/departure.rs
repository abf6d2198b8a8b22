//! The wait for ops that devices still have when a call has closed their way.

use std::sync::mpsc;

/// The ops that devices still have of hosts, paths or namespaces to which a call has closed the way.
#[must_use = "without `wait`, an op may end after the call"]
#[derive(Debug, Default)]
pub struct Departure(pub(super) Vec<mpsc::Receiver<()>>);

impl Departure {
    /// Waits until the last of the ops has left its device: nothing that anybody writes in another way from now on is
    /// overtaken by them. Waits for as long as a device takes.
    pub fn wait(self) {
        for departed in self.0 {
            // Each reactor drops its sender when it has none of the ops any more.
            let _ = departed.recv();
        }
    }

    /// The ops of both.
    pub fn and(mut self, mut other: Departure) -> Departure {
        self.0.append(&mut other.0);
        self
    }
}
