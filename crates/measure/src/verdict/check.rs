//! The way in which statements are tried on a result: each of them passes, fails, or cannot be checked.

use serde::{Deserialize, Serialize};

use super::Verdict;

/// The outcome of one statement that was tried on a result. A statement that cannot apply (a rate that was not asked
/// for) is not tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "WrittenCheck", from = "WrittenCheck")]
pub struct Check {
    /// The code of the verdict that this check gives when it fails.
    pub code: String,
    /// The outcome of the check.
    pub outcome: Outcome,
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The check was made, and nothing speaks against the numbers.
    Passed,
    /// The result does not hold the facts that the check needs.
    NotCheckable {
        /// The missing facts, and why they are missing: "fio does not record what was in the page cache".
        reason: String,
    },
    /// The check was made and found something: the verdict of this code stands beside.
    Failed,
}

/// A [`Check`] as results hold it: a fixed row of fields, because ranks send results to each other in a form that has
/// no names of fields.
#[derive(Serialize, Deserialize)]
struct WrittenCheck {
    code: String,
    outcome: OutcomeWord,
    reason: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OutcomeWord {
    Passed,
    NotCheckable,
    Failed,
}

impl From<Check> for WrittenCheck {
    fn from(Check { code, outcome }: Check) -> WrittenCheck {
        let (outcome, reason) = match outcome {
            Outcome::Passed => (OutcomeWord::Passed, None),
            Outcome::NotCheckable { reason } => (OutcomeWord::NotCheckable, Some(reason)),
            Outcome::Failed => (OutcomeWord::Failed, None),
        };
        WrittenCheck { code, outcome, reason }
    }
}

impl From<WrittenCheck> for Check {
    fn from(WrittenCheck { code, outcome, reason }: WrittenCheck) -> Check {
        let outcome = match outcome {
            OutcomeWord::Passed => Outcome::Passed,
            OutcomeWord::NotCheckable => Outcome::NotCheckable { reason: reason.unwrap_or_default() },
            OutcomeWord::Failed => Outcome::Failed,
        };
        Check { code, outcome }
    }
}

/// The verdicts on something, worst first, and how each statement that was tried came out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// The verdicts that were found, worst first.
    pub verdicts: Vec<Verdict>,
    /// Every statement that was tried, and how it came out.
    pub checks: Vec<Check>,
}

impl Judgement {
    /// Enters the outcome of one statement.
    pub(super) fn enter(&mut self, code: &str, basis: Basis, found: Option<Verdict>) {
        let outcome = match (found, basis) {
            (Some(verdict), _) => {
                self.verdicts.push(verdict);
                Outcome::Failed
            }
            (None, Basis::Known) => Outcome::Passed,
            (None, Basis::Missing(reason)) => Outcome::NotCheckable { reason: reason.into() },
            (None, Basis::DoesNotApply) => return,
        };
        self.checks.push(Check { code: code.into(), outcome });
        self.verdicts.sort_by_key(|verdict| std::cmp::Reverse(verdict.severity));
    }

    /// The judgement that consists of these verdicts.
    pub fn of_found(verdicts: Vec<Verdict>) -> Judgement {
        let checks = verdicts.iter().map(|one| Check { code: one.code.clone(), outcome: Outcome::Failed }).collect();
        Judgement { verdicts, checks }
    }

    /// Adds the judgement of another part: of one code, a part that failed counts before one that could not be checked,
    /// and that before one that passed.
    pub fn add(&mut self, other: Judgement) {
        let Judgement { verdicts, checks } = other;
        self.verdicts.extend(verdicts);
        self.verdicts.sort_by_key(|verdict| std::cmp::Reverse(verdict.severity));
        let rank = |outcome: &Outcome| match outcome {
            Outcome::Passed => 0,
            Outcome::NotCheckable { .. } => 1,
            Outcome::Failed => 2,
        };
        for check in checks {
            match self.checks.iter_mut().find(|known| known.code == check.code) {
                Some(known) if rank(&known.outcome) < rank(&check.outcome) => *known = check,
                Some(_) => {}
                None => self.checks.push(check),
            }
        }
    }
}

/// The basis that a statement about a result would rest on.
pub(super) enum Basis {
    /// The facts are there.
    Known,
    /// A fact is missing: the reason, as [`Outcome::NotCheckable`] shows it.
    Missing(&'static str),
    /// The statement has no meaning for this result.
    DoesNotApply,
}

impl Basis {
    /// Known if the statement applies, else DoesNotApply.
    pub(super) fn applies(applies: bool) -> Basis {
        if applies { Basis::Known } else { Basis::DoesNotApply }
    }

    /// This basis where the fact is known; Missing with `reason` where it is not.
    pub(super) fn needs(self, known: bool, reason: &'static str) -> Basis {
        match self {
            Basis::Known if !known => Basis::Missing(reason),
            basis => basis,
        }
    }
}

/// One statement that is tried on a `T`.
pub(super) struct Rule<T> {
    pub code: &'static str,
    pub basis: fn(&T) -> Basis,
    pub find: fn(&T) -> Option<Verdict>,
}
