//! The text of a value, read as the kind of its option demands.

use super::Draft;
use crate::options::{self, Each, OptionSpec, Reader, ValueKind, values};

/// Reads the value as its kind demands and hands it to the option.
pub(super) fn apply(
    draft: &mut Draft,
    reader: &mut Reader,
    option: &OptionSpec,
    value: Option<&str>,
) -> Result<(), String> {
    let Some(value) = value else { return apply_name_alone(draft, option) };
    match &option.kind {
        ValueKind::Bool(set) => set(draft, boolean(value, reader, 1)?),
        ValueKind::Flag(set) => set(draft, boolean(value, reader, i64::MAX)?),
        ValueKind::Count(low, high, set) => set(draft, reader.count(value, *low, *high)?),
        ValueKind::Integer(low, high, set) => {
            let number = value.parse::<i64>().ok().filter(|number| (*low..=*high).contains(number));
            set(draft, number.ok_or_else(|| format!("\"{value}\" is not a number from {low} to {high}"))?);
        }
        ValueKind::Bytes(least, set) => set(draft, at_least(reader.bytes(value)?, *least)?),
        ValueKind::Amount(set) => set(draft, reader.amount(value)?),
        ValueKind::Time(unit, set) => set(draft, reader.time(value, *unit)?),
        ValueKind::TimeRange(unit, set) => set(draft, both_ends(value, |end| reader.time(end, *unit))?),
        ValueKind::BytesRange(set) => set(draft, both_ends(value, |end| reader.bytes(end))?),
        ValueKind::EachBytes(least, set) => set(draft, each_size(reader, option, value, *least)?),
        ValueKind::EachCount(low, high, set) => {
            set(draft, values::each(&reader.each_part(value), |part| reader.count(part, *low, *high))?)
        }
        ValueKind::EachTime(unit, set) => {
            set(draft, values::each(&reader.each_part(value), |part| reader.time(part, *unit))?)
        }
        ValueKind::EachRange(set) => set(draft, each_range(reader, value)?),
        ValueKind::Word(words, set) => match words.iter().find(|(word, _)| *word == value) {
            Some((word, _)) => set(draft, word),
            None => return Err(options::not_one_of(value, words)),
        },
        ValueKind::Numbers(low, high, set) => set(draft, numbers(reader, value, *low, *high)?),
        ValueKind::Text(_) | ValueKind::Custom(..) if value.is_empty() => return Err("the value is empty".into()),
        ValueKind::Text(set) | ValueKind::OptionalText(set) => set(draft, value),
        ValueKind::Custom(_, _, set) => set(draft, reader, value)?,
        ValueKind::Opaque => {}
    }
    Ok(())
}

/// An option that stands alone, without `=`.
fn apply_name_alone(draft: &mut Draft, option: &OptionSpec) -> Result<(), String> {
    match option.kind {
        ValueKind::Flag(set) => set(draft, true),
        ValueKind::OptionalText(set) => set(draft, ""),
        ValueKind::Opaque => {}
        ValueKind::Bool(_) => return Err(format!("a value is missing: write {}=1", option.name)),
        _ => {
            let (name, form) = (option.name, option.kind.form());
            return Err(format!("a value is missing: write {name}=VALUE, where VALUE is {form}"));
        }
    }
    Ok(())
}

fn at_least(bytes: u64, least: u64) -> Result<u64, String> {
    if bytes < least { Err(format!("{bytes} is too small: it is at least {least}")) } else { Ok(bytes) }
}

/// The lower and the upper end of a range; both are the value where it is one quantity.
fn both_ends(value: &str, mut read: impl FnMut(&str) -> Result<u64, String>) -> Result<(u64, u64), String> {
    let ends = measure::units::split_outside_parentheses(value, &['-', ':', ',']);
    let (low, high) = ends.unwrap_or((value, value));
    let (low, high) = (read(low)?, read(high)?);
    Ok((low.min(high), low.max(high)))
}

