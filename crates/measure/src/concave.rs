//! The closest curve that rises ever less, or falls ever more: concave regression.

/// The weighted least-squares fit of `y` over `x` by a concave curve: slopes between neighbours do not grow (Hildreth,
/// "Point estimates of ordinates of concave functions", 1954). `x` ascends strictly; `weights` are inverse variances.
///
/// Such a curve is a constant plus ramps that begin at the first `x` and end at one of the others, all of them upwards,
/// plus one that falls from the first `x` to the last: non-negative least squares (Lawson and Hanson, "Solving Least
/// Squares Problems", 1974, chapter 23).
pub(crate) fn concave(x: &[f64], y: &[f64], weights: &[f64]) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    let mean = |of: &[f64]| of.iter().zip(weights).map(|(value, weight)| weight * value).sum::<f64>() / total;
    let product = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).zip(weights).map(|((a, b), w)| w * a * b).sum() };
    // Deviations from the weighted means take the constant out.
    let away = |of: &[f64]| -> Vec<f64> {
        let mean = mean(of);
        of.iter().map(|value| value - mean).collect()
    };
    let ramps = if x.len() > 1 { x.len() } else { 0 };
    let height = |end: usize, at: f64| x.get(end + 1).map_or(x[0] - at, |end| at.min(*end) - x[0]);
    let ramp = |end: usize| -> Vec<f64> { x.iter().map(|&at| height(end, at)).collect() };
    let scales: Vec<f64> = (0..ramps).map(ramp).map(|ramp| product(&ramp, &ramp).sqrt()).collect();
    let ramps: Vec<Vec<f64>> = (0..ramps).map(|end| away(&ramp(end))).collect();
    let wanted = away(y);
    let products: Vec<Vec<f64>> = ramps.iter().map(|a| ramps.iter().map(|b| product(a, b)).collect()).collect();
    let gains: Vec<f64> = ramps.iter().map(|ramp| product(ramp, &wanted)).collect();
    let slopes = slopes(&products, &gains, &scales, 1e-9 * total.sqrt());
    let base = mean(y);
    let level = |at: usize| slopes.iter().zip(&ramps).map(|(slope, ramp)| slope * ramp[at]).sum::<f64>();
    (0..x.len()).map(|at| base + level(at)).collect()
}

/// The slopes of the ramps, none of them negative, of the closest curve. `products` are those of the ramps with one
/// another, `gains` those with the values to fit. A ramp whose gain, in units of its `scales`, is at most `least` adds
/// nothing.
fn slopes(products: &[Vec<f64>], gains: &[f64], scales: &[f64], least: f64) -> Vec<f64> {
    // The slopes of the ramps in use; the others are 0.
    let mut slopes = vec![0.0; gains.len()];
    let mut used: Vec<usize> = Vec::new();
    // Each turn takes in a ramp or ends; rounding could let the same one come and go.
    for _ in 0..3 * gains.len() {
        let gain = |end: usize| gains[end] - used.iter().map(|&of| products[end][of] * slopes[of]).sum::<f64>();
        let others = (0..gains.len()).filter(|end| !used.contains(end)).map(|end| (end, gain(end) / scales[end]));
        let Some((new, _)) = others.filter(|(_, gain)| *gain > least).max_by(|a, b| a.1.total_cmp(&b.1)) else {
            break;
        };
        used.push(new);
        // The best slopes of the ramps in use; those that would turn downwards leave.
        while !used.is_empty() {
            let wanted = solved(&used, products, gains);
            let downwards = |place: &usize| wanted[*place] <= 0.0;
            let part = |place: usize| slopes[used[place]] / (slopes[used[place]] - wanted[place]);
            let step = (0..used.len()).filter(downwards).map(part).fold(1.0, f64::min);
            for (&end, wanted) in used.iter().zip(&wanted) {
                slopes[end] += step * (wanted - slopes[end]);
            }
            if step == 1.0 {
                break;
            }
            used.retain(|&end| slopes[end] > 1e-12);
            (0..gains.len()).filter(|end| !used.contains(end)).for_each(|end| slopes[end] = 0.0);
        }
    }
    slopes
}

/// The slopes of the ramps `used` that fit best, whatever their signs: Gauss and Jordan on the normal equations. Their
/// matrix is positive definite, for no two ramps are alike.
fn solved(used: &[usize], products: &[Vec<f64>], gains: &[f64]) -> Vec<f64> {
    let n = used.len();
    let row = |a: usize| used.iter().map(|&b| products[a][b]).chain([gains[a]]).collect();
    let mut rows: Vec<Vec<f64>> = used.iter().map(|&a| row(a)).collect();
    for pivot in 0..n {
        let scale = rows[pivot][pivot];
        rows[pivot].iter_mut().for_each(|value| *value /= scale);
        let of = rows[pivot].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != pivot) {
            let by = row[pivot];
            row.iter_mut().zip(&of).for_each(|(value, of)| *value -= by * of);
        }
    }
    rows.into_iter().map(|row| row[n]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::test_noise::Noise;

    fn distance(fit: &[f64], y: &[f64], weights: &[f64]) -> f64 {
        fit.iter().zip(y).zip(weights).map(|((fit, y), weight)| weight * (fit - y).powi(2)).sum()
    }

    fn is_concave(x: &[f64], fit: &[f64]) -> bool {
        let slopes: Vec<f64> = x.windows(2).zip(fit.windows(2)).map(|(x, y)| (y[1] - y[0]) / (x[1] - x[0])).collect();
        slopes.windows(2).all(|pair| pair[1] <= pair[0] + 1e-9)
    }

    #[test]
    fn concave_points_are_their_own_fit() {
        let x = [0.0, 0.5, 1.0, 2.0, 4.0];
        let y = [0.0, 0.5, 0.9, 1.2, 0.8];
        let fit = concave(&x, &y, &[1.0, 2.0, 3.0, 2.0, 1.0]);
        assert!(fit.iter().zip(y).all(|(fit, y)| (fit - y).abs() < 1e-9), "{fit:?}");
    }

    #[test]
    fn convex_points_become_a_line() {
        let fit = concave(&[0.0, 1.0, 2.0], &[3.0, 0.0, 3.0], &[1.0, 1.0, 1.0]);
        assert!(fit.iter().all(|fit| (fit - 2.0).abs() < 1e-9), "{fit:?}");
        assert_eq!(concave(&[1.0], &[2.0], &[1.0]), [2.0]);
    }

    /// No concave curve near the fit is closer: the curves halfway to many others lie farther away.
    #[test]
    fn the_fit_is_the_closest() {
        let mut random = Noise::new(1);
        for _ in 0..200 {
            let mut at = 0.0;
            let mut next = || {
                at += 0.1 + random.normal().abs();
                at
            };
            let x: Vec<f64> = (0..12).map(|_| next()).collect();
            let y: Vec<f64> = x.iter().map(|x| x.min(3.0) + 0.3 * random.normal()).collect();
            let weights: Vec<f64> = x.iter().map(|_| 0.2 + random.normal().abs()).collect();
            let fit = concave(&x, &y, &weights);
            assert!(is_concave(&x, &fit), "{fit:?}");
            let least = distance(&fit, &y, &weights);
            for _ in 0..50 {
                let other: Vec<f64> = y.iter().map(|y| y + 0.3 * random.normal()).collect();
                let other = concave(&x, &other, &weights);
                let half: Vec<f64> = fit.iter().zip(&other).map(|(a, b)| 0.99 * a + 0.01 * b).collect();
                assert!(distance(&half, &y, &weights) >= least - 1e-9, "{fit:?} {other:?}");
            }
        }
    }
}
