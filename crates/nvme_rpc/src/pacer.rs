//! The parameters of the I/O pacing prototype's transport (`io_pacer_*`, `num_shared_buffers`), as methods of [`pace`].
//!
//! The prototype has one pacer a core (poll group), whose period is therefore the core's: `cores x credit / period` is
//! the total rate. Its scripts divide by the number of cores themselves, so they get the same rate here.

use pace::{Config, Credits, Method};

use super::jsonrpc::RpcError;
use super::params::{Param, ParamKind, Params, U32};

/// Buffers that the prototype's configurations give where they mean "no limit".
const PLENTY_OF_BUFFERS: u32 = 4095;
/// Bytes of a buffer where `io_unit_size` is not given (SPDK's default for this transport).
const IO_UNIT_BYTES: u32 = 131_072;

/// Rows of `nvmf_create_transport` that decide on pacing.
pub const PARAMS: &[Param] = &[
    Param::optional(
        "num_shared_buffers",
        U32,
        "4095, which is not a limit",
        "number of buffers of io_unit_size; fewer than 4095 limit the data in flight",
    ),
    Param::optional("num_buffers", U32, "num_shared_buffers", "another name of num_shared_buffers"),
    Param::optional("buf_cache_size", U32, "0", "number of buffers that only one reactor uses, for each reactor"),
    Param::optional("io_unit_size", U32, "131072", "bytes of a buffer"),
    Param::optional("io_pacer_period", U32, "0: no rate", "nanoseconds per credit on each reactor"),
    Param::optional("io_pacer_credit", U32, "131072", "bytes that pass in each period"),
    Param::optional("io_pacer_threshold", U32, "0", "largest I/O in bytes that the pacer lets pass at once"),
    Param::optional("io_pacer_disk_credit", U32, "0: no limit", "most I/O of one namespace in flight on a reactor"),
    Param::optional("io_pacer_tuner_period", U32, "0: a fixed rate", "microseconds between adjustments of the period"),
    Param::optional("io_pacer_tuner_step", U32, "1000", "nanoseconds of one adjustment of the period"),
    Param::optional(
        "io_pacer_tuner_type",
        ParamKind::Number(1),
        "0",
        "the period follows: 0 delivered bytes, 1 bytes in flight",
    ),
    Param::optional(
        "io_pacer_tuner_threshold",
        U32,
        "0",
        "type 1: bytes in flight from which the tuner lengthens the period",
    ),
    Param::optional("io_pacer_tuner_factor", U32, "1000", "type 1: nanoseconds of period per MiB beyond the threshold"),
];

