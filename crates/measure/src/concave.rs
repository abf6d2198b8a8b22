//! The closest curve that rises ever less, or falls ever more: concave regression.

/// The weighted least-squares fit of `y` over `x` by a concave curve: slopes between neighbours do not grow (Hildreth,
/// "Point estimates of ordinates of concave functions", 1954). `x` ascends strictly; `weights` are inverse variances.
///
/// Such a curve is a constant plus ramps that begin at the first `x` and end at one of the others, all of them upwards,
/// plus one that falls from the first `x` to the last: non-negative least squares (Lawson and Hanson, "Solving Least
/// Squares Problems", 1974, chapter 23).
pub(crate) fn concave(x: &[f64], y: &[f64], weights: &[f64]) -> Vec<f64> {
    let ramps = if x.len() > 1 { x.len() } else { 0 };
    let ramp = |end: usize, at: usize| x.get(end + 1).map_or(x[0] - x[at], |end| x[at].min(*end) - x[0]);
    // The slopes of the ramps in use; the others are 0.
    let mut slopes = vec![0.0; ramps];
    let mut used: Vec<usize> = Vec::new();
    let total: f64 = weights.iter().sum();
    let level = |slopes: &[f64], at: usize| -> f64 { (0..ramps).map(|end| slopes[end] * ramp(end, at)).sum() };
    let constant = |slopes: &[f64]| -> f64 {
        (0..x.len()).map(|at| weights[at] * (y[at] - level(slopes, at))).sum::<f64>() / total
    };
    // Each turn takes in a ramp or ends; rounding could let the same one come and go.
    for _ in 0..3 * ramps {
        let base = constant(&slopes);
        let gain = |end: usize| -> f64 {
            (0..x.len()).map(|at| weights[at] * (y[at] - base - level(&slopes, at)) * ramp(end, at)).sum()
        };
        let scale = |end: usize| (0..x.len()).map(|at| weights[at] * ramp(end, at).powi(2)).sum::<f64>().sqrt();
        let best = (0..ramps).filter(|end| !used.contains(end)).map(|end| (end, gain(end) / scale(end)));
        let Some((new, _)) = best.filter(|(_, gain)| *gain > 1e-9 * total.sqrt()).max_by(|a, b| a.1.total_cmp(&b.1))
        else {
            break;
        };
        used.push(new);
        // The best slopes of the ramps in use; those that would turn downwards leave.
        while let Some(wanted) = solved(&used, ramp, x.len(), y, weights) {
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
            (0..ramps).filter(|end| !used.contains(end)).for_each(|end| slopes[end] = 0.0);
        }
    }
    let base = constant(&slopes);
    (0..x.len()).map(|at| base + level(&slopes, at)).collect()
}

/// The slopes of some ramps that fit best, whatever their signs; None if no ramp is in use.
fn solved(
    used: &[usize],
    ramp: impl Fn(usize, usize) -> f64,
    points: usize,
    y: &[f64],
    weights: &[f64],
) -> Option<Vec<f64>> {
    if used.is_empty() {
        return None;
    }
    // Normal equations about the weighted means, which take the constant out.
    let total: f64 = weights.iter().sum();
    let mean = |of: &dyn Fn(usize) -> f64| (0..points).map(|at| weights[at] * of(at)).sum::<f64>() / total;
    let y_mean = mean(&|at| y[at]);
    let means: Vec<f64> = used.iter().map(|&end| mean(&|at| ramp(end, at))).collect();
    let away = |place: usize, at: usize| ramp(used[place], at) - means[place];
    let n = used.len();
    let mut rows: Vec<Vec<f64>> = (0..n)
        .map(|a| {
            let with = |of: &dyn Fn(usize) -> f64| (0..points).map(|at| weights[at] * away(a, at) * of(at)).sum();
            let right = with(&|at| y[at] - y_mean);
            (0..n).map(|b| with(&|at| away(b, at))).chain([right]).collect()
        })
        .collect();
    // Gauss and Jordan; the matrix is positive definite, for no two ramps are alike.
    for pivot in 0..n {
        let scale = rows[pivot][pivot];
        rows[pivot].iter_mut().for_each(|value| *value /= scale);
        let of = rows[pivot].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != pivot) {
            let by = row[pivot];
            row.iter_mut().zip(&of).for_each(|(value, of)| *value -= by * of);
        }
    }
    Some(rows.into_iter().map(|row| row[n]).collect())
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
