//! Verdicts that several things share, so that each finding keeps its own figures.

use super::Verdict;

/// Findings that are told with their figures; further ones are told by their places alone.
const TOLD: usize = 3;

/// A verdict that several things got, with each finding and its places.
#[derive(Clone, Debug, PartialEq)]
pub struct Gathered {
    /// The first of the verdicts. They share code and severity.
    pub verdict: Verdict,
    /// Each different observation, with the places that share it, in order.
    pub findings: Vec<(String, Vec<String>)>,
}

/// Adds a verdict on a place to those of the same code and severity.
pub fn gather(all: &mut Vec<Gathered>, verdict: &Verdict, what: &str, place: &str) {
    let is_same = |one: &&mut Gathered| one.verdict.code == verdict.code && one.verdict.severity == verdict.severity;
    let gathered = match all.iter_mut().find(is_same) {
        Some(gathered) => gathered,
        None => {
            all.push(Gathered { verdict: verdict.clone(), findings: Vec::new() });
            all.last_mut().expect("it was pushed")
        }
    };
    match gathered.findings.iter_mut().find(|(known, _)| known == what) {
        Some((_, places)) if places.iter().any(|known| known == place) => {}
        Some((_, places)) => places.push(place.to_string()),
        None => gathered.findings.push((what.to_string(), vec![place.to_string()])),
    }
}

impl Gathered {
    /// The findings that are told with their figures, and the places of the others.
    pub fn told(&self) -> (&[(String, Vec<String>)], Vec<&str>) {
        let (told, rest) = self.findings.split_at(self.findings.len().min(TOLD));
        (told, rest.iter().flat_map(|(_, places)| places.iter().map(String::as_str)).collect())
    }

    /// The verdict in one piece: each finding with its places, which `located` writes.
    pub fn joined(self, located: impl Fn(&[String]) -> String) -> Verdict {
        let (told, rest) = self.told();
        let mut what =
            told.iter().map(|(what, places)| format!("{what}{}", located(places))).collect::<Vec<_>>().join("; ");
        if !rest.is_empty() {
            let rest: Vec<String> = rest.into_iter().map(String::from).collect();
            what += &format!("; other figures{}", located(&rest));
        }
        Verdict { what, ..self.verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn each_finding_keeps_its_figure() {
        let verdict = |what: &str| Verdict {
            code: "uncertain".into(),
            severity: Severity::Warning,
            what: what.into(),
            means: String::new(),
            advice: String::new(),
        };
        let mut all = Vec::new();
        for (what, place) in [("199 %", "psync"), ("67 %", "libaio"), ("199 %", "mmap"), ("1 %", "a"), ("2 %", "b")] {
            gather(&mut all, &verdict(what), what, place);
        }
        let note = Verdict { severity: Severity::Note, ..verdict("3 %") };
        gather(&mut all, &note, "3 %", "c");
        let written: Vec<String> =
            all.into_iter().map(|one| one.joined(|places| format!(" ({})", places.join(", "))).what).collect();
        assert_eq!(written, ["199 % (psync, mmap); 67 % (libaio); 1 % (a); other figures (b)", "3 % (c)"]);
    }
}
