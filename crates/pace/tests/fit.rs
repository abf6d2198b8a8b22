//! The distance of the model from the published tables. The figures are those of docs/pacing-fit.md; a change of the
//! model or of a profile that loses some of them fails here.

use pace::sim::Machine;
use pace::sim::fit::{TESTS, all_rows, compare_crossed, compare_shipped, counts, errors, markdown, tally};

const COMMITTED: &str = include_str!("../../../docs/pacing-fit.md");
const ERRORS: &str = include_str!("../data/errors.json");

#[test]
fn the_model_reproduces_the_published_tables() {
    let rows = all_rows();
    let shipped = compare_shipped(&rows, 2, &|_| {}).unwrap();
    let crossed = compare_crossed(&rows, 2, &|_| {}).unwrap();
    // Tests 3 and 5 to the percent, for the initiator that the profile describes; the kernel's is listed in the table.
    for test in [3, 5] {
        let t = tally(&shipped, test, |row| counts(row) && !row.what.starts_with("kernel"));
        assert!(t.rows >= 6 && t.within == t.rows, "test {test}: {t:?}");
    }
    // The tests 10 to 18 within 8 % for at least 83 % of their stable rows, in the halves that were not fitted, too.
    for compared in [&shipped, &crossed] {
        let (mut all, mut within) = (0, 0);
        for test in TESTS.into_iter().filter(|test| *test >= 10 && *test != 13) {
            let t = tally(compared, test, counts);
            (all, within) = (all + t.rows, within + t.within);
        }
        assert!(all == 264 && 100 * within >= 83 * all, "{within} of {all}");
    }
    let written: pace::sim::Errors = serde_json::from_str(ERRORS).unwrap();
    assert_eq!(written, errors(&crossed).unwrap(), "data/errors.json is out of date: see examples/fit.rs");
    assert_eq!(COMMITTED, markdown(&shipped, &crossed).unwrap(), "out of date: see `plimsoll sim --published`");
}

#[test]
fn a_half_knows_its_own_rows_only() {
    let rows = all_rows();
    let first = rows.iter().filter(|row| row.first).count();
    let all = rows.iter().filter(|row| counts(row)).count();
    assert!(first.abs_diff(all - first) <= 10, "{first} of {all}");
    for name in ["intel-16", "samsung-16"] {
        let [first, second] = [pace::sim::fit::Part::First, pace::sim::fit::Part::Second]
            .map(|part| Machine::fitted(name, part).unwrap());
        assert_ne!(first, second, "{name}: two fits on different rows");
    }
}
