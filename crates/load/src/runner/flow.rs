//! `flow`: clones of one `flow_id` issue ops in proportion to their weights.
//!
//! A clone that is ahead of its share waits until the others have caught up. A clone that has not begun, or has ended,
//! has no share.

use super::seats::{Seat, Seats};

/// The share of one clone.
pub struct Share<'a> {
    mine: Seat<'a>,
    weight: u64,
    issued: u64,
    sleep_ns: u64,
    /// The seats and weights of all clones of the group, this one included.
    group: Vec<(Seat<'a>, u64)>,
}

/// Time until a clone without `flow_sleep` that is ahead looks again: short against any storage, long enough to leave
/// the processor to the others.
const LOOK_NS: u64 = 20_000;

impl<'a> Share<'a> {
    /// The share of the clone in seat `seat`, in a group of (seat, weight).
    pub fn new(seats: &'a Seats, seat: usize, sleep_ns: u64, group: &[(usize, u32)]) -> Share<'a> {
        let weight = group.iter().find(|(other, _)| *other == seat).map_or(1, |(_, weight)| u64::from(*weight));
        let group = group.iter().map(|&(other, weight)| (seats.seat(other), u64::from(weight))).collect();
        Share { mine: seats.seat(seat), weight, issued: 0, sleep_ns: sleep_ns.max(LOOK_NS), group }
    }

    /// Takes one op from the share: None if the clone may issue it now, otherwise the nanoseconds to wait before it
    /// asks again.
    pub fn take(&mut self) -> Option<u64> {
        // One op stands at the beginning for all: a clone that is alone is never ahead.
        let (mut issued, mut weights) = (1, 0);
        for (seat, weight) in self.group.iter().filter(|(seat, _)| seat.is_at_work()) {
            issued += seat.issued();
            weights += weight;
        }
        let (mine, all) = (u128::from(self.issued), u128::from(issued));
        if mine * u128::from(weights) > u128::from(self.weight) * all {
            return Some(self.sleep_ns);
        }
        self.issued += 1;
        self.mine.publish_issued(self.issued);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ops of each clone after `steps` turns, in which each clone asks once.
    fn issued(weights: &[u32], steps: usize, seats: &Seats) -> Vec<u64> {
        let group: Vec<(usize, u32)> = weights.iter().copied().enumerate().collect();
        let mut shares: Vec<Share> = (0..weights.len()).map(|seat| Share::new(seats, seat, 0, &group)).collect();
        for _ in 0..steps {
            for share in &mut shares {
                share.take();
            }
        }
        shares.iter().map(|share| share.issued).collect()
    }

    #[test]
    fn ops_are_in_proportion_to_weights() {
        let seats = Seats::new(3).unwrap();
        (0..3).for_each(|seat| seats.seat(seat).began(1));
        let issued = issued(&[1, 5, 10], 8000, &seats);
        let unit = issued[0] as f64;
        assert!(unit > 100.0, "{issued:?}");
        assert!(
            (issued[1] as f64 / unit - 5.0).abs() < 0.1 && (issued[2] as f64 / unit - 10.0).abs() < 0.1,
            "{issued:?}"
        );
    }

    #[test]
    fn a_clone_waits_for_none_that_has_ended_or_not_begun() {
        let seats = Seats::new(3).unwrap();
        seats.seat(0).began(1);
        seats.seat(1).began(1);
        seats.seat(1).leave();
        assert_eq!(issued(&[1, 100, 100], 50, &seats)[0], 50);
    }
}