fn each_size(reader: &mut Reader, option: &OptionSpec, value: &str, least: u64) -> Result<Each<u64>, String> {
    values::each(&reader.each_part(value), |part| {
        let mut ends = measure::units::split_outside_parentheses(part, &['-', ':']);
        if let Some((low, high)) = ends.take_if(|_| !reader.lenient) {
            if option.name == "bs" && part.contains('/') {
                return Err(format!("\"{part}\" has shares of sizes: write bssplit={value}"));
            }
            let range = if option.name == "bs" { ", or use bsrange for a range of blocks" } else { "" };
            return Err(format!("\"{part}\" is two sizes: write {low},{high} for reads and writes{range}"));
        }
        at_least(reader.limit(part, least)?, least)
    })
}

fn each_range(reader: &mut Reader, value: &str) -> Result<Each<(u64, u64)>, String> {
    let value = reader.three_parts(value);
    let plain = without_percentages(reader, &value);
    let value = plain.as_str();
    let is_range = |part: &str| part.is_empty() || part.contains(['-', ':']);
    if reader.lenient && !value.split(',').all(is_range) {
        return Err(format!("\"{value}\" has no range: write for example {value}-{value}"));
    }
    let parse = |part: &str| {
        let range = measure::units::parse_range(part, |end| measure::units::parse_bytes(end, reader.kb_base));
        range.map_err(|error| error.to_string())
    };
    let each = values::each(value, parse)?;
    // Once more for the differences to fio's reading.
    for end in value.split([',', '-', ':']).filter(|end| !end.trim().is_empty() && !value.contains('(')) {
        reader.bytes(end)?;
    }
    Ok(each)
}

fn numbers(reader: &mut Reader, value: &str, low: f64, high: f64) -> Result<Vec<f64>, String> {
    let mut numbers = Vec::new();
    for text in value.split(':') {
        match number_within(reader, text, low, high) {
            Ok(number) => numbers.push(number),
            Err(wrong) if reader.lenient && !numbers.is_empty() => {
                reader.differences.push(format!("{wrong}; the list ends before it, as in fio"));
                break;
            }
            Err(wrong) => return Err(wrong),
        }
    }
    Ok(numbers)
}

fn number_within(reader: &mut Reader, text: &str, low: f64, high: f64) -> Result<f64, String> {
    match reader.float(text)? {
        number if (low..=high).contains(&number) => Ok(number),
        number => Err(format!("{number} is out of range: it is from {low} to {high}")),
    }
}

/// A range as `512/25:1k:25:2k/50`, which was meant as `bssplit`, without all that fio overlooks in it.
fn without_percentages(reader: &mut Reader, value: &str) -> String {
    let bare = |part: &str| {
        let ends = part.split([':', '-']).map(|end| end.split('/').next().unwrap_or_default());
        ends.take(2).collect::<Vec<_>>().join("-")
    };
    if value.contains('(') || !value.contains('/') {
        return value.to_string();
    }
    let range = value.split(',').map(bare).collect::<Vec<_>>().join(",");
    reader.differences.push(format!("\"{value}\" is the range {range}, as in fio: percentages belong to bssplit"));
    range
}

/// 0 or 1; as fio reads it, any number of at most `most`, of which only 0 is false.
fn boolean(value: &str, reader: &mut Reader, most: i64) -> Result<bool, String> {
    if value == "0" || value == "1" {
        return Ok(value == "1");
    }
    if let Some(number) = reader.loose_integer(value).filter(|number| *number <= most) {
        reader.differences.push(format!("\"{value}\" is {number} to fio, and here {}", u8::from(number != 0)));
        return Ok(number != 0);
    }
    match value {
        "true" | "yes" | "on" => Err(format!("\"{value}\" is not 0 or 1: write 1")),
        "false" | "no" | "off" => Err(format!("\"{value}\" is not 0 or 1: write 0")),
        _ => Err(format!("\"{value}\" is not 0 or 1")),
    }
}
