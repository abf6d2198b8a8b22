//! The method of pacing and its numbers, from a short text or a table of a scenario.

use serde::{Deserialize, Serialize};

use crate::Admission;
use crate::auto::{AutoPacer, Tuning};
use crate::methods::{BufferPool, Cap, Rate, RateTuner, Unlimited};

/// A configuration that cannot be carried out, in one line: what, why, what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub(crate) String);

/// The numbers of ops, drives and tenants that a pacer keeps apart. They determine its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Ops held or in flight at any moment; 72 bytes each.
    pub ops: u32,
    /// Drive ids are below this.
    pub drives: u32,
    /// Tenant ids are below this.
    pub tenants: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { ops: 16_384, drives: 64, tenants: 64 }
    }
}

/// A method and the hard memory budget above it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The method that admits ops.
    #[serde(flatten)]
    pub method: Method,
    /// Bytes in flight that are never exceeded, whatever the method; `None` for no such limit.
    #[serde(default, deserialize_with = "crate::size::optional", skip_serializing_if = "Option::is_none")]
    pub budget_bytes: Option<u64>,
}

fn one() -> u32 {
    1
}

fn credit() -> u64 {
    131_072
}

fn ten_ms_us() -> u64 {
    10_000
}

/// The pacing methods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Method {
    /// Every op is admitted at once.
    None,
    /// The self-tuning window with per-drive windows and fair queues: the default, nothing to set.
    Auto {
        /// Constants of the control law; the defaults are what is tested.
        #[serde(default)]
        tuning: Tuning,
    },
    /// At most `count` buffers of `unit_bytes` in flight.
    Buffers {
        /// The number of buffers, which bounds the data in flight.
        count: u32,
        /// Bytes of a buffer; an op takes as many buffers as it needs.
        #[serde(default = "unit")]
        unit_bytes: u32,
        /// Buffers that a core keeps to itself.
        #[serde(default)]
        cache_per_core: u32,
        /// Cores that share the pool; an op belongs to core `queue % cores`.
        #[serde(default = "one")]
        cores: u32,
    },
    /// One credit per period and core.
    Rate {
        /// The period, and what each period admits.
        #[serde(flatten)]
        credits: Credits,
    },
    /// The rate whose period follows the delivered rate (tuner 1).
    RateDelivered {
        /// The shortest period (the longest is twice it), and what each period admits.
        #[serde(flatten)]
        credits: Credits,
        /// Microseconds between adjustments.
        #[serde(default = "ten_ms_us")]
        tuner_period_us: u64,
        /// Nanoseconds that the period moves at most at once.
        #[serde(default = "step_ns")]
        tuner_step_ns: u64,
    },
    /// The rate whose period grows with the bytes in flight beyond a threshold, up to four times (tuner 2).
    RateInFlight {
        /// The shortest period, and what each period admits.
        #[serde(flatten)]
        credits: Credits,
        /// Microseconds between adjustments.
        #[serde(default = "ten_ms_us")]
        tuner_period_us: u64,
        /// Bytes in flight up to which the period is the shortest.
        threshold_bytes: u64,
        /// Nanoseconds of period per MiB beyond it.
        ns_per_mib: u64,
    },
    /// A cap of each tenant's own: ops and bytes per second.
    Cap {
        /// Ops per second of each tenant at most; None for no limit.
        #[serde(default)]
        iops: Option<u64>,
        /// Bytes per second of each tenant at most; None for no limit.
        #[serde(default)]
        bytes_per_s: Option<u64>,
        /// Milliseconds of the rates that may be saved up.
        #[serde(default = "ten")]
        burst_ms: u64,
    },
}

/// The numbers of every rate. The period is of one core: the total rate is `cores x credit_bytes / period_us`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Credits {
    /// Microseconds per credit.
    pub period_us: f64,
    /// Bytes that a core admits per period.
    #[serde(default = "credit")]
    pub credit_bytes: u64,
    /// Reactors with a pacer each, out of phase.
    #[serde(default = "one")]
    pub cores: u32,
    /// Ops of a drive in flight beyond which it is passed over; 0 for no limit.
    #[serde(default)]
    pub drive_credit: u32,
    /// Ops of at most this many bytes are not paced.
    #[serde(default)]
    pub bypass_bytes: u32,
    /// True if ops leave only at the end of a period, as the prototype's poller sends them. Otherwise an op that comes
    /// while its core has credit leaves at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_period_end: bool,
}

impl Credits {
    /// Credits of 128 KiB for one core, without limits of drives and without ops that are not paced.
    pub fn every(period_us: f64) -> Credits {
        Credits {
            period_us,
            credit_bytes: credit(),
            cores: one(),
            drive_credit: 0,
            bypass_bytes: 0,
            at_period_end: false,
        }
    }
}

fn unit() -> u32 {
    131_072
}

fn step_ns() -> u64 {
    1_000
}

fn ten() -> u64 {
    10
}