/// The pacing that these parameters ask for; None where they ask for none in particular.
///
/// A period makes a rate (followed by its tuner, if that has a period), else fewer than 4095 buffers make a limit in
/// buffers. The prototype does both at once; no method here does.
///
/// # Errors
/// Buffers and a rate together; a parameter of a rate without a period.
pub fn config(params: &Params, reactors: u32) -> Result<Option<Config>, RpcError> {
    let nonzero = |name: &str| params.u32_if(name).filter(|number| *number > 0);
    if params.has("num_buffers") && params.has("num_shared_buffers") {
        return Err(RpcError::params("num_buffers and num_shared_buffers are the same: give one of them"));
    }
    let count = params.u32_if("num_shared_buffers").or(params.u32_if("num_buffers"));
    if count == Some(0) {
        return Err(RpcError::params("num_shared_buffers is 0: no I/O could ever run; give at least 1 a reactor"));
    }
    let buffers = count.filter(|count| *count < PLENTY_OF_BUFFERS);
    let Some(period_ns) = nonzero("io_pacer_period") else {
        // As in the prototype, the tuner's parameters have defaults in every configuration: alone they say nothing.
        if let Some(lost) =
            ["io_pacer_threshold", "io_pacer_disk_credit"].into_iter().find(|name| nonzero(name).is_some())
        {
            return Err(RpcError::params(format!(
                "{lost} has no effect without io_pacer_period; set that or leave it out"
            )));
        }
        let method = buffers.map(|count| Method::Buffers {
            count,
            unit_bytes: nonzero("io_unit_size").unwrap_or(IO_UNIT_BYTES),
            cache_per_core: params.u32_if("buf_cache_size").unwrap_or(0).min(count / reactors.max(1)),
            cores: reactors.max(1),
        });
        return Ok(method.map(|method| Config { method, budget_bytes: None }));
    };
    if let Some(count) = buffers {
        return Err(RpcError::params(format!(
            "io_pacer_period and num_shared_buffers={count} are two methods of pacing: give one of them"
        )));
    }
    let credits = Credits {
        period_us: f64::from(period_ns) / 1e3,
        credit_bytes: u64::from(nonzero("io_pacer_credit").unwrap_or(131_072)),
        cores: reactors.max(1),
        drive_credit: params.u32_if("io_pacer_disk_credit").unwrap_or(0),
        bypass_bytes: params.u32_if("io_pacer_threshold").unwrap_or(0),
        at_period_end: false,
    };
    let number = |name: &str, default: u64| params.number_if(name).unwrap_or(default);
    let method = match (nonzero("io_pacer_tuner_period"), number("io_pacer_tuner_type", 0)) {
        (None, _) => Method::Rate { credits },
        (Some(tuner_period_us), 0) => Method::RateDelivered {
            credits,
            tuner_period_us: tuner_period_us.into(),
            tuner_step_ns: number("io_pacer_tuner_step", 1000),
        },
        (Some(tuner_period_us), _) => Method::RateInFlight {
            credits,
            tuner_period_us: tuner_period_us.into(),
            threshold_bytes: number("io_pacer_tuner_threshold", 0),
            ns_per_mib: number("io_pacer_tuner_factor", 1000),
        },
    };
    Ok(Some(Config { method, budget_bytes: None }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn asked(given: Value) -> Result<Option<Config>, RpcError> {
        config(&Params::check("nvmf_create_transport", PARAMS, Some(&given)).expect("known parameters"), 4)
    }

    fn method(given: Value) -> Method {
        asked(given).expect("it can be done").expect("it asks for pacing").method
    }

    #[test]
    fn the_prototypes_defaults_ask_for_nothing() {
        let defaults = json!({
            "num_shared_buffers": 4095, "buf_cache_size": 32, "io_unit_size": 131072, "io_pacer_period": 0,
            "io_pacer_credit": 131072, "io_pacer_threshold": 0, "io_pacer_tuner_period": 10000,
            "io_pacer_tuner_step": 1000, "io_pacer_disk_credit": 0
        });
        assert_eq!(asked(defaults), Ok(None));
        assert_eq!(asked(json!({})), Ok(None));
    }

    #[test]
    fn fewer_buffers_are_a_limit() {
        let expected = Method::Buffers { count: 96, unit_bytes: 131_072, cache_per_core: 24, cores: 4 };
        assert_eq!(method(json!({"num_shared_buffers": 96, "buf_cache_size": 24})), expected);
        assert_eq!(method(json!({"num_buffers": 96, "buf_cache_size": 100})), expected, "caches fit into the pool");
    }

    #[test]
    fn a_period_is_a_rate_with_or_without_a_tuner() {
        let given = json!({"io_pacer_period": 22800, "io_pacer_disk_credit": 8, "io_pacer_threshold": 16384});
        let credits = Credits { cores: 4, drive_credit: 8, bypass_bytes: 16_384, ..Credits::every(22.8) };
        assert_eq!(method(given), Method::Rate { credits });
        assert!(matches!(
            method(json!({"io_pacer_period": 22800, "io_pacer_tuner_period": 10000})),
            Method::RateDelivered { tuner_period_us: 10_000, tuner_step_ns: 1000, .. }
        ));
        assert!(matches!(
            method(
                json!({"io_pacer_period": 1, "io_pacer_tuner_period": 10, "io_pacer_tuner_type": 1, "io_pacer_tuner_threshold": 9})
            ),
            Method::RateInFlight { threshold_bytes: 9, .. }
        ));
    }

    #[test]
    fn contradictions_are_refused() {
        for given in [
            json!({"io_pacer_period": 5700, "num_shared_buffers": 96}),
            json!({"io_pacer_disk_credit": 8}),
            json!({"num_shared_buffers": 0}),
            json!({"num_shared_buffers": 96, "num_buffers": 96}),
        ] {
            assert!(asked(given.clone()).is_err(), "{given}");
        }
    }

    #[test]
    fn what_is_asked_for_can_be_built() {
        for given in [json!({"num_buffers": 16}), json!({"io_pacer_period": 5700, "io_pacer_tuner_period": 10000})] {
            let config = asked(given).expect("it can be done").expect("it asks for pacing");
            config.build(pace::Limits::default()).expect("a pacer");
        }
    }
}
