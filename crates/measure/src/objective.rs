//! Latency objectives: `p99<1ms`, `read:mean<300us`.

use std::fmt;
use std::str::FromStr;

use crate::Direction;
use crate::units::{TimeUnit, exact_time, parse_time_ns};

/// The figure of a latency distribution that an objective bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LatencyFigure {
    /// The arithmetic mean.
    Mean,
    /// The quantile, between 0 and 1: 0.99 is `p99`.
    Quantile(f64),
}

/// A bound on the latency of all ops, or of the ops of one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// The direction whose ops count; None: all ops.
    pub direction: Option<Direction>,
    /// The figure that is bounded.
    pub figure: LatencyFigure,
    /// Nanoseconds that the figure may reach.
    pub limit_ns: u64,
}

/// Quantiles beyond this need more ops than a sweep measures.
const HIGHEST_PERCENT: f64 = 99.999;

impl fmt::Display for LatencyFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LatencyFigure::Mean => f.write_str("mean"),
            // Seven digits: 0.999 * 100 is 99.9 and not 99.90000000000001.
            LatencyFigure::Quantile(q) => write!(f, "p{}", (q * 1e9).round() / 1e7),
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(direction) = self.direction {
            write!(f, "{}:", direction.name())?;
        }
        write!(f, "{}<{}", self.figure, exact_time(self.limit_ns))
    }
}

impl FromStr for Objective {
    type Err = String;

    /// Reads `[DIRECTION:]FIGURE<TIME`: `p99<1ms`, `p99.9<=5ms`, `write:mean<300us`.
    fn from_str(text: &str) -> Result<Objective, String> {
        let form = "give FIGURE<TIME, such as p99<1ms, p99.9<5ms, mean<300us or read:p99<1ms";
        let text = text.trim();
        let Some((left, time)) = text.split_once('<') else { return Err(format!("\"{text}\" has no \"<\": {form}")) };
        let time = time.trim_start_matches('=').trim();
        if time.is_empty() || time.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(format!("\"{text}\" has no unit of time: {form}"));
        }
        let limit_ns = parse_time_ns(time, TimeUnit::Microseconds).map_err(|error| format!("{error}: {form}"))?;
        if limit_ns == 0 {
            return Err(format!("\"{text}\": no op takes less than no time: {form}"));
        }
        let (direction, figure) = match left.trim().split_once(':') {
            None => (None, left.trim()),
            Some((way, figure)) => {
                let way = way.trim();
                let known = Direction::ALL.into_iter().find(|direction| direction.name() == way);
                let direction = known.ok_or_else(|| format!("\"{way}\" is not read, write or trim: {form}"))?;
                (Some(direction), figure.trim())
            }
        };
        Ok(Objective { direction, figure: figure_of(figure).map_err(|error| format!("{error}: {form}"))?, limit_ns })
    }
}

fn figure_of(text: &str) -> Result<LatencyFigure, String> {
    if text == "mean" {
        return Ok(LatencyFigure::Mean);
    }
    if text == "max" {
        return Err("a longer run has a larger max, so no sweep can promise one; p99.99 can be kept".into());
    }
    let digits = text.strip_prefix('p').filter(|digits| digits.starts_with(|first: char| first.is_ascii_digit()));
    let number = digits.and_then(|digits| {
        // p999 and p9999 are 99.9 and 99.99, as many tools write them.
        let short = digits.len() > 2 && digits.bytes().all(|byte| byte == b'9');
        if short { format!("99.{}", &digits[2..]).parse::<f64>().ok() } else { digits.parse::<f64>().ok() }
    });
    match number {
        Some(percent) if percent > 0.0 && percent <= HIGHEST_PERCENT => Ok(LatencyFigure::Quantile(percent / 100.0)),
        Some(_) => Err(format!("\"{text}\" is not above p0 and up to p{HIGHEST_PERCENT}")),
        None => Err(format!("\"{text}\" is neither mean nor a percentile")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Objective {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn objectives_are_read_and_written() {
        let objective = read("p99<1ms");
        assert_eq!(objective.figure, LatencyFigure::Quantile(0.99));
        assert_eq!((objective.direction, objective.limit_ns), (None, 1_000_000));
        assert_eq!(read(" write:mean <= 300us ").to_string(), "write:mean<300us");
        assert_eq!(read("p999<5ms").figure, read("p99.9<5ms").figure);
        assert_eq!(read("p9999<5ms").to_string(), "p99.99<5ms");
        assert_eq!(read("p50<80us").to_string(), "p50<80us");
    }

    #[test]
    fn a_written_objective_reads_back() {
        for text in ["p99<1ms", "read:p99.9<1500us", "mean<70us", "trim:p99.99<2s"] {
            assert_eq!(read(&read(text).to_string()), read(text));
        }
    }

    #[test]
    fn the_highest_percentile_is_named_as_it_is_written() {
        assert_eq!(read("p99.999<1ms").to_string(), "p99.999<1ms");
        let error = "p100<1ms".parse::<Objective>().unwrap_err();
        assert!(error.contains("\"p100\" is not above p0 and up to p99.999: "), "{error}");
    }

    #[test]
    fn nonsense_is_refused_with_the_form() {
        for text in [
            "",
            "p99",
            "p99<",
            "p99<5",
            "p99<0ms",
            "p100<1ms",
            "p0<1ms",
            "q99<1ms",
            "all:p99<1ms",
            "max<1ms",
            "p99<1q",
            "px<1ms",
        ] {
            let error = text.parse::<Objective>().unwrap_err();
            assert!(error.contains("p99<1ms") && !error.contains('\n'), "{text}: {error}");
        }
    }
}
