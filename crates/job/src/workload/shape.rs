//! Uneven popularity: which of n places is asked for, by Zipf, Pareto or a normal distribution.
//!
//! A rank is drawn (0 is the most popular), then placed: scattered over the file by a random bijection, so that the
//! popular blocks are not neighbours, or laid out around a centre. fio scatters by a hash modulo n, where some blocks
//! share two ranks and others get none; a bijection keeps the distribution exact.

use super::permutation::Permutation;
use super::random::Random;
use crate::job::Distribution;

/// A distribution of random numbers from 0 to count - 1.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    rank: Rank,
    place: Place,
    count: u64,
}

#[derive(Clone, Debug)]
enum Rank {
    Zipf(Zipf),
    /// The exponent.
    Pareto(f64),
    /// Standard deviation in places.
    Normal(f64),
}

#[derive(Clone, Debug)]
enum Place {
    /// A random bijection gives each rank its place.
    Scattered(Permutation),
    /// Rank 0 at the centre, the others alternately right and left of it, wrapping at the ends.
    Around(u64),
    /// The rank is the place.
    Straight,
}

impl Shape {
    /// `distribution` over `count` places; None if it is the uniform one.
    pub fn new(distribution: Distribution, count: u64, random: &mut Random) -> Option<Shape> {
        let (rank, centre) = match distribution {
            Distribution::Uniform => return None,
            Distribution::Zipf(theta, centre) => (Rank::Zipf(Zipf::new(count.max(1), theta)), centre),
            Distribution::Pareto(h, centre) => (Rank::Pareto(h.ln() / (1.0 - h).ln()), centre),
            // Zero means fio's own width, that of twelve uniform numbers averaged: a twelfth of the range.
            Distribution::Normal(percent, centre) => {
                let part = if percent == 0.0 { 1.0 / 12.0 } else { percent / 100.0 };
                (Rank::Normal(part * count as f64), centre)
            }
        };
        let place = match centre {
            Some(centre) => Place::Around(((centre * count as f64) as u64).min(count.saturating_sub(1))),
            None => Place::Scattered(Permutation::new(count, random)),
        };
        Some(Shape { rank, place, count })
    }

    /// This shape without scattering: place 0 is the most popular. It serves to choose among files.
    pub fn straight(mut self) -> Shape {
        if let Place::Scattered(_) = self.place {
            self.place = Place::Straight;
        }
        self
    }

    /// Draws a number from 0 to count - 1.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        let rank = match &self.rank {
            Rank::Zipf(zipf) => zipf.draw(random),
            Rank::Pareto(power) => (((self.count - 1) as f64 * random.unit().powf(*power)) as u64).min(self.count - 1),
            Rank::Normal(deviation) => return self.normal(*deviation, random),
        };
        match &self.place {
            Place::Scattered(order) => order.at(rank),
            Place::Around(centre) => self.around(*centre, rank),
            Place::Straight => rank,
        }
    }

    /// A normal distribution is about places, not ranks: around the centre of the range, cut off at its ends.
    fn normal(&self, deviation: f64, random: &mut Random) -> u64 {
        let centre = match self.place {
            Place::Around(centre) => centre as f64 + 0.5,
            _ => self.count as f64 / 2.0,
        };
        // As good as never used up: the range would have to be a thousandth of the deviation.
        let mut draws = 4000;
        let place = loop {
            // Marsaglia's polar method. The second number it gives is not kept: the state would outlive a pass.
            let (x, y) = (2.0 * random.unit() - 1.0, 2.0 * random.unit() - 1.0);
            let square = x * x + y * y;
            if square >= 1.0 || square == 0.0 {
                continue;
            }
            draws -= 1;
            if draws == 0 {
                break random.below(self.count);
            }
            let place = centre + deviation * x * (-2.0 * square.ln() / square).sqrt();
            if place >= 0.0 && place < self.count as f64 {
                break place as u64;
            }
        };
        match &self.place {
            Place::Scattered(order) => order.at(place),
            Place::Around(_) | Place::Straight => place,
        }
    }

    fn around(&self, centre: u64, rank: u64) -> u64 {
        let step = rank.div_ceil(2);
        if rank % 2 == 1 { (centre + step) % self.count } else { (centre + self.count - step) % self.count }
    }
}

