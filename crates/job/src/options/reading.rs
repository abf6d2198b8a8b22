//! Reading quantities, and noticing where fio would read something else.

use measure::units::{self, Size, TimeUnit};

use crate::job::Amount;

/// The bound of options that are 32 bits wide.
const LARGE: u64 = u32::MAX as u64;

/// Reads the quantities of one value, and remembers those that fio 3.33 reads differently.
pub struct Reader {
    /// The number that the suffix `k` multiplies by.
    pub kb_base: u32,
    /// True if a text that is not a quantity has the value that fio reads from it: fio ignores what follows a number.
    pub lenient: bool,
    /// Bytes of a zone, which the suffix `z` multiplies by; 0 if unknown.
    pub zone_bytes: u64,
    /// One sentence for each value that fio's parser would read differently, or that only fio's parser reads.
    pub differences: Vec<String>,
}

impl Reader {
    /// A strict reader for a `kb_base` of 1024 or 1000.
    pub fn new(kb_base: u32) -> Reader {
        Reader { kb_base, lenient: false, zone_bytes: 0, differences: Vec::new() }
    }

    /// Bytes, or a plain number.
    pub fn bytes(&mut self, text: &str) -> Result<u64, String> {
        let ours = units::parse_bytes(text, self.kb_base).map_err(|error| error.to_string());
        self.settle(text, ours, fio_bytes(text, self.kb_base), |value| value.to_string())
    }

    /// Bytes with a sign.
    pub fn signed_bytes(&mut self, text: &str) -> Result<i64, String> {
        match units::parse_signed_bytes(text, self.kb_base).map_err(|error| error.to_string()) {
            Ok(bytes) if bytes <= 0 => Ok(bytes),
            // For the difference to fio's reading, if there is one.
            _ if !self.is_negative(text) => {
                i64::try_from(self.bytes(text)?).map_err(|_| format!("\"{text}\" is too large"))
            }
            wrong => wrong,
        }
    }

