//! The preconditioning of a target in words and as the convergence plot that SNIA's specification asks for.

use measure::figures::{bytes, change, count, nanoseconds, percent};
use measure::schema::Preconditioning;
use measure::steady_state::{EXCURSION, SLOPE, WINDOW};

use crate::svg::{Axis, Chart, Format, Series};

/// The stages and their outcome in one sentence each.
pub(crate) fn said(found: &Preconditioning) -> String {
    let purged = match &found.not_purged {
        None => match found.purged_bytes {
            Some(count) => format!("{} discarded", bytes(count as f64)),
            None => "discarded".to_string(),
        },
        Some(reason) => format!("not purged ({reason})"),
    };
    let rounds = format!("{} rounds of {} ({})", found.rounds.len(), nanoseconds(found.round_ns as f64), found.rw);
    let outcome = match &found.window {
        Some(window) => {
            let is = if found.is_steady() { "steady" } else { "not steady" };
            let last = window.first as usize + WINDOW - 1;
            format!(
                "{is} in rounds {} to {last}: {} IOPS, which differ by {} (limit {}) and drift by {} (limit {}) of \
                 their average",
                window.first,
                count(window.average),
                percent(window.excursion),
                percent(EXCURSION),
                change(window.slope),
                percent(SLOPE)
            )
        }
        None => format!("not known to be steady, which takes {WINDOW} rounds with ops"),
    };
    format!("{purged}; {} written in order; {rounds}; {outcome}", bytes(found.fill_bytes as f64))
}

/// The convergence plot: IOPS over the rounds; in the window of the last five the average, the limits of the excursion
/// around it, and the fitted line. None with fewer than two rounds.
pub(crate) fn chart(found: &Preconditioning) -> Option<Chart> {
    if found.rounds.len() < 2 {
        return None;
    }
    let at = |index: usize| (index + 1) as f64;
    let rounds = found.rounds.iter().enumerate().map(|(index, round)| (at(index), round.iops)).collect();
    let mut chart = Chart::new("Steady state convergence")
        .x(Axis::linear("round").whole())
        .y(Axis::linear("IOPS").format(Format::Count))
        .series(Series::line("IOPS", rounds).colour(0));
    if let Some(window) = &found.window {
        let first = f64::from(window.first);
        let last = first + (WINDOW - 1) as f64;
        let (begin, end) = window.line();
        let level = |value: f64| vec![(first, value), (last, value)];
        let half = EXCURSION / 2.0 * window.average;
        chart = chart
            .series(Series::line("average of the last five", level(window.average)).colour(2))
            .series(Series::line("average + 10 %", level(window.average + half)).colour(1).dashed())
            .series(Series::line("average - 10 %", level(window.average - half)).colour(1).dashed())
            .series(Series::line("fitted line", vec![(first, begin), (last, end)]).colour(3));
    }
    Some(chart)
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::schema::{Round, SteadyWindow};

    fn found(iops: &[f64]) -> Preconditioning {
        Preconditioning {
            rounds: iops.iter().map(|&iops| Round { iops, lat_mean_ns: 1e6 }).collect(),
            window: SteadyWindow::last(iops),
            purged_bytes: Some(1 << 30),
            fill_bytes: 2 << 30,
            round_ns: 60_000_000_000,
            rw: "randwrite".into(),
            ..Preconditioning::default()
        }
    }

    #[test]
    fn the_outcome_is_told_with_its_figures() {
        let steady = said(&found(&[9000.0, 1000.0, 1000.0, 1000.0, 1000.0, 1050.0]));
        assert!(steady.contains("1 GiB discarded; 2 GiB written in order; 6 rounds of 60 s (randwrite)"), "{steady}");
        assert!(steady.contains("; steady in rounds 2 to 6: 1.01k IOPS, which differ by 4.95 %"), "{steady}");
        let falling = said(&found(&[5.0, 4.0, 3.0, 2.0, 1.0]));
        assert!(falling.contains("; not steady in rounds 1 to 5") && falling.contains("drift by -133 %"), "{falling}");
        let short = Preconditioning { not_purged: Some("a file".into()), ..found(&[1.0]) };
        assert!(said(&short).starts_with("not purged (a file)") && said(&short).contains("not known to be steady"));
    }

    #[test]
    fn the_plot_has_the_rounds_and_the_window() {
        let svg = chart(&found(&[9000.0, 1000.0, 1000.0, 1000.0, 1000.0, 1050.0])).unwrap().svg();
        for word in ["Steady state convergence", "average of the last five", "average + 10 %", "fitted line"] {
            assert!(svg.contains(word), "{word}");
        }
        assert!(chart(&found(&[1.0])).is_none());
    }
}
