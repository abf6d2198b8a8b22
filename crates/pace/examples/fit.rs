//! Fits the profiles of the published machines on the first half of the published rows, and writes them into this
//! crate: `cargo run --release -p pace --example fit`. It starts at profiles/start/. The same program writes the
//! same profiles. It judges them by the other half, and writes data/simulated.json, from which corrections and
//! intervals come, docs/pacing-fit.md and docs/sim-constants.md.
//!
//! With the argument `judge`, it judges the profiles as they are. With `shares`, it prints the shares of rows within
//! 8 % and within 15 %, by kind, and writes nothing.
//!
//! The machines with drives of two kinds are put together from the profiles of either kind.

use std::collections::BTreeMap;
use std::path::Path;

use pace::Error;
use pace::sim::Machine;
use pace::sim::fit::{self, OF_CACHE, OF_DRIVES, OF_MACHINE, OF_MANY_CORES, Parameter, Row};

type Any = Box<dyn std::error::Error>;

/// In the order in which `fit_all` makes them.
const PROFILES: [&str; 4] = ["intel-12-samsung-4", "samsung-12-intel-4", "intel-16", "samsung-16"];
const ROUNDS: u32 = 1;
const THREADS: usize = 2;

const CONSTANTS: &str = "# The constants of the simulated machines\n\n\
Written by `cargo run --release -p pace --example fit judge`. The search begins at the start and looks at the first\n\
half of the rows alone. The last column is the change of a kind's throughput, averaged over its rows: a constant that\n\
moves no kind cannot be told by the rows, and two that move the same kinds in the same way cannot be told apart. The\n\
number of `drives.channels` is fitted, too, by reads of 4k to 16k and reads of 128k out of buffers. The memory path of\n\
intel-16 with few cores is that of the profile before, and so is `queue_depth`:\n\
SPDK's and Linux's queues have 128 entries, of which\n\
one stays free.\n";

fn main() -> Result<(), Any> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    match std::env::args().nth(1).as_deref() {
        None => fit_all(folder),
        Some("judge") => judge(folder, &shipped()?),
        Some("shares") => {
            let compared = fit::compare_among(&shipped()?, &fit::all_rows(), THREADS)?;
            let measured = fit::measured(&compared)?;
            println!("Rows that the fit looked at:\n\n{}", fit::shares(&measured, true));
            println!("Rows that it did not look at:\n\n{}", fit::shares(&measured, false));
            Ok(())
        }
        Some(other) => Err(format!("{other}: expected judge, shares or nothing").into()),
    }
}

/// The machines of the profiles as they are in this program.
fn shipped() -> Result<BTreeMap<String, Machine>, Error> {
    PROFILES.into_iter().map(|name| Ok((name.to_string(), Machine::shipped(name)?))).collect()
}

fn fit_all(folder: &Path) -> Result<(), Any> {
    let profiles = folder.join("profiles");
    let start = |name: &str| -> Result<Machine, Any> {
        Ok(toml::from_str(&std::fs::read_to_string(profiles.join("start").join(name))?)?)
    };
    let rows = fit::all_rows();
    let intel = fitted(&start("intel-16.toml")?, &rows, "intel-16", &[OF_MACHINE, OF_DRIVES, OF_MANY_CORES])?;
    // The same target with other drives: fabric, cores and initiators stay.
    let own = start("samsung-16.toml")?;
    let samsung = Machine { about: own.about, drives: own.drives, cache: own.cache, ..intel.clone() };
    let samsung = fitted(&samsung, &rows, "samsung-16", &[OF_DRIVES, OF_CACHE, OF_MANY_CORES])?;
    let machines = [
        both(&intel, &samsung, "12 Intel and 4 Samsung drives"),
        both(&samsung, &intel, "12 Samsung and 4 Intel drives"),
        intel,
        samsung,
    ];
    let machines: BTreeMap<String, Machine> = PROFILES.into_iter().map(String::from).zip(machines).collect();
    for (name, machine) in &machines {
        std::fs::write(profiles.join(format!("{name}.toml")), toml::to_string(machine)?)?;
    }
    judge(folder, &machines)
}

fn fitted(start: &Machine, rows: &[Row], profile: &str, sets: &[&'static [Parameter]]) -> Result<Machine, Error> {
    let rows: Vec<Row> = rows.iter().filter(|row| row.profile() == profile).cloned().collect();
    let parameters: Vec<&Parameter> = sets.iter().copied().flatten().collect();
    fit::calibrate(start, &rows, &parameters, ROUNDS, THREADS, &mut |line| eprintln!("{profile}: {line}"))
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

fn judge(folder: &Path, machines: &BTreeMap<String, Machine>) -> Result<(), Any> {
    let compared = fit::compare_among(machines, &fit::all_rows(), THREADS)?;
    std::fs::write(folder.join("data/simulated.json"), serde_json::to_string(&fit::simulated(&compared))? + "\n")?;
    let docs = folder.join("../../docs");
    std::fs::write(docs.join("pacing-fit.md"), fit::markdown(&compared)?)?;
    let parameters: Vec<&Parameter> = [OF_MACHINE, OF_DRIVES, OF_CACHE, OF_MANY_CORES].into_iter().flatten().collect();
    let table = fit::constants("intel-16", &machines["intel-16"], &parameters, THREADS)?;
    std::fs::write(docs.join("sim-constants.md"), format!("{CONSTANTS}{table}"))?;
    Ok(())
}
