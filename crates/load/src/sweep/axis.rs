//! An axis of a sweep: a numeric job option and its values.

use std::str::FromStr;

use job::options::{self, OptionSpec, Status, ValueKind};
use measure::axis::AxisKind;
use measure::units::{self, TimeUnit};

use super::values::Values;

/// The depth of an open loop, beyond which arrivals wait in the generator.
const DEPTH_OF_RATES: u32 = 256;
/// The depth of a sweep over another option.
const DEPTH_OF_OTHERS: u32 = 32;

/// The option that sets the speed of a replay.
pub(super) const SPEED: &str = "replay_time_scale";

/// The unit of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// A number between the bounds.
    Number(u64, u64),
    /// Bytes, at least this number of them.
    Bytes(u64),
    /// Nanoseconds; bare numbers are in the unit.
    Time(TimeUnit),
}

/// The part that an axis plays in a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Requests in flight (`iodepth`): throughput rises to a plateau.
    Depth,
    /// Clones (`numjobs`): throughput rises to a plateau, too.
    Clones,
    /// Arrivals per second of an open loop, in ops (`rate_iops`).
    Ops,
    /// Arrivals per second of an open loop, in bytes (`rate`).
    Bytes,
    /// Any other option.
    Other,
}

/// A numeric job option, and the values that a sweep gives it.
#[derive(Clone)]
pub struct Axis {
    option: &'static OptionSpec,
    unit: Unit,
    /// The values; None: those that suit the option.
    values: Option<Values>,
}

impl std::fmt::Debug for Axis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={:?}", self.option.name, self.values)
    }
}

impl PartialEq for Axis {
    fn eq(&self, other: &Axis) -> bool {
        self.option.name == other.option.name && self.values == other.values
    }
}

impl FromStr for Axis {
    type Err = String;

    /// Reads `OPTION`, `OPTION=LIST` or `OPTION=FIRST..LAST`.
    fn from_str(text: &str) -> Result<Axis, String> {
        let (name, values) = match text.split_once('=') {
            None => (text.trim(), None),
            Some((name, values)) => (name.trim(), Some(values.trim())),
        };
        let Some(option) = options::find(name) else {
            let names = options::all().flat_map(OptionSpec::names);
            let near =
                options::did_you_mean(name, names).map(|near| format!(", did you mean {near}")).unwrap_or_default();
            return Err(format!("no job option has the name {name:?}{near}: `plimsoll run --help` lists them"));
        };
        if let Status::NoEffect(reason) | Status::Unsupported(reason) = option.status {
            return Err(format!("{name} cannot be an axis: {reason}"));
        }
        let unit = match option.kind {
            ValueKind::Count(low, high, _) | ValueKind::EachCount(low, high, _) => Unit::Number(low, high),
            ValueKind::Bytes(least, _) | ValueKind::EachBytes(least, _) => Unit::Bytes(least),
            ValueKind::Amount(_) => Unit::Bytes(1),
            ValueKind::Time(unit, _) | ValueKind::EachTime(unit, _) => Unit::Time(unit),
            _ => return Err(format!("{name} is not numeric, so its values have no order: sweep each value apart")),
        };
        if super::refusals::OURS.contains(&option.name) && option.name != "iodepth" {
            return Err(format!("{name} cannot be an axis: the sweep decides it itself"));
        }
        let mut axis = Axis { option, unit, values: None };
        axis.values = match values {
            None => axis.usual(),
            Some(_) if axis.role() == Role::Depth => values.map(Values::of_depths).transpose()?,
            Some(values) => Some(match Values::parse(values, |word| axis.value(word))? {
                Values::Range(first, last) if option.name == SPEED => Values::Doubling(first, last),
                values => values,
            }),
        };
        if axis.values.is_none() && !axis.is_rate() {
            return Err(format!("{name} needs values: --axis {name}=FIRST..LAST, or a list"));
        }
        Ok(axis)
    }
}

impl Axis {
    /// The depth, over these values.
    pub fn depths(values: Values) -> Axis {
        let option = options::find("iodepth").expect("iodepth is in the table of options");
        Axis { option, unit: Unit::Number(1, u64::from(u32::MAX)), values: Some(values) }
    }

    /// The speed of a recorded application, in percent of the recorded speed.
    pub fn speeds() -> Axis {
        SPEED.parse().expect("it has usual values")
    }

