//! What was written, before it means anything: sections of settings, each with its place.

use crate::error::Place;
use crate::options::OptionSpec;

/// `name=value`, or `name` alone.
#[derive(Clone)]
pub struct Setting {
    /// The option.
    pub option: &'static OptionSpec,
    /// The value after variables and keywords were put in; None if there is no `=`.
    pub value: Option<String>,
    /// Where it is.
    pub place: Place,
}

impl Setting {
    /// As it would be written, with the canonical name.
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
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub place: Place,
    /// Its settings in order.
    pub settings: Vec<Setting>,
}

impl Section {
    /// Whether its settings are for all later sections.
    pub fn is_global(&self) -> bool {
        self.name.starts_with("global")
    }
}

/// One job file, or the command line.
#[derive(Clone, Default)]
pub struct Source {
    /// Its sections in order.
    pub sections: Vec<Section>,
    /// What the writer is likely misled about.
    pub warnings: Vec<String>,
}
