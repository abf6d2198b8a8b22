//! The words for the axis of a sweep: the option that the points of a curve differ in.

use crate::figures::axis_value;

/// The part that an option plays as the axis of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisKind {
    /// Requests in flight (`iodepth`): throughput rises to a plateau.
    Depth,
    /// Clones (`numjobs`): throughput rises to a plateau, too.
    Clones,
    /// Arrivals of an open loop (`rate_iops`, `rate`): throughput is the rate until the system no longer keeps up.
    Rate,
    /// The speed of a recorded application (`replay_time_scale`): throughput rises until its threads wait for the
    /// storage all the time.
    Speed,
    /// Any other option: each value has its own throughput.
    Other,
}

impl AxisKind {
    /// The kind of the axis with an option's name. Results of versions before 0.2 name no axis and sweep the depth.
    pub fn of(option: &str) -> AxisKind {
        match option {
            "" | "iodepth" => AxisKind::Depth,
            "numjobs" => AxisKind::Clones,
            "rate_iops" | "rate" => AxisKind::Rate,
            "replay_time_scale" => AxisKind::Speed,
            _ => AxisKind::Other,
        }
    }

    /// True if throughput over the axis rises to a plateau, so that a load line exists.
    pub fn has_load_line(self) -> bool {
        matches!(self, AxisKind::Depth | AxisKind::Clones | AxisKind::Speed)
    }

    /// The effect of values beyond the load line.
    pub fn only_adds_latency(self) -> &'static str {
        match self {
            AxisKind::Depth => "deeper only adds latency",
            AxisKind::Clones => "more clones only add latency",
            AxisKind::Speed => "a faster application only adds latency",
            AxisKind::Rate | AxisKind::Other => "more only adds latency",
        }
    }

    /// The reason for a statement that needs several visits to a value, where there are none.
    pub fn visited_once(self) -> &'static str {
        match self {
            AxisKind::Depth => "no depth was visited at several times",
            AxisKind::Clones => "no number of clones was visited at several times",
            AxisKind::Speed => "no speed was visited at several times",
            AxisKind::Rate => "no rate was visited at several times",
            AxisKind::Other => "no value was visited at several times",
        }
    }

    /// The word for one value: `depth`, `rate`.
    pub fn one(self) -> &'static str {
        match self {
            AxisKind::Depth => "depth",
            AxisKind::Clones => "number of clones",
            AxisKind::Speed => "speed",
            AxisKind::Rate => "rate",
            AxisKind::Other => "value",
        }
    }

    /// The word for several values: `depths`, `rates`.
    pub fn several(self) -> &'static str {
        match self {
            AxisKind::Depth => "depths",
            AxisKind::Clones => "numbers of clones",
            AxisKind::Speed => "speeds",
            AxisKind::Rate => "rates",
            AxisKind::Other => "values",
        }
    }
}

/// A value of the axis with its option: `iodepth 32`, `rate_iops 95k`, `bs 4 KiB`.
pub fn place(option: &str, x: f64) -> String {
    let option = if option.is_empty() { "iodepth" } else { option };
    format!("{option} {}", axis_value(option, x))
}

/// The flag that gives the axis other values: `--iodepth`, `--axis rate_iops`.
pub fn flag(option: &str) -> String {
    match AxisKind::of(option) {
        AxisKind::Depth => "--iodepth".into(),
        AxisKind::Clones | AxisKind::Rate | AxisKind::Speed | AxisKind::Other => format!("--axis {option}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_axis_has_its_words() {
        for (option, one, flagged, at) in [
            ("", "depth", "--iodepth", "iodepth 64"),
            ("iodepth", "depth", "--iodepth", "iodepth 64"),
            ("numjobs", "number of clones", "--axis numjobs", "numjobs 64"),
            ("rate_iops", "rate", "--axis rate_iops", "rate_iops 64"),
            ("rate", "rate", "--axis rate", "rate 64 B/s"),
            ("bs", "value", "--axis bs", "bs 64 B"),
        ] {
            assert_eq!(
                (AxisKind::of(option).one(), flag(option).as_str(), place(option, 64.0).as_str()),
                (one, flagged, at)
            );
            assert_eq!(AxisKind::of(option).has_load_line(), !matches!(option, "rate_iops" | "rate" | "bs"));
        }
    }
}
