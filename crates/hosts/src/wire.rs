//! The bytes that went over the network: the counters of this host's interfaces.

use serde::{Deserialize, Serialize};

/// Bytes received and sent by all interfaces but the loopback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// Bytes that these interfaces have received.
    pub received: u64,
    /// Bytes that these interfaces have sent.
    pub sent: u64,
}

impl Wire {
    /// The counters now. Zero where there is no /proc/net/dev.
    pub fn now() -> Wire {
        Wire::of(&std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default(), &|name| {
            // The bytes of a bridge, a bond or a VLAN have gone through the interfaces below it as well.
            std::fs::read_dir(format!("/sys/class/net/{name}"))
                .into_iter()
                .flatten()
                .flatten()
                .any(|entry| entry.file_name().to_string_lossy().starts_with("lower_"))
        })
    }

    /// The sum over the lines of /proc/net/dev, without the loopback and without interfaces that are `stacked`.
    fn of(table: &str, stacked: &dyn Fn(&str) -> bool) -> Wire {
        let mut all = Wire::default();
        for (name, counters) in table.lines().filter_map(|line| line.split_once(':')) {
            let name = name.trim();
            let counters: Vec<u64> = counters.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            // proc_net_dev(5): eight columns of reception, bytes first, then eight of transmission.
            if let (false, Some(received), Some(sent)) =
                (name == "lo" || stacked(name), counters.first(), counters.get(8))
            {
                all.received += received;
                all.sent += sent;
            }
        }
        all
    }

    /// The growth since `earlier`.
    pub fn since(&self, earlier: &Wire) -> Wire {
        Wire { received: self.received.saturating_sub(earlier.received), sent: self.sent.saturating_sub(earlier.sent) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_and_stacked_interfaces_do_not_count() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop\n    \
                     lo: 1000 1 0 0 0 0 0 0 1000 1 0 0 0 0 0 0\n  eth0: 5 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n \
                     bond0: 5 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\nib0:10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n";
        let wire = Wire::of(table, &|name| name == "bond0");
        assert_eq!(wire, Wire { received: 15, sent: 27 });
        assert_eq!(wire.since(&Wire { received: 5, sent: 30 }), Wire { received: 10, sent: 0 });
    }
}
