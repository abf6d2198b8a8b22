//! Values of the program's own arguments, through the one parser of units.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use measure::units::{self, TimeUnit};

/// `3%` or `3` as the fraction 0.03: above 0 and at most 1.
///
/// # Errors
/// The expected form of the value.
pub fn percent(text: &str) -> Result<f64, String> {
    match units::parse_percent(text) {
        Ok(fraction) if fraction > 0.0 && fraction <= 1.0 => Ok(fraction),
        _ => Err(format!("{text:?} is not a percentage: give one above 0 and up to 100, as 3%")),
    }
}

/// A factor above 1, as 1.2.
///
/// # Errors
/// The expected form of the value.
pub fn factor(text: &str) -> Result<f64, String> {
    match units::parse_number(text) {
        Ok(factor) if factor > 1.0 && factor.is_finite() => Ok(factor),
        _ => Err(format!("{text:?} is not a factor: give one above 1, as 1.2")),
    }
}

/// `40s`, `2m`, `500ms`; seconds if bare.
///
/// # Errors
/// The expected form of the value.
pub fn duration(text: &str) -> Result<Duration, String> {
    match units::parse_time_ns(text, TimeUnit::Seconds) {
        _ if text.trim_start().starts_with('-') => Err(format!("{text:?} is below zero: give at least a millisecond")),
        Ok(0..1_000_000) => Err(format!("{text:?} is too short to measure in: give at least a millisecond")),
        Ok(ns) => Ok(Duration::from_nanos(ns)),
        Err(error) => Err(error.to_string()),
    }
}

/// The address on which `option` serves metrics: `9420`, which is on loopback, or `10.0.0.1:9420`.
///
/// # Errors
/// The expected form of the value.
pub fn metrics_address(option: &str, text: &str) -> anyhow::Result<SocketAddr> {
    let port = || text.parse::<u16>().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    text.parse().ok().or_else(port).with_context(|| format!("{option} {text}: give a port, or ADDRESS:PORT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages() {
        assert_eq!(percent("3%"), Ok(0.03));
        assert_eq!(percent("3"), Ok(0.03));
        assert_eq!(percent("100%"), Ok(1.0));
        for bad in ["", "%", "0", "-3%", "101%", "nan", "x"] {
            assert!(percent(bad).unwrap_err().contains("3%"), "{bad}");
        }
    }

    #[test]
    fn factors() {
        assert_eq!(factor("1.2"), Ok(1.2));
        for bad in ["", "1", "0.5", "-2", "nan", "inf", "x", "20%"] {
            assert!(factor(bad).unwrap_err().contains("above 1"), "{bad}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("40"), Ok(Duration::from_secs(40)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("0").is_err() && duration("soon").is_err());
        for short in ["-1", " -2s", "0", "1us"] {
            assert!(duration(short).unwrap_err().contains("at least a millisecond"), "{short}");
        }
    }
}