    /// The text up to a colon, behind which fio reads nothing; the whole text where it is read strictly.
    pub fn whole<'a>(&mut self, text: &'a str) -> &'a str {
        match text.find(':').filter(|_| self.lenient) {
            None => text,
            Some(at) => {
                self.differences.push(format!("\"{}\" has no effect, as in fio", &text[at..]));
                &text[..at]
            }
        }
    }

    /// A decimal number. fio ignores the text behind it.
    pub fn float(&mut self, text: &str) -> Result<f64, String> {
        let text = text.trim();
        let wrong = match units::parse_number(text) {
            Ok(number) => return Ok(number),
            Err(wrong) => wrong.to_string(),
        };
        let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
        let number = text[..end].parse().ok().filter(|_| self.lenient).ok_or(wrong)?;
        self.differences.push(format!("\"{}\" has no effect, as in fio", &text[end..]));
        Ok(number)
    }

    /// Bytes of a limit, where 0 means none. As fio reads them, less than 0 bytes set none.
    pub fn limit(&mut self, text: &str, least: u64) -> Result<u64, String> {
        if least == 0 && self.is_negative(text) { Ok(self.no_limit(text)) } else { self.bytes(text) }
    }

    /// True if fio reads a number below 0 from this text, which wraps to a large one there.
    fn is_negative(&self, text: &str) -> bool {
        self.loose_integer(text).is_some_and(|number| number < 0)
    }

    fn no_limit(&mut self, text: &str) -> u64 {
        self.differences.push(format!("\"{}\" is negative, and sets no limit, as in fio", text.trim()));
        0
    }

    /// The number at the beginning of the text, as fio reads it; None where the text is read strictly.
    pub fn loose_integer(&self, text: &str) -> Option<i64> {
        if self.lenient { leading_integer(text).map(|(number, _)| number) } else { None }
    }

    /// The values for reads, writes and trims, with commas between them. fio divides at colons and dashes too.
    pub fn each_part(&mut self, text: &str) -> String {
        if !self.lenient || text.contains('(') {
            return self.three_parts(text);
        }
        let parts: Vec<&str> = fio_parts(text).into_iter().map(before_divider).collect();
        let divided = parts.join(",");
        if divided != text {
            self.differences.push(format!("\"{text}\" is {divided} for reads, writes and trims, as in fio"));
        }
        self.three_parts(&divided)
    }

    /// The values for reads, writes and trims. fio ignores those behind the third.
    pub fn three_parts(&mut self, text: &str) -> String {
        let mut commas = text.match_indices(',').map(|(at, _)| at);
        match commas.nth(2).filter(|_| self.lenient) {
            None => text.to_string(),
            Some(third) => {
                self.differences.push(format!("\"{}\" has no effect, as in fio: three values are all", &text[third..]));
                text[..third].to_string()
            }
        }
    }

    /// The first of several numbers, which alone counts in fio; the whole text where it is read strictly.
    fn first<'a>(&mut self, text: &'a str) -> &'a str {
        if !self.lenient || text.contains('(') {
            return text;
        }
        match fio_parts(text)[..] {
            [first, _, ..] if fio_part_bytes(first, self.kb_base).is_some() => {
                self.differences.push(format!("\"{text}\" is {first}, as in fio"));
                first
            }
            _ => text,
        }
    }

    /// A plain number within bounds.
    pub fn count(&mut self, text: &str, low: u64, high: u64) -> Result<u64, String> {
        let text = self.first(text);
        if self.is_negative(text) {
            match (low, high, self.loose_integer(text)) {
                (0, LARGE, _) => return Ok(self.no_limit(text)),
                // Loops without end, or a seed: the number that fio reads.
                (0, u64::MAX, Some(number)) => return Ok(number as u64),
                _ => {}
            }
        }
        let value = self.bytes(text).map_err(|message| message.replace("is not a size", "is not a number"))?;
        if (low..=high).contains(&value) {
            Ok(value)
        } else if high == u64::MAX {
            Err(format!("{value} is too small: it is at least {low}"))
        } else {
            Err(format!("{value} is out of range: it is from {low} to {high}"))
        }
    }

    /// Reads an amount: bytes or percent.
    pub fn amount(&mut self, text: &str) -> Result<Amount, String> {
        match units::parse_size(text, self.kb_base) {
            Err(wrong) if text.trim().ends_with('%') => Err(wrong.to_string()),
            // An error here is one of `bytes` too, unless fio reads a number.
            Ok(Size::Bytes(_)) | Err(_) => self.bytes(text).map(Amount::Bytes),
            Ok(Size::Zones(_)) if self.zone_bytes == 0 => Err(format!("\"{text}\" counts zones: give zonesize")),
            Ok(Size::Zones(zones)) => Ok(Amount::Bytes(zones.saturating_mul(self.zone_bytes))),
            Ok(Size::Percent(percent)) => {
                let whole = percent.trunc();
                if whole != percent {
                    self.differences
                        .push(format!("\"{text}\" is {percent}% here; fio reads {}", fio_fraction_percent(whole)));
                }
                Ok(Amount::Percent(percent))
            }
        }
    }

    /// Reads a time, and returns nanoseconds.
    pub fn time(&mut self, text: &str, unit: TimeUnit) -> Result<u64, String> {
        if self.is_negative(text) {
            return Ok(self.no_limit(text));
        }
        let ours = units::parse_time_ns(text, unit).map_err(|error| error.to_string());
        let fios = match unit {
            TimeUnit::Microseconds => fio_time_us(text, false).map(|us| us.saturating_mul(1_000)),
            TimeUnit::Seconds => fio_time_us(text, true).map(|us| us.saturating_mul(1_000)),
            // fio's options in milliseconds are plain numbers, whose letters can only be those of sizes.
            TimeUnit::Milliseconds => fio_bytes(text, self.kb_base).map(|ms| ms.saturating_mul(1_000_000)),
        };
        self.settle(text, ours, fios, units::exact_time)
    }

    /// The value of a text of which both programs have an opinion.
    fn settle(
        &mut self,
        text: &str,
        ours: Result<u64, String>,
        fios: Option<u64>,
        show: fn(u64) -> String,
    ) -> Result<u64, String> {
        let text = text.trim();
        match (ours, fios) {
            // fio computes no expression here, and takes the first number.
            (Ok(ours), Some(fios)) if ours != fios && self.lenient && is_bare_expression(text) => {
                self.differences.push(format!("\"{text}\" is {} to fio, and so here", show(fios)));
                Ok(fios)
            }
            (Ok(ours), Some(fios)) if ours != fios => {
                self.differences.push(format!("\"{text}\" is {} here; fio reads {}", show(ours), show(fios)));
                Ok(ours)
            }
            // A size below 0 wraps in fio: nobody means that.
            (Err(wrong), Some(fios)) if self.lenient && !self.is_negative(text) => {
                self.differences
                    .push(format!("{wrong}; fio reads {}, and so does Plimsoll when it is called as fio", show(fios)));
                Ok(fios)
            }
            (ours, _) => ours,
        }
    }
}

