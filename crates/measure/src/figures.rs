//! Figures as people read them: three significant digits and a unit.

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

/// A count with k, M, G: `122k`.
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

/// Bytes in powers of 1024: `4 KiB`.
pub fn bytes(value: f64) -> String {
    const NAMES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (number, index) = scaled(value, 1024.0, &NAMES);
    format!("{} {}", plain(number), NAMES[index])
}

/// A rate of bytes in powers of 1024: `478 MiB/s`.
pub fn bytes_per_second(value: f64) -> String {
    format!("{}/s", bytes(value))
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

/// A change as a signed percentage: 0.123 -> `+12.3 %`.
pub fn change(fraction: f64) -> String {
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
        assert_eq!(nanoseconds(203_400.0), "203 us");
        assert_eq!(nanoseconds(9_996.0), "10 us");
        assert_eq!(nanoseconds(90e9), "90 s");
        assert_eq!(change(-0.0312), "-3.12 %");
        assert_eq!(count(f64::NAN), "-");
    }
}
