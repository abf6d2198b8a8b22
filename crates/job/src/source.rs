//! The text of a job file or command line, before it means anything: sections of settings, each with its place.

use crate::error::Place;
use crate::options::OptionSpec;

/// One setting of an option: `name=value`, or `name` alone.
#[derive(Clone)]
pub struct Setting {
    /// The option that is set.
    pub option: &'static OptionSpec,
    /// The value after variables and keywords were put in; None if there is no `=`.
    pub value: Option<String>,
    /// File and line of the setting, or the command line.
    pub place: Place,
}

impl Setting {
    /// The setting as it would be written, with the canonical name.
    pub fn written(&self) -> String {
        match &self.value {
            Some(value) => format!("{}={value}", self.option.name),
            None => self.option.name.to_string(),
        }
    }
}

/// A section of a job file, or the options after one `--name`.
#[derive(Clone)]
pub struct Section {
    /// Name of the section.
    pub name: String,
    /// Place at which the section begins.
    pub place: Place,
    /// Settings of the section, in order.
    pub settings: Vec<Setting>,
}

impl Section {
    /// True if the section's settings hold for all later sections.
    pub fn is_global(&self) -> bool {
        self.name.starts_with("global")
    }
}

/// One job file, or the command line.
#[derive(Clone, Default)]
pub struct Source {
    /// Sections of the source, in order.
    pub sections: Vec<Section>,
    /// Points that are likely to mislead the writer.
    pub warnings: Vec<String>,
}
