//! The settings of a section, taken into a draft one by one.

use super::Draft;
use super::value::apply;
use crate::error::{Error, Place};
use crate::options::{Reader, Status};
use crate::source::{Section, Setting};

impl Draft {
    /// Applies the settings of the section. `kb_base` and its like go first: they decide how the other settings are
    /// read, or name what Plimsoll lacks better than an option that goes with them.
    pub(super) fn take(&mut self, section: &Section) -> Result<(), Error> {
        self.section = section.place.clone();
        // fio reads a command line in its order, and sorts the options of job files only.
        let in_turn = self.lenient && section.place == Place::CommandLine;
        let early = |setting: &&Setting| match setting.option.name {
            "kb_base" => !in_turn,
            name => matches!(name, "unit_base" | "ioengine" | "zonemode" | "zonesize"),
        };
        let settings = &section.settings;
        let mut in_order = settings.iter().filter(early).chain(settings.iter().filter(|setting| !early(setting)));
        let earlier_names = self.job.files.names.clone();
        // If Plimsoll does not have the engine, the error names the engine, not one of its options.
        in_order
            .try_for_each(|setting| self.set(setting))
            .map_err(|error| self.known_engine().err().unwrap_or(error))?;
        if self.lenient {
            self.place_files(earlier_names.len());
        } else if !earlier_names.is_empty() && self.job.files.names != earlier_names {
            let earlier = earlier_names.join(":");
            self.warn_at("filename", format!("filename replaces {earlier} of an earlier section; fio uses both"));
        }
        Ok(())
    }

    pub(super) fn set(&mut self, setting: &Setting) -> Result<(), Error> {
        let option = setting.option;
        let value = setting.value.as_deref().map(str::trim);
        match option.status {
            Status::Supported => self.set_supported(setting, value)?,
            Status::NoEffect(reason) => {
                if value != Some(option.default) {
                    self.warn(&setting.place, format!("{} has no effect: {reason}", setting.written()));
                }
                self.set_supported(setting, value)?;
            }
            Status::Unsupported(reason) => {
                if value != Some(option.default) || option.default.is_empty() {
                    return Err(
                        Error::new(&setting.place, format!("unsupported option {}", setting.written())).hint(reason)
                    );
                }
            }
        }
        self.set.insert(option.name, (setting.clone(), self.own));
        Ok(())
    }

    /// Sets an option last, whatever the job says.
    pub(super) fn impose(&mut self, name: &str, value: &str) -> Result<(), Error> {
        match crate::options::find(name) {
            Some(option) => self.set(&Setting { option, value: Some(value.into()), place: Place::CommandLine }),
            None => Ok(()),
        }
    }

    fn set_supported(&mut self, setting: &Setting, value: Option<&str>) -> Result<(), Error> {
        let fresh = Reader::new(self.job.reporting.kb_base);
        let mut reader = Reader { lenient: self.lenient, zone_bytes: self.zones.size, ..fresh };
        let wrong = |message: String| Error::new(&setting.place, format!("{}: {message}", setting.written()));
        apply(self, &mut reader, setting.option, value).map_err(wrong)?;
        for difference in reader.differences {
            self.warn(&setting.place, format!("{}: {difference}", setting.option.name));
        }
        Ok(())
    }

    /// Puts the directory that holds in the present section before the names that the section gives, as fio does: a
    /// `directory` of a later section is for the names of that section.
    fn place_files(&mut self, first: usize) {
        let files = &mut self.job.files;
        files.are_placed = true;
        if let Some(directory) = files.directories.first() {
            let directory = directory.trim_end_matches('/');
            files.names[first..].iter_mut().for_each(|name| *name = format!("{directory}/{name}"));
        }
    }
}
