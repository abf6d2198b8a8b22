//! The one table of options: parsing, help, completions and the manual are made from it.

mod reading;
mod render;
// A table: one option a row.
#[rustfmt::skip]
mod table;
pub(crate) mod values;

use measure::PerDirection;
use measure::units::TimeUnit;

pub use reading::Reader;
pub use render::{describe, markdown, overview, paragraph};
pub use table::TABLE;

use crate::build::Draft;
use crate::job::Amount;

/// Options that stand under one heading of the reference.
pub struct Group {
    /// Heading of the group in docs/options.md.
    pub title: &'static str,
    /// Options of the group, in the order of the manual.
    pub options: &'static [OptionSpec],
}

/// One option of the job language.
pub struct OptionSpec {
    /// The name that results carry.
    pub name: &'static str,
    /// Other names that are accepted.
    pub aliases: &'static [&'static str],
    /// The kind of values that the option takes, with the code that stores a value.
    pub kind: ValueKind,
    /// The value that holds when the option is not given, as it would be written; empty if there is none.
    pub default: &'static str,
    /// One line of help, without a full stop.
    pub help: &'static str,
    /// Says if the option has its effect in Plimsoll.
    pub status: Status,
}

/// Says if an option has its effect in Plimsoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The option has its effect; an option of fio's has the effect that it has in fio.
    Supported,
    /// The option is accepted and changes nothing, for this reason.
    NoEffect(&'static str),
    /// The option is refused unless it has its default value, for this reason.
    Unsupported(&'static str),
}

/// A value for each direction; None keeps the earlier value.
pub type Each<T> = PerDirection<Option<T>>;

/// The kind of value that an option takes, with the function that stores the value.
pub enum ValueKind {
    /// 0 or 1.
    Bool(fn(&mut Draft, bool)),
    /// 0, 1, or no value at all for 1.
    Flag(fn(&mut Draft, bool)),
    /// A whole number within the bounds.
    Count(u64, u64, fn(&mut Draft, u64)),
    /// A whole number that may be negative.
    Integer(i64, i64, fn(&mut Draft, i64)),
    /// A size of at least this number of bytes.
    Bytes(u64, fn(&mut Draft, u64)),
    /// A size in bytes, or a percentage of the file or device.
    Amount(fn(&mut Draft, Amount)),
    /// A time; bare numbers are in the unit.
    Time(TimeUnit, fn(&mut Draft, u64)),
    /// One time, or a range of two.
    TimeRange(TimeUnit, fn(&mut Draft, (u64, u64))),
    /// One size, or a range of two.
    BytesRange(fn(&mut Draft, (u64, u64))),
    /// Sizes for reads, writes and trims, each of at least this number of bytes.
    EachBytes(u64, fn(&mut Draft, Each<u64>)),
    /// Whole numbers for reads, writes and trims, within the bounds.
    EachCount(u64, u64, fn(&mut Draft, Each<u64>)),
    /// Times for reads, writes and trims.
    EachTime(TimeUnit, fn(&mut Draft, Each<u64>)),
    /// Ranges of bytes for reads, writes and trims.
    EachRange(fn(&mut Draft, Each<(u64, u64)>)),
    /// One of these words, each with its help.
    Word(&'static [(&'static str, &'static str)], fn(&mut Draft, &str)),
    /// Numbers between the bounds, separated by colons.
    Numbers(f64, f64, fn(&mut Draft, Vec<f64>)),
    /// The value is any text.
    Text(fn(&mut Draft, &str)),
    /// Any text or no value.
    OptionalText(fn(&mut Draft, &str)),
    /// A value with a special notation: the form of the notation, the words it starts with, and its parser.
    Custom(
        &'static str,
        &'static [(&'static str, &'static str)],
        fn(&mut Draft, &mut Reader, &str) -> Result<(), String>,
    ),
    /// A value that is not looked at: the option has no effect.
    Opaque,
}

impl ValueKind {
    /// The form of a value in a few words, such as `size[-size]`.
    pub fn form(&self) -> String {
        let bounds = |low: &dyn std::fmt::Display, high: u64| match high {
            u64::MAX => format!("{low} or more"),
            _ => format!("{low} to {high}"),
        };
        match self {
            ValueKind::Bool(_) => "0 or 1".into(),
            ValueKind::Flag(_) => "0, 1 or no value, which is 1".into(),
            ValueKind::Count(low, high, _) => format!("number, {}", bounds(low, *high)),
            ValueKind::Integer(low, high, _) => format!("number, {low} to {high}"),
            ValueKind::Bytes(..) => "size".into(),
            ValueKind::Amount(_) => "size or percent".into(),
            ValueKind::Time(unit, _) => format!("time, {} if bare", unit.name()),
            ValueKind::TimeRange(unit, _) => format!("time[-time], {} if bare", unit.name()),
            ValueKind::BytesRange(_) => "size[-size]".into(),
            ValueKind::EachBytes(..) => "size[,size[,size]]: reads, writes, trims".into(),
            ValueKind::EachCount(low, high, _) => {
                format!("number[,number[,number]]: reads, writes, trims; {}", bounds(low, *high))
            }
            ValueKind::EachTime(unit, _) => {
                format!("time[,time[,time]]: reads, writes, trims; {} if bare", unit.name())
            }
            ValueKind::EachRange(_) => "size-size[,size-size[,size-size]]: reads, writes, trims".into(),
            ValueKind::Word(..) => "word".into(),
            ValueKind::Numbers(low, high, _) => format!("number[:number...], {low} to {high}"),
            ValueKind::Text(_) => "text".into(),
            ValueKind::OptionalText(_) => "text or no value".into(),
            ValueKind::Custom(form, ..) => (*form).into(),
            ValueKind::Opaque => "any".into(),
        }
    }

    /// The words that a value is or starts with, each with its help.
    pub fn words(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            ValueKind::Word(words, _) | ValueKind::Custom(_, words, _) => words,
            ValueKind::Bool(_) | ValueKind::Flag(_) => &[("0", ""), ("1", "")],
            _ => &[],
        }
    }
}

impl OptionSpec {
    const fn new(name: &'static str, kind: ValueKind, default: &'static str, help: &'static str) -> OptionSpec {
        OptionSpec { name, aliases: &[], kind, default, help, status: Status::Supported }
    }

    const fn aliases(mut self, aliases: &'static [&'static str]) -> OptionSpec {
        self.aliases = aliases;
        self
    }

    const fn no_effect(mut self, reason: &'static str) -> OptionSpec {
        self.status = Status::NoEffect(reason);
        self
    }

    /// An option of fio's that is refused.
    const fn unsupported(
        name: &'static str,
        default: &'static str,
        help: &'static str,
        reason: &'static str,
    ) -> OptionSpec {
        OptionSpec { name, aliases: &[], kind: ValueKind::Opaque, default, help, status: Status::Unsupported(reason) }
    }

    /// Names of the engines that take the option; empty if all engines take it.
    pub fn engines(&self) -> Vec<&'static str> {
        crate::engines::with_option(self.name)
    }

    /// True if the option may stand without a value.
    pub fn value_is_optional(&self) -> bool {
        matches!(self.kind, ValueKind::Flag(_) | ValueKind::OptionalText(_) | ValueKind::Opaque)
    }

    /// Name and aliases of the option.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

/// All options, group by group.
pub fn all() -> impl Iterator<Item = &'static OptionSpec> {
    TABLE.iter().flat_map(|group| group.options)
}

/// The option of that name or alias.
pub fn find(name: &str) -> Option<&'static OptionSpec> {
    all().find(|option| option.names().any(|known| known == name))
}

/// The known name closest to `name`, if one is close enough to be meant.
pub fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    let limit = 1 + length / 4;
    // Known names are ASCII. A name whose length differs by more than the limit is further away than the limit.
    let known = known.filter(|known| known.len().abs_diff(length) <= limit);
    known
        .map(|known| (strsim::osa_distance(name, known), known))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, known)| known)
}

/// The message about a word that is not in the list.
pub(crate) fn not_one_of(word: &str, words: &[(&str, &str)]) -> String {
    let names = || words.iter().map(|(name, _)| *name);
    match did_you_mean(word, names()) {
        Some(meant) => format!("\"{word}\" is not known; did you mean {meant}?"),
        None => format!("\"{word}\" is not one of {}", names().collect::<Vec<_>>().join(", ")),
    }
}