    /// The name of the option.
    pub fn name(&self) -> &'static str {
        self.option.name
    }

    /// The part that the axis plays.
    pub fn role(&self) -> Role {
        match self.option.name {
            "iodepth" => Role::Depth,
            "numjobs" => Role::Clones,
            "rate_iops" => Role::Ops,
            "rate" => Role::Bytes,
            _ => Role::Other,
        }
    }

    /// True for the arrivals of an open loop.
    pub fn is_rate(&self) -> bool {
        matches!(self.role(), Role::Ops | Role::Bytes)
    }

    /// True for the speed of a recorded application.
    pub fn is_speed(&self) -> bool {
        self.option.name == SPEED
    }

    /// True if throughput over the axis rises to a plateau.
    pub fn has_load_line(&self) -> bool {
        AxisKind::of(self.name()).has_load_line()
    }

    /// The depth of the points where nobody gives one.
    pub fn usual_depth(&self) -> u32 {
        match self.role() {
            Role::Depth | Role::Clones => 1,
            Role::Ops | Role::Bytes => DEPTH_OF_RATES,
            Role::Other => DEPTH_OF_OTHERS,
        }
    }

    /// The values; None: a first look at the throughput decides.
    pub fn values(&self) -> Option<&Values> {
        self.values.as_ref()
    }

    /// A value as the option's text: exact.
    pub fn written(&self, value: u64) -> String {
        match self.unit {
            Unit::Number(..) | Unit::Bytes(_) => value.to_string(),
            Unit::Time(_) => format!("{value}ns"),
        }
    }

    /// The values that a sweep takes where the option is named alone.
    fn usual(&self) -> Option<Values> {
        match self.option.name {
            "iodepth" => Some(Values::Range(1, 1024)),
            "numjobs" => Some(Values::Range(1, 64)),
            "bs" => Some(Values::List([4, 16, 64, 256, 1024].map(|kib| kib << 10).to_vec())),
            // From the recorded speed to a thousand times as much.
            "replay_time_scale" => Some(Values::Doubling(100, 102_400)),
            "rwmixread" | "rwmixwrite" => Some(Values::Range(0, 100)),
            _ => None,
        }
    }

    fn value(&self, word: &str) -> Result<u64, String> {
        let name = self.option.name;
        let form = |error: units::UnitError| format!("{name}: {error}");
        let (value, low, high) = match self.unit {
            Unit::Number(low, high) => (units::parse_bytes(word, 1024).map_err(form)?, low, high),
            Unit::Bytes(least) => (units::parse_bytes(word, 1024).map_err(form)?, least, u64::MAX),
            Unit::Time(unit) => (units::parse_time_ns(word, unit).map_err(form)?, 0, u64::MAX),
        };
        let low = low.max(self.least());
        match value {
            _ if value < low => Err(format!("{name}={word} is too small: at least {low}")),
            _ if value > high => Err(format!("{name}={word} is too large: at most {high}")),
            value => Ok(value),
        }
    }

    /// Options that mean "no limit" by 0 have no 0 on an axis.
    fn least(&self) -> u64 {
        u64::from(self.is_rate() || self.option.name == "size")
    }

    /// True if the option takes this value, whatever the values of this axis are.
    pub(super) fn takes(&self, value: u64) -> bool {
        let (low, high) = match self.unit {
            Unit::Number(low, high) => (low, high),
            Unit::Bytes(least) => (least, u64::MAX),
            Unit::Time(_) => (0, u64::MAX),
        };
        (low.max(self.least())..=high).contains(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(text: &str) -> Axis {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn options_and_their_values() {
        assert_eq!(axis("bs=4k,16k").values(), Some(&Values::List(vec![4096, 16_384])));
        assert_eq!(axis("blocksize=4k").name(), "bs");
        assert_eq!(axis("iodepth").values(), Some(&Values::Range(1, 1024)));
        assert_eq!(axis("rwmixread").values().unwrap().asked(), [0, 25, 50, 75, 100]);
        assert_eq!(axis("thinktime=1ms..2ms").values(), Some(&Values::Range(1_000_000, 2_000_000)));
        assert_eq!(axis("thinktime=5,10").written(5000), "5000ns");
        assert_eq!(axis("size=16m,1g").values(), Some(&Values::List(vec![16 << 20, 1 << 30])));
        assert_eq!((axis("rate_iops").values(), axis("rate_iops").role()), (None, Role::Ops));
        assert!(axis("rate=10m..1g").is_rate() && axis("numjobs").has_load_line());
    }

    #[test]
    fn an_axis_takes_what_its_option_takes() {
        assert!(axis("rwmixread").takes(0) && axis("rwmixread").takes(100) && !axis("rwmixread").takes(101));
        assert!(
            axis("iodepth=1").takes(9) && !axis("iodepth=1").takes(0) && !Axis::depths(Values::Range(1, 2)).takes(0)
        );
        assert!(axis("thinktime=5").takes(0) && !axis("rate_iops").takes(0) && !axis("bs").takes(0));
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for (text, word) in [
            ("warp=1", "warp"),
            ("iodept=1", "did you mean iodepth"),
            ("rw=read", "not numeric"),
            ("direct=0,1", "not numeric"),
            ("runtime=1,2", "decides"),
            ("bs=4q", "4q"),
            ("bs=0", "too small"),
            ("rwmixread=50,101", "too large"),
            ("rate_iops=0,10", "too small"),
            ("size", "needs values"),
            ("iodepth=0", "depth"),
            ("size=20%", "20%"),
            ("bs=16k..4k", "smaller value"),
        ] {
            let error = text.parse::<Axis>().unwrap_err();
            assert!(error.contains(word) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