impl Config {
    /// The self-tuning window under an optional hard budget in bytes.
    pub fn auto(budget_bytes: Option<u64>) -> Config {
        Config { method: Method::Auto { tuning: Tuning::default() }, budget_bytes }
    }

    /// A configuration that admits every op at once.
    pub fn none() -> Config {
        Config { method: Method::None, budget_bytes: None }
    }

    /// The pacer, empty.
    ///
    /// # Errors
    /// A number that makes no sense (zero buffers, a period of 0, no cap in `cap`, a budget below 4 KiB).
    pub fn build(&self, limits: Limits) -> Result<Box<dyn Admission>, Error> {
        let fail = |what: &str| Err(Error(what.to_string()));
        if limits.ops == 0 || limits.drives == 0 || limits.tenants == 0 {
            return fail("limits of 0 ops, drives or tenants leave nothing to pace; give at least 1 of each");
        }
        if self.budget_bytes.is_some_and(|b| b < 4096) {
            return fail("a memory budget below 4096 bytes admits nothing; give at least one maximum I/O");
        }
        let rate = |credits: &Credits, tuner: RateTuner| {
            if !(0.001..=1e9).contains(&credits.period_us) {
                return fail("a rate needs a period of 0.001 to 1e9 microseconds");
            }
            if credits.credit_bytes == 0 || i64::try_from(credits.credit_bytes).is_err() || credits.cores == 0 {
                return fail("a rate needs a credit of at least 1 byte and at least 1 core");
            }
            Ok(Box::new(Rate::new(limits, credits, tuner, self.budget_bytes)) as Box<dyn Admission>)
        };
        match self.method {
            Method::None => Ok(Box::new(Unlimited::new(limits, self.budget_bytes))),
            Method::Auto { tuning } => {
                tuning.check().map_err(|what| Error(what.to_string()))?;
                Ok(Box::new(AutoPacer::new(limits, tuning, self.budget_bytes)))
            }
            Method::Buffers { count, unit_bytes, cache_per_core, cores } => {
                if count == 0 || unit_bytes == 0 || cores == 0 {
                    return fail("buffers needs count, unit_bytes and cores of at least 1");
                }
                if self.budget_bytes.is_some() {
                    return fail("buffers is a budget by itself (count x unit_bytes); remove budget_bytes");
                }
                Ok(Box::new(BufferPool::new(limits, count, unit_bytes, cache_per_core, cores)))
            }
            Method::Rate { credits } => rate(&credits, RateTuner::Fixed),
            Method::RateDelivered { credits, tuner_period_us, tuner_step_ns } => {
                if tuner_period_us == 0 {
                    return fail("tuner_period_us must be at least 1");
                }
                let tuner = RateTuner::Delivered { every_ns: tuner_period_us * 1000, step_ns: tuner_step_ns };
                rate(&credits, tuner)
            }
            Method::RateInFlight { credits, tuner_period_us, threshold_bytes, ns_per_mib } => {
                if tuner_period_us == 0 {
                    return fail("tuner_period_us must be at least 1");
                }
                let tuner = RateTuner::InFlight { every_ns: tuner_period_us * 1000, threshold_bytes, ns_per_mib };
                rate(&credits, tuner)
            }
            Method::Cap { iops, bytes_per_s, burst_ms } => {
                if iops.is_none() && bytes_per_s.is_none() {
                    return fail("cap needs iops, bytes_per_s or both");
                }
                if iops == Some(0) || bytes_per_s == Some(0) {
                    return fail("a cap of 0 admits nothing");
                }
                if self.budget_bytes.is_some() {
                    return fail("cap keeps no memory budget; remove budget_bytes");
                }
                Ok(Box::new(Cap::new(limits, iops, bytes_per_s, burst_ms * 1_000_000)))
            }
        }
    }
}

/// The methods as [`Config::parse`] takes them: what every help text about pacing quotes.
pub const SYNTAX: &str = "auto, auto:MEMORY, none, buffers:COUNT, rate:MICROSECONDS, iops:COUNT, bw:BYTES";

