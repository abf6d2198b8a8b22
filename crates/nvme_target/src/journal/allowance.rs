//! The lines that networks may bring about in a minute: each one a few, all together some more. The rest is counted.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::Level;

/// Lines of one network in a minute.
pub(super) const LINES_OF_ONE: u32 = 30;
/// Lines of all networks together in a minute.
const LINES_OF_ALL: u32 = 300;
/// A log of details has this many times as many: a host with 64 queues has 128 lines.
const DETAILED: u32 = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// The network that a peer's address belongs to: an IPv4 address, or 64 bits of an IPv6 address.
pub fn network_of(peer: Option<SocketAddr>) -> IpAddr {
    match peer.map(|peer| peer.ip().to_canonical()) {
        Some(IpAddr::V6(ip)) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        Some(ip) => ip,
        None => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
    }
}

/// The name of a network in a message.
pub(super) fn name(network: IpAddr) -> String {
    match network {
        IpAddr::V4(ip) if ip.is_unspecified() => "unknown addresses".into(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("{ip}/64"),
    }
}

/// The lines of this minute. It holds as many networks as have had a line, which are bounded.
#[derive(Default)]
pub(super) struct Allowance {
    ends: Duration,
    lines: u32,
    networks: HashMap<IpAddr, Lines>,
    /// Lines left out of networks whose first line came when all together had had their lines.
    of_others: u64,
}

#[derive(Default)]
struct Lines {
    printed: u32,
    left_out: u64,
}

impl Allowance {
    /// Begins the next minute if it is time. Returns the number of lines left out in the last one, by network; `None`
    /// stands for all others.
    pub fn turn(&mut self, now: Duration) -> Vec<(Option<IpAddr>, u64)> {
        if now < self.ends {
            return Vec::new();
        }
        self.ends = now + MINUTE;
        self.end()
    }

    /// Ends the minute.
    pub fn end(&mut self) -> Vec<(Option<IpAddr>, u64)> {
        self.lines = 0;
        let of_one = self.networks.drain().map(|(network, lines)| (Some(network), lines.left_out));
        let all = of_one.chain([(None, std::mem::take(&mut self.of_others))]);
        all.filter(|(_, left_out)| *left_out > 0).collect()
    }

    /// True if the network may have one line more, which counts.
    pub fn admits(&mut self, network: IpAddr, level: Level) -> bool {
        let times = if level > Level::Notice { DETAILED } else { 1 };
        let (of_one, of_all) = (LINES_OF_ONE * times, LINES_OF_ALL * times);
        let is_over = self.lines >= of_all;
        if is_over && !self.networks.contains_key(&network) {
            self.of_others += 1;
            return false;
        }
        let lines = self.networks.entry(network).or_default();
        if is_over || lines.printed >= of_one {
            lines.left_out += 1;
            return false;
        }
        lines.printed += 1;
        self.lines += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_networks_is_bounded_too() {
        let mut allowance = Allowance::default();
        assert!(allowance.turn(Duration::ZERO).is_empty());
        let network = |number: u32| IpAddr::from(number.to_be_bytes());
        let printed = (1..=1_000_000).filter(|number| allowance.admits(network(*number), Level::Notice)).count();
        assert_eq!((printed as u32, allowance.networks.len() as u32), (LINES_OF_ALL, LINES_OF_ALL));
        assert!(!allowance.admits(network(1), Level::Notice), "all together have had their lines");
        assert!(allowance.turn(MINUTE - Duration::from_nanos(1)).is_empty(), "the minute is not over");
        let mut left_out = allowance.turn(MINUTE);
        left_out.sort_unstable();
        let others = 1_000_000 - u64::from(LINES_OF_ALL);
        assert_eq!(left_out, [(None, others), (Some(network(1)), 1)]);
        assert!(allowance.admits(network(1), Level::Notice), "a new minute");
    }

    #[test]
    fn a_log_of_details_has_more_lines() {
        let mut allowance = Allowance::default();
        let of_one = (0..10_000).filter(|_| allowance.admits([10, 0, 0, 1].into(), Level::Debug)).count();
        assert_eq!(of_one as u32, LINES_OF_ONE * DETAILED);
    }

    #[test]
    fn a_network_is_an_address_or_half_of_one() {
        let of = |text: &str| name(network_of(text.parse().ok()));
        assert_eq!(of("10.1.2.3:7"), "10.1.2.3");
        assert_eq!(of("[::ffff:10.1.2.3]:7"), "10.1.2.3");
        assert_eq!(of("[2001:db8:1:2:3:4:5:6]:7"), "2001:db8:1:2::/64");
        assert_eq!(name(network_of(None)), "unknown addresses");
    }
}