/// True if a text is an expression without parentheses, such as `1m/8`.
fn is_bare_expression(text: &str) -> bool {
    !text.contains('(') && text.contains(['*', '/', '^', '+'])
}

fn fio_fraction_percent(whole: f64) -> String {
    format!("{whole}, in bytes")
}

/// The leading integer as strtoll(3) finds it, and what follows the digits and signs. None if fio has an error or
/// computes an expression.
fn leading_integer(text: &str) -> Option<(i64, &str)> {
    let text = text.trim_start();
    let hexadecimal = text.contains("0x") || text.contains("0X");
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (digits, radix) = match unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        Some(digits) if hexadecimal => (digits, 16),
        _ => (unsigned, if hexadecimal { 16 } else { 10 }),
    };
    let end = digits.find(|digit: char| !digit.is_digit(radix)).unwrap_or(digits.len());
    let value = i64::from_str_radix(&digits[..end], radix).ok()?;
    let rest = text.trim_start_matches(|next: char| next.is_ascii_digit() || next == '+' || next == '-');
    Some((if text.starts_with('-') { -value } else { value }, rest))
}

/// The parts of a value, which fio reads one after the other: it divides at each comma, and where no comma follows, at
/// colons and dashes.
fn fio_parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = [',', ':', '-'].into_iter().find_map(|divider| rest.find(divider).filter(|at| *at > 0)) {
        parts.push(&rest[..at]);
        rest = &rest[at + 1..];
    }
    parts.push(rest);
    parts
}

/// The beginning of a part up to a colon or a dash, which fio does not read where a comma follows.
fn before_divider(part: &str) -> &str {
    let end = part.char_indices().skip(1).find(|(_, letter)| matches!(letter, ':' | '-'));
    end.map_or(part, |(at, _)| &part[..at])
}

/// The number of bytes that fio 3.33 reads from a size: the last one, if the text has several. None if fio refuses the
/// text.
fn fio_bytes(text: &str, kb_base: u32) -> Option<u64> {
    fio_parts(text).into_iter().filter_map(|part| fio_part_bytes(part, kb_base)).next_back()
}

fn fio_part_bytes(text: &str, kb_base: u32) -> Option<u64> {
    let (value, rest) = leading_integer(text)?;
    // fio takes 50% for 2^64 - 51, and refuses zones where they mean nothing.
    if rest.starts_with('%') || text.ends_with('z') {
        return None;
    }
    let rest = rest.to_ascii_lowercase();
    let unit: &str = if rest.starts_with(|letter: char| letter.is_ascii_alphabetic()) { &rest } else { "" };
    let unit = unit.split([':', '-', '/']).next().unwrap_or_default();
    let power = unit.chars().next().and_then(|letter| "kmgtp".find(letter)).map_or(0, |index| index as u32 + 1);
    // "kib" and its like have the other base; everything else that starts with k is a k.
    let swapped = power > 0 && unit[1..].starts_with("ib");
    let base = if swapped { if kb_base == 1000 { 1024 } else { 1000 } } else { u64::from(kb_base) };
    Some((value as u64).wrapping_mul(base.pow(power)))
}

