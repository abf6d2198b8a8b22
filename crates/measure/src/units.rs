//! The one parser of sizes, times and ranges, and their exact rendering.
//!
//! The language is fio's, with its traps taken out: a unit that is unknown is an error and not a factor of one,
//! `1.5g` is a gigabyte and a half, `KiB` is always 1024 bytes, `10min` are ten minutes. Sums and products
//! (`2*1024`, `(64k+4k)*8`) are computed in exact integers.

use std::fmt;

/// The reason why a text is not a quantity: a clause that reads well after the place and the option's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError(String);

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnitError {}

fn error<T>(message: impl Into<String>) -> Result<T, UnitError> {
    Err(UnitError(message.into()))
}

/// An amount of a file or device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// An absolute number of bytes.
    Bytes(u64),
    /// 0..=100 percent of the file or device that the size belongs to.
    Percent(f64),
    /// Zones of a zoned block device.
    Zones(u64),
}

/// The unit of a time that is written as a bare number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// `thinktime`, `latency_target`, ...
    Microseconds,
    /// `log_avg_msec`, `bwavgtime`, ...
    Milliseconds,
    /// `runtime`, `ramp_time`, ...
    Seconds,
}

impl TimeUnit {
    /// The nanoseconds of one unit.
    pub const fn nanoseconds(self) -> u64 {
        match self {
            TimeUnit::Microseconds => 1_000,
            TimeUnit::Milliseconds => 1_000_000,
            TimeUnit::Seconds => 1_000_000_000,
        }
    }

    /// The unit's name: `us`, `ms` or `s`.
    pub const fn name(self) -> &'static str {
        match self {
            TimeUnit::Microseconds => "us",
            TimeUnit::Milliseconds => "ms",
            TimeUnit::Seconds => "s",
        }
    }
}

/// Bytes, percent (`20%`) or zones (`3z`).
///
/// `kb_base` is the value of `k` and `kb`, 1024 or 1000; `KiB` and `Ki` are always 1024.
///
/// # Errors
/// The fault in the text, in words for its writer.
pub fn parse_size(text: &str, kb_base: u32) -> Result<Size, UnitError> {
    let text = text.trim();
    if let Some(number) = text.strip_suffix('%').filter(|number| is_decimal(number)) {
        return Ok(Size::Percent(percent_number(number)?));
    }
    if let Some(number) = text
        .strip_suffix(['z', 'Z'])
        .filter(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    {
        return number.parse().map(Size::Zones).or_else(|_| error(format!("\"{text}\" is too large")));
    }
    parse_bytes(text, kb_base).map(Size::Bytes)
}

/// Bytes: `4096`, `4k`, `4KiB`, `1.5g`, `0x1000`, `(2*64k)`. Fractions of a byte are cut off.
///
/// Plain counts (`iodepth=1k`) are written the same way.
///
/// The fault in the text.
pub fn parse_bytes(text: &str, kb_base: u32) -> Result<u64, UnitError> {
    unsigned(text, evaluate(text, &Language::Bytes { kb_base })?)
}

/// Bytes with a sign: `-8k`.
///
/// # Errors
/// The fault in the text.
pub fn parse_signed_bytes(text: &str, kb_base: u32) -> Result<i64, UnitError> {
    let value = evaluate(text, &Language::Bytes { kb_base })?;
    i64::try_from(value).or_else(|_| error(format!("\"{}\" is too large", text.trim())))
}

/// Nanoseconds: `10s`, `1m30s`, `250us`, `1.5h`, or a bare number of the `default` unit.
///
/// Units are ns, us, ms, s, m, h, d and their longer names (`usec`, `sec`, `minutes`, ...), in any case.
///
/// # Errors
/// The fault in the text.
pub fn parse_time_ns(text: &str, default: TimeUnit) -> Result<u64, UnitError> {
    unsigned(text, evaluate(text, &Language::Time { default })?)
}

/// A percentage as a fraction: `3%` and `3` are 0.03.
///
/// The fault in the text.
pub fn parse_percent(text: &str) -> Result<f64, UnitError> {
    let number = text.trim();
    let number = number.strip_suffix('%').unwrap_or(number).trim_end();
    if !is_decimal(number) {
        return error(format!("\"{}\" is not a percentage", text.trim()));
    }
    Ok(percent_number(number)? / 100.0)
}

/// A decimal number, finite.
///
/// The fault in the text.
pub fn parse_number(text: &str) -> Result<f64, UnitError> {
    match text.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => error(format!("\"{}\" is not a number", text.trim())),
    }
}

