//! The one sentence that a sweep ends with.

use measure::schema::{Curve, Estimate};

/// Which engine, which depth, what it gives, and what deeper does: one sentence.
pub fn advice(_axis: &str, _curves: &[Curve], _ceiling_iops: Option<Estimate>) -> String {
    String::new()
}
