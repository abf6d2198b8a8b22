//! The throughput of each depth as a part of the plateau: what the answer of a sweep rests on, for a picture of it.

use crate::schema::{Curve, Estimate, Point};
use crate::slices::doubts;
use crate::stats::t_quantile;
use crate::visits::{Effects, Look, looks};

/// A depth that several rounds visited.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The depth.
    pub x: f64,
    /// The throughput of the depth as a part of the plateau, with a 95 % interval of the difference between depths,
    /// without the effects of rounds.
    pub of_plateau: Estimate,
    /// The visits to it, without the effects of their rounds.
    pub visits: Vec<f64>,
}

impl Curve {
    /// The parts of the plateau that the depths give, ascending; none where no plateau is known or no depth was visited
    /// in several rounds.
    pub fn parts(&self) -> Vec<Part> {
        self.known_parts().unwrap_or_default()
    }

    fn known_parts(&self) -> Option<Vec<Part>> {
        let plateau = self.line.as_ref()?.plateau()?.mean;
        let mut points: Vec<&Point> = self.points.iter().collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let looks = looks(&points);
        let effects = Effects::of(&looks)?;
        let top = plateau.ln() - effects.lost;
        let t = t_quantile(0.975, effects.freedom);
        let doubts = doubts(&points);
        let confirmed = effects.confirmed.iter().zip(&effects.depths).zip(effects.standard_errors());
        let part = |((&depth, level), error): ((&usize, &f64), f64)| {
            let half = t * error.hypot(doubts[depth]);
            let at = |away: f64| (level - top + away).exp();
            let of_depth = looks.iter().filter(|look| look.depth == depth);
            let visit = |look: &Look| Some((look.ln - effects.of_round(look.round)? - top).exp());
            Part {
                x: points[depth].x,
                of_plateau: Estimate { mean: at(0.0), low: at(-half), high: at(half) },
                visits: of_depth.filter_map(visit).collect(),
            }
        };
        Some(confirmed.map(part).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refine::Goal;
    use crate::schema::Visit;

    #[test]
    fn a_slow_round_moves_no_part() {
        let visits = |round| Visit { round, samples: 2, ..Visit::default() };
        let point = |(x, level): (f64, f64)| {
            let samples = [1.0, 1.0, 0.8, 1.1].iter().flat_map(|of| [level * of * 0.999, level * of * 1.001]).collect();
            Point { x, samples, visits: (0..4).map(visits).collect(), ..Point::default() }
        };
        let points = [(1.0, 500.0), (2.0, 900.0), (4.0, 1000.0), (8.0, 1000.0)].map(point).to_vec();
        let mut curve = Curve { points, ..Curve::default() };
        assert!(curve.parts().is_empty(), "no plateau is known");
        curve.conclude(&Goal::load_line());
        let parts = curve.parts();
        assert_eq!(parts.iter().map(|part| part.x).collect::<Vec<_>>(), [1.0, 2.0, 4.0, 8.0]);
        for (part, level) in parts.iter().zip([0.5, 0.9, 1.0, 1.0]) {
            assert!((part.of_plateau.mean - level).abs() < 0.01, "{part:?}");
            assert!(part.visits.len() == 3 && part.visits.iter().all(|visit| (visit - level).abs() < 0.01), "{part:?}");
        }
    }
}
