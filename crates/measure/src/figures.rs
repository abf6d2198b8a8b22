//! Figures as people read them: three significant digits and a unit.

use serde::{Deserialize, Serialize};

/// A number with at most three significant digits and no trailing zeros; large ones in full.
pub fn plain(value: f64) -> String {
    let text = digits(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// Three significant digits, trailing zeros kept: 1.50, 12.0, 123, 12345.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    // The thresholds lie half a last digit below the power, so that 9.996 is 10.0 and not 10.00.
    match size {
        _ if !value.is_finite() => "-".to_string(),
        _ if size >= 99.95 => format!("{value:.0}"),
        _ if size >= 9.995 => format!("{value:.1}"),
        _ if size >= 0.9995 => format!("{value:.2}"),
        _ if size >= 0.0001 => format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_string(),
        _ => "0".to_string(),
    }
}

fn scaled(value: f64, base: f64, names: &[&str]) -> (f64, usize) {
    let mut size = value.abs();
    let mut index = 0;
    // 999.5 would be written 1000.
    while size >= base * 0.9995 && index + 1 < names.len() {
        size /= base;
        index += 1;
    }
    (size.copysign(value), index)
}

/// A count with the prefixes k, M, G: `122k`.
pub fn count(value: f64) -> String {
    const NAMES: [&str; 5] = ["", "k", "M", "G", "T"];
    let (number, index) = scaled(value, 1e3, &NAMES);
    format!("{}{}", plain(number), NAMES[index])
}

/// A count with four digits, for the ends of narrow intervals: `122.4k`.
pub fn precise_count(value: f64) -> String {
    const NAMES: [&str; 5] = ["", "k", "M", "G", "T"];
    let (number, index) = scaled(value, 1e3, &NAMES);
    let decimals = match number.abs() {
        size if size >= 999.95 => 0,
        size if size >= 99.995 => 1,
        size if size >= 9.9995 => 2,
        _ => 3,
    };
    let text = format!("{number:.decimals$}");
    let text = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{}", NAMES[index])
}

/// A value of a job option that a sweep varies, in the option's unit: depth `32`, block size `4 KiB`, rate `10 MiB/s`.
/// Times are nanoseconds.
pub fn axis_value(option: &str, value: f64) -> String {
    match option {
        "rate" => bytes_per_second(value),
        "rate_iops" => precise_count(value),
        "bs" | "size" | "io_size" | "filesize" | "bssplit" | "offset" | "offset_increment" => bytes(value),
        "thinktime" | "thinktime_spin" | "thinktime_iotime" | "rate_cycle" => nanoseconds(value),
        _ => plain(value),
    }
}

/// Bytes in powers of 1024: `4 KiB`.
pub fn bytes(value: f64) -> String {
    binary(value, "B")
}

/// A rate of bytes in powers of 1024: `478 MiB/s`.
pub fn bytes_per_second(value: f64) -> String {
    format!("{}/s", bytes(value))
}

/// The way in which a job wants its bytes shown: `kb_base` and `unit_base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteUnits {
    /// The base of a kilobyte: 1024, or 1000 for kilobytes of 1000 bytes.
    pub kb_base: u32,
    /// The unit of rates: 1 for bits; 0 and 8 for bytes.
    pub unit_base: u32,
}

impl Default for ByteUnits {
    fn default() -> ByteUnits {
        ByteUnits { kb_base: 1024, unit_base: 0 }
    }
}

impl ByteUnits {
    /// An amount of bytes: `4 KiB`, or `4.1 kB` with a base of 1000.
    pub fn amount(self, bytes: f64) -> String {
        if self.kb_base == 1000 { decimal(bytes, "B") } else { self::bytes(bytes) }
    }

    /// A rate, in the job's base first and in the other behind it: `478 MiB/s`, `501 MB/s`; in bits `4.01 Gbit/s`.
    pub fn rates(self, bytes_per_second: f64) -> (String, String) {
        let (binary, decimal) = if self.unit_base == 1 {
            let bits = bytes_per_second * 8.0;
            (binary(bits, "bit"), decimal(bits, "bit"))
        } else {
            (binary(bytes_per_second, "B"), decimal(bytes_per_second, "B"))
        };
        let (binary, decimal) = (format!("{binary}/s"), format!("{decimal}/s"));
        if self.kb_base == 1000 { (decimal, binary) } else { (binary, decimal) }
    }
}

/// A value in the powers of 1024 of a unit.
fn binary(value: f64, unit: &str) -> String {
    const PREFIXES: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let (number, index) = scaled(value, 1024.0, &PREFIXES);
    format!("{} {}{unit}", plain(number), PREFIXES[index])
}

/// A value in the powers of 1000 of a unit.
fn decimal(value: f64, unit: &str) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let (number, index) = scaled(value, 1000.0, &PREFIXES);
    format!("{} {}{unit}", plain(number), PREFIXES[index])
}

/// A time given in nanoseconds: `203 us`.
pub fn nanoseconds(value: f64) -> String {
    const NAMES: [&str; 4] = ["ns", "us", "ms", "s"];
    let (number, index) = scaled(value, 1e3, &NAMES);
    format!("{} {}", plain(number), NAMES[index])
}

/// A fraction as a percentage: 0.123 -> `12.3 %`.
pub fn percent(fraction: f64) -> String {
    format!("{} %", plain(fraction * 100.0))
}

/// A change as a signed percentage, 0.123 -> `+12.3 %`; from ten times as much on as a factor, 11.5 -> `x 12.5`.
pub fn change(fraction: f64) -> String {
    if fraction >= 9.0 {
        return format!("x {}", count(fraction + 1.0));
    }
    let sign = if fraction >= 0.0 { "+" } else { "-" };
    format!("{sign}{} %", plain(fraction.abs() * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (1.0, "1"),
            (999.6, "1k"),
            (999.4, "999"),
            (12_345.0, "12.3k"),
            (1e6, "1M"),
            (-1500.0, "-1.5k"),
        ] {
            assert_eq!(count(value), text);
        }
        for (value, text) in [(122_412.0, "122.4k"), (1_234_567.0, "1.235M"), (0.5, "0.5"), (99_999.0, "100k")] {
            assert_eq!(precise_count(value), text);
        }
        assert_eq!(bytes(4096.0), "4 KiB");
        assert_eq!(bytes(1023.9), "1 KiB");
        assert_eq!(bytes_per_second(478.0 * 1048576.0), "478 MiB/s");
        let rates = |kb_base, unit_base| {
            let (first, second) = ByteUnits { kb_base, unit_base }.rates(4096e3);
            format!("{first} ({second})")
        };
        assert_eq!(rates(1024, 0), "3.91 MiB/s (4.1 MB/s)");
        assert_eq!(rates(1000, 8), "4.1 MB/s (3.91 MiB/s)");
        assert_eq!(rates(1024, 1), "31.2 Mibit/s (32.8 Mbit/s)");
        assert_eq!(rates(1000, 1), "32.8 Mbit/s (31.2 Mibit/s)");
        assert_eq!(ByteUnits { kb_base: 1000, unit_base: 1 }.amount(4096.0), "4.1 kB");
        assert_eq!(nanoseconds(203_400.0), "203 us");
        assert_eq!(nanoseconds(9_996.0), "10 us");
        assert_eq!(nanoseconds(90e9), "90 s");
        assert_eq!(change(-0.0312), "-3.12 %");
        assert_eq!(count(f64::NAN), "-");
    }
}