/// The time that fio 3.33 reads from a text, in microseconds. None if fio refuses the text.
fn fio_time_us(text: &str, bare_is_seconds: bool) -> Option<u64> {
    let (value, rest) = leading_integer(text).filter(|_| !text.ends_with('z'))?;
    let unit = rest.to_ascii_lowercase();
    let factor = if !unit.starts_with(|letter: char| letter.is_ascii_alphabetic()) {
        if bare_is_seconds { 1_000_000 } else { 1 }
    } else if unit.starts_with("ms") {
        1_000
    } else {
        match unit.as_str() {
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            "d" => 86_400_000_000,
            _ => 1,
        }
    };
    Some((value as u64).wrapping_mul(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str, kb_base: u32) -> (u64, Vec<String>) {
        let mut reader = Reader::new(kb_base);
        (reader.bytes(text).expect(text), reader.differences)
    }

    #[test]
    fn what_fio_reads_the_same_is_not_worth_a_word() {
        for text in ["4096", "4k", "4kb", "4Ki", "1g", "2t", "0x1000", "512b", "+5"] {
            assert_eq!(bytes(text, 1024).1, Vec::<String>::new(), "{text}");
        }
        assert_eq!(bytes("4KiB", 1000), (4096, vec![]));
        for (text, unit) in [
            ("60", TimeUnit::Seconds),
            ("60s", TimeUnit::Seconds),
            ("5m", TimeUnit::Microseconds),
            ("5ms", TimeUnit::Seconds),
            ("5usec", TimeUnit::Seconds),
            ("500", TimeUnit::Milliseconds),
        ] {
            let mut reader = Reader::new(1024);
            reader.time(text, unit).expect(text);
            assert_eq!(reader.differences, Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn called_as_fio_values_are_divided_as_fio_divides_them() {
        let mut reader = Reader { lenient: true, ..Reader::new(1024) };
        for (text, each) in [
            ("4k-8k", "4k,8k"),
            ("8k:4k:2k", "8k,4k,2k"),
            ("16k-8k,4k-8k", "16k,4k,8k"),
            ("4k,8k", "4k,8k"),
            (",4k", ",4k"),
            ("-1", "-1"),
        ] {
            assert_eq!(reader.each_part(text), each);
        }
        for (text, bytes) in [("64k-128k", 131_072), ("128k:64k", 65_536), ("64k,1m", 1 << 20), ("64k-x", 65_536)] {
            assert_eq!(reader.bytes(text), Ok(bytes), "{text}");
        }
        for (text, number) in [("1,2", 1), ("3:2", 3), ("4-2", 4), ("5:x", 5), ("6", 6)] {
            assert_eq!(reader.count(text, 1, 100), Ok(number), "{text}");
        }
        assert!(Reader::new(1024).bytes("64k-128k").is_err() && Reader::new(1024).count("1,2", 1, 100).is_err());
    }

    #[test]
    fn what_fio_reads_differently_is_said() {
        assert_eq!(bytes("4KiB", 1024), (4096, vec!["\"4KiB\" is 4096 here; fio reads 4000".into()]));
        assert_eq!(bytes("1.5g", 1024), (1_610_612_736, vec!["\"1.5g\" is 1610612736 here; fio reads 1".into()]));
        assert_eq!(bytes("2*1024", 1024), (2048, vec!["\"2*1024\" is 2048 here; fio reads 2".into()]));
        let mut reader = Reader::new(1024);
        assert_eq!(reader.time("10min", TimeUnit::Seconds), Ok(600_000_000_000));
        assert_eq!(reader.time("60sec", TimeUnit::Seconds), Ok(60_000_000_000));
        assert_eq!(
            reader.differences,
            ["\"10min\" is 600s here; fio reads 10us", "\"60sec\" is 60s here; fio reads 60us"]
        );
    }
}