impl Config {
    /// The configuration that a text in [`SYNTAX`] names. MEMORY (a hard budget of bytes in flight) and BYTES (a
    /// second) take units (`6m`, `1g`), with `kb_base` bytes in a kilobyte: 1024, or 1000. `rate` admits 128 KiB in
    /// that number of microseconds, which may have a fraction; `buffers` have 128 KiB each.
    ///
    /// # Errors
    /// A method that does not exist, a number that is missing or not valid, numbers that [`Config::build`] refuses.
    pub fn parse(text: &str, kb_base: u32) -> Result<Config, Error> {
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
        let wrong = |why: String| Error(format!("pacing {text:?}: {why}"));
        let given = || value.ok_or_else(|| wrong(format!("{name} needs a number, as in {SYNTAX}")));
        let count = || {
            let value = given()?;
            value.parse::<u64>().map_err(|_| wrong(format!("{value:?} is not a whole number")))
        };
        let bytes = || measure::units::parse_bytes(given()?, kb_base).map_err(|error| wrong(error.to_string()));
        let cap = |iops, bytes_per_s| Method::Cap { iops, bytes_per_s, burst_ms: ten() };
        let method = match name {
            "none" if value.is_none() => Method::None,
            "auto" => Method::Auto { tuning: Tuning::default() },
            "buffers" => Method::Buffers {
                count: u32::try_from(count()?).map_err(|_| wrong("4294967295 buffers are the most".into()))?,
                unit_bytes: unit(),
                cache_per_core: 0,
                cores: one(),
            },
            "rate" => {
                let value = given()?;
                let period_us =
                    value.parse().map_err(|_| wrong(format!("{value:?} is not a number of microseconds")))?;
                Method::Rate { credits: Credits::every(period_us) }
            }
            "iops" => cap(Some(count()?), None),
            "bw" => cap(None, Some(bytes()?)),
            _ => return Err(Error(format!("{text:?} is not a pacing method (expected one of {SYNTAX})"))),
        };
        let budget_bytes = if name == "auto" && value.is_some() { Some(bytes()?) } else { None };
        let config = Config { method, budget_bytes };
        config.build(Limits { ops: 1, drives: 1, tenants: 1 }).map_err(|Error(why)| wrong(why))?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Config, String> {
        Config::parse(text, 1024).map_err(|error| error.to_string())
    }

    #[test]
    fn every_method_of_the_syntax_is_read_and_sizes_have_units() {
        assert_eq!(parsed("auto"), Ok(Config::auto(None)));
        assert_eq!(parsed("auto:6m"), Ok(Config::auto(Some(6 << 20))));
        assert_eq!(Config::parse("auto:6m", 1000), Ok(Config::auto(Some(6_000_000))));
        assert_eq!(parsed("none"), Ok(Config::none()));
        for form in SYNTAX.split(", ") {
            let text = form.replace("MEMORY", "8m").replace("COUNT", "96").replace("MICROSECONDS", "5.7");
            parsed(&text.replace("BYTES", "1g")).unwrap_or_else(|error| panic!("{form}: {error}"));
        }
    }

    #[test]
    fn the_rates_share_their_keys_and_know_no_others() {
        let shared = r#""period_us":5.7,"credit_bytes":65536,"cores":2,"drive_credit":3,"bypass_bytes":4096"#;
        for (method, tuner) in [
            ("rate", ""),
            ("rate-delivered", r#","tuner_period_us":10,"tuner_step_ns":20"#),
            ("rate-in-flight", r#","tuner_period_us":10,"threshold_bytes":1,"ns_per_mib":2"#),
        ] {
            let whole = format!(r#"{{"method":"{method}",{shared}{tuner},"budget_bytes":8192}}"#);
            let config: Config = serde_json::from_str(&whole).unwrap_or_else(|error| panic!("{whole}: {error}"));
            assert_eq!(serde_json::to_string(&config).expect("it has a form"), whole);
            let least = format!(r#"{{"method":"{method}","period_us":5{tuner}}}"#);
            let config: Config = serde_json::from_str(&least).unwrap_or_else(|error| panic!("{least}: {error}"));
            let (Method::Rate { credits }
            | Method::RateDelivered { credits, .. }
            | Method::RateInFlight { credits, .. }) = config.method
            else {
                panic!("{config:?}");
            };
            assert_eq!(credits, Credits::every(5.0));
            for (wrong, why) in [
                (least.replace("period_us\":5", "period_us\":5,\"credits\":1"), "unknown field `credits`"),
                (least.replace("\"period_us\":5", "\"cores\":5"), "missing field `period_us`"),
            ] {
                let error = serde_json::from_str::<Config>(&wrong).expect_err(&wrong).to_string();
                assert!(error.contains(why), "{wrong}: {error}");
            }
        }
    }

    #[test]
    fn nonsense_is_one_line_that_says_what_there_is() {
        for (text, why) in [
            ("fast", format!("\"fast\" is not a pacing method (expected one of {SYNTAX})")),
            ("none:1", format!("\"none:1\" is not a pacing method (expected one of {SYNTAX})")),
            ("buffers", format!("pacing \"buffers\": buffers needs a number, as in {SYNTAX}")),
            ("buffers:x", "pacing \"buffers:x\": \"x\" is not a whole number".into()),
            ("rate:x", "pacing \"rate:x\": \"x\" is not a number of microseconds".into()),
        ] {
            assert_eq!(parsed(text), Err(why));
        }
        for (text, part) in [
            ("buffers:0", "pacing \"buffers:0\": "),
            ("rate:0", "period"),
            ("iops:0", "admits nothing"),
            ("auto:6z", "pacing \"auto:6z\": "),
            ("auto:1k", "below 4096 bytes"),
        ] {
            let error = parsed(text).expect_err(text);
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
