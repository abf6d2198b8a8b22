//! The closest curve that rises and then falls: weighted unimodal regression (Barlow, Bartholomew, Bremner and Brunk,
//! "Statistical Inference under Order Restrictions", 1972), by pooling adjacent violators (Ayer et al., 1955).
//!
//! Throughput over depth rises to a plateau and may fall beyond it, so noise cannot fake a knee by going up and down.

/// A run of values with one fitted height.
#[derive(Clone, Copy)]
struct Block {
    mean: f64,
    weight: f64,
    length: usize,
    /// Weighted squares of the differences between the values and `mean`.
    misfit: f64,
}

impl Block {
    fn pooled(self, other: Block) -> Block {
        let weight = self.weight + other.weight;
        let apart = (self.mean - other.mean).powi(2) * self.weight * other.weight / weight;
        Block {
            mean: (self.mean * self.weight + other.mean * other.weight) / weight,
            weight,
            length: self.length + other.length,
            misfit: self.misfit + other.misfit + apart,
        }
    }
}

/// Pools adjacent violators one value at a time, so that the fit of every prefix is known.
#[derive(Default)]
struct Rising {
    blocks: Vec<Block>,
}

impl Rising {
    fn push(&mut self, value: f64, weight: f64) {
        let mut block = Block { mean: value, weight, length: 1, misfit: 0.0 };
        while let Some(&before) = self.blocks.last()
            && before.mean >= block.mean
        {
            block = before.pooled(block);
            self.blocks.pop();
        }
        self.blocks.push(block);
    }

    fn misfit(&self) -> f64 {
        self.blocks.iter().map(|block| block.misfit).sum()
    }

    fn fit(&self) -> impl DoubleEndedIterator<Item = f64> {
        self.blocks.iter().flat_map(|block| std::iter::repeat_n(block.mean, block.length))
    }
}

/// The closest sequence that does not fall up to some index and does not rise from there on, least squares. Weights are
/// positive; both slices have the same length.
pub fn unimodal(values: &[f64], weights: &[f64]) -> Vec<f64> {
    let n = values.len();
    // The misfit of the best falling sequence from each index to the end.
    let mut falling = vec![0.0; n + 1];
    let mut backwards = Rising::default();
    for index in (0..n).rev() {
        backwards.push(values[index], weights[index]);
        falling[index] = backwards.misfit();
    }
    let (mut best, mut split) = (f64::INFINITY, n);
    let mut forwards = Rising::default();
    for index in 0..n {
        forwards.push(values[index], weights[index]);
        let misfit = forwards.misfit() + falling[index + 1];
        if misfit < best {
            (best, split) = (misfit, index + 1);
        }
    }
    let (mut rise, mut fall) = (Rising::default(), Rising::default());
    (0..split).for_each(|index| rise.push(values[index], weights[index]));
    (split..n).rev().for_each(|index| fall.push(values[index], weights[index]));
    rise.fit().chain(fall.fit().rev()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fit_is_the_closest_of_all() {
        // The fit is compared with every fit on a coarse grid.
        let values = [1.0, 3.0, 2.0, 4.0, 3.0, 3.5];
        let misfit = |fit: &[f64]| values.iter().zip(fit).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
        let ours = unimodal(&values, &[1.0; 6]);
        let mut best = f64::INFINITY;
        for code in 0..9u32.pow(6) {
            let fit: Vec<f64> = (0..6).map(|i| f64::from(code / 9u32.pow(i) % 9) * 0.5).collect();
            let top = (0..6).max_by(|&a, &b| fit[a].total_cmp(&fit[b])).unwrap();
            if fit[..=top].is_sorted() && fit[top..].is_sorted_by(|a, b| a >= b) {
                best = best.min(misfit(&fit));
            }
        }
        assert!(misfit(&ours) <= best + 1e-9, "{ours:?}: {} {best}", misfit(&ours));
        assert!((misfit(&ours) - 0.625).abs() < 1e-9, "1, 2.5, 2.5, 4, 3.25, 3.25");
    }

    #[test]
    fn weights_decide_where_values_are_pooled() {
        assert_eq!(unimodal(&[2.0, 1.0, 3.0], &[3.0, 1.0, 1.0]), [1.75, 1.75, 3.0]);
        assert_eq!(unimodal(&[], &[]), [0.0; 0]);
    }
}
