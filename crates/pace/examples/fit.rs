//! Fits the profiles of the published machines on the published rows, and writes them into this crate, with the errors
//! that the simulator's intervals come from: `cargo run --release -p pace --example fit`.
//!
//! It starts at profiles/start/. Each profile is fitted three times: on all rows, and on either half of them. The two
//! profiles of halves are judged by the rows of the other half, and these errors are written to data/errors.json. The
//! machines with drives of two kinds are put together from the profiles of either kind: no row of theirs is fitted.

use std::path::Path;

use pace::Error;
use pace::sim::Machine;
use pace::sim::fit::{self, OF_DRIVES, OF_MACHINE, PARTS, Parameter, Part, Row};

const ROUNDS: u32 = 1;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let crate_ = Path::new(env!("CARGO_MANIFEST_DIR"));
    let start = |name: &str| -> Result<Machine, Box<dyn std::error::Error>> {
        Ok(toml::from_str(&std::fs::read_to_string(crate_.join("profiles/start").join(name))?)?)
    };
    let (intel, samsung) = (start("intel-16.toml")?, start("samsung-16.toml")?);
    let rows = fit::all_rows();
    for part in PARTS {
        let intel = fit(&intel, &rows, "intel-16", part, &[OF_MACHINE, OF_DRIVES].concat_refs())?;
        // The same target with other drives: what is not theirs stays.
        let samsung = Machine {
            about: samsung.about.clone(),
            drives: samsung.drives.clone(),
            cache: samsung.cache.clone(),
            ..intel.clone()
        };
        let samsung = fit(&samsung, &rows, "samsung-16", part, &[OF_DRIVES].concat_refs())?;
        let folder = crate_.join("profiles").join(part.folder());
        for (name, machine) in [
            ("intel-12-samsung-4", both(&intel, &samsung, "12 Intel and 4 Samsung drives")),
            ("samsung-12-intel-4", both(&samsung, &intel, "12 Samsung and 4 Intel drives")),
            ("intel-16", intel),
            ("samsung-16", samsung),
        ] {
            std::fs::write(folder.join(format!("{name}.toml")), toml::to_string(&machine)?)?;
        }
    }
    Ok(())
}

trait ConcatRefs {
    fn concat_refs(&self) -> Vec<&'static Parameter>;
}

impl<const N: usize> ConcatRefs for [&'static [Parameter]; N] {
    fn concat_refs(&self) -> Vec<&'static Parameter> {
        self.iter().flat_map(|parameters| parameters.iter()).collect()
    }
}

fn fit(start: &Machine, rows: &[Row], profile: &str, part: Part, parameters: &[&Parameter]) -> Result<Machine, Error> {
    let rows: Vec<Row> = rows.iter().filter(|row| row.profile() == profile).cloned().collect();
    let mut say = |line: String| eprintln!("{profile}, {part:?}: {line}");
    fit::calibrate(start, &rows, part, parameters, ROUNDS, 2, &mut say)
}

/// A machine with 12 drives of `most`, and 4 of `few`.
fn both(most: &Machine, few: &Machine, drives: &str) -> Machine {
    let mut machine = most.clone();
    machine.about = most.about.replace("16 Intel drives", drives).replace("16 Samsung drives", drives);
    machine.drives.count = 12;
    machine.other_drives = vec![few.drives.clone()];
    machine.other_drives[0].count = 4;
    machine
}