/// The two ends of `low-high` or `low:high`, each read by `parse`, put in order; both are the same for one value.
///
/// # Errors
/// The error of `parse` for either end.
pub fn parse_range<T: PartialOrd + Copy>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, UnitError>,
) -> Result<(T, T), UnitError> {
    match split_outside_parentheses(text, &['-', ':']) {
        None => parse(text).map(|value| (value, value)),
        Some((low, high)) => {
            let (low, high) = (parse(low)?, parse(high)?);
            Ok(if low > high { (high, low) } else { (low, high) })
        }
    }
}

/// The text before and after the first of `separators` that is not in parentheses and not at the start.
pub fn split_outside_parentheses<'a>(text: &'a str, separators: &[char]) -> Option<(&'a str, &'a str)> {
    let mut depth = 0usize;
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 && index > 0 && separators.contains(&character) => {
                return Some((&text[..index], &text[index + character.len_utf8()..]));
            }
            _ => {}
        }
    }
    None
}

/// Bytes as the parser takes them (with a `kb_base` of 1024), exact and as short as can be: `4k`, `1537`, `2g`.
pub fn exact_bytes(bytes: u64) -> String {
    for (shift, unit) in [(50, "p"), (40, "t"), (30, "g"), (20, "m"), (10, "k")] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// A time as the parser takes it, exact, in the largest unit that divides it: `90s`, `2500us`.
pub fn exact_time(nanoseconds: u64) -> String {
    for (factor, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if nanoseconds.is_multiple_of(factor) {
            return format!("{}{unit}", nanoseconds / factor);
        }
    }
    format!("{nanoseconds}ns")
}

fn is_decimal(number: &str) -> bool {
    let mut halves = number.splitn(2, '.');
    let digits = |half: Option<&str>| half.is_none_or(|half| half.bytes().all(|byte| byte.is_ascii_digit()));
    number.bytes().any(|byte| byte.is_ascii_digit()) && digits(halves.next()) && digits(halves.next())
}

fn percent_number(number: &str) -> Result<f64, UnitError> {
    let value = parse_number(number)?;
    if value > 100.0 { error(format!("{value}% is more than 100%")) } else { Ok(value) }
}

fn unsigned(text: &str, value: i128) -> Result<u64, UnitError> {
    match u64::try_from(value) {
        Ok(value) => Ok(value),
        Err(_) if value < 0 => error(format!("\"{}\" is negative", text.trim())),
        Err(_) => error(format!("\"{}\" is too large", text.trim())),
    }
}

/// The meaning of numbers and units: sizes or times.
enum Language {
    Bytes { kb_base: u32 },
    Time { default: TimeUnit },
}

impl Language {
    /// The factor of a unit; for an empty text, the factor of a number without a unit.
    fn factor(&self, unit: &str) -> Option<i128> {
        let unit = unit.to_ascii_lowercase();
        match self {
            Language::Bytes { kb_base } => {
                if unit.is_empty() || unit == "b" {
                    return Some(1);
                }
                let power = "kmgtp".find(&unit[..1])? as u32 + 1;
                let base = match &unit[1..] {
                    "" | "b" => i128::from(*kb_base),
                    "i" | "ib" => 1024,
                    _ => return None,
                };
                Some(base.pow(power))
            }
            Language::Time { default } => Some(match unit.as_str() {
                "" => i128::from(default.nanoseconds()),
                "ns" | "nsec" | "nsecs" => 1,
                "us" | "usec" | "usecs" => 1_000,
                "ms" | "msec" | "msecs" => 1_000_000,
                "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000_000,
                "m" | "min" | "mins" | "minute" | "minutes" => 60_000_000_000,
                "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000_000_000,
                "d" | "day" | "days" => 86_400_000_000_000,
                _ => return None,
            }),
        }
    }

    fn kind(&self) -> (&'static str, &'static str) {
        match self {
            Language::Bytes { .. } => ("size", "k, m, g, t, p, alone or with b or iB"),
            Language::Time { .. } => ("time", "ns, us, ms, s, m, h, d"),
        }
    }
}

/// An intermediate result. Only a number without a unit may multiply a time, or be a power.
#[derive(Clone, Copy)]
struct Value {
    /// The amount in bytes or nanoseconds.
    amount: i128,
    /// True if the number had no unit, and so has the default unit for the time being.
    bare: bool,
}

/// Parentheses deeper than this are refused, so that no text can exhaust the stack.
const MAX_DEPTH: usize = 32;

fn evaluate(text: &str, language: &Language) -> Result<i128, UnitError> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return error(format!("the {} is missing", language.kind().0));
    }
    let mut parser = Expression { text: trimmed, rest: trimmed, language, depth: 0 };
    let value = parser.sum()?;
    if parser.rest.is_empty() { Ok(value.amount) } else { parser.fail() }
}

