//! The load line: the smallest depth that reaches 97 % of the plateau, and where overload begins.

use crate::schema::{LoadLine, Point};

/// Plateau, load line and overload of a curve, each with its 95 % confidence interval; None when fewer than three
/// points have samples. Points may be in any order. Deterministic: the bootstrap's seed is fixed.
pub fn find(_points: &[Point]) -> Option<LoadLine> {
    None
}
