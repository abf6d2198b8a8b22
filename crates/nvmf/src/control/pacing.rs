//! Pacing as it is written on a command line or in a configuration.

use measure::units;
use pace::Config;

/// The methods in words, for help.
pub const SYNTAX: &str = "none, auto, auto:MEMORY, buffers:COUNT, rate:PERIOD_US, iops:N, bw:BYTES_PER_S";

/// `auto`, `auto:6m`, `buffers:48`, ...: as [`Config`] reads them, sizes with the units of the rest of the program.
///
/// # Errors
/// What it should be.
pub fn parse(text: &str) -> Result<Config, String> {
    let bytes = |value: &str| units::parse_bytes(value, 1024).map_err(|error| format!("pacing {text}: {error}"));
    let plain = match text.split_once(':') {
        Some((name @ ("auto" | "bw"), value)) => format!("{name}:{}", bytes(value)?),
        _ => text.to_string(),
    };
    let config: Config = plain.parse().map_err(|_| format!("{text:?} is no pacing method; there are {SYNTAX}"))?;
    config.build(pace::Limits { ops: 1, drives: 1, tenants: 1 }).map_err(|error| format!("pacing {text}: {error}"))?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse("auto:6m"), Ok(Config::auto(Some(6 << 20))));
        assert_eq!(parse("auto"), Ok(Config::auto(None)));
        assert_eq!(parse("none"), Ok(Config::none()));
        assert!(parse("buffers:48").is_ok() && parse("rate:5.7").is_ok() && parse("bw:1g").is_ok());
    }

    #[test]
    fn nonsense_is_told_what_there_is() {
        assert_eq!(parse("fast").expect_err("no method"), format!("\"fast\" is no pacing method; there are {SYNTAX}"));
        assert!(parse("buffers:0").expect_err("nothing could run").starts_with("pacing buffers:0: "));
        assert!(parse("auto:6z").expect_err("no unit").starts_with("pacing auto:6z: "));
    }
}