struct Expression<'a> {
    /// The whole text, for messages.
    text: &'a str,
    /// The rest of the text, which is not read yet.
    rest: &'a str,
    language: &'a Language,
    /// The number of open operands, one inside the other.
    depth: usize,
}

impl<'a> Expression<'a> {
    fn fail<T>(&self) -> Result<T, UnitError> {
        error(format!("\"{}\" is not a {}", self.text, self.language.kind().0))
    }

    fn overflow(&self) -> UnitError {
        UnitError(format!("\"{}\" is too large", self.text))
    }

    /// Takes `symbol` if it comes next.
    fn take(&mut self, symbol: char) -> bool {
        let rest = self.rest.trim_start();
        let found = rest.strip_prefix(symbol);
        self.rest = found.unwrap_or(rest);
        found.is_some()
    }

    /// A number without a unit, as the parser keeps it: already in the default unit, so that its fraction is not lost.
    fn bare(&self) -> i128 {
        match self.language {
            Language::Bytes { .. } => 1,
            Language::Time { default } => i128::from(default.nanoseconds()),
        }
    }

    fn sum(&mut self) -> Result<Value, UnitError> {
        let mut value = self.product()?;
        loop {
            if self.take('+') {
                value = self.add(value, 1)?;
            } else if self.depth > 0 && self.take('-') {
                // Outside parentheses a minus is more likely a range, which this place does not take.
                value = self.add(value, -1)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn add(&mut self, value: Value, sign: i128) -> Result<Value, UnitError> {
        let other = self.product()?;
        let amount = other
            .amount
            .checked_mul(sign)
            .and_then(|other| value.amount.checked_add(other))
            .ok_or_else(|| self.overflow())?;
        Ok(Value { amount, bare: value.bare && other.bare })
    }

    fn product(&mut self) -> Result<Value, UnitError> {
        let mut value = self.power()?;
        loop {
            if self.take('*') {
                let other = self.power()?;
                if !value.bare && !other.bare && matches!(self.language, Language::Time { .. }) {
                    return error(format!("\"{}\" multiplies a time by a time", self.text));
                }
                let amount = value.amount.checked_mul(other.amount).ok_or_else(|| self.overflow())? / self.bare();
                value = Value { amount, bare: value.bare && other.bare };
            } else if self.take('/') {
                let other = self.power()?;
                let amount = value.amount.checked_mul(self.bare()).ok_or_else(|| self.overflow())?;
                let amount = amount.checked_div(other.amount).ok_or_else(|| self.by_zero())?;
                value = Value { amount, bare: value.bare == other.bare };
            } else if self.take('%') {
                let other = self.power()?;
                value.amount = value.amount.checked_rem(other.amount).ok_or_else(|| self.by_zero())?;
            } else {
                return Ok(value);
            }
        }
    }

    fn by_zero(&self) -> UnitError {
        UnitError(format!("\"{}\" divides by zero", self.text))
    }

    fn power(&mut self) -> Result<Value, UnitError> {
        let base = self.operand()?;
        if !self.take('^') {
            return Ok(base);
        }
        let (exponent, bare) = (self.operand()?, self.bare());
        if !base.bare || !exponent.bare {
            return self.fail();
        }
        let exponent = u32::try_from(exponent.amount / bare).map_err(|_| self.overflow())?;
        let power = (base.amount / bare).checked_pow(exponent).and_then(|power| power.checked_mul(bare));
        Ok(Value { amount: power.ok_or_else(|| self.overflow())?, bare: true })
    }

    fn operand(&mut self) -> Result<Value, UnitError> {
        // A sign takes a level too: "-----1" nests as deep as it is long.
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return error(format!("\"{}\" is nested too deep", self.text));
        }
        let value = if self.take('(') {
            let value = self.sum()?;
            if !self.take(')') {
                return self.fail();
            }
            // `(2*4)k`
            match self.unit() {
                "" => value,
                _ if !value.bare => return self.fail(),
                unit => {
                    let product = value.amount.checked_mul(self.factor(unit)?).ok_or_else(|| self.overflow())?;
                    Value { amount: product / self.bare(), bare: false }
                }
            }
        } else if self.take('-') {
            let value = self.operand()?;
            Value { amount: value.amount.checked_neg().ok_or_else(|| self.overflow())?, bare: value.bare }
        } else if self.take('+') {
            self.operand()?
        } else {
            self.quantity()?
        };
        self.depth -= 1;
        Ok(value)
    }

    /// A number with its unit; for times also several: `1m30s`.
    fn quantity(&mut self) -> Result<Value, UnitError> {
        let mut total = 0i128;
        let mut bare = true;
        loop {
            let (mantissa, decimals) = self.number()?;
            let unit = self.unit();
            let factor = self.factor(unit)?;
            let scaled = mantissa.checked_mul(factor).ok_or_else(|| self.overflow())?;
            total = total.checked_add(scaled / 10i128.pow(decimals)).ok_or_else(|| self.overflow())?;
            let another = matches!(self.language, Language::Time { .. })
                && !unit.is_empty()
                && self.rest.starts_with(|next: char| next.is_ascii_digit());
            bare &= unit.is_empty();
            if !another {
                return Ok(Value { amount: total, bare });
            }
        }
    }

    /// Digits as an integer, and how many of them stood behind the point.
    fn number(&mut self) -> Result<(i128, u32), UnitError> {
        let rest = self.rest.trim_start();
        if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
            let end = hex.find(|digit: char| !digit.is_ascii_hexdigit()).unwrap_or(hex.len());
            if end == 0 {
                return self.fail();
            }
            self.rest = &hex[end..];
            return i128::from_str_radix(&hex[..end], 16).map(|value| (value, 0)).map_err(|_| self.overflow());
        }
        let end = rest.find(|digit: char| !digit.is_ascii_digit() && digit != '.').unwrap_or(rest.len());
        let digits = &rest[..end];
        if !is_decimal(digits) {
            return self.fail();
        }
        self.rest = &rest[end..];
        let decimals = digits.find('.').map_or(0, |point| digits.len() - point - 1);
        let value = digits.replace('.', "").parse::<i128>().map_err(|_| self.overflow())?;
        // 10^18 keeps the product with any unit inside 128 bits.
        if decimals > 18 {
            error(format!("\"{}\" has too many decimals", self.text))
        } else {
            Ok((value, decimals as u32))
        }
    }

    /// The letters that come next, maybe none.
    fn unit(&mut self) -> &'a str {
        let rest = self.rest.trim_start();
        let end = rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len());
        self.rest = &rest[end..];
        &rest[..end]
    }

    fn factor(&self, unit: &str) -> Result<i128, UnitError> {
        let (kind, units) = self.language.kind();
        self.language.factor(unit).ok_or_else(|| {
            UnitError(format!("\"{}\" is not a {kind}: there is no unit \"{unit}\" ({units})", self.text))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_mean_what_their_writer_meant() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4k", 4096),
            ("4kb", 4096),
            ("4Ki", 4096),
            ("4KiB", 4096),
            ("4 KiB", 4096),
            ("1.5g", 1_610_612_736),
            ("0.5k", 512),
            ("512b", 512),
            ("0x1000", 4096),
            ("1t", 1 << 40),
            ("2*1024", 2048),
            ("(64k+4k)*8", 557_056),
            ("(8g-4k)", (8 << 30) - 4096),
            ("(2*4)k", 8192),
            ("2^10", 1024),
            ("7/2", 3),
            ("+3", 3),
        ] {
            assert_eq!(parse_bytes(text, 1024), Ok(bytes), "{text}");
        }
        for (text, bytes) in [("4k", 4000), ("4kb", 4000), ("4KiB", 4096), ("1MiB", 1 << 20), ("1m", 1_000_000)] {
            assert_eq!(parse_bytes(text, 1000), Ok(bytes), "{text}");
        }
        assert_eq!(parse_size("20%", 1024), Ok(Size::Percent(20.0)));
        assert_eq!(parse_size("0.5%", 1024), Ok(Size::Percent(0.5)));
        assert_eq!(parse_size("3z", 1024), Ok(Size::Zones(3)));
        assert_eq!(parse_signed_bytes("-8k", 1024), Ok(-8192));
    }

    #[test]
    fn times_have_a_default_unit() {
        const S: u64 = 1_000_000_000;
        for (text, ns) in [
            ("60", 60 * S),
            ("60s", 60 * S),
            ("60sec", 60 * S),
            ("10min", 600 * S),
            ("1m30s", 90 * S),
            ("1.5h", 5400 * S),
            ("250us", 250_000),
            ("2D", 172_800 * S),
            ("(2*30)", 60 * S),
            ("2m + 1s", 121 * S),
        ] {
            assert_eq!(parse_time_ns(text, TimeUnit::Seconds), Ok(ns), "{text}");
        }
        assert_eq!(parse_time_ns("5", TimeUnit::Microseconds), Ok(5_000));
        assert_eq!(parse_time_ns("5", TimeUnit::Milliseconds), Ok(5_000_000));
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for (text, message) in [
            ("", "the size is missing"),
            ("4q", "\"4q\" is not a size: there is no unit \"q\" (k, m, g, t, p, alone or with b or iB)"),
            ("k", "\"k\" is not a size"),
            ("-4k", "\"-4k\" is negative"),
            ("4k-8k", "\"4k-8k\" is not a size"),
            ("1.2.3", "\"1.2.3\" is not a size"),
            ("99999999t", "\"99999999t\" is too large"),
            ("1/0", "\"1/0\" divides by zero"),
            ("(1", "\"(1\" is not a size"),
            ("0x", "\"0x\" is not a size"),
        ] {
            assert_eq!(parse_bytes(text, 1024).unwrap_err().to_string(), message);
        }
        assert_eq!(parse_size("120%", 1024).unwrap_err().to_string(), "120% is more than 100%");
        assert!(parse_bytes(&"(".repeat(10_000), 1024).is_err());
        assert!(parse_bytes(&"-".repeat(10_000), 1024).is_err());
    }

    #[test]
    fn ranges_are_put_in_order() {
        let bytes = |text: &str| parse_bytes(text, 1024);
        assert_eq!(parse_range("4k-1k", bytes), Ok((1024, 4096)));
        assert_eq!(parse_range("1k:4k", bytes), Ok((1024, 4096)));
        assert_eq!(parse_range("(4k-1k)-8k", bytes), Ok((3072, 8192)));
        assert_eq!(parse_range("1k", bytes), Ok((1024, 1024)));
    }

    proptest! {
        #[test]
        fn what_is_rendered_reads_back(bytes: u64, nanoseconds: u64) {
            prop_assert_eq!(parse_bytes(&exact_bytes(bytes), 1024), Ok(bytes));
            prop_assert_eq!(parse_time_ns(&exact_time(nanoseconds), TimeUnit::Seconds), Ok(nanoseconds));
        }

        #[test]
        fn units_scale(number in 0u64..1 << 20, shift in 0usize..5, iec: bool) {
            let unit = ["", "k", "m", "g", "t"][shift];
            let suffix = if iec && shift > 0 { "iB" } else { "" };
            prop_assert_eq!(parse_bytes(&format!("{number}{unit}{suffix}"), 1024), Ok(number << (10 * shift)));
            prop_assert_eq!(parse_bytes(&format!("{number}{unit}"), 1000), Ok(number * 1000u64.pow(shift as u32)));
        }

        #[test]
        fn a_sum_is_a_sum(a in 0u64..1 << 40, b in 0u64..1 << 20) {
            prop_assert_eq!(parse_bytes(&format!("{a}+{b}"), 1024), Ok(a + b));
            prop_assert_eq!(parse_bytes(&format!("{a}*{b}"), 1024), Ok(a * b));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (parse_size(&text, 1024), parse_time_ns(&text, TimeUnit::Seconds), parse_percent(&text));
            let _ = parse_range(&text, |part| parse_signed_bytes(part, 1000));
        }

        #[test]
        fn no_expression_panics(text in "[-+*/%^().0-9xkmKMGTPib zs]{0,40}") {
            let _ = (parse_size(&text, 1024), parse_time_ns(&text, TimeUnit::Microseconds), parse_percent(&text));
        }
    }
}