/// Ranks 0..n with probability proportional to 1 / (rank + 1)^theta, any theta > 0, exact, in constant memory.
///
/// Source: Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions",
/// ACM TOMACS 6(3), 1996. Fewer than 1.1 draws a number.
#[derive(Clone, Debug)]
struct Zipf {
    count: f64,
    theta: f64,
    integral_first: f64,
    integral_last: f64,
    accept: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Zipf {
        let mut zipf = Zipf { count: count as f64, theta, integral_first: 0.0, integral_last: 0.0, accept: 0.0 };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(zipf.count + 0.5);
        zipf.accept = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    fn density(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// The integral of the density, with the constant that makes it ln at theta = 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let t = (1.0 - self.theta) * log;
        // expm1(t) / t, by its series where that loses digits.
        let quotient = if t.abs() > 1e-8 { t.exp_m1() / t } else { 1.0 + t / 2.0 * (1.0 + t / 3.0) };
        quotient * log
    }

    fn inverse(&self, y: f64) -> f64 {
        let t = (y * (1.0 - self.theta)).max(-1.0);
        let quotient = if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t * (0.5 - t / 3.0) };
        (quotient * y).exp()
    }

    #[inline]
    fn draw(&self, random: &mut Random) -> u64 {
        // Nine of ten draws are taken; only an exponent beyond the range of numbers makes all of them fail.
        for _ in 0..1000 {
            let u = self.integral_last + random.unit() * (self.integral_first - self.integral_last);
            let x = self.inverse(u);
            let k = (x + 0.5).floor().clamp(1.0, self.count);
            if k - x <= self.accept || u >= self.integral(k + 0.5) - self.density(k) {
                return k as u64 - 1;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chi-square of draws against probabilities, cells with too few expected merged into the last.
    fn chi_square(counts: &[u64], probabilities: &[f64]) -> (f64, usize) {
        let total: u64 = counts.iter().sum();
        let (mut chi, mut cells, mut rest, mut rest_expected) = (0.0, 0, 0.0, 0.0);
        for (&count, &probability) in counts.iter().zip(probabilities) {
            let expected = probability * total as f64;
            if expected >= 10.0 {
                chi += (count as f64 - expected).powi(2) / expected;
                cells += 1;
            } else {
                rest += count as f64;
                rest_expected += expected;
            }
        }
        if rest_expected >= 10.0 {
            chi += (rest - rest_expected).powi(2) / rest_expected;
            cells += 1;
        }
        (chi, cells - 1)
    }

    /// The bound that 99.9 % of chi-squares stay below (Wilson and Hilferty's approximation).
    fn bound(freedom: usize) -> f64 {
        let k = freedom as f64;
        k * (1.0 - 2.0 / (9.0 * k) + 3.09 * (2.0 / (9.0 * k)).sqrt()).powi(3)
    }

    fn ranks(distribution: Distribution, count: u64, draws: usize) -> Vec<u64> {
        let mut random = Random::new(11);
        let shape = Shape::new(distribution, count, &mut random).unwrap().straight();
        let mut counts = vec![0; count as usize];
        for _ in 0..draws {
            counts[shape.draw(&mut random) as usize] += 1;
        }
        counts
    }

    #[test]
    fn zipf_has_its_shape() {
        for theta in [0.2, 0.9, 1.0, 1.2, 3.0] {
            for count in [1u64, 2, 10, 1000, 20_000] {
                let weights: Vec<f64> = (1..=count).map(|k| (k as f64).powf(-theta)).collect();
                let sum: f64 = weights.iter().sum();
                let probabilities: Vec<f64> = weights.iter().map(|w| w / sum).collect();
                let counts = ranks(Distribution::Zipf(theta, None), count, 200_000);
                if count > 1 {
                    let (chi, freedom) = chi_square(&counts, &probabilities);
                    assert!(chi < bound(freedom.max(1)), "zipf:{theta} of {count}: {chi:.1} with {freedom}");
                }
            }
        }
    }

    #[test]
    fn pareto_has_its_shape() {
        for h in [0.1, 0.3, 0.5f64] {
            let count = 1000u64;
            let power = h.ln() / (1.0 - h).ln();
            let below = |k: u64| (k as f64 / (count - 1) as f64).powf(1.0 / power).min(1.0);
            let probabilities: Vec<f64> = (0..count).map(|k| below(k + 1) - below(k)).collect();
            let counts = ranks(Distribution::Pareto(h, None), count, 200_000);
            let (chi, freedom) = chi_square(&counts, &probabilities);
            assert!(chi < bound(freedom), "pareto:{h}: {chi:.1} with {freedom}");
        }
        // The name's promise: with h = 0.2, 20 % of the places take 80 % of the accesses.
        let counts = ranks(Distribution::Pareto(0.2, None), 10_000, 200_000);
        let popular: u64 = counts[..2000].iter().sum();
        assert!((popular as f64 / 200_000.0 - 0.8).abs() < 0.01, "{popular}");
    }

    #[test]
    fn normal_has_its_shape() {
        // Kolmogorov and Smirnov: the largest distance of distribution functions, 99.9 % bound 1.95 / sqrt(n).
        let erf = |x: f64| {
            // The integral by Simpson's rule: no dependency, error far below the bound.
            let steps = 400;
            let h = x / f64::from(steps);
            let f = |t: f64| (-t * t).exp();
            let sum: f64 = (1..steps).map(|i| f(h * f64::from(i)) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
            2.0 / std::f64::consts::PI.sqrt() * h / 3.0 * (f(0.0) + sum + f(x))
        };
        for (percent, centre) in [(10.0, None), (0.0, None), (25.0, Some(0.25)), (5.0, Some(0.9))] {
            let (count, draws) = (4000u64, 200_000usize);
            let counts = ranks(Distribution::Normal(percent, centre), count, draws);
            let part = if percent == 0.0 { 1.0 / 12.0 } else { percent / 100.0 };
            let (mean, deviation) = (centre.unwrap_or(0.5) * count as f64, part * count as f64);
            let below = |x: f64| 0.5 * (1.0 + erf((x - mean) / deviation / std::f64::consts::SQRT_2));
            let (low, high) = (below(0.0), below(count as f64));
            let (mut seen, mut distance) = (0u64, 0.0f64);
            for (k, &n) in counts.iter().enumerate() {
                seen += n;
                let expected = (below(k as f64 + 1.0) - low) / (high - low);
                distance = distance.max((seen as f64 / draws as f64 - expected).abs());
            }
            assert!(distance < 1.95 / (draws as f64).sqrt() + 1e-3, "normal:{percent}:{centre:?}: {distance}");
        }
    }

    #[test]
    fn scattering_keeps_the_popularity_and_a_centre_is_where_it_is() {
        let mut random = Random::new(5);
        let count = 1000u64;
        let scattered = Shape::new(Distribution::Zipf(1.2, None), count, &mut random).unwrap();
        let mut counts = vec![0u64; count as usize];
        for _ in 0..100_000 {
            counts[scattered.draw(&mut random) as usize] += 1;
        }
        let mut sorted = counts.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        assert!((sorted[0] as f64 / sorted[1] as f64 - 2f64.powf(1.2)).abs() < 0.15, "{:?}", &sorted[..3]);
        let (a, b) = (
            counts.iter().position(|n| *n == sorted[0]).unwrap(),
            counts.iter().position(|n| *n == sorted[1]).unwrap(),
        );
        assert!(a.abs_diff(b) > 1, "the two most popular are neighbours: {a}, {b}");

        let centred = Shape::new(Distribution::Zipf(1.2, Some(0.25)), count, &mut random).unwrap();
        let mut counts = vec![0u64; count as usize];
        for _ in 0..100_000 {
            counts[centred.draw(&mut random) as usize] += 1;
        }
        assert_eq!(counts.iter().enumerate().max_by_key(|&(_, n)| *n).unwrap().0, 250);
        let near: u64 = counts[200..300].iter().sum();
        assert!(near > 80_000, "{near}");
    }
}
